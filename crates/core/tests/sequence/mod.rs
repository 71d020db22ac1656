//! Random sequences of calls on one key, aimed at the moments where something changes.

use std::fmt;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::strategy::Union;
use rl_core::{
    Algorithm, Calendar, Evaluation, Expiry, MAX_COUNT, MAX_EXACT_LIMIT, MAX_PERIOD_MS,
    MAX_TIME_US, Mode, Update,
};

use crate::key::{HOLDERS, Key, NOW, Rule};

/// One call, as it was made: `before` and `after` are the key around it.
#[derive(Clone)]
pub struct Call {
    pub rule: Rule,
    pub now_us: u64,
    pub cost: u64,
    pub mode: Mode,
    /// Decided, but not stored.
    pub peek: bool,
    /// How far the clock was from where it should have been, in microseconds.
    pub stepped_us: i128,
    pub before: Key,
    /// When `before` was stored, and the expiry that goes with it.
    pub stored: Option<(u64, Expiry)>,
    pub outcome: Evaluation<Update<'static>>,
    pub after: Key,
}

/// One line each, so that a failing sequence can be read.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (decision, next) = (&self.outcome.decision, &self.outcome.update);
        write!(
            f,
            "{:?} at {} costs {} {:?} peek={} stepped={} {:?} before={:?} {decision:?} {next:?}",
            self.rule,
            self.now_us,
            self.cost,
            self.mode,
            self.peek,
            self.stepped_us,
            self.stored,
            self.before.0
        )
    }
}

#[derive(Clone, Debug)]
pub struct Plan {
    rules: Vec<Rule>,
    steps: Vec<(Gap, Cost, Index, u8)>,
}

#[derive(Clone, Debug)]
enum Gap {
    Micros(u64),
    /// Fourths of the span, and some microseconds more or less.
    Fourths(u64, i64),
    /// As long as the last answer asked to wait, and some milliseconds more or less.
    Wait(i64),
    Reset(i64),
    Back(u64),
    Forward(u64),
}

#[derive(Clone, Debug)]
enum Cost {
    Units(u64),
    /// The last answer's remaining units, and some more or less.
    Remaining(i64),
    /// The limit, and some more or less.
    Limit(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Steady,
    Stepping,
}

fn count() -> impl Strategy<Value = u64> {
    let usual = vec![0, 1, 2, 3, 7, 100, 1000, 1_000_003, 1 << 27, MAX_COUNT];
    prop_oneof![4 => select(usual), 1 => 0..=MAX_COUNT]
}

fn span_ms() -> impl Strategy<Value = u64> {
    let usual = vec![
        1,
        2,
        7,
        500,
        1000,
        60_000,
        3_600_000,
        86_400_000,
        MAX_PERIOD_MS,
    ];
    prop_oneof![4 => select(usual), 1 => 1..=MAX_PERIOD_MS]
}

pub fn slides() -> BoxedStrategy<Rule> {
    let rule = (count(), span_ms());
    rule.prop_map(|(limit, ms)| Rule::Slide(limit, ms, 1))
        .boxed()
}

/// Sliding windows, most of them in parts.
pub fn precise() -> BoxedStrategy<Rule> {
    let precision = prop_oneof![select(vec![1, 2, 3, 10, 11, 60]), 1..=60u8];
    (count(), span_ms(), precision)
        .prop_map(|(limit, ms, precision)| Rule::Slide(limit, ms, precision))
        .boxed()
}

pub fn buckets() -> BoxedStrategy<Rule> {
    (count(), count(), span_ms())
        .prop_map(|(capacity, refill, ms)| Rule::Bucket(capacity, refill.max(1), ms))
        .boxed()
}

pub fn fixeds() -> BoxedStrategy<Rule> {
    (count(), span_ms(), offset())
        .prop_map(|(limit, ms, part)| Rule::Fixed(limit, ms, offset_within(ms, part)))
        .boxed()
}

/// Windows of the calendar, and spans, so that one may follow the other.
pub fn calendars() -> BoxedStrategy<Rule> {
    let calendar = (count(), select(Calendar::ALL.to_vec()), offset());
    let calendar = calendar.prop_map(|(limit, calendar, part)| {
        Rule::Calendar(limit, calendar, offset_within(calendar.shortest_ms(), part))
    });
    prop_oneof![4 => calendar, 1 => fixeds()].boxed()
}

/// Thousandths of the window; most windows have none.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![2 => Just(0), 1 => select(vec![-1000, 1000]), 1 => -1000..=1000i64]
}

