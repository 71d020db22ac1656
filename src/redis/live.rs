//! Large states, kept as they are and changed in place: what the server asks of them.

use std::ffi::{c_int, c_void};
use std::ptr;

use redis_module::raw::{self, *};
use rl_core::{Error, State};

use super::datatype::{
    algorithm_at, check_version, digest_blob, emit_load, load_bytes, no_methods, refuse, save_bytes,
};
use super::{api, shield};

pub(super) fn methods<const PLACE: usize>() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        rdb_load: Some(rdb_load::<PLACE>),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        free_effort: Some(free_effort),
        copy: Some(copy),
        defrag: Some(defrag),
        ..no_methods()
    }
}

/// A state as the server holds it: a pointer to it.
pub(super) struct Live {
    state: *mut State,
}

impl Live {
    pub(super) fn new(state: State) -> Self {
        Self {
            state: Box::into_raw(Box::new(state)),
        }
    }

    pub(super) fn as_raw(&self) -> *mut c_void {
        self.state.cast()
    }

    /// # Safety
    /// `raw` must come from [`Live::as_raw`] and not have been freed, and nothing else may use it as long
    /// as this does.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self { state: raw.cast() }
    }

    pub(super) fn state(&self) -> &State {
        // SAFETY: promised to `from_raw`.
        unsafe { &*self.state }
    }

    pub(super) fn state_mut(&mut self) -> &mut State {
        // SAFETY: promised to `from_raw`.
        unsafe { &mut *self.state }
    }

    pub(super) fn free(self) {
        // SAFETY: allocated by a Box, and not used again.
        drop(unsafe { Box::from_raw(self.state) });
    }
}

/// `PLACE` is the kind's: a state of another algorithm is damage.
unsafe extern "C" fn rdb_load<const PLACE: usize>(
    io: *mut RedisModuleIO,
    encver: c_int,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        match check_version(encver).and_then(|()| load_bytes(io, State::decode_blob)?) {
            Ok(state) if state.algorithm() == algorithm_at(PLACE) => Live::new(state).as_raw(),
            Ok(_) => refuse(io, Error::DamagedState),
            Err(error) => refuse(io, error),
        }
    })
}

unsafe extern "C" fn rdb_save(io: *mut RedisModuleIO, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        save_bytes(io, &unsafe { Live::from_raw(value) }.state().blob());
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    value: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let live = unsafe { Live::from_raw(value) };
        let state = live.state();
        emit_load(io, key, state.expire_at_ms(), &state.blob());
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    shield(0, || {
        // SAFETY: the server passes a value of ours, allocated by its allocator.
        unsafe {
            let heap = Live::from_raw(value.cast_mut()).state().heap_bytes();
            api!(RedisModule_MallocSize)(value.cast_mut()) + heap
        }
    })
}

unsafe extern "C" fn digest(digest: *mut RedisModuleDigest, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        digest_blob(digest, &unsafe { Live::from_raw(value) }.state().blob());
    });
}

unsafe extern "C" fn free(value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours and forgets it.
        unsafe { Live::from_raw(value) }.free();
    });
}

/// By this the server knows to free a long log in the background.
unsafe extern "C" fn free_effort(_key: *mut RedisModuleString, value: *const c_void) -> usize {
    shield(1, || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let live = unsafe { Live::from_raw(value.cast_mut()) };
        live.state().pieces()
    })
}

unsafe extern "C" fn copy(
    _from: *mut RedisModuleString,
    _to: *mut RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let live = unsafe { Live::from_raw(value.cast_mut()) };
        Live::new(live.state().clone()).as_raw()
    })
}

/// Where the server would rather have the state elsewhere, its parts are made anew as well. Long logs are
/// left alone: copying one would be a pause, and their chunks come and go anyway.
unsafe extern "C" fn defrag(
    ctx: *mut RedisModuleDefragCtx,
    _key: *mut RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    const MOST_PIECES: usize = 256;
    shield(0, || {
        // SAFETY: the server passes a place that holds a value of ours; a moved one is a plain copy, and the
        // old place is no longer used.
        unsafe {
            let Some(move_to) = raw::RedisModule_DefragAlloc else {
                return 0;
            };
            let moved = move_to(ctx, *value);
            if !moved.is_null() {
                *value = moved;
                let mut live = Live::from_raw(moved);
                if live.state().pieces() <= MOST_PIECES {
                    let anew = live.state().clone();
                    *live.state_mut() = anew;
                }
            }
        }
        0
    })
}
