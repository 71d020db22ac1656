//! Strings of the server: the arguments of a command, and names that this module makes.

use std::marker::PhantomData;
use std::slice;

use redis_module::raw::{RedisModuleCtx, RedisModuleString};

use super::{Context, api};

/// A string of the server, borrowed for the duration of the call, such as an argument.
#[derive(Clone, Copy)]
pub(crate) struct ServerStr<'a> {
    pub(super) raw: *mut RedisModuleString,
    call: PhantomData<&'a ()>,
}

impl<'a> ServerStr<'a> {
    #[inline(always)]
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        // SAFETY: the server keeps its arguments alive and unchanged until the command returns, which
        // 'a does not outlive.
        unsafe { bytes(self.raw) }
    }
}

/// # Safety
/// `raw` must be a string of the server that outlives the result unchanged.
#[inline(always)]
pub(super) unsafe fn bytes<'a>(raw: *mut RedisModuleString) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: promised by the caller; the pointer is never null, even for an empty string.
    unsafe {
        let bytes = api!(RedisModule_StringPtrLen)(raw, &mut len);
        slice::from_raw_parts(bytes.cast(), len)
    }
}

/// A string of the server that this module made, such as the name of a key. Freed when dropped.
pub(crate) struct ServerString {
    raw: *mut RedisModuleString,
    ctx: *mut RedisModuleCtx,
}

impl ServerString {
    pub(crate) fn new(ctx: &Context, bytes: &[u8]) -> Self {
        // SAFETY: the context is valid; the server copies the bytes.
        let raw =
            unsafe { api!(RedisModule_CreateString)(ctx.raw, bytes.as_ptr().cast(), bytes.len()) };
        Self { raw, ctx: ctx.raw }
    }

    pub(crate) fn borrow(&self) -> ServerStr<'_> {
        ServerStr {
            raw: self.raw,
            call: PhantomData,
        }
    }
}

impl Drop for ServerString {
    fn drop(&mut self) {
        // SAFETY: made once, freed once, within the call that the context belongs to; anyone else who needs the
        // string holds a reference of its own.
        unsafe { api!(RedisModule_FreeString)(self.ctx, self.raw) };
    }
}

/// All arguments of a call, the command's name first.
#[derive(Clone, Copy)]
pub(crate) struct Args<'a> {
    argv: &'a [*mut RedisModuleString],
}

impl<'a> Args<'a> {
    /// # Safety
    /// `argv` and `argc` must be those that the server passed to the command, and `'a` must end with it.
    pub(super) unsafe fn new(argv: *mut *mut RedisModuleString, argc: i32) -> Self {
        // SAFETY: promised by the caller; a command has at least its name.
        let argv = unsafe { slice::from_raw_parts(argv, usize::try_from(argc).unwrap_or(0)) };
        Self { argv }
    }

    pub(crate) fn len(self) -> usize {
        self.argv.len()
    }

    /// The argument at `position`; the caller has checked [`Args::len`].
    pub(crate) fn get(self, position: usize) -> ServerStr<'a> {
        ServerStr {
            raw: self.argv[position],
            call: PhantomData,
        }
    }

    /// The arguments from `position` on, as bytes.
    pub(crate) fn from(self, position: usize) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let argv = self.argv.get(position..).unwrap_or_default();
        argv.iter().map(|&raw| {
            ServerStr {
                raw,
                call: PhantomData,
            }
            .as_bytes()
        })
    }
}
