//! The data types: one per algorithm, so that TYPE shows it, one for overrides, one for policies in an AOF, one for
//! reservations.
//!
//! All values share one set of callbacks, which is generic over [`Value`].

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw::*;
use rl_core::policy::Overrides;
use rl_core::reservation::StoredReservation;
use rl_core::{Algorithm, Blob, ENCODING_VERSION, Error, State, check_version};

use super::boxed_value::Boxed;
use super::context::{LOAD_COMMAND, LOAD_FORMAT};
use super::defrag::Mover;
use super::io::{Digest, Io, log_refusal};
use super::packed_value::PackedValue;
use super::{Context, Handlers, api, catch_panic, policy_snapshot, string};

struct DataType {
    /// The name has nine characters, as the server demands.
    name: &'static CStr,
    /// `None` for types that hold no state.
    algorithm: Option<Algorithm>,
    handle: AtomicPtr<RedisModuleType>,
}

impl DataType {
    const fn new(name: &'static CStr, algorithm: Option<Algorithm>) -> Self {
        Self {
            name,
            algorithm,
            handle: AtomicPtr::new(ptr::null_mut()),
        }
    }

    const fn state(index: usize) -> Self {
        let algorithm = Algorithm::ALL[index];
        Self::new(algorithm.descriptor().type_name, Some(algorithm))
    }
}

const STATES: usize = Algorithm::ALL.len();
const OVERRIDES: usize = STATES;
const POLICY_MARKER: usize = STATES + 1;
const RESERVATIONS: usize = STATES + 2;

/// The data type whose callbacks also save the policies in a snapshot.
const POLICIES: usize = Algorithm::Policy as usize;

/// The types of states come first, in the order of [`Algorithm::ALL`]. A new algorithm does not compile without an entry.
static TYPES: [DataType; STATES + 3] = [
    DataType::state(0),
    DataType::state(1),
    DataType::state(2),
    DataType::state(3),
    DataType::state(4),
    DataType::state(5),
    DataType::state(6),
    DataType::new(c"rl-overrd", None),
    DataType::new(c"rl-polset", None),
    DataType::new(c"rl-resrv-", None),
];

/// Registers every data type.
pub(crate) fn create_types<H: Handlers>(ctx: &Context) -> Result<(), Error> {
    let mut methods: [RedisModuleTypeMethods; TYPES.len()] = [
        state_methods::<H, 0>(),
        state_methods::<H, 1>(),
        state_methods::<H, 2>(),
        state_methods::<H, 3>(),
        state_methods::<H, 4>(),
        state_methods::<H, 5>(),
        state_methods::<H, 6>(),
        methods::<Boxed<Overrides>, H, OVERRIDES>(),
        policy_snapshot::marker_methods::<H>(),
        methods::<Boxed<StoredReservation>, H, RESERVATIONS>(),
    ];
    policy_snapshot::add_methods::<H>(&mut methods[POLICIES]);
    for (data_type, methods) in TYPES.iter().zip(&mut methods) {
        // SAFETY: the context is valid, the name static; the server copies the methods.
        let handle = unsafe {
            let version = c_int::from(ENCODING_VERSION);
            api!(RedisModule_CreateDataType)(ctx.raw, data_type.name.as_ptr(), version, methods)
        };
        if handle.is_null() {
            return Err(Error::Internal);
        }
        data_type.handle.store(handle, Relaxed);
    }
    Ok(())
}

fn state_methods<H: Handlers, const INDEX: usize>() -> RedisModuleTypeMethods {
    if Algorithm::ALL[INDEX].is_boxed() {
        methods::<Boxed<State>, H, INDEX>()
    } else {
        methods::<PackedValue, H, INDEX>()
    }
}

/// The server's handle of the type for an algorithm's states.
#[inline]
pub(super) fn state_type(algorithm: Algorithm) -> *mut RedisModuleType {
    TYPES[algorithm as usize].handle.load(Relaxed)
}

