//! Overrides: what applies to one key instead of its policy's limits, for a time or permanently.

use std::fmt;
use std::str::FromStr;

use super::{Rules, check_name, check_note};
use crate::cluster::hash_tag;
use crate::encoding::{
    Blob, Kind, Reader, check_version, extended_blob, is_blob_of, write_bytes, write_varint,
};
use crate::{Error, MAX_TIME_US, Relocate, Scale, syntax};

/// The most overrides that one key can have.
pub const MAX_OVERRIDES: usize = 64;

/// All overrides of one key, sorted by policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    entries: Vec<Override>,
}

/// What applies to one key instead of the limits of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The policy's name.
    pub policy: Box<str>,
    /// What applies instead.
    pub action: OverrideAction,
    /// When it expires (Unix time); 0 if it does not.
    pub expires_at_ms: u64,
    /// A note for people.
    pub note: Box<str>,
}

/// What an override does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OverrideAction {
    /// Applies other limits.
    Limits(Rules),
    /// Multiplies the policy's limits.
    Scale(Scale),
    /// Denies every call.
    Block,
    /// Allows every call.
    Allow,
}

impl OverrideAction {
    /// Reads `limit … | SCALE num den | BLOCK | ALLOW`.
    pub fn parse<'a>(args: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let word = args.clone().next().ok_or(Error::OverrideSyntax)?;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("BLOCK") || is("ALLOW") {
            args.next();
            return Ok(if is("BLOCK") {
                Self::Block
            } else {
                Self::Allow
            });
        }
        if is("SCALE") {
            args.next();
            let mut part = || syntax::parse_count(args.next(), Error::Scale);
            return Ok(Self::Scale(Scale::new(part()?, part()?)?));
        }
        Rules::parse(args)
            .map(Self::Limits)
            .map_err(|error| match error {
                Error::PolicySyntax => Error::OverrideSyntax,
                other => other,
            })
    }
}

/// Reads exactly one action.
impl FromStr for OverrideAction {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = text.split_ascii_whitespace().map(str::as_bytes);
        let action = Self::parse(&mut words)?;
        match words.next() {
            None => Ok(action),
            Some(_) => Err(Error::OverrideSyntax),
        }
    }
}

/// The canonical text: `SCALE 5 1`, `BLOCK`, `SLIDE 500 1m SLIDE 9000 1h`.
impl fmt::Display for OverrideAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(rules) => rules.fmt(f),
            Self::Scale(scale) => scale.fmt(f),
            Self::Block => f.write_str("BLOCK"),
            Self::Allow => f.write_str("ALLOW"),
        }
    }
}

impl Override {
    /// Reads `policy action [EX duration] [NOTE text]`.
    pub fn parse<'a>(
        args: &mut (impl Iterator<Item = &'a [u8]> + Clone),
        now_us: u64,
    ) -> Result<Self, Error> {
        let policy = check_name(args.next().ok_or(Error::OverrideSyntax)?)?.into();
        let mut entry = Self {
            policy,
            action: OverrideAction::parse(args)?,
            expires_at_ms: 0,
            note: "".into(),
        };
        let mut note = None;
        while let Some(word) = args.next() {
            if word.eq_ignore_ascii_case(b"EX") && entry.expires_at_ms == 0 {
                let duration_us = syntax::parse_duration_us(args.next(), Error::OverrideExpiry)?;
                entry.expires_at_ms = (now_us.min(MAX_TIME_US) + duration_us) / 1000;
            } else if word.eq_ignore_ascii_case(b"NOTE") && note.is_none() {
                note = Some(check_note(args.next().ok_or(Error::Note)?)?);
            } else {
                return Err(Error::OverrideSyntax);
            }
        }
        entry.note = note.unwrap_or_default().into();
        Ok(entry)
    }

    /// Whether it applies at `now_us`: until just before it expires.
    #[must_use]
    pub fn is_in_force(&self, now_us: u64) -> bool {
        self.expires_at_ms == 0 || now_us < self.expires_at_ms * 1000
    }

    /// The time until it expires, rounded up; `None` if it does not.
    #[must_use]
    pub fn expires_in_ms(&self, now_us: u64) -> Option<u64> {
        let left_us = (self.expires_at_ms * 1000).saturating_sub(now_us);
        (self.expires_at_ms > 0).then(|| left_us.div_ceil(1000))
    }
}

impl Overrides {
    /// The override of a policy that is in force at `now_us`.
    #[must_use]
    pub fn get(&self, policy: &[u8], now_us: u64) -> Option<&Override> {
        let named =
            |entry: &&Override| entry.policy.as_bytes() == policy && entry.is_in_force(now_us);
        self.entries.iter().find(named)
    }

