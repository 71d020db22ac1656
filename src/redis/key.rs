//! An open key: its state, its expiry.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::slice;

use redis_module::raw::{self, *};
use rl_core::overrides::Overrides;
use rl_core::{Algorithm, Error, Next, State};

use super::datatype::{algorithm_of, kind_of};
use super::live::Live;
use super::words::Words;
use super::{Arg, Context, api, override_type};
use crate::failure::Failure;

/// Closed when dropped.
pub(crate) struct Key {
    /// Null for a missing key opened to read.
    raw: *mut RedisModuleKey,
    /// What reading found.
    held: Held,
}

enum Held {
    Nothing,
    /// Where they are, so that storing need not look again, and what they say.
    Words(Words, Small),
    Live(Live),
}

/// A state read from words. Few of those own memory; for all others there is nothing to drop, which spares a
/// call that the compiler cannot.
struct Small(ManuallyDrop<State>);

impl Small {
    #[inline(always)]
    const fn new(state: State) -> Self {
        Self(ManuallyDrop::new(state))
    }
}

impl Deref for Small {
    type Target = State;

    #[inline(always)]
    fn deref(&self) -> &State {
        &self.0
    }
}

impl Drop for Small {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.owns_memory() {
            // SAFETY: dropped once, and not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

impl Key {
    pub(crate) fn open_to_read(ctx: &Context, name: Arg) -> Self {
        Self::open(ctx, name, REDISMODULE_READ)
    }

    pub(crate) fn open_to_write(ctx: &Context, name: Arg) -> Self {
        Self::open(ctx, name, REDISMODULE_READ | REDISMODULE_WRITE)
    }

    fn open(ctx: &Context, name: Arg, mode: u32) -> Self {
        // SAFETY: context and name are valid during the command, and the key is closed within it.
        let raw = unsafe { api!(RedisModule_OpenKey)(ctx.raw, name.raw, mode as c_int) };
        Self {
            raw: raw.cast(),
            held: Held::Nothing,
        }
    }

    /// No key at all.
    pub(crate) const fn none() -> Self {
        Self {
            raw: ptr::null_mut(),
            held: Held::Nothing,
        }
    }

    /// Reads the key as one of `algorithm`; it may be missing.
    #[inline(always)]
    pub(crate) fn read(&mut self, algorithm: Algorithm) -> Result<(), Failure> {
        if self.raw.is_null() {
            return Ok(());
        }
        let kind = self.kind();
        if kind == kind_of(algorithm) && !kind.is_null() {
            return Ok(self.hold(algorithm)?);
        }
        if self.is_empty() {
            return Ok(());
        }
        Err(match algorithm_of(kind) {
            Some(holds) => Failure::OtherAlgorithm {
                holds,
                asked: algorithm,
            },
            None => Error::WrongType.into(),
        })
    }

    /// Reads the key, whatever the algorithm; it may be missing.
    pub(crate) fn read_any(&mut self) -> Result<(), Failure> {
        if self.raw.is_null() || self.is_empty() {
            return Ok(());
        }
        let algorithm = algorithm_of(self.kind()).ok_or(Error::WrongType)?;
        Ok(self.hold(algorithm)?)
    }

    fn kind(&self) -> *mut RedisModuleType {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_ModuleTypeGetType)(self.raw) }
    }

    /// The key's type is that of `algorithm`.
    #[inline(always)]
    fn hold(&mut self, algorithm: Algorithm) -> Result<(), Error> {
        // SAFETY: the key is open, its type is ours, and the algorithm tells what such a type holds.
        unsafe {
            let value = api!(RedisModule_ModuleTypeGetValue)(self.raw);
            self.held = if algorithm.is_live() {
                Held::Live(Live::from_raw(value))
            } else {
                let words = Words::from_raw(value);
                let state = words.state_of(algorithm)?;
                Held::Words(words, Small::new(state))
            };
        }
        Ok(())
    }

    /// The state that was read or stored last.
    #[inline]
    pub(crate) fn state(&self) -> Option<&State> {
        match &self.held {
            Held::Nothing => None,
            Held::Words(_, state) => Some(state),
            Held::Live(live) => Some(live.state()),
        }
    }

