//! Overrides: what holds for one key in place of its policy's limits, for a time or for good.

use std::fmt;

use crate::encoding::{Blob, GROUP_VERSION, varint};
use crate::policy::{self, Rules};
use crate::{Error, MAX_TIME_US, Scale, parse};

/// Most policies that one key can have overrides of.
pub const MAX_ENTRIES: usize = 64;

/// The head of an override's blob: no state has it.
const HEAD: [u8; 8] = (15_u64 << 60).to_le_bytes();

/// All overrides of one key, sorted by policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    entries: Vec<Entry>,
}

/// What holds in place of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The policy's name.
    pub policy: Box<str>,
    /// What holds.
    pub what: What,
    /// Until when (Unix time); 0 for no end.
    pub ends_ms: u64,
    /// For a person.
    pub note: Box<str>,
}

/// What holds in place of a policy's limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Other limits.
    Limits(Rules),
    /// The same limits, multiplied.
    Scale(Scale),
    /// Nothing is allowed.
    Block,
    /// Everything is allowed.
    Allow,
}

impl What {
    /// `limit … | SCALE num den | BLOCK | ALLOW`
    pub fn parse<'a>(words: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let word = words.clone().next().ok_or(Error::OverrideSyntax)?;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("BLOCK") || is("ALLOW") {
            words.next();
            return Ok(if is("BLOCK") {
                Self::Block
            } else {
                Self::Allow
            });
        }
        if is("SCALE") {
            words.next();
            let mut part = || parse::count(words.next(), Error::Scale);
            return Ok(Self::Scale(Scale::new(part()?, part()?)?));
        }
        Rules::parse(words)
            .map(Self::Limits)
            .map_err(|error| match error {
                Error::PolicySyntax => Error::OverrideSyntax,
                other => other,
            })
    }
}

/// Canonical: `SCALE 5 1`, `BLOCK`, `SLIDE 500 1m SLIDE 9000 1h`.
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(rules) => rules.fmt(f),
            Self::Scale(scale) => scale.fmt(f),
            Self::Block => f.write_str("BLOCK"),
            Self::Allow => f.write_str("ALLOW"),
        }
    }
}

impl Entry {
    /// `policy what [EX seconds] [NOTE text]`
    pub fn parse<'a>(
        words: &mut (impl Iterator<Item = &'a [u8]> + Clone),
        now_us: u64,
    ) -> Result<Self, Error> {
        let policy = policy::name(words.next().ok_or(Error::OverrideSyntax)?)?.into();
        let mut entry = Self {
            policy,
            what: What::parse(words)?,
            ends_ms: 0,
            note: "".into(),
        };
        while let Some(word) = words.next() {
            let value = words.next().ok_or(Error::OverrideSyntax)?;
            if word.eq_ignore_ascii_case(b"EX") {
                let for_us = parse::duration_us(Some(value), Error::Ends)?;
                entry.ends_ms = (now_us.min(MAX_TIME_US) + for_us) / 1000;
            } else if word.eq_ignore_ascii_case(b"NOTE") {
                entry.note = policy::note(value)?.into();
            } else {
                return Err(Error::OverrideSyntax);
            }
        }
        Ok(entry)
    }

    /// Whether it holds at `now`: until its end, which is not included.
    #[must_use]
    pub fn holds(&self, now_us: u64) -> bool {
        self.ends_ms == 0 || now_us < self.ends_ms * 1000
    }

    /// The time until it ends, rounded up; `None` if it does not.
    #[must_use]
    pub fn ends_in_ms(&self, now_us: u64) -> Option<u64> {
        let left_us = (self.ends_ms * 1000).saturating_sub(now_us);
        (self.ends_ms > 0).then(|| left_us.div_ceil(1000))
    }
}

impl Overrides {
    /// What holds for a policy at `now`.
    #[must_use]
    pub fn of(&self, policy: &[u8], now_us: u64) -> Option<&Entry> {
        let named = |entry: &&Entry| entry.policy.as_bytes() == policy && entry.holds(now_us);
        self.entries.iter().find(named)
    }