    /// The overrides that are in force at `now_us`.
    pub fn iter(&self, now_us: u64) -> impl Iterator<Item = &Override> {
        self.entries
            .iter()
            .filter(move |entry| entry.is_in_force(now_us))
    }

    /// The same overrides with one of them set, and without those that have expired.
    pub fn with(&self, entry: Override, now_us: u64) -> Result<Self, Error> {
        let mut all = self.without(entry.policy.as_bytes(), now_us);
        if all.entries.len() >= MAX_OVERRIDES {
            return Err(Error::TooManyOverrides);
        }
        let index = all
            .entries
            .partition_point(|other| other.policy < entry.policy);
        all.entries.insert(index, entry);
        Ok(all)
    }

    /// The same overrides without that of one policy, and without those that have expired.
    #[must_use]
    pub fn without(&self, policy: &[u8], now_us: u64) -> Self {
        let others = self.iter(now_us);
        let others = others.filter(|entry| entry.policy.as_bytes() != policy);
        Self {
            entries: others.cloned().collect(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the last of them expires (Unix time); 0 if one of them does not.
    #[must_use]
    pub fn expire_at_ms(&self) -> u64 {
        let mut expiries = self.entries.iter().map(|entry| entry.expires_at_ms);
        if expiries.clone().any(|expires_at_ms| expires_at_ms == 0) {
            return 0;
        }
        expiries.by_ref().max().unwrap_or(0)
    }

    /// Allocated memory in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let texts = self.entries.iter().map(|entry| {
            let rules = match &entry.action {
                OverrideAction::Limits(rules) => size_of_val(rules.as_slice()),
                _ => 0,
            };
            entry.policy.len() + entry.note.len() + rules
        });
        self.entries.capacity() * size_of::<Override>() + texts.sum::<usize>()
    }

    /// Hands every allocation to `by`; there are few.
    pub fn relocate(&mut self, by: &mut impl Relocate) {
        by.list(&mut self.entries);
        for entry in &mut self.entries {
            by.text(&mut entry.policy);
            by.text(&mut entry.note);
            if let OverrideAction::Limits(rules) = &mut entry.action {
                rules.relocate(by);
            }
        }
    }

    /// Whether bytes are a blob of overrides rather than of a state.
    #[must_use]
    pub fn is_blob(bytes: &[u8]) -> bool {
        is_blob_of(Kind::Overrides, bytes)
    }

    /// What replicas, the AOF and the RDB receive.
    #[must_use]
    pub fn blob(&self) -> Blob {
        extended_blob(Kind::Overrides, |blob| {
            write_varint(blob, self.entries.len() as u64);
            for entry in &self.entries {
                write_varint(blob, entry.expires_at_ms);
                for text in [&*entry.policy, &*entry.note, &*entry.action.to_string()] {
                    write_bytes(blob, text.as_bytes());
                }
            }
        })
    }

    /// Reads a blob from a source that may be damaged.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        let mut from = Reader::new(blob);
        let [version] = from.array()?;
        check_version(version)?;
        if Kind::of(u64::from_le_bytes(from.array()?))? != Some(Kind::Overrides) {
            return Err(Error::DamagedState);
        }
        let overrides = Self::read(from).map_err(|_| Error::DamagedState)?;
        // Equal values have equal bits: only what we write is accepted.
        if overrides.is_empty() || overrides.blob()[..] != *blob {
            return Err(Error::DamagedState);
        }
        Ok(overrides)
    }

    fn read(mut from: Reader) -> Result<Self, Error> {
        let count = from.varint()?;
        if count > MAX_OVERRIDES as u64 {
            return Err(Error::DamagedState);
        }
        let mut entries: Vec<Override> = Vec::new();
        for _ in 0..count {
            let expires_at_ms = from.varint()?;
            let (policy, note, action) = (from.bytes()?, from.bytes()?, from.bytes()?);
            let entry = Override {
                policy: check_name(policy)?.into(),
                note: check_note(note)?.into(),
                action: OverrideAction::parse(&mut action.split(|&byte| byte == b' '))?,
                expires_at_ms,
            };
            let in_order = entries.last().is_none_or(|last| last.policy < entry.policy);
            if !in_order || expires_at_ms > MAX_TIME_US / 1000 {
                return Err(Error::DamagedState);
            }
            entries.push(entry);
        }
        from.finish(Self { entries })
    }
}

/// The key that stores the overrides of `key`, in the same slot of a cluster. `None` if there is no such name.
#[must_use]
pub fn override_key(key: &[u8]) -> Option<Vec<u8>> {
    const PREFIX: &[u8] = b"rl:override:{";
    let parts: &[&[u8]] = match hash_tag(key) {
        Some(tag) => &[PREFIX, tag, b"}:", key],
        None if key.is_empty() || key.contains(&b'}') => return None,
        None => &[PREFIX, key, b"}"],
    };
    Some(parts.concat())
}
