//! A naive model of one limit: a list of charges, each with the units that have not been refunded. What counts is
//! recomputed from the list every time.
//!
//! The clock that the limit reads may step back. Real time does not, and guarantees are about real time.

mod queue;

use crate::key::Rule;
use queue::Queue;

/// All spans of the tests divide it, so that parts of different units can be added exactly.
const COMMON_SPAN_US: u128 = 420_000_000;

/// Units that one call charged.
#[derive(Clone, Copy, Debug)]
struct Charged {
    clock_us: u64,
    real_us: u64,
    /// What has not been refunded.
    units: u64,
    /// What has been refunded of a part of a unit less than `units` says, times [`COMMON_SPAN_US`].
    kept: u128,
    /// The window changed or the clock stepped back afterwards: the contract promises no refund any more.
    moved: bool,
    /// The key was deleted afterwards: nobody counts it.
    deleted: bool,
}

/// The window that a limit counts in, for those whose windows can be recomputed exactly.
#[derive(Clone, Debug)]
enum Windows {
    /// The charges of the current window.
    Fixed { start_us: u64, current: Vec<usize> },
    /// The charges of the current window and the previous one, and units that were carried over into that.
    Slide {
        start_us: u64,
        current: Vec<usize>,
        previous: Vec<usize>,
        carried: u64,
    },
    /// Not windows but a debt.
    Queue(Queue),
    /// No windows that can be told from outside: only the guarantee is checked.
    None,
}

/// Everything that was charged to one limit.
#[derive(Clone, Debug)]
pub struct Ledger {
    charges: Vec<Charged>,
    windows: Windows,
    /// The limit under which the last units were charged.
    rule: Rule,
    /// What the clock read when the last units were charged.
    clock_us: u64,
    shortest_us: u64,
    longest_us: u64,
    /// The fastest rate so far: units, and the period in microseconds.
    fastest: (u64, u64),
    /// RL.REFUND may have taken units of later charges, so that they are not guaranteed to be within the limit.
    took_any: bool,
}

/// The sum over a list of charges.
fn sum(charges: &[Charged], list: &[usize]) -> u64 {
    list.iter().map(|&index| charges[index].units).sum()
}

impl Ledger {
    pub fn new(rule: Rule) -> Self {
        let mut ledger = Self {
            charges: Vec::new(),
            windows: Windows::None,
            rule,
            clock_us: 0,
            shortest_us: rule.span_us(),
            longest_us: rule.span_us(),
            fastest: (rule.flow(), rule.span_us()),
            took_any: false,
        };
        ledger.forget_windows();
        ledger
    }

    fn forget_windows(&mut self) {
        self.windows = match self.rule {
            Rule::Fixed(..) => Windows::Fixed {
                start_us: 0,
                current: Vec::new(),
            },
            Rule::Slide(_, _, 1) => Windows::Slide {
                start_us: 0,
                current: Vec::new(),
                previous: Vec::new(),
                carried: 0,
            },
            Rule::Bucket(..) | Rule::Leak(..) => Windows::Queue(Queue::default()),
            _ => Windows::None,
        };
    }

    /// The key was deleted with all that it counted.
    pub fn delete(&mut self) {
        self.charges
            .iter_mut()
            .for_each(|charge| charge.deleted = true);
        self.vanish();
    }

    /// The key is gone because it counted nothing any more.
    pub fn vanish(&mut self) {
        self.mark_moved();
        self.clock_us = 0;
        self.forget_windows();
    }

    fn mark_moved(&mut self) {
        self.charges
            .iter_mut()
            .for_each(|charge| charge.moved = true);
    }

    fn note_rate(&mut self, rule: Rule) {
        let (flow, span_us) = self.fastest;
        let is_faster = u128::from(rule.flow()) * u128::from(span_us)
            > u128::from(flow) * u128::from(rule.span_us());
        if is_faster {
            self.fastest = (rule.flow(), rule.span_us());
        }
    }

    /// A denied call recorded that the clock stepped back or that a limit has changed.
    pub fn adjust(&mut self, rule: Rule, clock_us: u64, cost: u64, is_only: bool) {
        if let Windows::Queue(queue) = &mut self.windows {
            let denies = is_only || queue.used(clock_us) + cost > rule.size();
            if denies && (is_only || queue.is_after(clock_us)) {
                self.note_rate(rule);
                self.advance_queue(rule, clock_us);
            }
            return;
        }
        self.mark_moved();
        // The key then expires when its debt is paid off at this rate.
        self.note_rate(rule);
        // Only the limits that deny the call record it.
        let used = self.used(clock_us).unwrap_or(0);
        if used + cost <= rule.size() {
            return;
        }
        match &mut self.windows {
            Windows::Fixed { start_us, .. } if clock_us < *start_us => {
                *start_us = clock_us - clock_us % self.rule.span_us();
            }
            Windows::Slide { start_us, .. } if clock_us < *start_us => *start_us = clock_us,
            _ => {}
        }
        self.clock_us = self.clock_us.min(clock_us);
    }

