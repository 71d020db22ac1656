//! A set of policies: read strictly from JSON, kept in canonical words, compared with another.

use std::collections::BTreeMap;
use std::fmt;

use rl_core::Algorithm;
use rl_core::parse::{self, Spec};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::failure::Failure;

const MAX_LIMITS: usize = 16;
const MAX_NAME: usize = 128;
const MAX_NOTE: usize = 1024;
const MAX_POLICIES: usize = 10_000;

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
        canonical(&text).map_err(|error| format!("limit {text:?}: {error}"))
    }
}

/// Reads `SLIDE 100 60 [PRECISION n] [COST n]`. The core judges the numbers; words say what it cannot know.
fn canonical(text: &str) -> Result<Limit, String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let algorithm = words
        .first()
        .and_then(|name| Algorithm::from_name(name.as_bytes()));
    let algorithm = match algorithm {
        Some(Algorithm::Lease) => {
            return Err("LEASE cannot be part of a policy, for each call names its own holder: call RL.LEASE".into());
        }
        Some(
            known @ (Algorithm::Slide
            | Algorithm::Bucket
            | Algorithm::Fixed
            | Algorithm::Exact
            | Algorithm::Leak),
        ) => known,
        _ => return Err("expected SLIDE, BUCKET, FIXED, EXACT or LEAK and its numbers".into()),
    };
    let parameters = algorithm.parameters();
    let Some((numbers, options)) = words[1..].split_at_checked(parameters) else {
        return Err(format!(
            "{} takes {parameters} numbers, such as {}",
            algorithm.name(),
            example(algorithm)
        ));
    };
    let (mut precision, mut cost) = (None, None);
    for option in options.chunks(2) {
        let (place, value) = match *option {
            [name, value] if name.eq_ignore_ascii_case("PRECISION") => (&mut precision, value),
            [name, value] if name.eq_ignore_ascii_case("COST") => (&mut cost, value),
            _ => {
                return Err(format!(
                    "{:?} is no option: use PRECISION n or COST n",
                    option[0]
                ));
            }
        };
        if place.replace(value).is_some() {
            return Err(format!("{} is given twice", option[0].to_uppercase()));
        }
    }
    // A spec has its cost behind the numbers, and its precision behind that.
    let mut spec = vec![algorithm.name()];
    spec.extend(numbers);
    spec.push(cost.unwrap_or("1"));
    spec.extend(precision.iter().flat_map(|value| ["PRECISION", value]));
    let mut spec = spec.into_iter().map(str::as_bytes);
    let plain = |error: rl_core::Error| {
        let text = error.message();
        text.strip_prefix("ERR ").unwrap_or(text).to_owned()
    };
    Spec::parse(&mut spec).map_err(plain)?;
    if spec.next().is_some() {
        return Err("PRECISION belongs to SLIDE".into());
    }
    let (counts, span) = numbers.split_at(parameters - 1);
    let span = span[0];
    let span_us =
        parse::duration_us(Some(span.as_bytes()), rl_core::Error::Period).map_err(plain)?;
    let mut shown = vec![algorithm.name().to_owned()];
    shown.extend(counts.iter().map(|&count| count.to_owned()));
    shown.push(duration(span_us / 1000));
    for (name, value) in [("PRECISION", precision), ("COST", cost)] {
        if let Some(value) = value.filter(|&value| (name, value) != ("PRECISION", "1")) {
            shown.extend([name.to_owned(), value.to_owned()]);
        }
    }
    Ok(Limit(shown.join(" ")))
}

fn example(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Bucket => "BUCKET 200 1000 1m (capacity, refill, period)",
        Algorithm::Leak => "LEAK 100 10 1s (capacity, rate, period)",
        Algorithm::Fixed => "FIXED 100 1d (limit, window)",
        Algorithm::Exact => "EXACT 100 1m (limit, window)",
        _ => "SLIDE 100 1m (limit, window)",
    }
}

/// In the largest unit that divides it.
fn duration(ms: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (24 * 60 * 60 * 1000, "d"),
        (60 * 60 * 1000, "h"),
        (60 * 1000, "m"),
        (1000, "s"),
    ];
    let unit = UNITS.iter().find(|(unit, _)| ms.is_multiple_of(*unit));
    unit.map_or_else(
        || format!("{ms}ms"),
        |(unit, name)| format!("{}{name}", ms / unit),
    )
}

fn is_false(value: &bool) -> bool {
    !value
}

fn some_limits<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Limit>, D::Error> {
    let limits = Vec::<Limit>::deserialize(from)?;
    if !(1..=MAX_LIMITS).contains(&limits.len()) {
        return Err(de::Error::custom(format!(
            "a policy has 1 to {MAX_LIMITS} limits, not {}",
            limits.len()
        )));
    }
    Ok(limits)
}

fn short_note<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let note = String::deserialize(from)?;
    if note.len() > MAX_NOTE {
        return Err(de::Error::custom(format!(
            "a note has at most {MAX_NOTE} bytes, not {}",
            note.len()
        )));
    }
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
                let printable = name.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
                if !printable || !(1..=MAX_NAME).contains(&name.len()) {
                    return Err(de::Error::custom(format!(
                        "policy {name:?}: a name is 1 to {MAX_NAME} printable ASCII characters without space"
                    )));
                }
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
                return Err(de::Error::custom(format!(
                    "{} policies are more than a node takes, {MAX_POLICIES}",
                    all.len()
                )));
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
    #[case("LEAK 5 1 1s COST 0", "LEAK 5 1 1s COST 0")]
    fn limits_have_one_text(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(canonical(text).unwrap().0, shown);
        assert_eq!(canonical(shown).unwrap().0, shown);
    }

    #[rstest]
    #[case("", "expected SLIDE")]
    #[case("GLIDE 5 1m", "expected SLIDE")]
    #[case("POLICY pro 1", "expected SLIDE")]
    #[case("SLIDE 5", "SLIDE takes 2 numbers, such as SLIDE 100 1m")]
    #[case("BUCKET 5 1m", "BUCKET takes 3 numbers")]
    #[case("SLIDE many 1m", "limit must be an integer between")]
    #[case("SLIDE 5 1y", "window must be a duration between 1ms and 3650d")]
    #[case("BUCKET 5 0 1m", "refill must be an integer between 1")]
    #[case("SLIDE 5 1m 7", "\"7\" is no option")]
    #[case("SLIDE 5 1m COST x", "cost must be an integer")]
    #[case("SLIDE 5 1m COST 1 COST 2", "COST is given twice")]
    #[case(
        "SLIDE 5 1m PRECISION 65",
        "precision must be an integer between 1 and 64"
    )]
    #[case("FIXED 5 1m PRECISION 4", "PRECISION belongs to SLIDE")]
    #[case("LEASE 5 1m h", "LEASE cannot be part of a policy")]
    fn bad_limits_are_explained(#[case] text: &str, #[case] says: &str) {
        let error = canonical(text).unwrap_err();
        assert!(error.contains(says), "{text:?}: {error}");
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
        "policy \"a\": a policy has 1 to 16 limits"
    )]
    #[case(
        "{\"policies\":{\"a\":{}}}",
        "limits.json:1:",
        "policy \"a\": missing field `limits`"
    )]
    #[case(
        "{\"policies\":{\"a b\":{}}}",
        "limits.json:1:",
        "a name is 1 to 128 printable"
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
