//! Policies in the RDB, ahead of the keys.

use std::ffi::c_int;

use redis_module::raw::*;
use rl_core::Error;

use super::datatype::{check_version, load_bytes, refuse, save_bytes};
use super::{Context, api, c_line, shield};
use crate::registry;

/// Of the policies' bytes: a version, then JSON.
const VERSION: u64 = 1;

/// In place of JSON where there is nothing to say; 6.2 looks at the first byte even of an empty string.
const NOTHING: &[u8] = b"nothing";

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
        let json = registry::is_worth_saving().then(|| {
            // SAFETY: the server passes a valid `io`, from which a context may be had while it saves.
            let ctx = unsafe { Context::new(api!(RedisModule_GetContextFromIO)(io)) };
            registry::dump(&ctx)
        });
        // SAFETY: as above.
        unsafe { api!(RedisModule_SaveUnsigned)(io, VERSION) };
        save_bytes(io, json.as_ref().map_or(NOTHING, |json| json.as_bytes()));
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
    // SAFETY: `io` is valid during the load, and a context may be had from it.
    let (version, failed, ctx) = unsafe {
        let version = api!(RedisModule_LoadUnsigned)(io);
        let failed = api!(RedisModule_IsIOError)(io) != 0;
        (
            version,
            failed,
            Context::new(api!(RedisModule_GetContextFromIO)(io)),
        )
    };
    if failed || version == 0 {
        return Err(Error::DamagedState);
    }
    if version > VERSION {
        return Err(Error::NewerState);
    }
    load_bytes(io, |bytes| match bytes {
        // From a server that had none, and was not started with any.
        NOTHING => Ok(()),
        json => registry::load(&ctx, json).map(|_| ()),
    })
}

fn log(io: *mut RedisModuleIO, line: &[u8; 160]) {
    // SAFETY: `io` is valid during the load; "%s" takes exactly one C string.
    unsafe {
        api!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), line.as_ptr());
    }
}
