//! Reservations: settling refunds only units that the reservation itself still counts, whatever happened since.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use rl_core::reservation::{ActualUsage, Charge, Charges, KeyChange, ReservedKey};
use rl_core::{Calendar, FieldValue, Limit, Mode, PolicyLimits};

use crate::key::{Key, MS, NOW, Rule, bucket, calendar, exact, fixed, leak, lease, parts, slide};
use crate::ledger::Ledger;

/// One limit, or those of a policy, each with its fixed cost, if any.
#[derive(Clone, Debug)]
struct Limits {
    rules: Vec<(Rule, Option<u64>)>,
    is_policy: bool,
}

impl Limits {
    /// The limit that `times` calls are checked against. The tests are short, so the memory may leak.
    fn limit(&self, times: u64) -> Limit<'static> {
        if !self.is_policy {
            return self.rules[0].0.limit();
        }
        let rule = |&(rule, cost): &(Rule, Option<u64>)| rl_core::Rule {
            limit: rule.limit(),
            cost,
        };
        let rules: Vec<_> = self.rules.iter().map(rule).collect();
        let policy = PolicyLimits::new(rules.leak()).unwrap();
        Limit::Policy(policy.with_times(times).unwrap())
    }

    fn span_us(&self) -> u64 {
        self.rules[0].0.span_us()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A call that is not a reservation.
    Call(Cost, Mode),
    Reserve(Cost, u64, Mode),
    /// Which reservation, what it used, and how many of its calls took place.
    Settle(Index, Actual, u64),
    /// RL.REFUND, of buckets only.
    Refund(u64),
    Delete,
    /// From now on, other limits apply.
    Switch(Index),
}

#[derive(Clone, Debug)]
enum Cost {
    Units(u64),
    /// What is left, and some more or less.
    Remaining(i64),
}

#[derive(Clone, Debug)]
enum Actual {
    Nothing,
    /// Some more or less than was reserved.
    Near(i64),
    Half,
}

#[derive(Clone, Debug)]
enum Gap {
    Micros(u64),
    /// Eighths of the first limit's window, and some microseconds more or less.
    Eighths(u64, i64),
    /// The clock steps back.
    Back(u64),
}

/// A reservation, and the number of its charge in the ledger of each limit; `None` where it charged nothing.
struct Reserved {
    limits: Limits,
    key: ReservedKey<'static>,
    times: u64,
    numbers: Vec<Option<usize>>,
}

struct Bench {
    key: Key,
    clock_us: u64,
    real_us: u64,
    /// All clock readings so far: no two are equal, because a charge is recognised by its microsecond.
    readings: HashSet<u64>,
    limits: Limits,
    ledgers: Vec<Ledger>,
    reserved: Vec<Reserved>,
}

/// Usage of each limit, as RL.INSPECT reports it.
fn used(key: &Key, now_us: u64) -> Vec<u64> {
    total_of(&["used"], key, now_us)
}

/// What the windows of each limit have stored.
fn counted(key: &Key, now_us: u64) -> Vec<u64> {
    total_of(&["count", "current_count", "previous_count"], key, now_us)
}

/// The sum of some fields of RL.INSPECT, limit by limit.
fn total_of(names: &[&str], key: &Key, now_us: u64) -> Vec<u64> {
    let number = |fields: &[rl_core::StateField]| {
        let named = fields.iter().filter(|field| names.contains(&field.name));
        let value = |field: &rl_core::StateField| match field.value {
            FieldValue::Number(number) => number,
            _ => 0,
        };
        named.map(value).sum()
    };
    let Some(state) = &key.0 else { return vec![] };
    let fields = state.inspect(now_us);
    match fields.first().map(|field| &field.value) {
        Some(FieldValue::Limits(limits)) => {
            limits.iter().map(|(_, fields)| number(fields)).collect()
        }
        _ => vec![number(&fields)],
    }
}

impl Bench {
    fn new(limits: Limits) -> Self {
        let ledgers = limits.rules.iter().map(|&(rule, _)| Ledger::new(rule));
        Self {
            key: Key::default(),
            clock_us: NOW,
            real_us: NOW,
            readings: HashSet::from([NOW]),
            ledgers: ledgers.collect(),
            limits,
            reserved: Vec::new(),
        }
    }

