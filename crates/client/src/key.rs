//! Keys: hash tags that keep limits together, and the slots they fall into.

use std::fmt::Display;

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