fn offset_within(window_ms: u64, thousandths: i64) -> i64 {
    let longest = window_ms as i64 - 1;
    longest * thousandths / 1000
}

pub fn leaks() -> BoxedStrategy<Rule> {
    (count(), count(), span_ms())
        .prop_map(|(capacity, rate, ms)| Rule::Leak(capacity, rate.max(1), ms))
        .boxed()
}

fn log_limit() -> impl Strategy<Value = u64> {
    count().prop_map(|limit| limit % (MAX_EXACT_LIMIT + 1))
}

pub fn exacts() -> BoxedStrategy<Rule> {
    let rule = (log_limit(), span_ms());
    rule.prop_map(|(limit, ms)| Rule::Exact(limit, ms)).boxed()
}

pub fn leases() -> BoxedStrategy<Rule> {
    (count(), span_ms(), 0..HOLDERS.len())
        .prop_map(|(limit, ms, holder)| Rule::Lease(limit, ms, holder))
        .boxed()
}

/// Rules of an algorithm. A new one needs a variant of [`Rule`], and with it a model in the oracle.
pub fn rules_of(algorithm: Algorithm) -> Vec<BoxedStrategy<Rule>> {
    match algorithm {
        Algorithm::Slide => vec![slides(), precise()],
        Algorithm::Bucket => vec![buckets()],
        Algorithm::Fixed => vec![fixeds(), calendars()],
        Algorithm::Leak => vec![leaks()],
        Algorithm::Exact => vec![exacts()],
        Algorithm::Lease => vec![leases()],
        // A policy consists of the others: `policy_state.rs` compares it with them.
        Algorithm::Policy => vec![],
    }
}

fn all_rules() -> impl Iterator<Item = BoxedStrategy<Rule>> {
    Algorithm::ALL.iter().copied().flat_map(rules_of)
}

/// All that limit what is taken in a time.
pub fn rates() -> BoxedStrategy<Rule> {
    let rates = Algorithm::ALL.iter().copied();
    let rates = rates.filter(|algorithm| *algorithm != Algorithm::Lease);
    Union::new(rates.flat_map(rules_of)).boxed()
}

pub fn any_rule() -> BoxedStrategy<Rule> {
    Union::new(all_rules()).boxed()
}

/// Changed limits of one window: how much a log remembers beyond its window is its own business.
pub fn exacts_of_one_window() -> BoxedStrategy<Vec<Rule>> {
    (proptest::collection::vec(log_limit(), 1..=3), span_ms())
        .prop_map(|(limits, ms)| limits.iter().map(|&limit| Rule::Exact(limit, ms)).collect())
        .boxed()
}

/// Several holders of one thing.
pub fn leases_of_one_limit() -> BoxedStrategy<Vec<Rule>> {
    let lease = (span_ms(), 0..HOLDERS.len());
    (count(), proptest::collection::vec(lease, 2..=6))
        .prop_map(|(limit, leases)| {
            let rule = |&(ms, holder)| Rule::Lease(limit, ms, holder);
            leases.iter().map(rule).collect()
        })
        .boxed()
}

fn gap(clock: Clock) -> BoxedStrategy<Gap> {
    let steady = prop_oneof![
        2 => Just(Gap::Micros(0)),
        2 => (0..5000u64).prop_map(Gap::Micros),
        6 => (0..=9u64, -2..=2i64).prop_map(|(n, off)| Gap::Fourths(n, off)),
        2 => (-2..=2i64).prop_map(Gap::Wait),
        1 => (-2..=2i64).prop_map(Gap::Reset),
    ];
    match clock {
        Clock::Steady => steady.boxed(),
        Clock::Stepping => {
            // By any power of two, because a uniform number is nearly always huge.
            let any = || (0..60u32, any::<u64>()).prop_map(|(bits, n)| n % (2 << bits));
            prop_oneof![
                8 => steady,
                1 => any().prop_map(Gap::Back),
                1 => any().prop_map(Gap::Forward),
            ]
            .boxed()
        }
    }
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        3 => (0..=3u64).prop_map(Cost::Units),
        1 => count().prop_map(Cost::Units),
        4 => (-1..=1i64).prop_map(Cost::Remaining),
        1 => (-1..=1i64).prop_map(Cost::Limit),
    ]
}

