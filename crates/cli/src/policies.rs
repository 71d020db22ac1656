//! A set of policies: read strictly from JSON, kept in canonical words, compared with another.

use std::collections::BTreeMap;
use std::fmt;

use rl_core::Error;
use rl_core::group::MAX_RULES;
use rl_core::policy::{self, MAX_POLICIES, Rules};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Failure;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policies {
    #[serde(deserialize_with = "named")]
    pub policies: BTreeMap<String, Policy>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    #[serde(deserialize_with = "some_limits")]
    limits: Vec<Limit>,
    #[serde(default, skip_serializing_if = "is_false")]
    shadow: bool,
    #[serde(
        default,
        skip_serializing_if = "String::is_empty",
        deserialize_with = "short_note"
    )]
    note: String,
}

/// A limit's canonical text: `SLIDE 100 60` is kept as `SLIDE 100 1m`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Limit(String);

impl Policies {
    /// Reads a file's text; an error says which policy is wrong, and where.
    pub fn read(json: &str, source: &str) -> Result<Self, Failure> {
        serde_json::from_str(json).map_err(|error| {
            let all = error.to_string();
            let position = format!(" at line {} column {}", error.line(), error.column());
            let what = all.strip_suffix(&position).unwrap_or(&all);
            Failure::new(
                format!("{source}:{}:{}: {what}", error.line(), error.column()),
                r#"a file looks like {"policies":{"free":{"limits":["SLIDE 100 1m"]}}}"#,
            )
        })
    }

    /// As `pull` writes it, and RL.POLICY LOAD reads it.
    pub fn to_json(&self) -> Result<String, Failure> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Failure::new(format!("the policies cannot be written: {error}"), ""))
    }

    /// What has to change for this set to become `wanted`, by name.
    pub fn changes<'a>(&'a self, wanted: &'a Self) -> Vec<Change<'a>> {
        let (old, new) = (&self.policies, &wanted.policies);
        let gone_or_other = old.iter().filter_map(|(name, was)| {
            let now = new.get(name);
            (now != Some(was)).then_some(Change {
                name,
                was: Some(was),
                now,
            })
        });
        let added = new.iter().filter(|(name, _)| !old.contains_key(*name));
        let added = added.map(|(name, now)| Change {
            name,
            was: None,
            now: Some(now),
        });
        let mut changes: Vec<_> = gone_or_other.chain(added).collect();
        changes.sort_by_key(|change| change.name);
        changes
    }
}

/// One policy that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change<'a> {
    pub name: &'a str,
    pub was: Option<&'a Policy>,
    pub now: Option<&'a Policy>,
}

impl Change<'_> {
    pub fn deletes(&self) -> bool {
        self.now.is_none()
    }
}

/// Two lines for a policy that changes, as diff prints them.
impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(was) = self.was {
            writeln!(f, "- {}: {was}", self.name)?;
        }
        if let Some(now) = self.now {
            writeln!(f, "+ {}: {now}", self.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits: Vec<_> = self.limits.iter().map(|limit| limit.0.as_str()).collect();
        f.write_str(&limits.join(" + "))?;
        if self.shadow {
            f.write_str(" (shadow)")?;
        }
        if !self.note.is_empty() {
            write!(f, "  # {}", self.note.escape_debug())?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Limit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        canonical(&text).map_err(|error| format!("limit {text:?}: {}", plain(error)))
    }
}

/// Reads one limit, by the same code as the server.
fn canonical(text: &str) -> Result<Limit, Error> {
    let mut words = text.split_ascii_whitespace().map(str::as_bytes);
    let rules = Rules::parse(&mut words)?;
    match (rules.as_slice(), words.next()) {
        ([rule], None) => Ok(Limit(rule.to_string())),
        _ => Err(Error::PolicySyntax),
    }
}

/// The core's text without the code that a server's error begins with.
fn plain(error: Error) -> &'static str {
    let text = error.message();
    text.strip_prefix("ERR ").unwrap_or(text)
}

fn is_false(value: &bool) -> bool {
    !value
}

fn some_limits<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Limit>, D::Error> {
    let limits = Vec::<Limit>::deserialize(from)?;
    if !(1..=MAX_RULES).contains(&limits.len()) {
        return Err(de::Error::custom(plain(Error::RuleCount)));
    }
    Ok(limits)
}

fn short_note<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let note = String::deserialize(from)?;
    policy::note(note.as_bytes()).map_err(|error| de::Error::custom(plain(error)))?;
    Ok(note)
}

