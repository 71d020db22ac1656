//! State of the module that lives as long as the server does.

use std::cell::RefCell;

use super::config::Setting;
use super::{Context, Info};

/// Proof of being called by the server on its main thread, where it runs every command, event, INFO and
/// CONFIG. (Values are freed on other threads as well, without such a proof.)
pub(crate) trait OnMainThread {}

impl OnMainThread for Context {}
impl OnMainThread for Info {}
impl OnMainThread for Setting {}

/// Reached only with a proof of being on the main thread.
pub(crate) struct MainThread<T>(RefCell<T>);

// SAFETY: one thread alone reaches the content, see `OnMainThread`.
unsafe impl<T> Sync for MainThread<T> {}

impl<T> MainThread<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self(RefCell::new(content))
    }

    /// `None` from within itself: `body` must not call what leads back here.
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
