//! A set of policies, and how it differs from another.

use std::collections::BTreeMap;
use std::fmt;

use rl_core::policy::{self, Policy};
use serde::Serialize;

use crate::failure::Failure;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicySet(BTreeMap<Box<str>, Policy>);

impl PolicySet {
    /// Reads JSON from `source`, which is a file or a node. An error says where and which policy is wrong.
    pub fn read(json: &str, source: &str) -> Result<Self, Failure> {
        match policy::from_json(json.as_bytes()) {
            Ok(policies) => Ok(Self(policies.into_iter().collect())),
            Err(error) => Err(Failure::new(
                format!(
                    "{source}:{}:{}: {}",
                    error.line, error.column, error.message
                ),
                r#"a file looks like {"policies":{"free":{"limits":["SLIDE 100 1m"]}}}"#,
            )),
        }
    }

    /// The form that `pull` writes and RL.POLICY LOAD reads.
    pub fn to_json(&self) -> String {
        policy::to_json(self.0.iter().map(|(name, policy)| (&**name, policy)))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// What has to change for this set to become `wanted`, sorted by name.
    pub fn changes<'a>(&'a self, wanted: &'a Self) -> Vec<Change<'a>> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(wanted.0.keys()).collect();
        let changes = names.into_iter().map(|name| Change {
            policy: name,
            old: self.0.get(name),
            new: wanted.0.get(name),
        });
        changes.filter(|change| change.old != change.new).collect()
    }
}

/// A policy that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change<'a> {
    pub policy: &'a str,
    old: Option<&'a Policy>,
    new: Option<&'a Policy>,
}

impl Change<'_> {
    pub fn deletes(&self) -> bool {
        self.new.is_none()
    }
}

/// Lines as in a diff: `-` for the old policy and `+` for the new one.
impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (sign, policy) in [('-', self.old), ('+', self.new)] {
            if let Some(policy) = policy {
                writeln!(f, "{sign} {}: {}", self.policy, one_line(policy))?;
            }
        }
        Ok(())
    }
}

fn one_line(policy: &Policy) -> String {
    let limits = policy.rules().as_slice().iter().map(ToString::to_string);
    let mut line = limits.collect::<Vec<_>>().join(" + ");
    if policy.shadow {
        line += " (shadow)";
    }
    if !policy.note.is_empty() {
        line += &format!("  # {}", policy.note.escape_debug());
    }
    line
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<PolicySet, Failure> {
        PolicySet::read(json, "policies.json")
    }

    #[test]
    fn a_file_is_written_as_it_is_read() {
        let json = r#"{"policies":{"pro":{"note":"n","shadow":true,"limits":["SLIDE 60 60 COST 1","SLIDE 90000 1m"]},
            "free":{"limits":["slide 100 60"],"shadow":false,"note":""}}}"#;
        let policies = read(json).unwrap();
        let written = policies.to_json();
        assert_eq!(read(&written).unwrap(), policies);
        let compact: String = written.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            compact,
            r#"{ "policies": { "free": { "limits": [ "SLIDE 100 1m" ] }, "pro": { "limits": [ "SLIDE 60 1m COST 1", "SLIDE 90000 1m" ], "shadow": true, "note": "n" } } }"#
        );
    }

    #[test]
    fn an_error_says_where() {
        let failure =
            read("{\"policies\":{\n\"free\":{\"limits\":[\"SLIDE 5 1y\"]}}}").unwrap_err();
        assert!(failure.error.starts_with("policies.json:2:"), "{failure}");
        assert!(failure.error.contains("policy \"free\""), "{failure}");
        assert!(!failure.error.contains(" column "), "{failure}");
    }

    #[test]
    fn changes_by_name() {
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
