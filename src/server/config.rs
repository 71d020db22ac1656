//! Settings as the server's CONFIG knows them (7.0 and later).

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ops::RangeInclusive;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::{self, *};
use rl_core::Error;

use super::{Context, api, catch_panic, string};

/// Proof of being called by a CONFIG command, or while the module is loaded.
pub(crate) struct ConfigAccess(());

impl ConfigAccess {
    pub(crate) fn at_load(_ctx: &Context) -> Self {
        Self(())
    }
}

/// A setting that is a number.
pub(crate) struct NumericConfig {
    pub(crate) name: &'static CStr,
    pub(crate) range: RangeInclusive<i64>,
    pub(crate) default: i64,
}

/// The values of all settings.
pub(crate) trait Settings: 'static {
    const NUMBERS: &'static [NumericConfig];
    /// The one setting that is a text.
    const TEXT: &'static CStr;

    fn number(access: &ConfigAccess, index: usize) -> i64;
    fn set_number(access: &ConfigAccess, index: usize, value: i64);
    fn text(access: &ConfigAccess) -> Vec<u8>;
    fn set_text(access: &ConfigAccess, value: &[u8]);
}

/// Registers every setting with its current value as the default, and applies what the server's configuration sets.
pub(crate) fn register_settings<S: Settings>(ctx: &Context) -> Result<(), Error> {
    // SAFETY: plain reads of function pointers that the server set at load.
    let (register_number, register_text, load) = unsafe {
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
    let access = ConfigAccess::at_load(ctx);
    let text = CString::new(S::text(&access)).map_err(|_| Error::Internal)?;
    // SAFETY: the context is valid during the load; names are static and the server copies them and the
    // default; the functions live as long as the module.
    let registered = unsafe {
        S::NUMBERS.iter().enumerate().all(|(index, setting)| {
            register_number(
                ctx.raw,
                setting.name.as_ptr(),
                S::number(&access, index),
                flags,
                *setting.range.start(),
                *setting.range.end(),
                Some(get_number::<S>),
                Some(set_number::<S>),
                None,
                ptr::without_provenance_mut(index),
            ) == REDISMODULE_OK as c_int
        }) && register_text(
            ctx.raw,
            S::TEXT.as_ptr(),
            text.as_ptr(),
            flags,
            Some(get_text::<S>),
            Some(set_text::<S>),
            None,
            ptr::null_mut(),
        ) == REDISMODULE_OK as c_int
            && load(ctx.raw) == REDISMODULE_OK as c_int
    };
    registered.then_some(()).ok_or(Error::Internal)
}

unsafe extern "C" fn get_number<S: Settings>(
    _name: *const c_char,
    index: *mut c_void,
) -> c_longlong {
    catch_panic(0, || S::number(&ConfigAccess(()), index.addr()))
}

unsafe extern "C" fn set_number<S: Settings>(
    _name: *const c_char,
    value: c_longlong,
    index: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    catch_panic(REDISMODULE_ERR as c_int, || {
        S::set_number(&ConfigAccess(()), index.addr(), value);
        REDISMODULE_OK as c_int
    })
}

/// The server reads the string but does not free it: it is freed when the setting is next read.
unsafe extern "C" fn get_text<S: Settings>(
    _name: *const c_char,
    _: *mut c_void,
) -> *mut RedisModuleString {
    static LAST: AtomicPtr<RedisModuleString> = AtomicPtr::new(ptr::null_mut());
    catch_panic(ptr::null_mut(), || {
        let text = S::text(&ConfigAccess(()));
        // SAFETY: the server copies the bytes; the string before was ours, and nobody reads it any more.
        unsafe {
            let new =
                api!(RedisModule_CreateString)(ptr::null_mut(), text.as_ptr().cast(), text.len());
            let old = LAST.swap(new, Relaxed);
            if !old.is_null() {
                api!(RedisModule_FreeString)(ptr::null_mut(), old);
            }
            new
        }
    })
}

unsafe extern "C" fn set_text<S: Settings>(
    _name: *const c_char,
    value: *mut RedisModuleString,
    _: *mut c_void,
    _error: *mut *mut RedisModuleString,
) -> c_int {
    catch_panic(REDISMODULE_ERR as c_int, || {
        // SAFETY: the server passes a string that is valid during the call.
        S::set_text(&ConfigAccess(()), unsafe { string::bytes(value) });
        REDISMODULE_OK as c_int
    })
}