    /// Moves the windows on, as a call does that is stored.
    fn roll(&mut self, clock_us: u64) {
        let span_us = self.rule.span_us();
        match &mut self.windows {
            Windows::Fixed { start_us, current } => {
                if clock_us >= *start_us + span_us {
                    current.clear();
                }
                *start_us = clock_us - clock_us % span_us;
            }
            Windows::Slide {
                start_us,
                current,
                previous,
                carried,
            } => {
                let Some(elapsed_us) = clock_us.checked_sub(*start_us) else {
                    *start_us = clock_us;
                    return;
                };
                if elapsed_us >= span_us {
                    *previous = std::mem::take(current);
                    *carried = 0;
                    *start_us += span_us;
                    if elapsed_us >= 2 * span_us || sum(&self.charges, previous) == 0 {
                        previous.clear();
                        *start_us = clock_us;
                    }
                }
            }
            Windows::Queue(_) | Windows::None => {}
        }
    }

    fn advance_queue(&mut self, rule: Rule, clock_us: u64) {
        if let Windows::Queue(queue) = &mut self.windows
            && !queue.advance(rule, clock_us)
        {
            self.mark_moved();
        }
    }

    /// Units in use, times the window: the contract's formula, multiplied out. `None` if it cannot be told from outside.
    fn used_by_window(&self, clock_us: u64) -> Option<u128> {
        let mut rolled = self.clone();
        rolled.roll(clock_us);
        let span_us = u128::from(rolled.rule.span_us());
        match &rolled.windows {
            Windows::Fixed { current, .. } => {
                Some(u128::from(sum(&rolled.charges, current)) * span_us)
            }
            Windows::Slide {
                start_us,
                current,
                previous,
                carried,
            } => {
                let left = span_us - u128::from(clock_us - start_us);
                let previous = sum(&rolled.charges, previous) + carried;
                let current = u128::from(sum(&rolled.charges, current));
                Some(u128::from(previous) * left + current * span_us)
            }
            Windows::Queue(_) | Windows::None => None,
        }
    }

    /// All units in the windows as they were last stored, without fading.
    pub fn counted(&self) -> Option<u64> {
        match &self.windows {
            Windows::Fixed { current, .. } => Some(sum(&self.charges, current)),
            Windows::Slide {
                current,
                previous,
                carried,
                ..
            } => Some(sum(&self.charges, current) + sum(&self.charges, previous) + carried),
            Windows::Queue(_) | Windows::None => None,
        }
    }

    /// Units in use, rounded up.
    pub fn used(&self, clock_us: u64) -> Option<u64> {
        if let Windows::Queue(queue) = &self.windows {
            return Some(queue.used(clock_us));
        }
        let used = self.used_by_window(clock_us)?;
        Some(used.div_ceil(self.rule.span_us().into()) as u64)
    }

    /// Records a charge and returns its number. One that was not forced must keep the algorithm's guarantee.
    pub fn charge(
        &mut self,
        rule: Rule,
        clock_us: u64,
        real_us: u64,
        units: u64,
        is_checked: bool,
    ) -> usize {
        if let Windows::Queue(_) = self.windows {
            self.advance_queue(rule, clock_us);
        } else {
            self.advance_windows(rule, clock_us);
        }
        self.rule = rule;
        self.clock_us = clock_us;
        self.shortest_us = self.shortest_us.min(rule.span_us());
        self.longest_us = self.longest_us.max(rule.span_us());
        self.note_rate(rule);

        let index = self.charges.len();
        self.charges.push(Charged {
            clock_us,
            real_us,
            units,
            kept: 0,
            moved: false,
            deleted: false,
        });
        match &mut self.windows {
            Windows::Fixed { current, .. } | Windows::Slide { current, .. } => current.push(index),
            Windows::Queue(queue) => queue.push(index, units),
            Windows::None => {}
        }
        if is_checked {
            self.check_guarantee(clock_us, real_us);
        }
        index
    }

    /// Moves the windows on to a call that is stored, under a limit that may have changed.
    fn advance_windows(&mut self, rule: Rule, clock_us: u64) {
        let is_counting = self.clock_us > 0;
        let same_windows = match (self.rule, rule) {
            (Rule::Slide(_, old_ms, old), Rule::Slide(_, new_ms, new)) => {
                (old_ms, old) == (new_ms, new)
            }
            (old, new) => old.span_us() == new.span_us(),
        };
        if clock_us < self.clock_us || !same_windows {
            self.mark_moved();
        }
        if is_counting {
            self.roll(clock_us);
        }
        if !same_windows {
            let used = self.used(clock_us).unwrap_or(0);
            self.rule = rule;
            let counted = match std::mem::replace(&mut self.windows, Windows::None) {
                Windows::Fixed { current, .. } => current,
                _ => Vec::new(),
            };
            self.forget_windows();
            match &mut self.windows {
                Windows::Fixed { start_us, current } => {
                    *start_us = clock_us - clock_us % rule.span_us();
                    *current = counted;
                }
                Windows::Slide {
                    start_us, carried, ..
                } => {
                    *start_us = clock_us;
                    *carried = used;
                }
                Windows::Queue(_) | Windows::None => {}
            }
        }
        if !is_counting {
            match &mut self.windows {
                Windows::Fixed { start_us, .. } => {
                    *start_us = clock_us - clock_us % rule.span_us();
                }
                Windows::Slide { start_us, .. } => *start_us = clock_us,
                Windows::Queue(_) | Windows::None => {}
            }
        }
    }

