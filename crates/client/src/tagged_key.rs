//! Keys with hash tags.

use std::fmt::Display;

/// A key with a hash tag: `{tag}:name`. All keys with the same tag are in one cluster slot, so that one call
/// can check them together.
///
/// ```
/// assert_eq!(rl_client::tagged_key("u42", "search"), "{u42}:search");
/// ```
#[must_use]
pub fn tagged_key(tag: impl Display, name: impl Display) -> String {
    format!("{{{tag}}}:{name}")
}