    fn run(&mut self, alternatives: &[Limits], steps: &[(Gap, Step)]) {
        for (gap, step) in steps {
            self.pass(gap);
            if self.key.until_it_expires(self.clock_us).0.is_none() && self.key.0.is_some() {
                self.key = Key::default();
                self.ledgers.iter_mut().for_each(Ledger::vanish);
            }
            match step {
                Step::Call(cost, mode) => {
                    self.call(&self.limits.clone(), self.cost(cost), 1, *mode);
                }
                Step::Reserve(cost, times, mode) => self.reserve(cost, *times, *mode),
                Step::Settle(index, actual, calls) if !self.reserved.is_empty() => {
                    self.settle(index.index(self.reserved.len()), actual, *calls);
                }
                Step::Settle(..) => {}
                Step::Refund(units) => {
                    let refunded = self.key.refund(self.clock_us, *units);
                    let expected = self.ledgers[0].refund_any(self.clock_us, *units);
                    assert_eq!(refunded, expected);
                }
                Step::Delete => {
                    self.key = Key::default();
                    self.ledgers.iter_mut().for_each(Ledger::delete);
                }
                Step::Switch(index) => {
                    self.limits = alternatives[index.index(alternatives.len())].clone();
                }
            }
            self.check_usage();
        }
    }

    fn pass(&mut self, gap: &Gap) {
        let eighth_us = self.limits.span_us() / 8;
        match *gap {
            Gap::Micros(us) => self.clock_us += us,
            Gap::Eighths(eighths, off) => {
                self.clock_us += (eighths * eighth_us).saturating_add_signed(off);
            }
            Gap::Back(us) => self.clock_us -= us,
        }
        if !matches!(gap, Gap::Back(_)) {
            self.real_us += match *gap {
                Gap::Eighths(eighths, off) => (eighths * eighth_us).saturating_add_signed(off),
                Gap::Micros(us) | Gap::Back(us) => us,
            };
        }
        while !self.readings.insert(self.clock_us) {
            self.clock_us += 1;
            self.real_us += 1;
        }
    }

    fn cost(&self, cost: &Cost) -> u64 {
        match *cost {
            Cost::Units(units) => units,
            Cost::Remaining(off) => {
                let limit = self.limits.limit(1);
                let left = self.key.remaining(&limit, self.clock_us);
                left.saturating_add_signed(off)
            }
        }
    }

    /// Charges a call, and returns the numbers of the charges if it was allowed.
    fn call(
        &mut self,
        limits: &Limits,
        cost: u64,
        times: u64,
        mode: Mode,
    ) -> Option<Vec<Option<usize>>> {
        self.charge(limits, cost, times, mode, false)
    }

    fn charge(
        &mut self,
        limits: &Limits,
        cost: u64,
        times: u64,
        mode: Mode,
        is_reservation: bool,
    ) -> Option<Vec<Option<usize>>> {
        let limit = limits.limit(times);
        let mut evaluation = self.key.evaluate(&limit, self.clock_us, cost, mode);
        let is_written = evaluation.update.is_some();
        if let Some(mut update) = evaluation.update.take() {
            if is_reservation {
                update.mark_reserved(self.clock_us);
            }
            self.key.take(update);
        }
        if !evaluation.decision.allowed {
            if is_written {
                for (&(rule, fixed), ledger) in limits.rules.iter().zip(&mut self.ledgers) {
                    let cost = fixed.map_or(cost, |fixed| fixed * times);
                    ledger.adjust(rule, self.clock_us, cost, !limits.is_policy);
                }
            }
            return None;
        }
        let charges = limits.rules.iter().zip(&mut self.ledgers);
        let numbers = charges.map(|(&(rule, fixed), ledger)| {
            let units = match fixed {
                Some(fixed) if cost > 0 => fixed * times,
                _ => cost,
            };
            let is_checked = mode == Mode::Check;
            (units > 0).then(|| ledger.charge(rule, self.clock_us, self.real_us, units, is_checked))
        });
        Some(numbers.collect())
    }

