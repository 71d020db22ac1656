//! Where the callbacks of a data type read from and write to.

use std::ffi::c_char;
use std::slice;

use redis_module::raw::*;
use rl_core::Error;

use super::{Context, api, c_line};

/// A file or payload that the server reads or writes, valid during one callback.
pub(super) struct Io {
    raw: *mut RedisModuleIO,
}

impl Io {
    /// # Safety
    /// `raw` must be what the server passed to a callback, and the result must not outlive the call.
    pub(super) unsafe fn new(raw: *mut RedisModuleIO) -> Self {
        Self { raw }
    }

    pub(super) fn load_number(&mut self) -> Result<u64, Error> {
        // SAFETY: `io` is valid; IsIOError reports whether the number was read.
        unsafe {
            let number = api!(RedisModule_LoadUnsigned)(self.raw);
            match api!(RedisModule_IsIOError)(self.raw) {
                0 => Ok(number),
                _ => Err(Error::DamagedState),
            }
        }
    }

    pub(super) fn save_number(&mut self, number: u64) {
        // SAFETY: `io` is valid.
        unsafe { api!(RedisModule_SaveUnsigned)(self.raw, number) };
    }

    /// Reads one string and decodes it.
    pub(super) fn load_bytes<T>(&mut self, decode: impl FnOnce(&[u8]) -> T) -> Result<T, Error> {
        let mut len = 0;
        // SAFETY: `io` is valid; the buffer is ours to free, and null if reading failed.
        unsafe {
            let bytes: *mut c_char = api!(RedisModule_LoadStringBuffer)(self.raw, &mut len);
            if bytes.is_null() {
                return Err(Error::DamagedState);
            }
            let decoded = decode(slice::from_raw_parts(bytes.cast(), len));
            api!(RedisModule_Free)(bytes.cast());
            Ok(decoded)
        }
    }

    pub(super) fn save_bytes(&mut self, bytes: &[u8]) {
        // SAFETY: `io` is valid; the server copies the bytes.
        unsafe { api!(RedisModule_SaveStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len()) };
    }

    pub(super) fn context(&self) -> Context {
        // SAFETY: `io` is valid, and its context as long as it is.
        unsafe { Context::new(api!(RedisModule_GetContextFromIO)(self.raw)) }
    }
}

/// The digest of a value, as DEBUG DIGEST-VALUE computes it.
pub(super) struct Digest {
    raw: *mut RedisModuleDigest,
}

impl Digest {
    /// # Safety
    /// `raw` must be what the server passed to a callback, and the result must not outlive the call.
    pub(super) unsafe fn new(raw: *mut RedisModuleDigest) -> Self {
        Self { raw }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        // SAFETY: the digest is valid during the callback; the server only reads the bytes.
        unsafe {
            api!(RedisModule_DigestAddStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len());
        }
    }
}

/// Logs why the server has to refuse what it is loading.
pub(super) fn log_refusal(io: *mut RedisModuleIO, parts: &[&str]) {
    let line = c_line(parts);
    // SAFETY: `io` is valid during the load; "%s" takes exactly one C string.
    unsafe {
        api!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), line.as_ptr());
    }
}
