//! What operators watch, through the [`metrics`] facade.
//!
//! | name | kind | labels |
//! |---|---|---|
//! | `rl_checks_total` | counter | `outcome` (allowed, denied), `source` (redis, deny_cache, budget, fail_open, fail_closed, fail_local) |
//! | `rl_check_duration_seconds` | histogram | checks that went to the server |
//! | `rl_faults_total` | counter | `kind` (timeout, connection, server) |
//! | `rl_breaker_open` | gauge | parts of the server that are given up on for now: 0 is good |
//! | `rl_breaker_transitions_total` | counter | `to` (open, half_open, closed) |
//! | `rl_budget_units_total` | counter | `fate` (taken, spent, returned) |
//! | `rl_settled_units_total` | counter | units admitted without the server and charged to it afterwards |
//!
//! The cache's hit rate is `source="deny_cache"` over all denials; a budget's efficiency is `spent` over `taken`. Keys never
//! become labels. Install the recorder before building the limiter: handles are made once, so that counting costs
//! nanoseconds.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::{Decision, Source};

pub(crate) struct Metrics {
    allowed: [Counter; 6],
    denied: [Counter; 6],
    pub(crate) duration: Histogram,
    pub(crate) breaker_open: Gauge,
    pub(crate) opened: Counter,
    pub(crate) half_opened: Counter,
    pub(crate) closed: Counter,
    pub(crate) taken: Counter,
    pub(crate) spent: Counter,
    pub(crate) returned: Counter,
    pub(crate) settled: Counter,
}

const SOURCES: [&str; 6] = [
    "redis",
    "deny_cache",
    "budget",
    "fail_open",
    "fail_closed",
    "fail_local",
];

impl Metrics {
    pub(crate) fn new() -> Self {
        metrics::describe_counter!("rl_checks_total", "Checks by outcome and by who decided");
        metrics::describe_histogram!(
            "rl_check_duration_seconds",
            metrics::Unit::Seconds,
            "Time of checks that went to the server"
        );
        metrics::describe_counter!("rl_faults_total", "Calls that the server failed to answer");
        metrics::describe_gauge!("rl_breaker_open", "Parts of the server given up on for now");
        metrics::describe_counter!("rl_breaker_transitions_total", "Changes of the breaker");
        metrics::describe_counter!("rl_budget_units_total", "Units of budgets by their fate");
        metrics::describe_counter!(
            "rl_settled_units_total",
            "Units charged to the server after it came back"
        );
        let checks = |outcome: &'static str| {
            SOURCES
                .map(|source| counter!("rl_checks_total", "outcome" => outcome, "source" => source))
        };
        let transition = |to: &'static str| counter!("rl_breaker_transitions_total", "to" => to);
        let units = |fate: &'static str| counter!("rl_budget_units_total", "fate" => fate);
        Self {
            allowed: checks("allowed"),
            denied: checks("denied"),
            duration: histogram!("rl_check_duration_seconds"),
            breaker_open: gauge!("rl_breaker_open"),
            opened: transition("open"),
            half_opened: transition("half_open"),
            closed: transition("closed"),
            taken: units("taken"),
            spent: units("spent"),
            returned: units("returned"),
            settled: counter!("rl_settled_units_total"),
        }
    }

    #[inline]
    pub(crate) fn decided(&self, decision: &Decision) {
        let source = match decision.source {
            Source::Redis => 0,
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

    /// Faults are rare enough to be looked up.
    pub(crate) fn fault(&self, kind: &'static str) {
        counter!("rl_faults_total", "kind" => kind).increment(1);
    }
}
