//! Small states, kept as words: what the server asks of them.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use redis_module::raw::{self, *};
use rl_core::{Algorithm, Encoded, Error, HEAD_WORDS, MAX_WORDS, State, stored_words};

use super::datatype::{algorithm_at, check_version, digest_bytes, emit_load, no_methods, refuse};
use super::{api, shield};

pub(super) fn methods<const PLACE: usize>() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        rdb_load: Some(rdb_load::<PLACE>),
        rdb_save: Some(rdb_save),
        aof_rewrite: Some(aof_rewrite),
        mem_usage: Some(mem_usage),
        digest: Some(digest),
        free: Some(free),
        copy: Some(copy),
        defrag: Some(defrag),
        ..no_methods()
    }
}

/// A state as the server holds it: as many words as its form has, and nothing else.
pub(super) struct Words {
    words: *mut u64,
}

impl Words {
    pub(super) fn new(state: &Encoded) -> Self {
        let words = state.words();
        // SAFETY: the layout is not empty; the server's allocator aborts rather than return null, and
        // the copy stays within what was just allocated.
        unsafe {
            let to = alloc(layout(words.len())).cast::<u64>();
            ptr::copy_nonoverlapping(words.as_ptr(), to, words.len());
            Self { words: to }
        }
    }

    pub(super) fn as_raw(&self) -> *mut c_void {
        self.words.cast()
    }

    /// # Safety
    /// `raw` must come from [`Words::as_raw`] and not have been freed.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self { words: raw.cast() }
    }

    fn words(&self) -> &[u64] {
        // SAFETY: a value has at least two words, which tell how many it has.
        unsafe {
            let len = stored_words(*self.words, *self.words.add(1));
            slice::from_raw_parts(self.words, len)
        }
    }

    pub(super) fn state(&self) -> Result<State, Error> {
        State::decode(self.words())
    }

    /// The same where the algorithm is known.
    #[inline(always)]
    pub(super) fn state_of(&self, algorithm: Algorithm) -> Result<State, Error> {
        State::decode_known(algorithm, self.words())
    }

    /// Takes over a state of the same size; `false` if it has another.
    pub(super) fn overwrite(&mut self, state: &Encoded) -> bool {
        let words = state.words();
        if words.len() != self.words().len() {
            return false;
        }
        // SAFETY: as many words as were allocated.
        unsafe { ptr::copy_nonoverlapping(words.as_ptr(), self.words, words.len()) };
        true
    }

    pub(super) fn free(self) {
        let len = self.words().len();
        // SAFETY: allocated with the same layout, and not used again.
        unsafe { dealloc(self.words.cast(), layout(len)) };
    }
}

fn layout(words: usize) -> Layout {
    Layout::array::<u64>(words).unwrap_or(Layout::new::<u64>())
}

/// `PLACE` is the kind's: a state of another algorithm is damage.
unsafe extern "C" fn rdb_load<const PLACE: usize>(
    io: *mut RedisModuleIO,
    encver: c_int,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        let state = check_version(encver).and_then(|()| read(io));
        match state {
            Ok(state) if state.algorithm() == algorithm_at(PLACE) => match state.words() {
                Some(words) => Words::new(&words).as_raw(),
                None => refuse(io, Error::DamagedState),
            },
            Ok(_) => refuse(io, Error::DamagedState),
            Err(error) => refuse(io, error),
        }
    })
}

fn read(io: *mut RedisModuleIO) -> Result<State, Error> {
    let mut words = [0; MAX_WORDS];
    let mut len = HEAD_WORDS;
    let mut read = 0;
    while read < len {
        // SAFETY: `io` is valid during the load; errors are told by IsIOError.
        words[read] = unsafe { api!(RedisModule_LoadUnsigned)(io) };
        // SAFETY: as above; every supported server has the function.
        if unsafe { api!(RedisModule_IsIOError)(io) } != 0 {
            return Err(Error::DamagedState);
        }
        read += 1;
        if read == HEAD_WORDS {
            len = stored_words(words[0], words[1]);
        }
    }
    State::decode(&words[..len])
}

unsafe extern "C" fn rdb_save(io: *mut RedisModuleIO, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let value = unsafe { Words::from_raw(value) };
        for &word in value.words() {
            // SAFETY: `io` is valid during the save.
            unsafe { api!(RedisModule_SaveUnsigned)(io, word) };
        }
    });
}

unsafe extern "C" fn aof_rewrite(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    value: *mut c_void,
) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        if let Ok(state) = unsafe { Words::from_raw(value) }.state() {
            emit_load(io, key, state.expire_at_ms(), &state.blob());
        }
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the value was allocated by the server's allocator.
    unsafe { api!(RedisModule_MallocSize)(value.cast_mut()) }
}

unsafe extern "C" fn digest(digest: *mut RedisModuleDigest, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let value = unsafe { Words::from_raw(value) };
        for word in value.words() {
            digest_bytes(digest, &word.to_le_bytes());
        }
        // SAFETY: the digest is valid during the call.
        unsafe { api!(RedisModule_DigestEndSequence)(digest) };
    });
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server passes a value of ours and forgets it.
    unsafe { Words::from_raw(value) }.free();
}

unsafe extern "C" fn copy(
    _from: *mut RedisModuleString,
    _to: *mut RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let state = unsafe { Words::from_raw(value.cast_mut()) }.state();
        let words = state.ok().and_then(|state| state.words());
        words.map_or(ptr::null_mut(), |words| Words::new(&words).as_raw())
    })
}

unsafe extern "C" fn defrag(
    ctx: *mut RedisModuleDefragCtx,
    _key: *mut RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    // SAFETY: the server passes a place that holds a value of ours; a moved value is a plain copy.
    unsafe {
        if let Some(move_to) = raw::RedisModule_DefragAlloc {
            let moved = move_to(ctx, *value);
            if !moved.is_null() {
                *value = moved;
            }
        }
    }
    0
}