    fn reserve(&mut self, cost: &Cost, times: u64, mode: Mode) {
        let cost = self.cost(cost) * times;
        let limits = self.limits.clone();
        let Some(numbers) = self.charge(&limits, cost, times, mode, true) else {
            return;
        };
        let charges = match &self.key.0 {
            Some(state) if cost > 0 => Charge::of_call(&limits.limit(times), state, cost),
            _ => Charges::new(),
        };
        self.reserved.push(Reserved {
            key: ReservedKey {
                key: b"key",
                spec: b"",
                reserved: Some(cost),
                settled: None,
                charges,
            },
            limits,
            times,
            numbers,
        });
    }

    fn settle(&mut self, index: usize, actual: &Actual, calls: u64) {
        let mut reserved = self.reserved.swap_remove(index);
        let estimate = reserved.key.reserved.unwrap();
        let actual = ActualUsage {
            times: reserved.times,
            calls: calls.min(reserved.times),
            units: match *actual {
                Actual::Nothing => 0,
                Actual::Near(off) => estimate.saturating_add_signed(off),
                Actual::Half => estimate / 2,
            },
        };
        let extra = reserved.key.extra_charge(actual);
        assert_eq!(extra.is_some(), actual.units > estimate);
        if let Some(extra) = extra {
            assert_eq!(extra.units, actual.units - estimate);
            let (limits, times) = (reserved.limits.clone(), extra.times);
            let charged = self.call(&limits, extra.units, times, Mode::Force).unwrap();
            if estimate == 0 {
                reserved.numbers = charged;
            }
        }

        let before = self.key.clone();
        let used_before = used(&before, self.clock_us);
        let state = before.0.as_ref();
        let settlement = reserved.key.settle(state, self.clock_us, actual).unwrap();
        match settlement.change.clone() {
            KeyChange::Keep => {}
            KeyChange::Update(update) => self.key.take(update),
            KeyChange::Delete => self.key = Key::default(),
        }
        let mut used_after = used(&self.key, self.clock_us);
        let counted_after = counted(&self.key, self.clock_us);
        if settlement.change == KeyChange::Delete {
            used_after = vec![0; used_before.len()];
        }

        // How much each limit refunded shows in its usage; units of a fading window count less than they were.
        let (mut most_refunded, mut most_charged) = (0, 0);
        for (place, (_, fixed)) in reserved.limits.rules.iter().enumerate() {
            let Some(number) = reserved.numbers[place] else {
                continue;
            };
            let units = match fixed {
                Some(fixed) => fixed * actual.times,
                None => estimate,
            };
            let target = match fixed {
                Some(fixed) => fixed * actual.calls,
                None => actual.units,
            };
            let unused = match estimate {
                0 => 0,
                _ => units.saturating_sub(target),
            };
            let ledger = &mut self.ledgers[place];
            let (fewest, most) = ledger.refundable(number, self.clock_us, self.real_us);
            let (fewest, most) = (fewest.min(unused), most.min(unused));
            let dropped = used_before
                .get(place)
                .map_or(0, |used| used - used_after[place]);
            // Only the most of any limit is reported. Otherwise, usage tells; units of a window are refunded or not.
            let mut all = ledger.clone();
            all.refund(number, self.clock_us, most);
            let refunded = match all.counted() {
                _ if reserved.limits.rules.len() == 1 => settlement.refunded,
                _ if fewest == most => most,
                Some(left) if counted_after.get(place).copied().unwrap_or(0) == left => most,
                Some(_) => 0,
                None => dropped,
            };
            assert!(
                (fewest..=most).contains(&refunded),
                "{refunded} of {fewest}..={most} units refunded by {settlement:?} of {:?} for {actual:?}: {ledger:?}",
                reserved.key,
            );
            ledger.refund(number, self.clock_us, refunded);
            assert!(dropped <= refunded, "{dropped} > {refunded}");
            most_refunded = most_refunded.max(refunded);
            most_charged = most_charged.max(match estimate {
                0 => actual.units,
                _ => (units - refunded).max(target),
            });
        }
        assert_eq!(
            settlement.refunded == 0,
            settlement.change == KeyChange::Keep
        );
        if reserved.limits.rules.len() == 1 && estimate > 0 {
            assert_eq!(
                settlement.charged, most_charged,
                "{actual:?} {:?}",
                reserved.key
            );
        }
        if settlement.change == KeyChange::Delete {
            self.check_usage_is(0);
            self.ledgers.iter_mut().for_each(Ledger::vanish);
        }
    }

