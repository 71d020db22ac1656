//! The data types, one for each algorithm so that TYPE tells it, and one for overrides.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::*;
use rl_core::{Algorithm, ENCODING_VERSION, Error};

use super::{Context, api, aux, c_line, live, override_type, words};

/// One data type: nine characters of name, as the server demands.
struct Kind {
    algorithm: Algorithm,
    name: &'static CStr,
    methods: fn() -> RedisModuleTypeMethods,
    created: AtomicPtr<RedisModuleType>,
}

impl Kind {
    const fn new(
        algorithm: Algorithm,
        name: &'static CStr,
        methods: fn() -> RedisModuleTypeMethods,
    ) -> Self {
        Self {
            algorithm,
            name,
            methods,
            created: AtomicPtr::new(ptr::null_mut()),
        }
    }
}

static KINDS: [Kind; 7] = [
    Kind::new(Algorithm::Slide, c"rl-slide-", words::methods::<0>),
    Kind::new(Algorithm::Bucket, c"rl-bucket", words::methods::<1>),
    Kind::new(Algorithm::Fixed, c"rl-fixed-", words::methods::<2>),
    Kind::new(Algorithm::Leak, c"rl-leak--", words::methods::<3>),
    Kind::new(Algorithm::Exact, c"rl-exact-", live::methods::<4>),
    Kind::new(Algorithm::Lease, c"rl-lease-", live::methods::<5>),
    Kind::new(Algorithm::Group, c"rl-policy", live::methods::<6>),
];

const _: () = assert!(Algorithm::ALL.len() == KINDS.len());

/// Registers every data type.
pub(crate) fn create_types(ctx: &Context) -> Result<(), Error> {
    for (place, kind) in KINDS.iter().enumerate() {
        debug_assert_eq!(kind.algorithm as usize, place, "kinds are found by place");
        let mut methods = (kind.methods)();
        if kind.algorithm == Algorithm::Group {
            aux::add(&mut methods);
        }
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
    override_type::create(ctx)
}

/// The server's handle of an algorithm's type.
#[inline]
pub(super) fn kind_of(algorithm: Algorithm) -> *mut RedisModuleType {
    KINDS[algorithm as usize].created.load(Relaxed)
}

/// Which algorithm a type belongs to; `None` if it is not ours.
pub(super) fn algorithm_of(kind: *mut RedisModuleType) -> Option<Algorithm> {
    let ours = |ours: &&Kind| !kind.is_null() && ours.created.load(Relaxed) == kind;
    KINDS.iter().find(ours).map(|kind| kind.algorithm)
}

/// The algorithm of the kind at a place in [`KINDS`].
pub(super) fn algorithm_at(place: usize) -> Algorithm {
    KINDS[place].algorithm
}

/// Whether states of an encoding version can be read.
pub(super) fn check_version(encver: c_int) -> Result<(), Error> {
    match u8::try_from(encver) {
        Ok(1..=ENCODING_VERSION) => Ok(()),
        Ok(0) => Err(Error::DamagedState),
        _ => Err(Error::NewerState),
    }
}

/// Null makes the server refuse the key, and the file that it is in.
pub(super) fn refuse<T>(io: *mut RedisModuleIO, error: Error) -> *mut T {
    let line = c_line(&[error.message()]);
    // SAFETY: `io` is valid during the load; "%s" takes exactly one C string.
    unsafe {
        api!(RedisModule_LogIOError)(io, c"warning".as_ptr(), c"%s".as_ptr(), line.as_ptr());
    }
    ptr::null_mut()
}

/// Reads one string, and what it says.
pub(super) fn load_bytes<T>(
    io: *mut RedisModuleIO,
    decode: impl FnOnce(&[u8]) -> T,
) -> Result<T, Error> {
    let mut len = 0;
    // SAFETY: `io` is valid during the load; the buffer is ours to free, and null where reading failed.
    unsafe {
        let bytes: *mut c_char = api!(RedisModule_LoadStringBuffer)(io, &mut len);
        if bytes.is_null() {
            return Err(Error::DamagedState);
        }
        let decoded = decode(slice::from_raw_parts(bytes.cast(), len));
        api!(RedisModule_Free)(bytes.cast());
        Ok(decoded)
    }
}

/// Writes one string.
pub(super) fn save_bytes(io: *mut RedisModuleIO, bytes: &[u8]) {
    // SAFETY: `io` is valid during the save; the server copies the bytes.
    unsafe { api!(RedisModule_SaveStringBuffer)(io, bytes.as_ptr().cast(), bytes.len()) };
}

/// Writes `RL.LOAD key expire-at-ms blob` to an AOF that is being rewritten.
pub(super) fn emit_load(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    expire_at_ms: u64,
    blob: &[u8],
) {
    // SAFETY: all pointers are valid during the call; the format matches the arguments: s a string of the
    // server, l a long long, b a buffer and its length.
    unsafe {
        api!(RedisModule_EmitAOF)(
            io,
            c"RL.LOAD".as_ptr(),
            c"slb".as_ptr(),
            key,
            expire_at_ms as i64,
            blob.as_ptr(),
            blob.len(),
        );
    }
}

/// The digest of a value that is one string.
pub(super) fn digest_blob(digest: *mut RedisModuleDigest, blob: &[u8]) {
    digest_bytes(digest, blob);
    // SAFETY: the digest is valid during the call.
    unsafe { api!(RedisModule_DigestEndSequence)(digest) };
}

/// Adds bytes to a value's digest.
pub(super) fn digest_bytes(digest: *mut RedisModuleDigest, bytes: &[u8]) {
    // SAFETY: the digest is valid during the call, the server only reads the bytes.
    unsafe {
        api!(RedisModule_DigestAddStringBuffer)(digest, bytes.as_ptr().cast(), bytes.len());
    }
}

pub(super) fn no_methods() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        version: u64::from(REDISMODULE_TYPE_METHOD_VERSION),
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
