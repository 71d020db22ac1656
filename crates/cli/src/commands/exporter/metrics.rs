//! The statistics in the text format of Prometheus.

use std::fmt::{Display, Write};

use rl_client::commands::Counts;

use crate::snapshot::NodeReport;
use crate::topology::{Info, Role};

pub struct Scrape<'a> {
    /// `None` for a node that did not reply.
    pub nodes: Vec<(&'a str, Role, Option<Measured>)>,
    pub seconds: f64,
}

pub struct Measured {
    pub info: Info,
    pub report: NodeReport,
    /// The node's clock, in Unix time.
    pub clock: f64,
    pub policies_hash: u32,
    pub seconds: f64,
}

/// FNV-1a: equal for equal policies, and small enough that a float represents it exactly.
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

    page.family("rl_up", "gauge", "Whether the node replied to this scrape.");
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
        "The version of the module on each node; always 1.",
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
        "Checks since the node started, each with one outcome: allowed, denied or forced.",
    );
    for (node, _, measured) in up() {
        page.outcomes(
            "rl_checks_total",
            &[("node", node)],
            &measured.report.stats.total,
        );
    }
    page.family(
        "rl_policy_checks_total",
        "counter",
        "Checks counted by rl_checks_total, by policy.",
    );
    for (node, _, measured) in up() {
        for (policy, stats) in &measured.report.policies {
            page.outcomes(
                "rl_policy_checks_total",
                &[("node", node), ("policy", policy)],
                &stats.total,
            );
        }
    }
    page.family(
        "rl_shadow_denied_total",
        "counter",
        "Allowed checks that a SHADOW limit would have denied.",
    );
    for (node, _, measured) in up() {
        let count = measured.report.stats.total.shadow_denied;
        page.line("rl_shadow_denied_total", &[("node", node)], count);
    }
    page.family(
        "rl_policy_shadow_denied_total",
        "counter",
        "Checks counted by rl_shadow_denied_total, by policy.",
    );
    for (node, _, measured) in up() {
        for (policy, stats) in &measured.report.policies {
            let labels = [("node", node), ("policy", policy)];
            page.line(
                "rl_policy_shadow_denied_total",
                &labels,
                stats.total.shadow_denied,
            );
        }
    }
    page.family("rl_refunded_units_total", "counter", "Units refunded.");
    for (node, _, measured) in up() {
        let units = measured.report.stats.total.refunded_units.unwrap_or(0);
        page.line("rl_refunded_units_total", &[("node", node)], units);
    }

    type Field = (&'static str, &'static str, &'static str, &'static str);
    const FIELDS: [Field; 10] = [
        (
            "rl_policies",
            "rl_policies",
            "gauge",
            "Policies on the node.",
        ),
        (
            "rl_keys_with_overrides",
            "rl_keys_with_overrides",
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
            "rl_policy_state_resets_total",
            "rl_policy_state_resets",
            "counter",
            "Checks by policy that started from zero because the key held the state of other limits.",
        ),
        (
            "rl_replayed_decisions_total",
            "rl_replayed_decisions",
            "counter",
            "Calls that the node received in place of states and decided again; 0 unless there is a bug.",
        ),
        (
            "rl_unannounced_receivers_total",
            "rl_unannounced_receivers",
            "counter",
            "How often the node noticed a replica or the AOF too late; 0 unless there is a bug.",
        ),
        (
            "rl_server_replicas",
            "connected_slaves",
            "gauge",
            "Replicas connected to the node.",
        ),
        (
            "rl_server_evicted_keys_total",
            "evicted_keys",
            "counter",
            "Keys that the server evicted to free memory; counters may be among them.",
        ),
        (
            "rl_server_memory_used_bytes",
            "used_memory",
            "gauge",
            "Memory used by the whole server.",
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
        "A hash of the policies: equal on nodes with the same policies.",
    );
    for (node, role, measured) in up() {
        page.line(
            "rl_policies_hash",
            &[("node", node), ("role", role_name(*role))],
            measured.policies_hash,
        );
    }
    page.family(
        "rl_server_clock_seconds",
        "gauge",
        "The node's clock at the scrape, in Unix time.",
    );
    for (node, _, measured) in up() {
        page.line("rl_server_clock_seconds", &[("node", node)], measured.clock);
    }
    page.family(
        "rl_node_scrape_duration_seconds",
        "gauge",
        "How long the node took to reply.",
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::stats;

    fn measured() -> Measured {
        let stats = stats(7, 3);
        Measured {
            info: Info::from(
                "rl_version:0.1.0\nrl_policies:1\nrl_keys_with_overrides:4\nrl_replayed_decisions:2\nconnected_slaves:1",
            ),
            report: NodeReport {
                stats: stats.clone(),
                policies: [("a\"b\\".to_owned(), stats)].into(),
            },
            clock: 1_800_000_000.5,
            policies_hash: hash("{}"),
            seconds: 0.001,
        }
    }

    #[test]
    fn a_node_that_is_down_does_not_fail_the_scrape() {
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
            "rl_policy_shadow_denied_total{node=\"a:1\",policy=\"a\\\"b\\\\\"} 2",
            "rl_refunded_units_total{node=\"a:1\"} 9",
            "rl_keys_with_overrides{node=\"a:1\"} 4",
            "rl_replayed_decisions_total{node=\"a:1\"} 2",
            "rl_server_replicas{node=\"a:1\"} 1",
            "rl_server_clock_seconds{node=\"a:1\"} 1800000000.5",
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