    /// Usage is what the list of charges says.
    fn check_usage(&self) {
        let reported = used(&self.key, self.clock_us);
        for (place, ledger) in self.ledgers.iter().enumerate() {
            if let Some(expected) = ledger.used(self.clock_us) {
                let reported = reported.get(place).copied().unwrap_or(0);
                assert_eq!(reported, expected, "{:?} {ledger:?}", self.key);
            }
        }
    }

    fn check_usage_is(&self, units: u64) {
        for ledger in &self.ledgers {
            if let Some(used) = ledger.used(self.clock_us) {
                assert_eq!(used, units, "{ledger:?}");
            }
        }
    }
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..=12u64, 1 => select(vec![0, 100, 1 << 30])]
}

fn span_ms() -> impl Strategy<Value = u64> {
    select(vec![1, 7, 80, 1000, 60_000])
}

/// Every algorithm with a rate; SLIDE with and without sub-windows.
fn a_rule() -> impl Strategy<Value = Rule> {
    let rule = (0..6u8, size(), span_ms(), 1..=20u64, 2..=9u8);
    rule.prop_map(|(algorithm, size, ms, flow, precision)| match algorithm {
        0 => Rule::Slide(size, ms, 1),
        1 => Rule::Slide(size, ms, precision),
        2 => Rule::Fixed(size, ms, 0),
        3 => Rule::Exact(size.min(1000), ms),
        4 => Rule::Bucket(size, flow, ms),
        _ => Rule::Leak(size, flow, ms),
    })
}

/// The same limits with other sizes, and one limit with other windows and rates.
fn changed(limits: &Limits, sizes: &[u64], ms: u64, flow: u64, precision: u8) -> Limits {
    let mut changed = limits.clone();
    for ((rule, _), size) in changed.rules.iter_mut().zip(sizes.iter().cycle()) {
        let (Rule::Slide(old, ..)
        | Rule::Bucket(old, ..)
        | Rule::Fixed(old, ..)
        | Rule::Calendar(old, ..)
        | Rule::Leak(old, ..)
        | Rule::Exact(old, _)
        | Rule::Lease(old, ..)) = rule;
        *old = (*size).min(1000);
        if limits.is_policy {
            continue;
        }
        match rule {
            Rule::Slide(_, window, n) => {
                *window = ms;
                // A change between two counters and sub-windows carries usage over in ways that are tested elsewhere.
                if *n > 1 {
                    *n = precision;
                }
            }
            Rule::Fixed(_, window, _) | Rule::Exact(_, window) => *window = ms,
            Rule::Bucket(_, rate, period) | Rule::Leak(_, rate, period) => {
                (*rate, *period) = (flow, ms);
            }
            Rule::Calendar(..) | Rule::Lease(..) => {}
        }
    }
    changed
}

fn one_limit() -> impl Strategy<Value = Limits> {
    a_rule().prop_map(|rule| Limits {
        rules: vec![(rule, None)],
        is_policy: false,
    })
}

fn a_policy() -> impl Strategy<Value = Limits> {
    let fixed = prop_oneof![2 => Just(None), 1 => (0..=3u64).prop_map(Some)];
    prop::collection::vec((a_rule(), fixed), 1..=4).prop_map(|rules| Limits {
        rules,
        is_policy: true,
    })
}

/// The limits that a sequence of calls starts with, and those that it may switch to.
fn with_changes(limits: impl Strategy<Value = Limits>) -> impl Strategy<Value = Vec<Limits>> {
    let change = (
        prop::collection::vec(size(), 4),
        span_ms(),
        1..=20u64,
        2..=9u8,
    );
    (limits, prop::collection::vec(change, 0..=2)).prop_map(|(limits, changes)| {
        let mut all = vec![limits];
        for (sizes, ms, flow, precision) in changes {
            let limits = changed(&all[0], &sizes, ms, flow, precision);
            all.push(limits);
        }
        all
    })
}