pub(super) fn overrides_type() -> *mut RedisModuleType {
    TYPES[OVERRIDES].handle.load(Relaxed)
}

pub(super) fn reservation_type() -> *mut RedisModuleType {
    TYPES[RESERVATIONS].handle.load(Relaxed)
}

pub(super) fn policy_marker_type() -> *mut RedisModuleType {
    TYPES[POLICY_MARKER].handle.load(Relaxed)
}

/// The algorithm whose states a type holds; `None` if there is none.
pub(super) fn algorithm_of(handle: *mut RedisModuleType) -> Option<Algorithm> {
    let same = |ours: &&DataType| !handle.is_null() && ours.handle.load(Relaxed) == handle;
    TYPES.iter().find(same)?.algorithm
}

/// Whether values of an encoding version can be read.
pub(super) fn check_encoding(encver: c_int) -> Result<(), Error> {
    check_version(u8::try_from(encver).map_err(|_| Error::NewerState)?)
}

/// A value as the server holds it: a pointer that is not freed when this is dropped.
pub(super) trait Value: Sized {
    /// Whether a value may take long to free, so that the server does it in the background.
    const MAY_BE_LARGE: bool;
    /// Whether [`Handlers::on_overrides_unlinked`] is called.
    const REPORTS_UNLINK: bool;
    /// Whether the server may make a second value for COPY; otherwise that command is refused.
    const CAN_BE_COPIED: bool;

    /// # Safety
    /// `raw` must come from [`Value::as_raw`] and not have been freed, and nothing else may use it as long as this does.
    unsafe fn from_raw(raw: *mut c_void) -> Self;

    fn as_raw(&self) -> *mut c_void;

    /// Reads a value that [`Value::save`] wrote. A state of another algorithm than that of the type counts as damaged.
    fn load(io: &mut Io, algorithm: Option<Algorithm>) -> Result<Self, Error>;

    fn save(&self, io: &mut Io);

    /// The argument of RL.LOAD; `None` if the value is damaged.
    fn blob(&self) -> Option<Blob>;

    fn digest(&self, digest: &mut Digest);

    fn copy(&self) -> Option<Self>;

    /// Memory in bytes, without the value's own block.
    fn heap_bytes(&self) -> usize;

    /// How many allocations have to be freed.
    fn allocations(&self) -> usize;

    /// Offers the memory that the value refers to, to be moved; returns `true` if there is more to do.
    fn relocate(&mut self, mover: &mut Mover) -> bool;

    fn free(self);
}

/// The callbacks of a data type; `INDEX` is its index in [`TYPES`].
fn methods<V: Value, H: Handlers, const INDEX: usize>() -> RedisModuleTypeMethods {
    RedisModuleTypeMethods {
        rdb_load: Some(rdb_load::<V, H, INDEX>),
        rdb_save: Some(rdb_save::<V>),
        aof_rewrite: Some(aof_rewrite::<V>),
        mem_usage: Some(mem_usage::<V>),
        digest: Some(digest::<V>),
        free: Some(free::<V>),
        free_effort: V::MAY_BE_LARGE.then_some(free_effort::<V> as _),
        unlink: V::REPORTS_UNLINK.then_some(unlink::<H> as _),
        copy: V::CAN_BE_COPIED.then_some(copy::<V> as _),
        defrag: Some(defrag::<V>),
        ..no_methods()
    }
}

unsafe extern "C" fn rdb_load<V: Value, H: Handlers, const INDEX: usize>(
    io: *mut RedisModuleIO,
    encver: c_int,
) -> *mut c_void {
    catch_panic(ptr::null_mut(), || {
        // SAFETY: the server passes a valid `io`.
        let mut reader = unsafe { Io::new(io) };
        let loaded =
            check_encoding(encver).and_then(|()| V::load(&mut reader, TYPES[INDEX].algorithm));
        match loaded {
            Ok(value) => {
                H::on_value_loaded();
                value.as_raw()
            }
            // Null makes the server refuse the key, and the file that it is in.
            Err(error) => {
                log_refusal(io, &[error.message()]);
                ptr::null_mut()
            }
        }
    })
}