    /// Those that hold at `now`.
    pub fn iter(&self, now_us: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |entry| entry.holds(now_us))
    }

    /// The same with one entry set, and without those that have ended.
    pub fn with(&self, entry: Entry, now_us: u64) -> Result<Self, Error> {
        let mut all = self.without(entry.policy.as_bytes(), now_us);
        if all.entries.len() >= MAX_ENTRIES {
            return Err(Error::TooManyOverrides);
        }
        let place = all
            .entries
            .partition_point(|other| other.policy < entry.policy);
        all.entries.insert(place, entry);
        Ok(all)
    }

    /// The same without one policy's entry, and without those that have ended.
    #[must_use]
    pub fn without(&self, policy: &[u8], now_us: u64) -> Self {
        let others = self.iter(now_us);
        let others = others.filter(|entry| entry.policy.as_bytes() != policy);
        Self {
            entries: others.cloned().collect(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// When the last of them ends (Unix time); 0 if one has no end.
    #[must_use]
    pub fn expire_at_ms(&self) -> u64 {
        let mut ends = self.entries.iter().map(|entry| entry.ends_ms);
        if ends.clone().any(|ends_ms| ends_ms == 0) {
            return 0;
        }
        ends.by_ref().max().unwrap_or(0)
    }

    /// Memory that it has allocated, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let texts = self.entries.iter().map(|entry| {
            let rules = match &entry.what {
                What::Limits(rules) => size_of_val(rules.as_slice()),
                _ => 0,
            };
            entry.policy.len() + entry.note.len() + rules
        });
        self.entries.capacity() * size_of::<Entry>() + texts.sum::<usize>()
    }

    /// Whether bytes are an override's blob rather than a state's.
    #[must_use]
    pub fn is_blob(bytes: &[u8]) -> bool {
        bytes.get(1..9) == Some(&HEAD)
    }

    /// What replicas, the AOF and the RDB receive.
    #[must_use]
    pub fn blob(&self) -> Blob {
        let mut blob = Blob::new();
        blob.push(GROUP_VERSION);
        blob.extend_from_slice(&HEAD);
        varint::write(&mut blob, self.entries.len() as u64);
        for entry in &self.entries {
            varint::write(&mut blob, entry.ends_ms);
            for text in [&*entry.policy, &*entry.note, &*entry.what.to_string()] {
                varint::write(&mut blob, text.len() as u64);
                blob.extend_from_slice(text.as_bytes());
            }
        }
        blob
    }

    /// Reads a blob from a source that may be damaged.
    pub fn decode_blob(blob: &[u8]) -> Result<Self, Error> {
        match blob.first() {
            Some(&GROUP_VERSION) => {}
            Some(&version) if version > GROUP_VERSION => return Err(Error::NewerState),
            _ => return Err(Error::DamagedState),
        }
        if !Self::is_blob(blob) {
            return Err(Error::DamagedState);
        }
        let read = Self::read(&blob[1 + HEAD.len()..]).map_err(|_| Error::DamagedState)?;
        // Equal values have equal bits: nothing but what we write is read.
        if read.is_empty() || read.blob()[..] != *blob {
            return Err(Error::DamagedState);
        }
        Ok(read)
    }

    fn read(mut from: &[u8]) -> Result<Self, Error> {
        let count = varint::read(&mut from)?;
        if count > MAX_ENTRIES as u64 {
            return Err(Error::DamagedState);
        }
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..count {
            let ends_ms = varint::read(&mut from)?;
            let mut text = || {
                let len = varint::read(&mut from)?;
                let len = usize::try_from(len).map_err(|_| Error::DamagedState)?;
                let (text, rest) = from.split_at_checked(len).ok_or(Error::DamagedState)?;
                from = rest;
                Ok::<_, Error>(text)
            };
            let (name, note, what) = (text()?, text()?, text()?);
            let mut words = what.split(|&byte| byte == b' ');
            let entry = Entry {
                policy: policy::name(name)?.into(),
                note: policy::note(note)?.into(),
                what: What::parse(&mut words)?,
                ends_ms,
            };
            let in_order = entries.last().is_none_or(|last| last.policy < entry.policy);
            if !in_order || ends_ms > MAX_TIME_US / 1000 {
                return Err(Error::DamagedState);
            }
            entries.push(entry);
        }
        Ok(Self { entries })
    }
}

/// Where a key's overrides are kept: a key in the same slot of a cluster. `None` where there is no such name.
#[must_use]
pub fn place_of(key: &[u8]) -> Option<Vec<u8>> {
    const PREFIX: &[u8] = b"rl:override:{";
    let parts: &[&[u8]] = match hash_tag(key) {
        Some(tag) => &[PREFIX, tag, b"}:", key],
        None if key.is_empty() || key.contains(&b'}') => return None,
        None => &[PREFIX, key, b"}"],
    };
    Some(parts.concat())
}

/// What a cluster hashes in place of the whole key.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let tail = &key[open + 1..];
    let close = tail.iter().position(|&byte| byte == b'}')?;
    (close > 0).then(|| &tail[..close])
}