fn steps() -> impl Strategy<Value = Vec<(Gap, Step)>> {
    let cost = || {
        prop_oneof![
            (0..=5u64).prop_map(Cost::Units),
            (-1..=1i64).prop_map(Cost::Remaining)
        ]
    };
    let mode = || prop_oneof![9 => Just(Mode::Check), 1 => Just(Mode::Force)];
    let actual = prop_oneof![
        2 => Just(Actual::Nothing),
        2 => (-3..=3i64).prop_map(Actual::Near),
        1 => Just(Actual::Half),
    ];
    let step = prop_oneof![
        4 => (cost(), mode()).prop_map(|(cost, mode)| Step::Call(cost, mode)),
        4 => (cost(), 1..=3u64, mode())
            .prop_map(|(cost, times, mode)| Step::Reserve(cost, times, mode)),
        5 => (any::<Index>(), actual, 0..=3u64)
            .prop_map(|(index, actual, calls)| Step::Settle(index, actual, calls)),
        1 => Just(Step::Delete),
        1 => any::<Index>().prop_map(Step::Switch),
    ];
    let gap = prop_oneof![
        4 => (1..50u64).prop_map(Gap::Micros),
        8 => (0..=9u64, 1..=9i64).prop_map(|(eighths, off)| Gap::Eighths(eighths, off)),
        1 => (1..=20 * MS).prop_map(Gap::Back),
    ];
    prop::collection::vec((gap, step), 1..40)
}

proptest! {
    #![proptest_config(crate::key::cases(6000))]

    #[test]
    fn one_limit_counts_what_its_list_of_charges_says(
        limits in with_changes(one_limit()),
        steps in steps(),
    ) {
        Bench::new(limits[0].clone()).run(&limits, &steps);
    }

    #[test]
    fn the_limits_of_a_policy_count_what_their_lists_of_charges_say(
        limits in with_changes(a_policy()),
        steps in steps(),
    ) {
        Bench::new(limits[0].clone()).run(&limits, &steps);
    }
}

/// Buckets alone, where a refund depends on all that happened since the charge.
fn drains() -> impl Strategy<Value = Limits> {
    (3..=12u64, 1..=20u64, any::<bool>()).prop_map(|(size, flow, leaks)| Limits {
        rules: vec![(
            match leaks {
                true => Rule::Leak(size, flow, 80),
                false => Rule::Bucket(size, flow, 80),
            },
            None,
        )],
        is_policy: false,
    })
}

/// Only reservations, calls that take all that is left, and settlements.
fn busy_step() -> impl Strategy<Value = Step> {
    let reserve = (1..=6u64).prop_map(|units| Step::Reserve(Cost::Units(units), 1, Mode::Check));
    let call = (-3..=0i64).prop_map(|off| Step::Call(Cost::Remaining(off), Mode::Check));
    let settle = any::<Index>().prop_map(|index| Step::Settle(index, Actual::Nothing, 0));
    prop_oneof![2 => reserve, 1 => call, 2 => settle]
}

fn busy_steps(step: impl Strategy<Value = Step>) -> impl Strategy<Value = Vec<(Gap, Step)>> {
    let gap = (0..=4u64, 1..=9i64).prop_map(|(eighths, off)| Gap::Eighths(eighths, off));
    prop::collection::vec((gap, step), 1..60)
}

/// The same with everything that can happen in between. Fewer reservations than the refunds that a debt remembers.
fn mixed_steps() -> impl Strategy<Value = Vec<(Gap, Step)>> {
    let mode = || prop_oneof![5 => Just(Mode::Check), 1 => Just(Mode::Force)];
    let reserve = (1..=6u64, 1..=2u64, mode())
        .prop_map(|(units, times, mode)| Step::Reserve(Cost::Units(units), times, mode));
    let call = (1..=3u64, mode()).prop_map(|(units, mode)| Step::Call(Cost::Units(units), mode));
    let settle = (any::<Index>(), -4..=2i64)
        .prop_map(|(index, off)| Step::Settle(index, Actual::Near(off), 1));
    let gap = prop_oneof![
        1 => (1..50u64).prop_map(Gap::Micros),
        1 => (0..=2u64, 1..=9i64).prop_map(|(eighths, off)| Gap::Eighths(eighths, off)),
    ];
    let step = prop_oneof![
        12 => busy_step(),
        4 => reserve,
        2 => call,
        6 => settle,
        1 => (1..=4u64).prop_map(Step::Refund),
        1 => any::<Index>().prop_map(Step::Switch),
    ];
    prop::collection::vec((gap, step), 1..60)
}

