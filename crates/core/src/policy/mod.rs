//! Policies: limits with a name. Their text form, the JSON of a whole set, and the overrides of single keys.

mod json;
mod overrides;
mod rules;

use crate::Error;

pub use crate::algorithm::{MAX_RULES, Rule};
pub use json::{JsonError, MAX_JSON_LEN, from_json, to_json};
pub use overrides::{MAX_OVERRIDES, Override, OverrideAction, Overrides, override_key};
pub use rules::Rules;

/// Longest name of a policy, in bytes.
pub const MAX_NAME_LEN: usize = 128;

/// Longest note, in bytes.
pub const MAX_NOTE_LEN: usize = 1024;

/// Most policies of a set.
pub const MAX_POLICIES: usize = 10_000;

/// Limits under one name. All of them must allow a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    rules: Rules,
    /// Evaluated and counted, but not enforced.
    pub shadow: bool,
    /// A note for people.
    pub note: Box<str>,
}

impl Policy {
    /// A policy that is enforced and has no note.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            shadow: false,
            note: "".into(),
        }
    }

    /// Reads the arguments after the name: `limit [limit …] [SHADOW] [NOTE text]`.
    pub fn parse<'a>(args: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let mut policy = Self::new(Rules::parse(args)?);
        let mut note = None;
        while let Some(arg) = args.next() {
            if arg.eq_ignore_ascii_case(b"SHADOW") && !policy.shadow {
                policy.shadow = true;
            } else if arg.eq_ignore_ascii_case(b"NOTE") && note.is_none() {
                note = Some(check_note(args.next().ok_or(Error::Note)?)?);
            } else {
                return Err(Error::PolicySyntax);
            }
        }
        policy.note = note.unwrap_or_default().into();
        Ok(policy)
    }

    /// The limits.
    #[must_use]
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
}

/// Checks a policy's name.
pub fn check_name(bytes: &[u8]) -> Result<&str, Error> {
    if (1..=MAX_NAME_LEN).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic) {
        return std::str::from_utf8(bytes).map_err(|_| Error::PolicyName);
    }
    Err(Error::PolicyName)
}

/// Checks a note.
pub fn check_note(bytes: &[u8]) -> Result<&str, Error> {
    match std::str::from_utf8(bytes) {
        Ok(note) if note.len() <= MAX_NOTE_LEN => Ok(note),
        _ => Err(Error::Note),
    }
}