    fn is_empty(&self) -> bool {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_KeyType)(self.raw) == REDISMODULE_KEYTYPE_EMPTY as c_int }
    }

    /// Takes the step to the next state, in a key opened to write.
    #[inline(always)]
    pub(crate) fn store(&mut self, next: Next) -> Result<(), Error> {
        if let Next::Whole(state) = next {
            return self.put(state);
        }
        if let Held::Live(live) = &mut self.held
            && live.state().algorithm() == next.algorithm()
        {
            live.state_mut().advance(next);
            return Ok(());
        }
        next.begin().map_or(Ok(()), |state| self.put(state))
    }

    /// Stores a state in place of whatever the key holds.
    #[inline(always)]
    fn put(&mut self, state: State) -> Result<(), Error> {
        let algorithm = state.algorithm();
        let words = state.words();
        if let (Held::Words(held, seen), Some(words)) = (&mut self.held, &words)
            && seen.algorithm() == algorithm
            && held.overwrite(words)
        {
            *seen = Small::new(state);
            return Ok(());
        }
        if let Held::Live(live) = &mut self.held
            && live.state().algorithm() == algorithm
        {
            *live.state_mut() = state;
            return Ok(());
        }
        let resized = matches!(&self.held, Held::Words(_, seen) if seen.algorithm() == algorithm);
        let new = match &words {
            Some(words) => Held::Words(Words::new(words), Small::new(state)),
            None => Held::Live(Live::new(state)),
        };
        let mut old = ptr::null_mut();
        self.held = Held::Nothing;
        // SAFETY: the key is open to write. The server takes the new value over, unless it refuses; replaced
        // words are handed back, to be freed here.
        unsafe {
            let (kind, value) = (kind_of(algorithm), new.as_raw());
            let stored = if resized {
                api!(RedisModule_ModuleTypeReplaceValue)(self.raw, kind, value, &mut old)
            } else {
                api!(RedisModule_ModuleTypeSetValue)(self.raw, kind, value)
            };
            if stored != REDISMODULE_OK as c_int {
                new.free();
                return Err(Error::Internal);
            }
            if !old.is_null() {
                Words::from_raw(old).free();
            }
        }
        self.held = new;
        Ok(())
    }

    /// The overrides that the key holds; it may be missing.
    pub(crate) fn overrides(&self) -> Result<Option<&Overrides>, Error> {
        if self.raw.is_null() || self.is_empty() {
            return Ok(None);
        }
        if self.kind() != override_type::kind() {
            return Err(Error::WrongType);
        }
        // SAFETY: the key is open, its type is that of overrides, and only `self` replaces the value.
        unsafe {
            let value = api!(RedisModule_ModuleTypeGetValue)(self.raw);
            Ok(Some(override_type::from_raw(value)))
        }
    }

    /// Stores overrides in place of whatever the key holds, without an expiry.
    pub(crate) fn put_overrides(&mut self, overrides: Overrides) -> Result<(), Error> {
        self.held = Held::Nothing;
        let value = override_type::to_raw(overrides);
        // SAFETY: the key is open to write. The server takes the value over, unless it refuses.
        unsafe {
            let kind = override_type::kind();
            if api!(RedisModule_ModuleTypeSetValue)(self.raw, kind, value)
                != REDISMODULE_OK as c_int
            {
                override_type::drop_raw(value);
                return Err(Error::Internal);
            }
        }
        Ok(())
    }

    /// Sets the expiry of a key that has none; 0 stands for none.
    pub(crate) fn expire_at_or_never(&self, at_ms: i64) {
        if at_ms > 0 {
            self.expire_at(at_ms);
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
        let existed = !self.is_empty();
        self.held = Held::Nothing;
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

    /// Whether the key's expiry is another than this; unknown before 6.2.2.
    pub(crate) fn expiry_differs(&self, at_ms: i64) -> bool {
        // SAFETY: the key is open.
        unsafe { raw::RedisModule_GetAbsExpire.is_none_or(|get| get(self.raw) != at_ms) }
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

impl Held {
    fn as_raw(&self) -> *mut c_void {
        match self {
            Self::Nothing => ptr::null_mut(),
            Self::Words(words, _) => words.as_raw(),
            Self::Live(live) => live.as_raw(),
        }
    }

    fn free(self) {
        match self {
            Self::Nothing => {}
            Self::Words(words, _) => words.free(),
            Self::Live(live) => live.free(),
        }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened once, closed once.
            unsafe { api!(RedisModule_CloseKey)(self.raw) };
        }
    }
}