proptest! {
    #![proptest_config(crate::key::cases(6000))]

    #[test]
    fn a_bucket_never_allows_more_than_its_capacity_and_what_it_refilled(
        limits in drains(),
        steps in busy_steps(busy_step()),
    ) {
        Bench::new(limits.clone()).run(&[limits], &steps);
    }

    #[test]
    fn a_bucket_counts_what_is_left_of_each_charge(
        limits in drains(),
        flows in prop::collection::vec(1..=20u64, 2),
        large in any::<bool>(),
        steps in mixed_steps(),
    ) {
        let mut all = vec![limits];
        for flow in flows {
            let mut limits = all[0].clone();
            match &mut limits.rules[0].0 {
                Rule::Bucket(size, rate, _) | Rule::Leak(size, rate, _) => {
                    (*size, *rate) = (*size * if large { 10 } else { 1 }, flow);
                }
                _ => {}
            }
            all.push(limits);
        }
        Bench::new(all[0].clone()).run(&all, &steps);
    }
}

/// Reserves units of a key.
pub fn reserve<'a>(key: &mut Key, limit: &Limit<'a>, now_us: u64, units: u64) -> ReservedKey<'a> {
    let evaluation = key.evaluate(limit, now_us, units, Mode::Check);
    assert!(evaluation.decision.allowed);
    let mut update = evaluation.update.unwrap();
    update.mark_reserved(now_us);
    key.take(update);
    ReservedKey {
        key: b"key",
        spec: b"",
        reserved: Some(units),
        settled: None,
        charges: Charge::of_call(limit, key.0.as_ref().unwrap(), units),
    }
}

/// Settles a call and returns the units that stay charged.
pub fn settle(key: &mut Key, reserved: &ReservedKey, now_us: u64, units: u64) -> u64 {
    let actual = ActualUsage {
        times: 1,
        calls: 1,
        units,
    };
    assert_eq!(reserved.extra_charge(actual), None);
    let settlement = reserved.settle(key.0.as_ref(), now_us, actual).unwrap();
    match settlement.change {
        KeyChange::Keep => {}
        KeyChange::Update(update) => key.take(update),
        KeyChange::Delete => *key = Key::default(),
    }
    settlement.charged
}

/// What is left after 100 units were reserved, `later` passed, others took 100, and the reservation was settled for 0.
fn left_after_settling_late(limit: &Limit, later_us: u64) -> u64 {
    let mut key = Key::default();
    let reserved = reserve(&mut key, limit, NOW, 100);
    let later = NOW + later_us;
    assert!(key.call(limit, later, 100).allowed);
    assert_eq!(settle(&mut key, &reserved, later + 1, 0), 100);
    key.remaining(limit, later + 1)
}

/// A refund of the latest units allowed 200 calls in a FIXED window of 100, 150 in an EXACT one, and 195 from a bucket.
#[test]
fn units_of_other_callers_are_not_refunded() {
    for limit in [
        fixed(100, 1000),
        exact(100, 1000),
        parts(100, 1000, 4),
        bucket(100, 100, 1000),
        leak(100, 100, 1000),
    ] {
        assert_eq!(left_after_settling_late(&limit, 1250 * MS), 0, "{limit}");
    }
    // Half of the older window still counts, but not the units of this reservation.
    let (limit, mut key) = (slide(100, 1000), Key::default());
    let reserved = reserve(&mut key, &limit, NOW, 40);
    key.call(&limit, NOW + 1500 * MS, 80);
    key.call(&limit, NOW + 2000 * MS, 20);
    assert_eq!(settle(&mut key, &reserved, NOW + 2000 * MS, 0), 40);
    assert_eq!(key.remaining(&limit, NOW + 2000 * MS), 0);
}

#[test]
fn a_refund_counts_as_drained_for_the_charges_after_it() {
    for limit in [bucket(10, 1, 1000), leak(10, 1, 1000)] {
        let mut key = Key::default();
        let first = reserve(&mut key, &limit, NOW, 5);
        let second = reserve(&mut key, &limit, NOW, 5);
        assert_eq!(settle(&mut key, &first, NOW, 0), 0);
        // The second reservation drains while others take as much as that.
        let mut now = NOW;
        for _ in 0..5 {
            now += 1000 * MS;
            key.call(&limit, now, 1);
        }
        assert_eq!(settle(&mut key, &second, now, 0), 5, "{limit}");
        assert_eq!(key.remaining(&limit, now), 5, "{limit}");
    }
}

