//! The data types, one for each algorithm so that TYPE tells it, and what the server asks of them.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::{self, *};
use rl_core::{Algorithm, ENCODING_VERSION, Encoded, Error, MAX_WORDS, State, stored_words};

use super::{Context, api, c_line, shield};

/// One data type: nine characters of name, as the server demands.
struct Kind {
    algorithm: Algorithm,
    name: &'static CStr,
    load: RedisModuleTypeLoadFunc,
    created: AtomicPtr<RedisModuleType>,
}

static KINDS: [Kind; 2] = [
    Kind {
        algorithm: Algorithm::Slide,
        name: c"rl-slide-",
        load: Some(rdb_load::<0>),
        created: AtomicPtr::new(ptr::null_mut()),
    },
    Kind {
        algorithm: Algorithm::Bucket,
        name: c"rl-bucket",
        load: Some(rdb_load::<1>),
        created: AtomicPtr::new(ptr::null_mut()),
    },
];

const _: () = assert!(Algorithm::ALL.len() == KINDS.len());

/// Registers every data type.
pub(crate) fn create_types(ctx: &Context) -> Result<(), Error> {
    for (place, kind) in KINDS.iter().enumerate() {
        debug_assert_eq!(kind.algorithm as usize, place, "kinds are found by place");
        let mut methods = RedisModuleTypeMethods {
            version: u64::from(REDISMODULE_TYPE_METHOD_VERSION),
            rdb_load: kind.load,
            rdb_save: Some(rdb_save),
            aof_rewrite: Some(aof_rewrite),
            mem_usage: Some(mem_usage),
            digest: Some(digest),
            free: Some(free),
            copy: Some(copy),
            defrag: Some(defrag),
            ..no_methods()
        };
        // SAFETY: the context is valid, the name static; the server copies the methods.
        let created = unsafe {
            api!(RedisModule_CreateDataType)(
                ctx.raw,
                kind.name.as_ptr(),
                c_int::from(ENCODING_VERSION),
                &mut methods,
            )
        };
        if created.is_null() {
            return Err(Error::Internal);
        }
        kind.created.store(created, Relaxed);
    }
    Ok(())
}

fn no_methods() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        version: 0,
        rdb_load: None,
        rdb_save: None,
        aof_rewrite: None,
        mem_usage: None,
        digest: None,
        free: None,
        aux_load: None,
        aux_save: None,
        aux_save_triggers: 0,
        free_effort: None,
        unlink: None,
        copy: None,
        defrag: None,
        mem_usage2: None,
        free_effort2: None,
        unlink2: None,
        copy2: None,
        aux_save2: None,
    }
}

/// A state as the server holds it: as many words as its form has, and nothing else.
pub(crate) struct Value {
    words: *mut u64,
}

impl Value {
    /// The server's handle of an algorithm's type.
    pub(super) fn kind(algorithm: Algorithm) -> *mut RedisModuleType {
        KINDS[algorithm as usize].created.load(Relaxed)
    }

    /// Which algorithm a type belongs to; `None` if it is not ours.
    pub(super) fn algorithm(kind: *mut RedisModuleType) -> Option<Algorithm> {
        let ours = |ours: &&Kind| !kind.is_null() && ours.created.load(Relaxed) == kind;
        KINDS.iter().find(ours).map(|kind| kind.algorithm)
    }

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

    pub(super) fn into_raw(self) -> *mut c_void {
        self.words.cast()
    }

    /// # Safety
    /// `raw` must come from [`Value::into_raw`] and not have been freed.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> Self {
        Self { words: raw.cast() }
    }

    fn words(&self) -> &[u64] {
        // SAFETY: a value has at least one word, which tells how many it has.
        unsafe { slice::from_raw_parts(self.words, stored_words(*self.words)) }
    }

    pub(super) fn state(&self) -> Result<State, Error> {
        State::decode(self.words())
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

/// `INDEX` is the kind's place in [`KINDS`]: a state of another algorithm is damage.
unsafe extern "C" fn rdb_load<const INDEX: usize>(
    io: *mut RedisModuleIO,
    encver: c_int,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        let state = match u8::try_from(encver) {
            Ok(1..=ENCODING_VERSION) => read_words(io),
            Ok(0) => Err(Error::DamagedState),
            _ => Err(Error::NewerState),
        };
        match state {
            Ok(state) if state.algorithm() == KINDS[INDEX].algorithm => {
                Value::new(&state.encode()).into_raw()
            }
            Ok(_) => refuse(io, Error::DamagedState),
            Err(error) => refuse(io, error),
        }
    })
}

fn read_words(io: *mut RedisModuleIO) -> Result<State, Error> {
    let mut words = [0; MAX_WORDS];
    let mut len = 1;
    let mut read = 0;
    while read < len {
        // SAFETY: `io` is valid during the load; errors are told by IsIOError.
        words[read] = unsafe { api!(RedisModule_LoadUnsigned)(io) };
        // SAFETY: as above; every supported server has the function.
        if unsafe { api!(RedisModule_IsIOError)(io) } != 0 {
            return Err(Error::DamagedState);
        }
        len = stored_words(words[0]);
        read += 1;
    }
    State::decode(&words[..len])
}

/// Null makes the server refuse the key, and the file that it is in.
fn refuse(io: *mut RedisModuleIO, error: Error) -> *mut c_void {
    let line = c_line(&[error.message()]);
    // SAFETY: `io` is valid during the load; "%s" takes exactly one C string.
    unsafe {
        api!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), line.as_ptr());
    }
    ptr::null_mut()
}

unsafe extern "C" fn rdb_save(io: *mut RedisModuleIO, value: *mut c_void) {
    shield((), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let value = unsafe { Value::from_raw(value) };
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
        let Ok(state) = (unsafe { Value::from_raw(value) }).state() else {
            return;
        };
        let blob = state.encode().blob();
        let bytes = blob.as_bytes();
        let expire_at_ms = state.expire_at_ms() as i64;
        // SAFETY: all pointers are valid during the call; the format matches the arguments.
        unsafe {
            api!(RedisModule_EmitAOF)(
                io,
                c"RL.LOAD".as_ptr(),
                c"slb".as_ptr(),
                key,
                expire_at_ms,
                bytes.as_ptr(),
                bytes.len(),
            );
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
        let value = unsafe { Value::from_raw(value) };
        for word in value.words() {
            let bytes = word.to_le_bytes();
            // SAFETY: the digest is valid during the call, the server only reads the bytes.
            unsafe {
                api!(RedisModule_DigestAddStringBuffer)(digest, bytes.as_ptr().cast(), bytes.len());
            }
        }
        // SAFETY: the digest is valid during the call.
        unsafe { api!(RedisModule_DigestEndSequence)(digest) };
    });
}

unsafe extern "C" fn free(value: *mut c_void) {
    // SAFETY: the server passes a value of ours and forgets it.
    unsafe { Value::from_raw(value) }.free();
}

unsafe extern "C" fn copy(
    _from: *mut RedisModuleString,
    _to: *mut RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    shield(ptr::null_mut(), || {
        // SAFETY: the server passes a value of ours, which stays its own.
        let state = unsafe { Value::from_raw(value.cast_mut()) }.state();
        state.map_or(ptr::null_mut(), |state| {
            Value::new(&state.encode()).into_raw()
        })
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
