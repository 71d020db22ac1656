//! What only the server's own thread touches.

use super::Context;

/// A value for the thread that runs commands and events. A [`Context`] is the proof of being on it: the
/// server passes one only there, or while that thread waits, and it cannot be sent to another.
pub(crate) struct MainThread<T>(T);

// SAFETY: the value is reached only by `get`, which takes a Context; so never by two threads at once.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    #[inline]
    pub(crate) fn get(&self, _ctx: &Context) -> &T {
        &self.0
    }
}
