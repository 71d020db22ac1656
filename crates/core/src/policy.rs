//! Policies: limits by name. Their words, their text, and the JSON in which a whole set is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::group::{self, MAX_RULES, Rule};
use crate::parse::{count, is_precision, make_precise};
use crate::{Algorithm, Error, Limit};

/// Longest name of a policy, in bytes.
pub const MAX_NAME: usize = 128;

/// Longest note, in bytes.
pub const MAX_NOTE: usize = 1024;

/// Most policies of a set.
pub const MAX_POLICIES: usize = 10_000;

/// Longest JSON that is taken from a caller, in bytes; what the server saved may be longer.
pub const MAX_JSON: usize = 16 << 20;

/// Limits that go by one name: all must allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    rules: Rules,
    /// Evaluated and counted, but not enforced.
    pub shadow: bool,
    /// For a person.
    pub note: Box<str>,
}

/// One to sixteen limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Box<[Rule]>);

impl Rules {
    /// Reads limits as long as words begin one: `SLIDE 60 1m COST 1 SLIDE 90000 1m`.
    pub fn parse<'a>(words: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let mut rules = Vec::new();
        while let Some(algorithm) = peek(words).and_then(Algorithm::from_name) {
            words.next();
            rules.push(rule(algorithm, words)?);
            if rules.len() > MAX_RULES {
                return Err(Error::RuleCount);
            }
        }
        if rules.is_empty() {
            return Err(match peek(words) {
                Some(_) => Error::PolicySyntax,
                None => Error::RuleCount,
            });
        }
        Ok(Self(rules.into()))
    }

    /// The limits one by one.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[Rule] {
        &self.0
    }

    /// The limits as one, and what a call that brings `cost` takes of it.
    #[inline]
    pub fn limit(&self, cost: u64) -> Result<(Limit<'_>, u64), Error> {
        match &*self.0 {
            [rule] => Ok((rule.limit, rule.cost_of(cost))),
            rules => Ok((Limit::Group(group::Limit::new(rules)?), cost)),
        }
    }

    /// The same with every amount multiplied.
    #[must_use]
    pub fn scaled(&self, by: crate::Scale) -> Self {
        let scaled = |rule: &Rule| Rule {
            limit: rule.limit.scaled(by),
            cost: rule.cost,
        };
        Self(self.0.iter().map(scaled).collect())
    }
}

fn peek<'a>(words: &(impl Iterator<Item = &'a [u8]> + Clone)) -> Option<&'a [u8]> {
    words.clone().next()
}

fn rule<'a>(
    algorithm: Algorithm,
    words: &mut (impl Iterator<Item = &'a [u8]> + Clone),
) -> Result<Rule, Error> {
    match algorithm {
        Algorithm::Lease => return Err(Error::LeaseInPolicy),
        Algorithm::Group => return Err(Error::PolicySyntax),
        _ => {}
    }
    let mut limit = match Limit::parse(algorithm, words)? {
        Limit::Slide(limit) => Limit::Slide(limit),
        Limit::Bucket(limit) => Limit::Bucket(limit),
        Limit::Fixed(limit) => Limit::Fixed(limit),
        Limit::Leak(limit) => Limit::Leak(limit),
        Limit::Exact(limit) => Limit::Exact(limit),
        Limit::Lease(_) | Limit::Group(_) => return Err(Error::PolicySyntax),
    };
    let mut cost = None;
    while let Some(word) = peek(words) {
        if is_precision(word) {
            words.next();
            make_precise(&mut limit, words.next())?;
        } else if word.eq_ignore_ascii_case(b"COST") {
            words.next();
            cost = Some(count(words.next(), Error::Cost)?);
        } else {
            break;
        }
    }
    Ok(Rule { limit, cost })
}

/// Canonical: `SLIDE 100 1m COST 1`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.limit)?;
        match self.cost {
            Some(cost) => write!(f, " COST {cost}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, rule) in self.0.iter().enumerate() {
            let space = if place > 0 { " " } else { "" };
            write!(f, "{space}{rule}")?;
        }
        Ok(())
    }
}

/// Checks a policy's name.
pub fn name(bytes: &[u8]) -> Result<&str, Error> {
    if (1..=MAX_NAME).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic) {
        return std::str::from_utf8(bytes).map_err(|_| Error::PolicyName);
    }
    Err(Error::PolicyName)
}

