//! An open key: its state, its expiry.

use std::ffi::c_int;
use std::ptr;

use redis_module::raw::{self, *};
use rl_core::{Algorithm, Encoded, Error, State};

use super::{Arg, Context, Value, api};

/// What an open key holds.
pub(crate) enum Content {
    Empty,
    State(State),
    OtherAlgorithm(Algorithm),
    OtherType,
}

/// Closed when dropped.
pub(crate) struct Key {
    /// Null for a missing key opened to read.
    raw: *mut RedisModuleKey,
    /// The value that [`Key::read`] found, so that storing need not look again.
    held: Option<Value>,
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
            held: None,
        }
    }

    /// Reads the key as one of `algorithm`.
    #[inline]
    pub(crate) fn read(&mut self, algorithm: Algorithm) -> Result<Content, Error> {
        if self.raw.is_null() {
            return Ok(Content::Empty);
        }
        // SAFETY: the key is open.
        let kind = unsafe { api!(RedisModule_ModuleTypeGetType)(self.raw) };
        if kind == Value::kind(algorithm) && !kind.is_null() {
            // SAFETY: the key is open, its type is ours, and all of our types hold a Value.
            let value = unsafe { Value::from_raw(api!(RedisModule_ModuleTypeGetValue)(self.raw)) };
            let state = value.state();
            self.held = Some(value);
            return state.map(Content::State);
        }
        if self.is_empty() {
            return Ok(Content::Empty);
        }
        Ok(Value::algorithm(kind).map_or(Content::OtherType, Content::OtherAlgorithm))
    }

    fn is_empty(&self) -> bool {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_KeyType)(self.raw) == REDISMODULE_KEYTYPE_EMPTY as c_int }
    }

    /// Stores a state in a key opened to write, in place of whatever it holds; the key has been read as
    /// one of `algorithm`.
    #[inline]
    pub(crate) fn store(&mut self, algorithm: Algorithm, state: &Encoded) -> Result<(), Error> {
        if self.held.as_mut().is_some_and(|held| held.overwrite(state)) {
            return Ok(());
        }
        // SAFETY: the key is open to write. The server takes the new value over, unless it refuses; a
        // replaced one is handed back, to be freed here.
        unsafe {
            let (kind, new) = (Value::kind(algorithm), Value::new(state).into_raw());
            let mut old = ptr::null_mut();
            let stored = match self.held.take() {
                Some(_) => api!(RedisModule_ModuleTypeReplaceValue)(self.raw, kind, new, &mut old),
                None => api!(RedisModule_ModuleTypeSetValue)(self.raw, kind, new),
            };
            if stored != REDISMODULE_OK as c_int {
                Value::from_raw(new).free();
                return Err(Error::Internal);
            }
            if !old.is_null() {
                Value::from_raw(old).free();
            }
        }
        Ok(())
    }

    /// Deletes the key; `false` if there was none.
    pub(crate) fn delete(&self) -> bool {
        let existed = !self.is_empty();
        // SAFETY: the key is open to write.
        unsafe { api!(RedisModule_DeleteKey)(self.raw) };
        existed
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

impl Drop for Key {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: opened once, closed once.
            unsafe { api!(RedisModule_CloseKey)(self.raw) };
        }
    }
}
