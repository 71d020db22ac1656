//! A whole set of policies as JSON: `{"policies": {"free": {"limits": ["SLIDE 100 1m"]}}}`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{MAX_NAME_LEN, MAX_POLICIES, MAX_RULES, Policy, Rule, Rules, check_name, check_note};
use crate::Error;

/// Longest JSON that is accepted from a caller, in bytes. What the server saved may be longer.
pub const MAX_JSON_LEN: usize = 16 << 20;

/// What is wrong with the JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonError {
    /// What is wrong. If a single policy is wrong, its name is included.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1; 0 at the start of a line.
    pub column: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message,
            line,
            column,
        } = self;
        write!(f, "{message} at line {line} column {column}")
    }
}

impl std::error::Error for JsonError {}

/// Reads a whole set, sorted by name. The error says which policy is wrong, why and where.
pub fn from_json(text: &[u8]) -> Result<Vec<(Box<str>, Policy)>, JsonError> {
    match serde_json::from_slice::<Object<File>>(text) {
        Ok(Object(file)) => Ok(file.policies.0.into_iter().collect()),
        Err(error) => {
            let (line, column) = (error.line(), error.column());
            let text = error.to_string();
            let position = format!(" at line {line} column {column}");
            let message = text.strip_suffix(&position).unwrap_or(&text).to_owned();
            Err(JsonError {
                message,
                line,
                column,
            })
        }
    }
}

/// Writes a whole set, sorted by name.
#[must_use]
pub fn to_json<'a>(policies: impl IntoIterator<Item = (&'a str, &'a Policy)>) -> String {
    #[derive(Serialize)]
    struct File<'a> {
        policies: BTreeMap<&'a str, &'a Policy>,
    }
    let policies = policies.into_iter().collect();
    // Neither the keys nor the values of this map can fail to be written.
    serde_json::to_string_pretty(&File { policies }).unwrap_or_default()
}

/// Writes the policy as an entry of a set.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Entry<'a> {
            limits: Vec<String>,
            #[serde(skip_serializing_if = "std::ops::Not::not")]
            shadow: bool,
            #[serde(skip_serializing_if = "str::is_empty")]
            note: &'a str,
        }
        let limits = self.rules.as_slice().iter().map(Rule::to_string);
        let entry = Entry {
            limits: limits.collect(),
            shadow: self.shadow,
            note: &self.note,
        };
        entry.serialize(to)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    policies: Policies,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    limits: Limits,
    #[serde(default)]
    shadow: bool,
    #[serde(default)]
    note: Note,
}

/// Accepts only an object: serde on its own also accepts a list of the fields' values.
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

/// Policies by name. A repeated name is an error, and every error names the policy.
struct Policies(BTreeMap<Box<str>, Policy>);

impl<'de> Deserialize<'de> for Policies {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Policies;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("policies by name")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Policies, M::Error> {
                let mut policies = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    // If the inner error has a position, serde_json takes it from the text.
                    let explain = |why: &dyn fmt::Display| {
                        de::Error::custom(format_args!("policy \"{}\": {why}", printable(&name)))
                    };
                    check_name(name.as_bytes()).map_err(|error| explain(&error.reason()))?;
                    let entry = map.next_value::<Object<Entry>>();
                    let Object(entry) = entry.map_err(|error| explain(&error))?;
                    if policies.contains_key(&*name) {
                        return Err(explain(&"the name is used twice"));
                    }
                    if policies.len() == MAX_POLICIES {
                        return Err(de::Error::custom(Error::TooManyPolicies.reason()));
                    }
                    let mut policy = Policy::new(entry.limits.0);
                    policy.shadow = entry.shadow;
                    policy.note = entry.note.0;
                    policies.insert(name.into(), policy);
                }
                Ok(Policies(policies))
            }
        }
        from.deserialize_map(Names)
    }
}

/// The limits of a policy. Reading stops where there are too many.
struct Limits(Rules);

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Limits;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a list of limits")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Limits, S::Error> {
                let mut rules = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    if rules.len() == MAX_RULES {
                        return Err(de::Error::custom(Error::LimitCount.reason()));
                    }
                    rules.push(text.parse::<Rule>().map_err(|error| {
                        let reason = error.reason();
                        de::Error::custom(format_args!("limit \"{}\": {reason}", printable(&text)))
                    })?);
                }
                let rules = Rules::new(rules);
                rules
                    .map(Limits)
                    .map_err(|error| de::Error::custom(error.reason()))
            }
        }
        from.deserialize_seq(List)
    }
}

#[derive(Default)]
struct Note(Box<str>);

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let note = String::deserialize(from)?;
        match check_note(note.as_bytes()) {
            Ok(_) => Ok(Self(note.into())),
            Err(error) => Err(de::Error::custom(error.reason())),
        }
    }
}

/// A text that fits into one line.
fn printable(text: &str) -> String {
    text.escape_debug().take(MAX_NAME_LEN).collect()
}
