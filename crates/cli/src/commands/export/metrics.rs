//! The figures in Prometheus' text format.

use std::fmt::{Display, Write};

use crate::commands::stats::Figures;
use crate::fleet::Role;
use crate::info::Info;
use crate::wire::Counts;

pub struct Scrape<'a> {
    /// `None` for a node that did not answer.
    pub nodes: Vec<(&'a str, Role, Option<Measured>)>,
    pub seconds: f64,
}

pub struct Measured {
    pub info: Info,
    pub figures: Figures,
    /// Unix time by the node.
    pub clock: f64,
    pub policies_hash: u32,
    pub seconds: f64,
}

/// FNV-1a: equal policies, equal number; and small enough for a float to hold it exactly.
pub fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

pub fn text(scrape: &Scrape) -> String {
    let mut page = Page(String::new());
    let up = || {
        scrape
            .nodes
            .iter()
            .filter_map(|(name, role, measured)| Some((*name, role, measured.as_ref()?)))
    };

    page.family("rl_up", "gauge", "Whether the node answered this scrape.");
    for (node, role, measured) in &scrape.nodes {
        page.line(
            "rl_up",
            &[("node", node), ("role", role_name(*role))],
            u8::from(measured.is_some()),
        );
    }
    page.family(
        "rl_node_info",
        "gauge",
        "The module's version on each node, which is always 1.",
    );
    for (node, role, measured) in up() {
        let version = measured.info.get("rl_version").unwrap_or_default();
        let labels = [
            ("node", node),
            ("role", role_name(*role)),
            ("version", version),
        ];
        page.line("rl_node_info", &labels, 1);
    }

    page.family(
        "rl_checks_total",
        "counter",
        "Checks since the node's start, each with one outcome: allowed, denied or forced.",
    );
    for (node, _, measured) in up() {
        page.outcomes(
            "rl_checks_total",
            &[("node", node)],
            &measured.figures.node.total,
        );
    }
    page.family(
        "rl_policy_checks_total",
        "counter",
        "The same of each policy; part of rl_checks_total.",
    );
    for (node, _, measured) in up() {
        for (policy, stats) in &measured.figures.policies {
            page.outcomes(
                "rl_policy_checks_total",
                &[("node", node), ("policy", policy)],
                &stats.total,
            );
        }
    }
    page.of_nodes(
        "shadow_denied_total",
        "Allowed checks that a SHADOW limit would have denied.",
        &scrape.nodes,
        |counts| counts.shadow_denied,
    );
    page.of_nodes(
        "refunded_units_total",
        "Units given back.",
        &scrape.nodes,
        |counts| counts.refunded,
    );

    type Field = (&'static str, &'static str, &'static str, &'static str);
    const FIELDS: [Field; 7] = [
        (
            "rl_policies",
            "rl_policies",
            "gauge",
            "Policies on the node.",
        ),
        (
            "rl_overrides",
            "rl_overrides",
            "gauge",
            "Keys with overrides on the node.",
        ),
        (
            "rl_audit_entries",
            "rl_audit_len",
            "gauge",
            "Denials kept for RL.AUDIT.",
        ),
        (
            "rl_audit_stream_errors_total",
            "rl_audit_stream_errors",
            "counter",
            "Denials that could not be written to the audit stream.",
        ),
        (
            "rl_replicas",
            "connected_slaves",
            "gauge",
            "Replicas connected to the node.",
        ),
        (
            "rl_evicted_keys_total",
            "evicted_keys",
            "counter",
            "Keys that the server dropped to free memory; counters may be among them.",
        ),
        (
            "rl_memory_used_bytes",
            "used_memory",
            "gauge",
            "Memory in use by the whole server.",
        ),
    ];
    for (name, field, kind, help) in FIELDS {
        page.family(name, kind, help);
        for (node, _, measured) in up() {
            if let Some(value) = measured.info.number(field) {
                page.line(name, &[("node", node)], value);
            }
        }
    }

    page.family(
        "rl_policies_hash",
        "gauge",
        "A number that is equal where the policies are.",
    );
    for (node, role, measured) in up() {
        page.line(
            "rl_policies_hash",
            &[("node", node), ("role", role_name(*role))],
            measured.policies_hash,
        );
    }
    page.family(
        "rl_clock_seconds",
        "gauge",
        "Unix time by the node's clock, at the scrape.",
    );
    for (node, _, measured) in up() {
        page.line("rl_clock_seconds", &[("node", node)], measured.clock);
    }
    page.family(
        "rl_node_scrape_duration_seconds",
        "gauge",
        "How long the node took to answer.",
    );
    for (node, _, measured) in up() {
        page.line(
            "rl_node_scrape_duration_seconds",
            &[("node", node)],
            measured.seconds,
        );
    }
    page.family(
        "rl_scrape_duration_seconds",
        "gauge",
        "How long the whole scrape took.",
    );
    page.line("rl_scrape_duration_seconds", &[], scrape.seconds);
    page.0
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Primary => "primary",
        Role::Replica => "replica",
    }
}

struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (n, (label, value)) in labels.iter().enumerate() {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let before = if n == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    fn outcomes(&mut self, name: &str, labels: &[(&str, &str)], counts: &Counts) {
        for (outcome, count) in [
            ("allowed", counts.allowed),
            ("denied", counts.denied),
            ("forced", counts.forced),
        ] {
            self.line(name, &[labels, &[("outcome", outcome)]].concat(), count);
        }
    }

    /// A count of the node, and of each policy under a name of its own: a sum over one name counts nothing twice.
    fn of_nodes(
        &mut self,
        name: &str,
        help: &str,
        nodes: &[(&str, Role, Option<Measured>)],
        count: impl Fn(&Counts) -> u64,
    ) {
        let up = || {
            nodes
                .iter()
                .filter_map(|(node, _, measured)| Some((*node, measured.as_ref()?)))
        };
        let whole = format!("rl_{name}");
        self.family(&whole, "counter", help);
        for (node, measured) in up() {
            self.line(
                &whole,
                &[("node", node)],
                count(&measured.figures.node.total),
            );
        }
        let part = format!("rl_policy_{name}");
        self.family(
            &part,
            "counter",
            &format!("The same of each policy; part of {whole}."),
        );
        for (node, measured) in up() {
            for (policy, stats) in &measured.figures.policies {
                self.line(
                    &part,
                    &[("node", node), ("policy", policy)],
                    count(&stats.total),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Stats;

    fn measured() -> Measured {
        let counts = Counts {
            allowed: 7,
            denied: 3,
            shadow_denied: 2,
            forced: 1,
            refunded: 9,
        };
        let stats = Stats {
            total: counts,
            ..Stats::default()
        };
        Measured {
            info: Info::from("rl_version:0.1.0\nrl_policies:1\nrl_overrides:4\nconnected_slaves:1"),
            figures: Figures {
                node: stats.clone(),
                policies: [("a\"b\\".to_owned(), stats)].into(),
            },
            clock: 1_800_000_000.5,
            policies_hash: hash("{}"),
            seconds: 0.001,
        }
    }

    #[test]
    fn a_node_that_is_down_is_a_figure_and_not_a_failure() {
        let scrape = Scrape {
            nodes: vec![
                ("a:1", Role::Primary, Some(measured())),
                ("b:2", Role::Replica, None),
            ],
            seconds: 0.25,
        };
        let text = text(&scrape);
        for line in [
            "rl_up{node=\"a:1\",role=\"primary\"} 1",
            "rl_up{node=\"b:2\",role=\"replica\"} 0",
            "rl_checks_total{node=\"a:1\",outcome=\"denied\"} 3",
            "rl_policy_checks_total{node=\"a:1\",policy=\"a\\\"b\\\\\",outcome=\"forced\"} 1",
            "rl_shadow_denied_total{node=\"a:1\"} 2",
            "rl_policy_refunded_units_total{node=\"a:1\",policy=\"a\\\"b\\\\\"} 9",
            "rl_overrides{node=\"a:1\"} 4",
            "rl_clock_seconds{node=\"a:1\"} 1800000000.5",
            "rl_scrape_duration_seconds 0.25",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert_eq!(text.matches("b:2").count(), 1, "{text}");
    }
}
