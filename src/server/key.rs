//! An open key, with its state and its expiry.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::slice;

use redis_module::raw::{self, *};
use rl_core::policy::Overrides;
use rl_core::reservation::StoredReservation;
use rl_core::{Algorithm, Blob, Error, Packed, State, Update};

use super::boxed_value::{Boxed, BoxedValue, Content};
use super::datatype::{Value, algorithm_of, overrides_type, reservation_type, state_type};
use super::packed_value::PackedValue;
use super::{CommandError, Context, ServerStr, api};

/// An open key. It is closed when dropped.
pub(crate) struct Key {
    /// Null for a missing key opened to read.
    raw: *mut RedisModuleKey,
    /// What was read or stored last.
    contents: Contents,
}

enum Contents {
    Nothing,
    /// The stored form, so that storing need not look it up again, and the state itself.
    Packed(PackedValue, UnpackedState),
    Boxed(BoxedValue),
}

/// A state read from a packed one. Few of those own memory; for all others there is nothing to drop, which saves
/// a call that the compiler cannot remove.
struct UnpackedState(ManuallyDrop<State>);

impl UnpackedState {
    #[inline(always)]
    const fn new(state: State) -> Self {
        Self(ManuallyDrop::new(state))
    }
}

impl Deref for UnpackedState {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        &self.0
    }
}

impl Drop for UnpackedState {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.owns_memory() {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl Key {
    pub(crate) fn open_to_read(ctx: &Context, name: ServerStr) -> Self {
        Self::open(ctx, name, REDISMODULE_READ)
    }

    pub(crate) fn open_to_write(ctx: &Context, name: ServerStr) -> Self {
        Self::open(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE)
    }

    /// Reads a key that the caller did not name, so that it counts neither as a hit nor as a miss. Before 7.2, only
    /// keys opened for writing are not counted, which changes nothing until something is written.
    pub(crate) fn open_quietly(ctx: &Context, name: ServerStr) -> Self {
        // SAFETY: a plain read of a function pointer that the server set at load.
        let mode = match unsafe { raw::RedisModule_GetOpenKeyModesAll } {
            Some(_) => {
                REDISMODULE_READ | REDISMODULE_OPEN_KEY_NOSTATS | REDISMODULE_OPEN_KEY_NONOTIFY
            }
            None => REDISMODULE_READ | REDISMODULE_WRITE,
        };
        Self::open(ctx, name, mode)
    }

    fn open(ctx: &Context, name: ServerStr, mode: u32) -> Self {
        // SAFETY: context and name are valid during the command, and the key is closed within it.
        let raw = unsafe { api!(RedisModule_OpenKey)(ctx.raw, name.raw, mode as c_int) };
        Self {
            raw: raw.cast(),
            contents: Contents::Nothing,
        }
    }

    /// Stands for no key at all.
    pub(crate) const fn none() -> Self {
        Self {
            raw: ptr::null_mut(),
            contents: Contents::Nothing,
        }
    }

    /// Reads the key as one of `algorithm`; it may be missing.
    #[inline(always)]
    pub(crate) fn read(&mut self, algorithm: Algorithm) -> Result<(), CommandError> {
        if self.raw.is_null() {
            return Ok(());
        }
        let data_type = self.data_type();
        if data_type == state_type(algorithm) && !data_type.is_null() {
            return Ok(self.read_state(algorithm)?);
        }
        if self.is_missing() {
            return Ok(());
        }
        Err(match algorithm_of(data_type) {
            Some(stored) => CommandError::WrongAlgorithm {
                stored,
                requested: algorithm,
            },
            None => CommandError::WrongType,
        })
    }

    /// Reads the key, whatever the algorithm; it may be missing.
    pub(crate) fn read_any(&mut self) -> Result<(), CommandError> {
        if self.raw.is_null() || self.is_missing() {
            return Ok(());
        }
        let algorithm = algorithm_of(self.data_type()).ok_or(CommandError::WrongType)?;
        Ok(self.read_state(algorithm)?)
    }

    fn data_type(&self) -> *mut RedisModuleType {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_ModuleTypeGetType)(self.raw) }
    }

    /// Reads the state. The caller has checked that the key's type is that of `algorithm`.
    #[inline(always)]
    fn read_state(&mut self, algorithm: Algorithm) -> Result<(), Error> {
        // SAFETY: the key is open, its type is ours, and the algorithm determines the form of its values.
        unsafe {
            let value = api!(RedisModule_ModuleTypeGetValue)(self.raw);
            self.contents = if algorithm.is_boxed() {
                Contents::Boxed(BoxedValue::from_raw(value))
            } else {
                let packed = PackedValue::from_raw(value);
                let state = packed.state_of(algorithm)?;
                Contents::Packed(packed, UnpackedState::new(state))
            };
        }
        Ok(())
    }