    /// What the algorithm promises about a call that was allowed at this time: for every interval of time that ends now,
    /// what was charged in it minus what was refunded.
    fn check_guarantee(&self, clock_us: u64, real_us: u64) {
        let limit = u128::from(self.rule.size());
        if let Some(used) = self.used_by_window(clock_us) {
            let limit = limit * u128::from(self.rule.span_us());
            assert!(used <= limit, "{used} > {limit} in {self:?}");
            return;
        }
        if self.took_any {
            return;
        }
        let mut total = 0;
        for charge in self.charges.iter().rev().filter(|charge| !charge.deleted) {
            total += u128::from(charge.units) * COMMON_SPAN_US + charge.kept;
            let elapsed_us = u128::from(real_us - charge.real_us);
            if self.rule.drains() {
                let (flow, span_us) = self.fastest;
                let refilled = u128::from(flow) * elapsed_us * COMMON_SPAN_US / u128::from(span_us);
                let limit = limit * COMMON_SPAN_US + refilled;
                assert!(
                    total <= limit,
                    "{total} > {limit} in {elapsed_us} µs: {self:?}"
                );
            } else if elapsed_us < u128::from(self.shortest_us) {
                let limit = limit * COMMON_SPAN_US;
                assert!(
                    total <= limit,
                    "{total} > {limit} in {elapsed_us} µs: {self:?}"
                );
            }
        }
    }

    /// The fewest and the most units that may be refunded of a charge.
    pub fn refundable(&self, index: usize, clock_us: u64, real_us: u64) -> (u64, u64) {
        let charge = self.charges[index];
        if charge.deleted {
            return (0, 0);
        }
        if let Windows::Queue(queue) = &self.windows {
            let units = match charge.moved {
                true => 0,
                false => queue.refundable(index, clock_us),
            };
            return (units, units);
        }
        let elapsed_us = real_us - charge.real_us;
        // By the clock, units may count for longer.
        let read_us = clock_us.saturating_sub(charge.clock_us);
        let mut rolled = self.clone();
        rolled.roll(clock_us);
        let counted = match &rolled.windows {
            Windows::Fixed { current, .. } => current.contains(&index),
            Windows::Slide {
                current, previous, ..
            } => current.contains(&index) || previous.contains(&index),
            Windows::Queue(_) | Windows::None => match self.rule {
                // A sub-window counts until the last of its units has left the window.
                Rule::Slide(_, _, precision) => {
                    read_us < self.longest_us + 2 * self.longest_us.div_ceil(precision.into())
                }
                Rule::Exact(..) => read_us < self.longest_us,
                _ => true,
            },
        };
        let most = if counted { charge.units } else { 0 };
        let is_certain = !charge.moved
            && clock_us >= self.clock_us
            && match self.rule {
                Rule::Slide(_, _, 1) | Rule::Fixed(..) => true,
                _ => elapsed_us < self.shortest_us,
            };
        (if is_certain { most } else { 0 }, most)
    }

    pub fn refund(&mut self, index: usize, clock_us: u64, units: u64) {
        // What is stored are the windows of the time of the refund.
        if units > 0 {
            if matches!(self.windows, Windows::Slide { .. }) {
                self.roll(clock_us);
            }
            if let Windows::Queue(queue) = &mut self.windows {
                let unit = u128::from(self.rule.span_us());
                let parts = queue.refund(index, clock_us, units);
                let rest = u128::from(units) * unit - parts;
                self.charges[index].kept += rest * (COMMON_SPAN_US / unit);
            }
            self.clock_us = self.clock_us.max(clock_us);
            self.charges[index].units -= units;
            // A state that counts nothing is not kept: the next call starts a new window.
            if self.used(clock_us) == Some(0) {
                self.vanish();
            }
        }
    }

    /// Refunds units as RL.REFUND does, and returns how many.
    pub fn refund_any(&mut self, clock_us: u64, units: u64) -> u64 {
        let Windows::Queue(queue) = &mut self.windows else {
            panic!("only a debt can tell");
        };
        self.took_any = true;
        let refunded = queue.refund_oldest(clock_us, units);
        if refunded > 0 && queue.used(clock_us) == 0 {
            self.vanish();
        }
        refunded
    }
}
