//! The pair of key and limit that caches use.

use std::hash::{Hash, Hasher};

use quick_cache::Equivalent;

use crate::Limit;

/// A key and its limit. Caches use both, so that a changed limit takes effect immediately.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct LimitedKey {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: Limit,
}

impl Hash for LimitedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        LimitedKeyRef(&self.key, &self.limit).hash(state);
    }
}

/// A borrowed [`LimitedKey`], for lookups.
#[derive(Clone, Copy, Hash)]
pub(crate) struct LimitedKeyRef<'a>(pub(crate) &'a [u8], pub(crate) &'a Limit);

impl LimitedKeyRef<'_> {
    pub(crate) fn to_owned(self) -> LimitedKey {
        LimitedKey {
            key: self.0.into(),
            limit: self.1.clone(),
        }
    }
}

impl Equivalent<LimitedKey> for LimitedKeyRef<'_> {
    fn equivalent(&self, other: &LimitedKey) -> bool {
        *self.0 == *other.key && *self.1 == other.limit
    }
}