#[test]
fn reservations_that_are_settled_one_after_the_other_get_all_of_their_refunds() {
    for limit in [
        slide(100, 1000),
        parts(100, 1000, 4),
        fixed(100, 1000),
        exact(100, 1000),
        bucket(100, 1, 1000),
        leak(100, 1, 1000),
    ] {
        let mut key = Key::default();
        let mut reserved = Vec::new();
        for n in 0..10 {
            reserved.push(reserve(&mut key, &limit, NOW + n, 10));
        }
        for (n, reserved) in reserved.iter().enumerate() {
            assert_eq!(settle(&mut key, reserved, NOW + 10, 4), 4, "{limit} {n}");
        }
        assert_eq!(key.remaining(&limit, NOW + 10), 60, "{limit}");
    }
}

#[test]
fn a_bucket_is_refunded_at_the_faster_of_the_rates_then_and_now() {
    let (slow, fast) = (bucket(100, 10, 1000), bucket(100, 50, 1000));
    let (mut key, second) = (Key::default(), 1000 * MS);
    let reserved = reserve(&mut key, &slow, NOW, 100);
    key.call(&fast, NOW + second, 1);
    assert_eq!(settle(&mut key, &reserved, NOW + second, 0), 50);
    assert_eq!(key.remaining(&fast, NOW + second), 99);

    // If the rate was faster in between, what has drained at that rate is not refunded.
    let mut key = Key::default();
    let reserved = reserve(&mut key, &slow, NOW, 100);
    key.call(&fast, NOW + second, 1);
    key.call(&slow, NOW + second, 1);
    assert_eq!(settle(&mut key, &reserved, NOW + second, 0), 50);

    // A slower rate does not make more of it refundable.
    let mut key = Key::default();
    let reserved = reserve(&mut key, &fast, NOW, 100);
    key.call(&slow, NOW + second, 1);
    assert_eq!(settle(&mut key, &reserved, NOW + second, 0), 50);
}

#[test]
fn nothing_is_refunded_after_a_step_back_of_the_clock() {
    for limit in [
        slide(100, 1000),
        parts(100, 1000, 4),
        fixed(100, 1000),
        exact(100, 1000),
        bucket(100, 100, 1000),
        leak(100, 100, 1000),
    ] {
        let mut key = Key::default();
        let reserved = reserve(&mut key, &limit, NOW, 50);
        let back = NOW - 5000 * MS;
        key.call(&limit, back, 1);
        let before = key.remaining(&limit, back);
        assert_eq!(settle(&mut key, &reserved, back, 0), 50, "{limit}");
        assert_eq!(key.remaining(&limit, back), before, "{limit}");
        // Nor when the clock is back where it was, and others have used the units.
        key.call(&limit, NOW + 1, 100);
        let before = key.remaining(&limit, NOW + 2);
        assert_eq!(settle(&mut key, &reserved, NOW + 2, 0), 50, "{limit}");
        assert_eq!(key.remaining(&limit, NOW + 2), before, "{limit}");
    }
}

#[test]
fn a_key_that_was_deleted_and_created_again_refunds_nothing() {
    for limit in [
        slide(100, 1000),
        parts(100, 1000, 4),
        fixed(100, 1000),
        exact(100, 1000),
        bucket(100, 1, 1000),
        leak(100, 1, 1000),
    ] {
        let mut key = Key::default();
        let reserved = reserve(&mut key, &limit, NOW, 50);
        let mut key = Key::default();
        key.call(&limit, NOW + 1, 60);
        assert_eq!(settle(&mut key, &reserved, NOW + 2, 0), 50, "{limit}");
        assert_eq!(key.remaining(&limit, NOW + 2), 40, "{limit}");
        // Nor if another reservation created it.
        let mut key = Key::default();
        let other = reserve(&mut key, &limit, NOW + 1, 60);
        assert_eq!(settle(&mut key, &reserved, NOW + 2, 0), 50, "{limit}");
        assert_eq!(settle(&mut key, &other, NOW + 2, 10), 10, "{limit}");
        assert_eq!(key.remaining(&limit, NOW + 2), 90, "{limit}");
    }
}

