//! The data type of overrides, and how many values of it the server holds.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use redis_module::raw::*;
use rl_core::Error;
use rl_core::overrides::Overrides;

use super::datatype::{
    check_version, digest_blob, emit_load, load_bytes, no_methods, refuse, save_bytes,
};
use super::{Context, api, shield};

static KIND: AtomicPtr<RedisModuleType> = AtomicPtr::new(ptr::null_mut());

/// Values are made on the server's thread and freed on any.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// How many keys of this server have overrides. While it is 0, no check looks for one.
#[inline]
pub(crate) fn overrides_held() -> usize {
    HELD.load(Relaxed)
}

const VERSION: c_int = 1;

pub(super) fn create(ctx: &Context) -> Result<(), Error> {
    let mut methods = RedisModuleTypeMethods {
        rdb_load: Some(rdb_load),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        copy: Some(copy),
        ..no_methods()
    };
    // SAFETY: the context is valid, the name static; the server copies the methods.
    let created = unsafe {
        let name = c"rl-overrd".as_ptr();
        api!(RedisModule_CreateDataType)(ctx.raw, name, VERSION, &mut methods)
    };
    if created.is_null() {
        return Err(Error::Internal);
    }
    KIND.store(created, Relaxed);
    Ok(())
}

pub(super) fn kind() -> *mut RedisModuleType {
    KIND.load(Relaxed)
}

/// A value as the server holds it.
pub(super) fn to_raw(overrides: Overrides) -> *mut c_void {
    HELD.fetch_add(1, Relaxed);
    Box::into_raw(Box::new(overrides)).cast()
}

/// # Safety
/// `raw` must come from [`to_raw`], and must not be freed as long as the result is used.
pub(super) unsafe fn from_raw<'a>(raw: *const c_void) -> &'a Overrides {
    // SAFETY: promised by the caller.
    unsafe { &*raw.cast() }
}

/// # Safety
/// `raw` must come from [`to_raw`], and is not used again.
pub(super) unsafe fn drop_raw(raw: *mut c_void) {
    // SAFETY: promised by the caller.
    drop(unsafe { Box::from_raw(raw.cast::<Overrides>()) });
    HELD.fetch_sub(1, Relaxed);
}

unsafe extern "C" fn rdb_load(io: *mut RedisModuleIO, encver: c_int) -> *mut c_void {
    shield(ptr::null_mut(), || {
        match check_version(encver).and_then(|()| load_bytes(io, Overrides::decode_blob)?) {
            Ok(overrides) => to_raw(overrides),
            Err(error) => refuse(io, error),
        }
    })
}

unsafe extern "C" fn rdb_save(io: *mut RedisModuleIO, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        save_bytes(io, &unsafe { from_raw(value) }.blob());
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    value: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let overrides = unsafe { from_raw(value) };
        emit_load(io, key, overrides.expire_at_ms(), &overrides.blob());
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    shield(0, || {
        // SAFETY: the server passes a value of ours, allocated by its allocator.
        unsafe { api!(RedisModule_MallocSize)(value.cast_mut()) + from_raw(value).heap_bytes() }
    })
}

unsafe extern "C" fn digest(digest: *mut RedisModuleDigest, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        digest_blob(digest, &unsafe { from_raw(value) }.blob());
    });
}

unsafe extern "C" fn free(value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours and forgets it.
        unsafe { drop_raw(value) };
    });
}

unsafe extern "C" fn copy(
    _from: *mut RedisModuleString,
    _to: *mut RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        to_raw(unsafe { from_raw(value) }.clone())
    })
}
