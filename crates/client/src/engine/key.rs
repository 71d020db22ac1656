//! Cluster slots, and the pair of key and limit that caches use.

use std::hash::{Hash, Hasher};

use quick_cache::Equivalent;

use crate::Limit;

/// Slots of a Redis Cluster.
pub(crate) const SLOTS: u16 = 16384;

/// The slot of a key, computed from the text between its first `{` and the next `}` unless that is empty.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // Values from CLUSTER KEYSLOT.
        assert_eq!(slot(b"123456789"), 12739);
        assert_eq!(slot(b"somekey"), 11058);
        assert_eq!(slot(b"foo{hash_tag}"), 2515);
        assert_eq!(slot(b"{u42}:ip"), slot(b"{u42}:user"));
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % SLOTS);
    }
}