#[test]
fn a_lease_is_set_until_its_own_end() {
    let limit = lease(10, 1000, b"a");
    let mut key = Key::default();
    let actual = |units| ActualUsage {
        times: 1,
        calls: 1,
        units,
    };
    let reserved = reserve(&mut key, &limit, NOW, 3);
    key.call(&lease(10, 60_000, b"b"), NOW, 2);
    assert_eq!(reserved.extra_charge(actual(7)), None);
    assert_eq!(settle(&mut key, &reserved, NOW + 500 * MS, 7), 7);
    assert_eq!(key.remaining(&limit, NOW + 999 * MS), 1);
    assert_eq!(key.remaining(&limit, NOW + 1000 * MS), 8);

    // 0 releases it.
    let reserved = reserve(&mut key, &limit, NOW, 3);
    assert_eq!(settle(&mut key, &reserved, NOW + 1, 0), 0);
    assert_eq!(key.remaining(&limit, NOW + 1), 8);

    // A lease that was renewed belongs to another call; one that has ended cannot be changed.
    let reserved = reserve(&mut key, &limit, NOW, 3);
    key.call(&limit, NOW + 1, 5);
    assert_eq!(settle(&mut key, &reserved, NOW + 2, 0), 3);
    assert_eq!(key.remaining(&limit, NOW + 2), 3);
    assert_eq!(settle(&mut key, &reserved, NOW + 2000 * MS, 9), 3);
    assert_eq!(
        settle(&mut Key::default(), &reserved, NOW + 2000 * MS, 9),
        3
    );
}

#[test]
fn more_than_was_reserved_is_charged_now() {
    let (limit, mut key) = (exact(100, 1000), Key::default());
    let reserved = reserve(&mut key, &limit, NOW, 60);
    let actual = ActualUsage {
        times: 1,
        calls: 1,
        units: 110,
    };
    let extra = reserved.extra_charge(actual).unwrap();
    assert_eq!((extra.units, extra.times), (50, 0));
    key.force(&limit, NOW + 500 * MS, extra.units);
    let settlement = reserved
        .settle(key.0.as_ref(), NOW + 500 * MS, actual)
        .unwrap();
    assert_eq!(settlement.charged, 110);
    assert_eq!(settlement.change, KeyChange::Keep);
    assert_eq!(key.remaining(&limit, NOW + 999 * MS), 0);
    assert_eq!(key.remaining(&limit, NOW + 1000 * MS), 50);
}

/// 1 January 2024, 00:00 UTC.
const NEW_YEAR: u64 = 1_704_067_200 * 1000 * MS;
const DAY: u64 = 86_400 * 1000 * MS;

#[test]
fn a_calendar_window_is_refunded_until_it_ends() {
    let month = calendar(100, Calendar::Month, 0);
    // A leap year: February ends 60 days after the start of the year.
    for (reserved_at, settled_at, stays) in [
        (0, 31 * DAY - 1, 10),
        (0, 31 * DAY, 50),
        (31 * DAY - 1, 31 * DAY, 50),
        (31 * DAY, 60 * DAY - 1, 10),
        (59 * DAY, 60 * DAY, 50),
    ] {
        let mut key = Key::default();
        let reserved = reserve(&mut key, &month, NEW_YEAR + reserved_at, 50);
        let at = NEW_YEAR + settled_at;
        key.call(&month, at, 50);
        assert_eq!(settle(&mut key, &reserved, at, 10), stays);
        let used = if stays == 10 { 60 } else { 50 };
        assert_eq!(key.remaining(&month, at), 100 - used);
    }
}

#[test]
fn nothing_is_refunded_once_the_window_has_changed() {
    let now = NEW_YEAR + 5 * DAY;
    let month = calendar(100, Calendar::Month, 0);
    for changed in [
        calendar(100, Calendar::Year, 0),
        calendar(100, Calendar::Week, 0),
        calendar(100, Calendar::Month, 14 * 86_400_000),
        fixed(100, 31 * 86_400_000),
        fixed(100, 60_000),
    ] {
        let mut key = Key::default();
        let reserved = reserve(&mut key, &month, now, 50);
        key.call(&changed, now + 1, 10);
        let before = key.remaining(&changed, now + 2);
        assert_eq!(settle(&mut key, &reserved, now + 2, 0), 50, "{changed}");
        assert_eq!(key.remaining(&changed, now + 2), before, "{changed}");
    }
}