/// Up to 30 calls under rules that all come from `rule`; most are made under the first of them.
pub fn plan(rules: Vec<Rule>, clock: Clock) -> impl Strategy<Value = Plan> {
    let step = (gap(clock), cost(), any::<Index>(), any::<u8>());
    proptest::collection::vec(step, 1..30).prop_map(move |steps| Plan {
        rules: rules.clone(),
        steps,
    })
}

/// One key under one rule.
pub fn one_rule(rule: BoxedStrategy<Rule>, clock: Clock) -> BoxedStrategy<Vec<Call>> {
    rule.prop_flat_map(move |rule| plan(vec![rule], clock))
        .prop_map(|plan| plan.run())
        .boxed()
}

/// One key under up to three rules of one algorithm.
pub fn changing_rules(rule: BoxedStrategy<Rule>, clock: Clock) -> BoxedStrategy<Vec<Call>> {
    under(proptest::collection::vec(rule, 1..=3).boxed(), clock)
}

/// One key under some rules.
pub fn under(rules: BoxedStrategy<Vec<Rule>>, clock: Clock) -> BoxedStrategy<Vec<Call>> {
    rules
        .prop_flat_map(move |rules| plan(rules, clock))
        .prop_map(|plan| plan.run())
        .boxed()
}

/// Any of the above, under every algorithm.
pub fn any_calls() -> BoxedStrategy<Vec<Call>> {
    let calls = all_rules().map(|rules| changing_rules(rules, Clock::Stepping));
    Union::new(calls.chain([under(leases_of_one_limit(), Clock::Stepping)])).boxed()
}

impl Plan {
    fn run(&self) -> Vec<Call> {
        let (mut now_us, mut key, mut stored) = (NOW, Key::default(), None);
        let mut calls: Vec<Call> = Vec::new();
        for (gap, cost, index, dice) in &self.steps {
            let rule = match dice % 8 {
                _ if matches!(self.rules[0], Rule::Lease(..)) => {
                    self.rules[index.index(self.rules.len())]
                }
                0 | 1 => self.rules[index.index(self.rules.len())],
                _ => calls.last().map_or(self.rules[0], |call| call.rule),
            };
            let last = calls.last().map(|call| call.outcome.decision);
            let (retry, reset) = last.map_or((0, 0), |last| {
                (last.retry_after_ms.max(0) as u64, last.reset_after_ms)
            });
            let remaining = last.map_or(rule.size(), |last| last.remaining);
            let (passed_us, stepped_us) = match *gap {
                Gap::Micros(us) => (us.into(), 0),
                Gap::Fourths(n, off) => ((n * (rule.span_us() / 4)) as i128 + off as i128, 0),
                Gap::Wait(off) => ((retry as i128 + off as i128) * 1000, 0),
                Gap::Reset(off) => ((reset as i128 + off as i128) * 1000, 0),
                Gap::Back(us) => (0, -i128::from(us)),
                Gap::Forward(us) => (0, us.into()),
            };
            let steady_us = i128::from(now_us) + passed_us.max(0);
            // Half of all representable time, so that the longest windows still fit behind it.
            let reading_us = (steady_us + stepped_us).clamp(0, i128::from(MAX_TIME_US / 2));
            now_us = reading_us as u64;

            let cost = match *cost {
                Cost::Units(units) => units,
                Cost::Remaining(off) => remaining.saturating_add_signed(off),
                Cost::Limit(off) => rule.size().saturating_add_signed(off),
            }
            .min(MAX_COUNT);
            let mode = match dice / 8 % 8 {
                0 => Mode::Force,
                _ => Mode::Check,
            };
            let peek = dice / 64 == 0;

            let before = key.clone();
            let outcome = key.evaluate(&rule.limit(), now_us, cost, mode);
            let step = outcome.update.clone().filter(|_| !peek);
            if let Some(next) = step.clone() {
                key.take(next);
            }
            calls.push(Call {
                rule,
                now_us,
                cost,
                mode,
                peek,
                stepped_us: reading_us - steady_us,
                before,
                stored,
                outcome,
                after: key.clone(),
            });
            if step.is_some() {
                stored = calls.last().map(|call| (now_us, call.outcome.expiry));
            }
        }
        calls
    }
}
