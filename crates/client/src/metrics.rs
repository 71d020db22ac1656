//! Metrics for operators, through the [`metrics`] facade.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `rl_client_checks_total` | counter | `outcome` (allowed, denied), `source` (server, deny_cache, budget, fail_open, fail_closed, fail_local) |
//! | `rl_client_check_duration_seconds` | histogram | checks that went to the server |
//! | `rl_client_faults_total` | counter | `kind` (timeout, connection, server) |
//! | `rl_client_open_breakers` | gauge | how many breakers are open: 0 or 1, or for a cluster one per slot group |
//! | `rl_client_breaker_transitions_total` | counter | `to` (open, half_open, closed) |
//! | `rl_client_budget_units_total` | counter | `event` (taken, spent, refunded) |
//! | `rl_client_reconciled_units_total` | counter | units allowed without the server and charged to it afterwards |
//!
//! The hit rate of the deny cache is `source="deny_cache"` divided by all denials; the efficiency of budgets is `spent`
//! divided by `taken`. Keys never become labels. Install the recorder before you build the limiter: handles are created
//! once, so that counting costs nanoseconds.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::{Decision, Source};

pub(crate) struct Metrics {
    allowed: [Counter; 6],
    denied: [Counter; 6],
    pub(crate) duration: Histogram,
    pub(crate) open_breakers: Gauge,
    pub(crate) opened: Counter,
    pub(crate) half_opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) taken: Counter,
    pub(crate) spent: Counter,
    pub(crate) refunded: Counter,
    pub(crate) reconciled: Counter,
}

const SOURCES: [&str; 6] = [
    "server",
    "deny_cache",
    "budget",
    "fail_open",
    "fail_closed",
    "fail_local",
];

impl Metrics {
    pub(crate) fn new() -> Self {
        metrics::describe_counter!(
            "rl_client_checks_total",
            "Checks by outcome and source of the decision"
        );
        metrics::describe_histogram!(
            "rl_client_check_duration_seconds",
            metrics::Unit::Seconds,
            "Duration of checks that went to the server"
        );
        metrics::describe_counter!(
            "rl_client_faults_total",
            "Calls that failed because of the server"
        );
        metrics::describe_gauge!(
            "rl_client_open_breakers",
            "How many breakers are open: 0 or 1, or for a cluster one per slot group"
        );
        metrics::describe_counter!("rl_client_breaker_transitions_total", "Breaker transitions");
        metrics::describe_counter!("rl_client_budget_units_total", "Units of budgets by event");
        metrics::describe_counter!(
            "rl_client_reconciled_units_total",
            "Units charged to the server after an outage"
        );
        let checks = |outcome: &'static str| {
            SOURCES
                .map(|source| counter!("rl_client_checks_total", "outcome" => outcome, "source" => source))
        };
        let transition =
            |to: &'static str| counter!("rl_client_breaker_transitions_total", "to" => to);
        let units =
            |event: &'static str| counter!("rl_client_budget_units_total", "event" => event);
        Self {
            allowed: checks("allowed"),
            denied: checks("denied"),
            duration: histogram!("rl_client_check_duration_seconds"),
            open_breakers: gauge!("rl_client_open_breakers"),
            opened: transition("open"),
            half_opened: transition("half_open"),
            closed: transition("closed"),
            taken: units("taken"),
            spent: units("spent"),
            refunded: units("refunded"),
            reconciled: counter!("rl_client_reconciled_units_total"),
        }
    }

    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        let source = match decision.source {
            Source::Server => 0,
            Source::DenyCache => 1,
            Source::Budget => 2,
            Source::FailOpen => 3,
            Source::FailClosed => 4,
            Source::FailLocal => 5,
        };
        let counters = if decision.allowed {
            &self.allowed
        } else {
            &self.denied
        };
        counters[source].increment(1);
    }

    /// Faults are rare, so the counter is looked up each time.
    pub(crate) fn fault(&self, kind: &'static str) {
        counter!("rl_client_faults_total", "kind" => kind).increment(1);
    }
}