/// Policies by name: a name twice is an error, and errors say whose they are.
fn named<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Policy>, D::Error> {
    struct Named;

    impl<'de> Visitor<'de> for Named {
        type Value = BTreeMap<String, Policy>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("policies by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                policy::name(name.as_bytes()).map_err(|error| {
                    de::Error::custom(format!("policy {name:?}: {}", plain(error)))
                })?;
                if all.contains_key(&name) {
                    return Err(de::Error::custom(format!("policy {name:?} is there twice")));
                }
                // The position in the inner error's text is found again by serde_json.
                let policy = map
                    .next_value::<Policy>()
                    .map_err(|error| de::Error::custom(format!("policy {name:?}: {error}")))?;
                all.insert(name, policy);
            }
            if all.len() > MAX_POLICIES {
                return Err(de::Error::custom(plain(Error::TooManyPolicies)));
            }
            Ok(all)
        }
    }

    from.deserialize_map(Named)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("slide 100 60", "SLIDE 100 1m")]
    #[case("SLIDE 100 90 precision 4", "SLIDE 100 90s PRECISION 4")]
    #[case("SLIDE 100 1m PRECISION 1", "SLIDE 100 1m")]
    #[case(
        "SLIDE 60 60000ms COST 1 PRECISION 8",
        "SLIDE 60 1m PRECISION 8 COST 1"
    )]
    #[case("BUCKET 200 1000 24h", "BUCKET 200 1000 1d")]
    #[case("FIXED 0 1500ms", "FIXED 0 1500ms")]
    #[case("EXACT 5 3600", "EXACT 5 1h")]
    #[case("LEAK 5 1 1s COST 2", "LEAK 5 1 1s COST 2")]
    fn limits_have_one_text(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(canonical(text).unwrap().0, shown);
        assert_eq!(canonical(shown).unwrap().0, shown);
    }

    #[rstest]
    #[case("", "between 1 and 16 limits")]
    #[case(
        "GLIDE 5 1m",
        "expected a limit without its cost, such as SLIDE 100 1m"
    )]
    #[case("POLICY pro 1", "expected a limit")]
    #[case("SLIDE 5", "incomplete limit")]
    #[case("SLIDE many 1m", "limit must be an integer between")]
    #[case("SLIDE 5 1y", "window must be a duration between 1ms and 3650d")]
    #[case("BUCKET 5 0 1m", "refill must be an integer between 1")]
    #[case("SLIDE 5 1m 7", "expected a limit without its cost")]
    #[case("SLIDE 5 1m SLIDE 6 1h", "expected a limit")]
    #[case("SLIDE 5 1m COST x", "COST of a limit must be")]
    #[case("SLIDE 5 1m COST 0", "COST of a limit must be")]
    #[case(
        "SLIDE 5 1m PRECISION 65",
        "precision must be an integer between 1 and 64"
    )]
    #[case("LEASE 5 1m h", "cannot have a LEASE")]
    fn bad_limits_are_explained(#[case] text: &str, #[case] says: &str) {
        let error = Limit::try_from(text.to_owned()).unwrap_err();
        assert!(error.contains(says), "{error}");
    }

    fn read(json: &str) -> Result<Policies, Failure> {
        Policies::read(json, "limits.json")
    }

    #[test]
    fn a_file_is_written_as_it_is_read() {
        let json = r#"{"policies":{"pro":{"note":"n","shadow":true,"limits":["SLIDE 60 60 COST 1","SLIDE 90000 1m"]},
            "free":{"limits":["slide 100 60"],"shadow":false,"note":""}}}"#;
        let policies = read(json).unwrap();
        let written = policies.to_json().unwrap();
        assert_eq!(read(&written).unwrap(), policies);
        let compact: String = written.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            compact,
            r#"{ "policies": { "free": { "limits": [ "SLIDE 100 1m" ] }, "pro": { "limits": [ "SLIDE 60 1m COST 1", "SLIDE 90000 1m" ], "shadow": true, "note": "n" } } }"#
        );
    }

    #[rstest]
    #[case(
        "{\"policies\":{\n\"free\":{\"limits\":[\"SLIDE 5 1y\"]}}}",
        "limits.json:2:",
        "policy \"free\": limit \"SLIDE 5 1y\": window must"
    )]
    #[case(
        "{\"policies\":{\"a\":{\"limits\":[\"SLIDE 5 1m\"]},\n\n\"a\":{\"limits\":[]}}}",
        "limits.json:3:",
        "policy \"a\" is there twice"
    )]
    #[case(
        "{\"policies\":{\"a\":{\n\"limit\":[]}}}",
        "limits.json:2:",
        "policy \"a\": unknown field `limit`"
    )]
    #[case(
        "{\"policies\":{\"a\":{\"limits\":[]}}}",
        "limits.json:1:",
        "policy \"a\": a policy must have between 1 and 16 limits"
    )]
    #[case(
        "{\"policies\":{\"a\":{}}}",
        "limits.json:1:",
        "policy \"a\": missing field `limits`"
    )]
    #[case(
        "{\"policies\":{\"a b\":{}}}",
        "limits.json:1:",
        "policy name must be 1 to 128 printable"
    )]
    #[case(
        "{\"policies\":{},\n\"extra\":1}",
        "limits.json:2:",
        "unknown field `extra`"
    )]
    #[case("{\"policies\":{}\n,}", "limits.json:2:", "trailing comma")]
    #[case("", "limits.json:1:", "EOF")]
    fn bad_files_are_explained(#[case] json: &str, #[case] place: &str, #[case] says: &str) {
        let failure = read(json).unwrap_err();
        assert!(
            failure.error.starts_with(place) && failure.error.contains(says),
            "{failure}"
        );
        assert_eq!(failure.error.matches(" column ").count(), 0, "{failure}");
    }

    #[test]
    fn changes_are_told_by_name() {
        let set = |json: &str| read(&format!("{{\"policies\":{{{json}}}}}")).unwrap();
        let old = set(
            r#""b":{"limits":["SLIDE 1 1m"]},"c":{"limits":["SLIDE 2 1m"]},"d":{"limits":["SLIDE 3 1m"]}"#,
        );
        let new = set(
            r#""a":{"limits":["SLIDE 9 1m"],"shadow":true,"note":"new"},"c":{"limits":["SLIDE 5 60"]},"d":{"limits":["SLIDE 3 60"]}"#,
        );
        let text: String = old.changes(&new).iter().map(Change::to_string).collect();
        assert_eq!(
            text,
            "+ a: SLIDE 9 1m (shadow)  # new\n- b: SLIDE 1 1m\n- c: SLIDE 2 1m\n+ c: SLIDE 5 1m\n"
        );
        assert!(old.changes(&new)[1].deletes());
        assert!(new.changes(&new).is_empty());
    }
}