    /// The state that was read or stored last.
    #[inline]
    pub(crate) fn state(&self) -> Option<&State> {
        match &self.contents {
            Contents::Nothing => None,
            Contents::Packed(_, state) => Some(state),
            Contents::Boxed(boxed) => Some(boxed.get()),
        }
    }

    /// # Safety
    /// The key must be open to write, and `value` one of `data_type`; the server takes it over if this succeeds.
    pub(super) unsafe fn set(&self, data_type: *mut RedisModuleType, value: *mut c_void) -> bool {
        // SAFETY: promised by the caller.
        let set = unsafe { api!(RedisModule_ModuleTypeSetValue)(self.raw, data_type, value) };
        set == REDISMODULE_OK as c_int
    }

    pub(crate) fn is_missing(&self) -> bool {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_KeyType)(self.raw) == REDISMODULE_KEYTYPE_EMPTY as c_int }
    }

    /// Updates the state in a key opened to write. Returns the update as a blob if `encode` asks for it: a packed
    /// state is encoded only once.
    #[inline(always)]
    pub(crate) fn store(&mut self, update: Update, encode: bool) -> Result<Option<Blob>, Error> {
        if let Update::Replace(state) = update {
            return self.replace(state, encode);
        }
        let blob = encode.then(|| update.blob());
        if let Contents::Boxed(boxed) = &mut self.contents
            && boxed.get().algorithm() == update.algorithm()
        {
            boxed.get_mut().apply(update);
        } else if let Some(state) = update.into_initial() {
            self.replace(state, false)?;
        }
        Ok(blob)
    }

    /// Stores a state in place of whatever the key holds.
    #[inline(always)]
    fn replace(&mut self, state: State, encode: bool) -> Result<Option<Blob>, Error> {
        let algorithm = state.algorithm();
        let packed = state.packed();
        let blob = encode.then(|| match &packed {
            Some(packed) => packed.blob(),
            None => state.blob(),
        });
        if let (Contents::Packed(stored, before), Some(packed)) = (&mut self.contents, &packed)
            && before.algorithm() == algorithm
            && stored.overwrite(packed)
        {
            *before = UnpackedState::new(state);
            return Ok(blob);
        }
        if let Contents::Boxed(boxed) = &mut self.contents
            && boxed.get().algorithm() == algorithm
        {
            *boxed.get_mut() = state;
            return Ok(blob);
        }
        self.replace_value(state, packed)?;
        Ok(blob)
    }

    /// Stores a state as a new value. Out of line, so that the usual case, an update in place, can be inlined into
    /// each command.
    #[inline(never)]
    fn replace_value(&mut self, state: State, packed: Option<Packed>) -> Result<(), Error> {
        let algorithm = state.algorithm();
        let resized = matches!(
            &self.contents,
            Contents::Packed(_, before) if before.algorithm() == algorithm
        );
        let new = match &packed {
            Some(packed) => Contents::Packed(PackedValue::new(packed), UnpackedState::new(state)),
            None => Contents::Boxed(BoxedValue::new(state)),
        };
        let mut old = ptr::null_mut();
        self.contents = Contents::Nothing;
        // SAFETY: the key is open to write. The server takes the new value over, unless it refuses; a replaced
        // value is handed back, to be freed here.
        unsafe {
            let (data_type, value) = (state_type(algorithm), new.as_raw());
            let stored = if resized {
                api!(RedisModule_ModuleTypeReplaceValue)(self.raw, data_type, value, &mut old)
                    == REDISMODULE_OK as c_int
            } else {
                self.set(data_type, value)
            };
            if !stored {
                new.free();
                return Err(Error::Internal);
            }
            if !old.is_null() {
                PackedValue::from_raw(old).free();
            }
        }
        self.contents = new;
        Ok(())
    }

    /// The overrides that the key holds; it may be missing.
    pub(crate) fn overrides(&self) -> Result<Option<&Overrides>, CommandError> {
        self.content(overrides_type())
    }

    /// Stores overrides in place of whatever the key holds, without an expiry.
    pub(crate) fn store_overrides(&mut self, overrides: Overrides) -> Result<(), Error> {
        self.store_content(overrides_type(), overrides)
    }

    /// The reservation that the key holds; it may be missing.
    pub(crate) fn reservation(&self) -> Result<Option<&StoredReservation>, CommandError> {
        self.content(reservation_type())
    }

    /// Stores a reservation in place of whatever the key holds, without an expiry.
    pub(crate) fn store_reservation(&mut self, stored: StoredReservation) -> Result<(), Error> {
        self.store_content(reservation_type(), stored)
    }

    /// What a key of one type holds; `C` must be what values of that type contain.
    fn content<C: Content>(
        &self,
        data_type: *mut RedisModuleType,
    ) -> Result<Option<&C>, CommandError> {
        if self.raw.is_null() || self.is_missing() {
            return Ok(None);
        }
        if self.data_type() != data_type {
            return Err(CommandError::WrongType);
        }
        // SAFETY: the key is open, its type is the one that contains `C`, and only `self` replaces the value.
        unsafe {
            let value = api!(RedisModule_ModuleTypeGetValue)(self.raw);
            Ok(Some(Boxed::<C>::from_raw(value).into_ref()))
        }
    }

    fn store_content<C: Content>(
        &mut self,
        data_type: *mut RedisModuleType,
        content: C,
    ) -> Result<(), Error> {
        self.contents = Contents::Nothing;
        let new = Boxed::new(content);
        // SAFETY: the key is open to write. The server takes the value over, unless it refuses.
        if !unsafe { self.set(data_type, new.as_raw()) } {
            new.free();
            return Err(Error::Internal);
        }
        Ok(())
    }

    /// Sets the expiry of a key opened to write; 0 stands for none.
    pub(crate) fn expire_at_or_never(&self, at_ms: i64) {
        if at_ms > 0 {
            self.expire_at(at_ms);
        } else {
            // SAFETY: the key is open.
            unsafe { api!(RedisModule_SetExpire)(self.raw, REDISMODULE_NO_EXPIRE.into()) };
        }
    }

    /// The number that the key holds, if it is a plain string and holds one.
    pub(crate) fn number(&self) -> Option<u64> {
        let mut len = 0;
        // SAFETY: the key is open, and its bytes are not kept beyond this function, in which nothing writes.
        let bytes = unsafe {
            if api!(RedisModule_KeyType)(self.raw) != REDISMODULE_KEYTYPE_STRING as c_int {
                return None;
            }
            let bytes = api!(RedisModule_StringDMA)(self.raw, &mut len, REDISMODULE_READ as c_int);
            if bytes.is_null() {
                return None;
            }
            slice::from_raw_parts(bytes.cast::<u8>(), len)
        };
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }

    /// Deletes the key; `false` if there was none.
    pub(crate) fn delete(&mut self) -> bool {
        let existed = !self.is_missing();
        self.contents = Contents::Nothing;
        // SAFETY: the key is open to write.
        unsafe { api!(RedisModule_DeleteKey)(self.raw) };
        existed
    }

    /// The key's expiry as a Unix time, -1 if it has none.
    pub(crate) fn expire_at_ms(&self) -> i64 {
        // SAFETY: the key is open.
        unsafe {
            match raw::RedisModule_GetAbsExpire {
                Some(get) => get(self.raw),
                None => match api!(RedisModule_GetExpire)(self.raw) {
                    left @ 0.. => left + api!(RedisModule_Milliseconds)(),
                    none => none,
                },
            }
        }
    }

    /// The key's expiry, 0 if it has none, where `at_ms` is what this module set last. Servers before 6.2.2 know
    /// only time spans, so that a moment is known to within a millisecond or two.
    pub(crate) fn actual_expiry(&self, at_ms: i64) -> i64 {
        let actual = self.expire_at_ms().max(0);
        // SAFETY: a plain read of a function pointer that the server set at load.
        let exact = unsafe { raw::RedisModule_GetAbsExpire }.is_some();
        if exact || actual == 0 || (actual - at_ms).abs() > 2 {
            actual
        } else {
            at_ms
        }
    }

    /// Sets the expiry of a key opened to write. Servers before 6.2.2 know only time spans.
    pub(crate) fn expire_at(&self, at_ms: i64) {
        // SAFETY: the key is open.
        unsafe {
            match raw::RedisModule_SetAbsExpire {
                Some(set) => set(self.raw, at_ms),
                None => {
                    let left = at_ms - api!(RedisModule_Milliseconds)();
                    api!(RedisModule_SetExpire)(self.raw, left.max(1))
                }
            };
        }
    }
}

impl Contents {
    fn as_raw(&self) -> *mut c_void {
        match self {
            Self::Nothing => ptr::null_mut(),
            Self::Packed(packed, _) => packed.as_raw(),
            Self::Boxed(boxed) => boxed.as_raw(),
        }
    }

    fn free(self) {
        match self {
            Self::Nothing => {}
            Self::Packed(packed, _) => packed.free(),
            Self::Boxed(boxed) => boxed.free(),
        }
    }
}

impl Drop for Key {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened once, closed once.
            unsafe { api!(RedisModule_CloseKey)(self.raw) };
        }
    }
}
