//! Settings as the server's CONFIG knows them (7.0 and later).

use std::ffi::{CString, c_char, c_int, c_longlong, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::{self, *};
use rl_core::Error;

use super::{Context, api, shield};
use crate::eyes;
use crate::settings::{AUDIT_STREAM, Number, Settings};

/// A CONFIG command that concerns us.
pub(crate) struct Setting(());

/// Registers every setting with the value that it has unless CONFIG says otherwise, and takes over what
/// CONFIG says.
pub(crate) fn register_settings(ctx: &Context, settings: &Settings) -> Result<(), Error> {
    // SAFETY: plain reads of function pointers that the server set at load.
    let (number, text, load) = unsafe {
        match (
            raw::RedisModule_RegisterNumericConfig,
            raw::RedisModule_RegisterStringConfig,
            raw::RedisModule_LoadConfigs,
        ) {
            (Some(number), Some(text), Some(load)) => (number, text, load),
            _ => return Ok(()),
        }
    };
    let flags = REDISMODULE_CONFIG_DEFAULT;
    let stream = CString::new(settings.audit_stream.clone()).map_err(|_| Error::Internal)?;
    // SAFETY: the context is valid during the load; names are static and the server copies them and the
    // default; the functions live as long as the module.
    let registered = unsafe {
        Number::ALL.into_iter().all(|which| {
            let range = which.range();
            number(
                ctx.raw,
                which.name().as_ptr(),
                settings.number(which),
                flags,
                *range.start(),
                *range.end(),
                Some(get_number),
                Some(set_number),
                None,
                ptr::without_provenance_mut(which as usize),
            ) == REDISMODULE_OK as c_int
        }) && text(
            ctx.raw,
            AUDIT_STREAM.as_ptr(),
            stream.as_ptr(),
            flags,
            Some(get_stream),
            Some(set_stream),
            None,
            ptr::null_mut(),
        ) == REDISMODULE_OK as c_int
            && load(ctx.raw) == REDISMODULE_OK as c_int
    };
    registered.then_some(()).ok_or(Error::Internal)
}

fn which(place: *mut c_void) -> Number {
    Number::ALL[place.addr()]
}

unsafe extern "C" fn get_number(_name: *const c_char, place: *mut c_void) -> c_longlong {
    shield(0, || eyes::settings(&Setting(())).number(which(place)))
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    place: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    shield(REDISMODULE_ERR as c_int, || {
        let mut settings = eyes::settings(&Setting(()));
        settings.set(which(place), value);
        eyes::change(&Setting(()), settings);
        REDISMODULE_OK as c_int
    })
}

/// The server reads the string and leaves it to us: it is freed at the next reading.
unsafe extern "C" fn get_stream(_name: *const c_char, _: *mut c_void) -> *mut RedisModuleString {
    static LAST: AtomicPtr<RedisModuleString> = AtomicPtr::new(ptr::null_mut());
    shield(ptr::null_mut(), || {
        let stream = eyes::settings(&Setting(())).audit_stream;
        // SAFETY: the server copies the bytes; the string before was ours, and nobody reads it any more.
        unsafe {
            let new = api!(RedisModule_CreateString)(
                ptr::null_mut(),
                stream.as_ptr().cast(),
                stream.len(),
            );
            let old = LAST.swap(new, Relaxed);
            if !old.is_null() {
                api!(RedisModule_FreeString)(ptr::null_mut(), old);
            }
            new
        }
    })
}

unsafe extern "C" fn set_stream(
    _name: *const c_char,
    value: *mut RedisModuleString,
    _: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    shield(REDISMODULE_ERR as c_int, || {
        let mut len = 0;
        // SAFETY: the server passes a string that is valid during the call.
        let value = unsafe {
            let bytes = api!(RedisModule_StringPtrLen)(value, &mut len);
            slice::from_raw_parts(bytes.cast::<u8>(), len)
        };
        let mut settings = eyes::settings(&Setting(()));
        settings.audit_stream = value.to_vec();
        eyes::change(&Setting(()), settings);
        REDISMODULE_OK as c_int
    })
}
