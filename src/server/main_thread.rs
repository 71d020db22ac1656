//! State of the module that lives as long as the server does, and the callbacks from which it may be accessed.
//!
//! | callback | runs on | proof |
//! |---|---|---|
//! | commands, timers, events, CONFIG | the main thread | `Context`, `ConfigAccess` |
//! | INFO | the main thread | `InfoAccess` |
//! | INFO of a crash report | the thread that crashed, in a signal handler, at any moment | none: atomics only |
//! | a value's `free` | the main thread; the lazy-free thread (UNLINK, FLUSHALL ASYNC, lazy expiry and eviction); an I/O thread of Valkey 8.0 and later (a value that another replaces). Several at once | none: the value alone, and atomics |
//! | a value's `free_effort`, `unlink`, `copy`, `mem_usage`, `digest`, `defrag` | the main thread | none: the value alone |
//! | `rdb_load`, `aux_load` | the main thread, which may run commands in between while a replica loads | `Context` for `aux_load` |
//! | `rdb_save`, `aof_rewrite`, `aux_save` | a child process, forked between commands (snapshots of slots too); the main thread (SAVE, DUMP, DEBUG RELOAD) | `Context` for `aux_save` |
//! | finding a command's keys | nowhere: every key is at a fixed position. Valkey looks for them on I/O threads, before AUTH | – |
//!
//! I/O threads read, parse and write, and run no command (Redis 6.2 to 8, Valkey 8 and 9). A value may be freed while a
//! command runs: it owns all that it refers to, and shares nothing but atomics.

use std::cell::RefCell;

use super::Context;
use super::config::ConfigAccess;
use super::info::InfoAccess;

/// Proof of being called by the server on its main thread. A callback without such a proof may use only its arguments, the
/// server's allocator and atomics.
pub(crate) trait OnMainThread {}

impl OnMainThread for Context {}
impl OnMainThread for InfoAccess {}
impl OnMainThread for ConfigAccess {}

/// A value that is accessed only with a proof of being on the main thread.
pub(crate) struct MainThread<T>(RefCell<T>);

// SAFETY: only one thread accesses the content, see `OnMainThread`.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self(RefCell::new(content))
    }

    /// `None` if it is called again from within `body`.
    #[inline(always)]
    pub(crate) fn with<R>(
        &self,
        _proof: &impl OnMainThread,
        body: impl FnOnce(&mut T) -> R,
    ) -> Option<R> {
        match self.0.try_borrow_mut() {
            Ok(mut content) => Some(body(&mut content)),
            Err(_) => None,
        }
    }
}