unsafe extern "C" fn rdb_save<V: Value>(io: *mut RedisModuleIO, value: *mut c_void) {
    catch_panic((), || {
        // SAFETY: the server passes a valid `io`, and a value of this type, which stays its own.
        unsafe { V::from_raw(value).save(&mut Io::new(io)) };
    });
}

/// Writes `RL.LOAD key 0 blob`. The server adds the expiry that the key has.
unsafe extern "C" fn aof_rewrite<V: Value>(
    io: *mut RedisModuleIO,
    key: *mut RedisModuleString,
    value: *mut c_void,
) {
    const NO_EXPIRY: i64 = 0;
    catch_panic((), || {
        // SAFETY: the server passes a value of this type, which stays its own. All pointers are valid during the
        // call; the arguments are those of the format.
        unsafe {
            if let Some(blob) = V::from_raw(value).blob() {
                api!(RedisModule_EmitAOF)(
                    io,
                    LOAD_COMMAND.as_ptr(),
                    LOAD_FORMAT.as_ptr(),
                    key,
                    NO_EXPIRY,
                    blob.as_ptr(),
                    blob.len(),
                );
            }
        }
    });
}

unsafe extern "C" fn mem_usage<V: Value>(value: *const c_void) -> usize {
    catch_panic(0, || {
        // SAFETY: the server passes a value of this type, allocated by its allocator.
        unsafe {
            let heap = V::from_raw(value.cast_mut()).heap_bytes();
            api!(RedisModule_MallocSize)(value.cast_mut()) + heap
        }
    })
}

unsafe extern "C" fn digest<V: Value>(digest: *mut RedisModuleDigest, value: *mut c_void) {
    catch_panic((), || {
        // SAFETY: the server passes a value of this type, which stays its own, and a digest that is valid during the call.
        unsafe {
            V::from_raw(value).digest(&mut Digest::new(digest));
            api!(RedisModule_DigestEndSequence)(digest);
        }
    });
}

unsafe extern "C" fn free<V: Value>(value: *mut c_void) {
    catch_panic((), || {
        // SAFETY: the server passes a value of this type and forgets it.
        unsafe { V::from_raw(value) }.free();
    });
}

unsafe extern "C" fn free_effort<V: Value>(
    _key: *mut RedisModuleString,
    value: *const c_void,
) -> usize {
    catch_panic(1, || {
        // SAFETY: the server passes a value of this type, which stays its own.
        unsafe { V::from_raw(value.cast_mut()) }.allocations()
    })
}

/// Called on the server's thread, unlike `free`.
unsafe extern "C" fn unlink<H: Handlers>(key: *mut RedisModuleString, _value: *const c_void) {
    catch_panic((), || {
        // SAFETY: the server passes a valid name, which is not kept.
        H::on_overrides_unlinked(unsafe { string::bytes(key) });
    });
}

unsafe extern "C" fn copy<V: Value>(
    _from: *mut RedisModuleString,
    _to: *mut RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    catch_panic(ptr::null_mut(), || {
        // SAFETY: the server passes a value of this type, which stays its own.
        let copy = unsafe { V::from_raw(value.cast_mut()) }.copy();
        copy.map_or(ptr::null_mut(), |copy| copy.as_raw())
    })
}

/// Moves a large value piece by piece, as long as the server gives it time.
unsafe extern "C" fn defrag<V: Value>(
    ctx: *mut RedisModuleDefragCtx,
    _key: *mut RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    catch_panic(0, || {
        // SAFETY: the server passes the location of a value of this type, which nothing else uses meanwhile.
        unsafe {
            let Some(mut mover) = Mover::new(ctx) else {
                return 0;
            };
            *value = mover.move_memory(*value);
            c_int::from(V::from_raw(*value).relocate(&mut mover))
        }
    })
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
