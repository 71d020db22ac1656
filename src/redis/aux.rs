//! Policies in the RDB, ahead of the keys.

use std::ffi::{c_char, c_int};
use std::slice;

use redis_module::raw::*;
use rl_core::Error;

use super::datatype::{check_version, refuse};
use super::{Context, api, c_line, shield};
use crate::registry;

/// Of the policies' bytes: a version, then JSON.
const VERSION: u64 = 1;

/// In place of JSON where there is nothing to say; 6.2 looks at the first byte even of an empty string.
const NOTHING: &str = "nothing";

/// Adds what saves and loads the policies to a data type's methods.
pub(super) fn add(methods: &mut RedisModuleTypeMethods) {
    methods.aux_load = Some(load);
    methods.aux_save = Some(save);
    // Where the server has it, it is used in place of the other: a file without policies then needs no module.
    methods.aux_save2 = Some(save_if_any);
    methods.aux_save_triggers = REDISMODULE_AUX_BEFORE_RDB as c_int;
}

unsafe extern "C" fn save(io: *mut RedisModuleIO, _when: c_int) {
    shield((), || {
        // SAFETY: the server passes a valid `io`, from which a context may be had while it saves; it copies
        // the bytes.
        unsafe {
            let ctx = Context::new(api!(RedisModule_GetContextFromIO)(io));
            let json = match registry::is_worth_saving() {
                true => registry::dump(&ctx),
                false => NOTHING.to_owned(),
            };
            api!(RedisModule_SaveUnsigned)(io, VERSION);
            api!(RedisModule_SaveStringBuffer)(io, json.as_ptr().cast(), json.len());
        }
    });
}

unsafe extern "C" fn save_if_any(io: *mut RedisModuleIO, when: c_int) {
    if registry::is_worth_saving() {
        // SAFETY: called as the server called this.
        unsafe { save(io, when) };
    }
}

unsafe extern "C" fn load(io: *mut RedisModuleIO, encver: c_int, _when: c_int) -> c_int {
    const REFUSED: c_int = REDISMODULE_ERR as c_int;
    shield(REFUSED, || {
        match check_version(encver).and_then(|()| read(io)) {
            Ok(Ok(())) => REDISMODULE_OK as c_int,
            Ok(Err(why)) => {
                let line = c_line(&["rl: damaged policies: ", &why]);
                log(io, &line);
                REFUSED
            }
            Err(error) => {
                refuse::<()>(io, error);
                REFUSED
            }
        }
    })
}

fn read(io: *mut RedisModuleIO) -> Result<Result<(), String>, Error> {
    let mut len = 0;
    // SAFETY: `io` is valid during the load; the buffer is ours to free, and null where reading failed.
    unsafe {
        let version = api!(RedisModule_LoadUnsigned)(io);
        if api!(RedisModule_IsIOError)(io) != 0 || version == 0 {
            return Err(Error::DamagedState);
        }
        if version > VERSION {
            return Err(Error::NewerState);
        }
        let bytes: *mut c_char = api!(RedisModule_LoadStringBuffer)(io, &mut len);
        if bytes.is_null() {
            return Err(Error::DamagedState);
        }
        let ctx = Context::new(api!(RedisModule_GetContextFromIO)(io));
        let loaded = match slice::from_raw_parts(bytes.cast(), len) {
            // From a server that had none, and was not started with any.
            bytes if bytes == NOTHING.as_bytes() => Ok(0),
            json => registry::load(&ctx, json),
        };
        api!(RedisModule_Free)(bytes.cast());
        Ok(loaded.map(|_| ()))
    }
}

fn log(io: *mut RedisModuleIO, line: &[u8; 160]) {
    // SAFETY: `io` is valid during the load; "%s" takes exactly one C string.
    unsafe {
        api!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), line.as_ptr());
    }
}
