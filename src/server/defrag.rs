//! Active defragmentation: each allocation of a value is offered to the server, which moves it if that helps.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::{self, ManuallyDrop};
use std::ptr;

use redis_module::raw::{self, *};
use rl_core::Relocate;

/// Offers allocations to the server, and moves them if it wants to.
pub(super) struct Mover {
    ctx: *mut RedisModuleDefragCtx,
    move_to: unsafe extern "C" fn(*mut RedisModuleDefragCtx, *mut c_void) -> *mut c_void,
}

impl Mover {
    /// `None` if the server has no defragmentation.
    ///
    /// # Safety
    /// `ctx` must be what the server passed to a defrag callback, and the result must not outlive the call.
    pub(super) unsafe fn new(ctx: *mut RedisModuleDefragCtx) -> Option<Self> {
        // SAFETY: a plain read of a function pointer that the server set at load.
        let move_to = unsafe { raw::RedisModule_DefragAlloc }?;
        Some(Self { ctx, move_to })
    }

    /// Offers an allocation to be moved, and returns its new address.
    ///
    /// # Safety
    /// `memory` must have been allocated by the server's allocator, as everything here is. If it has moved, nothing may
    /// use the old address.
    pub(super) unsafe fn move_memory<T>(&self, memory: *mut T) -> *mut T {
        // SAFETY: promised by the caller; the context is valid during the callback. Rust values may be moved as bytes.
        let moved = unsafe { (self.move_to)(self.ctx, memory.cast()) };
        if moved.is_null() {
            memory
        } else {
            moved.cast()
        }
    }

    /// Returns where an earlier call stopped; 0 if there was none.
    pub(super) fn cursor(&self) -> usize {
        let mut cursor: c_ulong = 0;
        // SAFETY: the context is valid; the server writes one number, or nothing if no call was interrupted.
        let known = unsafe {
            raw::RedisModule_DefragCursorGet
                .is_some_and(|get| get(self.ctx, &mut cursor) == REDISMODULE_OK as c_int)
        };
        if known { cursor as usize } else { 0 }
    }

    /// Records where the next call should continue; `false` if the server does not support that.
    pub(super) fn set_cursor(&self, cursor: usize) -> bool {
        // SAFETY: the context is valid.
        unsafe {
            raw::RedisModule_DefragCursorSet
                .is_some_and(|set| set(self.ctx, cursor as c_ulong) == REDISMODULE_OK as c_int)
        }
    }
}

impl Relocate for Mover {
    fn list<T>(&mut self, list: &mut Vec<T>) {
        if list.capacity() == 0 || size_of::<T>() == 0 {
            return;
        }
        let mut old = ManuallyDrop::new(mem::take(list));
        let (len, capacity) = (old.len(), old.capacity());
        // SAFETY: the list has memory, and the new list is the only one to use it.
        *list = unsafe { Vec::from_raw_parts(self.move_memory(old.as_mut_ptr()), len, capacity) };
    }

    fn slice<T>(&mut self, slice: &mut Box<[T]>) {
        if size_of_val(&**slice) == 0 {
            return;
        }
        let old = Box::into_raw(mem::take(slice));
        // SAFETY: the slice has memory, and the new box is the only one to use it.
        *slice = unsafe {
            let moved = self.move_memory(old.cast::<T>());
            Box::from_raw(ptr::slice_from_raw_parts_mut(moved, old.len()))
        };
    }

    fn text(&mut self, text: &mut Box<str>) {
        let mut bytes = mem::take(text).into_boxed_bytes();
        self.slice(&mut bytes);
        // SAFETY: the bytes are those of the text.
        *text = unsafe { std::str::from_boxed_utf8_unchecked(bytes) };
    }

    fn value<T>(&mut self, value: &mut Box<T>) {
        if size_of::<T>() == 0 {
            return;
        }
        // SAFETY: the box has memory; the old box is overwritten without being dropped, because its memory has either
        // been moved or is taken over by the new box.
        unsafe {
            let moved = self.move_memory(&raw mut **value);
            ptr::write(value, Box::from_raw(moved));
        }
    }

    fn should_stop(&mut self) -> bool {
        // SAFETY: the context is valid.
        unsafe { raw::RedisModule_DefragShouldStop.is_some_and(|stop| stop(self.ctx) != 0) }
    }
}
