//! Keys: hash tags that keep limits together, the slots they fall into, and keys with their limits.

use std::fmt::Display;
use std::hash::{Hash, Hasher};

use quick_cache::Equivalent;

use crate::Limit;

/// Slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16384;

/// A key with a hash tag: `{tag}:name`. All keys of one tag live in one slot of a cluster, so that one call
/// can check them together.
///
/// ```
/// assert_eq!(rl_client::tagged("u42", "search"), "{u42}:search");
/// ```
#[must_use]
pub fn tagged(tag: impl Display, name: impl Display) -> String {
    format!("{{{tag}}}:{name}")
}

/// The slot of a key: by what stands between its first `{` and the next `}`, if that is not empty.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, as Redis Cluster uses it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 {
                shifted
            } else {
                shifted ^ 0x1021
            }
        })
    })
}

/// A key under a limit: what caches go by. With the limit a part of it, another limit is honoured at once.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Limited {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: Limit,
}

impl Hash for Limited {
    fn hash<H: Hasher>(&self, state: &mut H) {
        LimitedRef(&self.key, &self.limit).hash(state);
    }
}

/// The same, to look up without owning.
#[derive(Clone, Copy, Hash)]
pub(crate) struct LimitedRef<'a>(pub(crate) &'a [u8], pub(crate) &'a Limit);

impl LimitedRef<'_> {
    pub(crate) fn to_owned(self) -> Limited {
        Limited {
            key: self.0.into(),
            limit: self.1.clone(),
        }
    }
}

impl Equivalent<Limited> for LimitedRef<'_> {
    fn equivalent(&self, other: &Limited) -> bool {
        *self.0 == *other.key && *self.1 == other.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // As CLUSTER KEYSLOT answers.
        assert_eq!(slot(b"123456789"), 12739);
        assert_eq!(slot(b"somekey"), 11058);
        assert_eq!(slot(b"foo{hash_tag}"), 2515);
        assert_eq!(slot(b"{u42}:ip"), slot(b"{u42}:user"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }
}
