//! Policies in snapshots.
//!
//! In an RDB, they come before the keys. An AOF that is rewritten without an RDB can contain nothing but keys: the
//! child process that writes it adds a marker key to its own copy of the dataset, which is written as
//! `RL.POLICY LOAD`. The server itself never has such a key.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use redis_module::raw::*;
use rl_core::Error;

use super::datatype::{check_encoding, no_methods, policy_marker_type};
use super::io::{Io, log_refusal};
use super::{Context, Handlers, Key, ServerString, api, catch_panic};

/// The version of the policies' bytes, which are followed by JSON.
const VERSION: u64 = 1;

/// Saved instead of JSON if there is nothing to save: 6.2 reads the first byte even of an empty string.
const NOTHING: &[u8] = b"nothing";

/// Adds the callbacks that save and load the policies to those of a data type.
pub(super) fn add_methods<H: Handlers>(methods: &mut RedisModuleTypeMethods) {
    methods.aux_load = Some(load::<H>);
    methods.aux_save = Some(save::<H>);
    // Servers that know this callback use it instead: a file without policies then loads without the module.
    methods.aux_save2 = Some(save_if_any::<H>);
    methods.aux_save_triggers = REDISMODULE_AUX_BEFORE_RDB as c_int;
}

unsafe extern "C" fn save<H: Handlers>(io: *mut RedisModuleIO, _when: c_int) {
    catch_panic((), || {
        remove_marker();
        // SAFETY: the server passes a valid `io`.
        let mut io = unsafe { Io::new(io) };
        let json = H::must_save_policies().then(|| H::dump_policies(&io.context()));
        io.save_number(VERSION);
        io.save_bytes(json.as_ref().map_or(NOTHING, |json| json.as_bytes()));
    });
}

unsafe extern "C" fn save_if_any<H: Handlers>(io: *mut RedisModuleIO, when: c_int) {
    catch_panic((), remove_marker);
    if H::must_save_policies() {
        // SAFETY: called as the server called this.
        unsafe { save::<H>(io, when) };
    }
}

unsafe extern "C" fn load<H: Handlers>(
    io: *mut RedisModuleIO,
    encver: c_int,
    _when: c_int,
) -> c_int {
    const REFUSED: c_int = REDISMODULE_ERR as c_int;
    catch_panic(REFUSED, || {
        // SAFETY: the server passes a valid `io`.
        let read = |()| read::<H>(&mut unsafe { Io::new(io) });
        match check_encoding(encver).and_then(read) {
            Ok(Ok(())) => REDISMODULE_OK as c_int,
            Ok(Err(why)) => {
                log_refusal(io, &["rl: damaged policies: ", &why]);
                REFUSED
            }
            Err(error) => {
                log_refusal(io, &[error.message()]);
                REFUSED
            }
        }
    })
}

fn read<H: Handlers>(io: &mut Io) -> Result<Result<(), String>, Error> {
    match io.load_number()? {
        0 => return Err(Error::DamagedState),
        VERSION => {}
        _ => return Err(Error::NewerState),
    }
    let ctx = io.context();
    io.load_bytes(|bytes| match bytes {
        // From a server that had no policies, and was not started with any.
        NOTHING => Ok(()),
        json => H::load_policies(&ctx, json),
    })
}

/// The name of the marker ends with a number, in case somebody has a key of that name.
fn marker_name(number: u32) -> Vec<u8> {
    format!("\0rl: policies, while an AOF is rewritten {number}").into_bytes()
}

/// The number of the marker that this process has added; 0 for none.
static MARKER: AtomicU32 = AtomicU32::new(0);

/// The marker's value is not used, but may not be null.
static VALUE: u8 = 0;

pub(super) fn marker_methods<H: Handlers>() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        rdb_load: Some(load_marker),
        rdb_save: Some(save_marker),
        aof_rewrite: Some(rewrite_marker::<H>),
        free: Some(free_marker),
        ..no_methods()
    }
}

fn value() -> *mut c_void {
    (&raw const VALUE).cast_mut().cast()
}

/// Called in the child process that is about to write an AOF. Whether that will be an RDB or commands is not known yet.
pub(super) fn add_marker<H: Handlers>(ctx: &Context) {
    if !H::must_save_policies() {
        return;
    }
    for number in 1..=u32::MAX {
        let name = ServerString::new(ctx, &marker_name(number));
        let key = Key::open_to_write(ctx, name.borrow());
        if key.is_missing() {
            // SAFETY: the type is of this module, and the value lives forever.
            let added = unsafe { key.set(policy_marker_type(), value()) };
            MARKER.store(if added { number } else { 0 }, Relaxed);
            return;
        }
    }
}

/// Called before the first key of an RDB is written. An RDB contains the policies and needs no marker.
fn remove_marker() {
    let number = MARKER.swap(0, Relaxed);
    if number == 0 {
        return;
    }
    // SAFETY: a context of its own, because that of a save has no dataset; freed when all that uses it is dropped.
    unsafe {
        let raw = api!(RedisModule_GetThreadSafeContext)(ptr::null_mut());
        {
            let ctx = Context::new(raw);
            let name = ServerString::new(&ctx, &marker_name(number));
            Key::open_to_write(&ctx, name.borrow()).delete();
        }
        api!(RedisModule_FreeThreadSafeContext)(raw);
    }
}

unsafe extern "C" fn rewrite_marker<H: Handlers>(
    io: *mut RedisModuleIO,
    _key: *mut RedisModuleString,
    _value: *mut c_void,
) {
    catch_panic((), || {
        // SAFETY: `io` is valid during the rewrite; the format matches the arguments: c a C string, b a buffer and its length.
        unsafe {
            let json = H::dump_policies(&Io::new(io).context());
            api!(RedisModule_EmitAOF)(
                io,
                c"RL.POLICY".as_ptr(),
                c"cb".as_ptr(),
                c"LOAD".as_ptr(),
                json.as_ptr(),
                json.len(),
            );
        }
    });
}

unsafe extern "C" fn load_marker(_io: *mut RedisModuleIO, _encver: c_int) -> *mut c_void {
    value()
}

unsafe extern "C" fn save_marker(_io: *mut RedisModuleIO, _value: *mut c_void) {}

unsafe extern "C" fn free_marker(_value: *mut c_void) {}