/// Checks a note.
pub fn note(bytes: &[u8]) -> Result<&str, Error> {
    match std::str::from_utf8(bytes) {
        Ok(note) if note.len() <= MAX_NOTE => Ok(note),
        _ => Err(Error::Note),
    }
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

    /// The words behind the name: `limit [limit …] [SHADOW] [NOTE text]`.
    pub fn parse<'a>(words: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let mut policy = Self::new(Rules::parse(words)?);
        while let Some(word) = words.next() {
            if word.eq_ignore_ascii_case(b"SHADOW") {
                policy.shadow = true;
            } else if word.eq_ignore_ascii_case(b"NOTE") {
                policy.note = note(words.next().ok_or(Error::PolicySyntax)?)?.into();
            } else {
                return Err(Error::PolicySyntax);
            }
        }
        Ok(policy)
    }

    /// Its limits.
    #[must_use]
    #[inline]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }
}

/// A whole set as JSON has it.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct File {
    policies: Named,
}

/// Read from an object only: by itself, serde takes a list of the fields' values as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        from.deserialize_map(Fields(PhantomData))
    }
}

struct Named(BTreeMap<String, Entry>);

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    limits: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    shadow: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    note: String,
}

impl Serialize for Named {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

/// As a map is read, but a name that comes twice is refused.
impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Named;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("policies by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Named, M::Error> {
                let mut named = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    let explain = |why: &dyn fmt::Display| {
                        de::Error::custom(format_args!("policy {}: {why}", printable(&name)))
                    };
                    let entry = map.next_value::<Object<Entry>>();
                    let Object(entry) = entry.map_err(|error| explain(&error))?;
                    if named.contains_key(&name) {
                        return Err(explain(&"its name comes twice"));
                    }
                    named.insert(name, entry);
                }
                Ok(Named(named))
            }
        }
        from.deserialize_map(Names)
    }
}

/// A name as it may stand in a line of text.
fn printable(name: &str) -> String {
    name.escape_debug().take(MAX_NAME).collect()
}

/// Reads a whole set. The error says which policy is wrong, and why.
pub fn from_json(text: &[u8]) -> Result<Vec<(Box<str>, Policy)>, String> {
    let reason = |error: Error| error.message().trim_start_matches("ERR ");
    let file = serde_json::from_slice(text).map_err(|error| error.to_string());
    let Object(File {
        policies: Named(policies),
    }) = file?;
    if policies.len() > MAX_POLICIES {
        return Err(reason(Error::TooManyPolicies).to_owned());
    }
    policies
        .into_iter()
        .map(|(key, entry)| match entry.read(&key) {
            Ok(policy) => Ok((key.into(), policy)),
            Err(error) => Err(format!("policy {}: {}", printable(&key), reason(error))),
        })
        .collect()
}

impl Entry {
    fn read(&self, key: &str) -> Result<Policy, Error> {
        name(key.as_bytes())?;
        if self.limits.len() > MAX_RULES {
            return Err(Error::RuleCount);
        }
        let mut rules = Vec::new();
        for text in &self.limits {
            let mut words = text.split_ascii_whitespace().map(str::as_bytes);
            let one = Rules::parse(&mut words)?;
            if one.0.len() > 1 || words.next().is_some() {
                return Err(Error::PolicySyntax);
            }
            rules.extend(one.0);
        }
        if rules.is_empty() {
            return Err(Error::RuleCount);
        }
        let mut policy = Policy::new(Rules(rules.into()));
        policy.shadow = self.shadow;
        policy.note = note(self.note.as_bytes())?.into();
        Ok(policy)
    }
}

/// Writes a whole set, sorted by name.
#[must_use]
pub fn to_json<'a>(policies: impl Iterator<Item = (&'a str, &'a Policy)>) -> String {
    let entry = |policy: &Policy| Entry {
        limits: policy.rules.0.iter().map(Rule::to_string).collect(),
        shadow: policy.shadow,
        note: policy.note.to_string(),
    };
    let named = policies.map(|(name, policy)| (name.to_owned(), entry(policy)));
    let file = File {
        policies: Named(named.collect()),
    };
    serde_json::to_string_pretty(&file).unwrap_or_default()
}
