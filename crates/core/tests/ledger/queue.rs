//! A naive model of BUCKET and LEAK: a queue of charges, of which the oldest parts drain first. A refund takes parts of its
//! own charge only.

use crate::key::Rule;

/// What is left of one charge, in parts of a unit.
#[derive(Clone, Copy, Debug)]
struct Queued {
    number: usize,
    parts: u128,
    /// What is refunded of a unit in part counts as drained for the charges before it.
    lost: u128,
}

/// The debt right after a charge, and the rate at that time.
#[derive(Clone, Copy, Debug)]
struct Left {
    number: usize,
    at_us: u64,
    flow: u64,
    debt: u128,
}

/// The queue as it was when the last call was stored.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    queue: Vec<Queued>,
    left: Vec<Left>,
    at_us: u64,
    flow: u64,
    period_us: u64,
}

impl Queue {
    fn debt(&self) -> u128 {
        self.queue.iter().map(|queued| queued.parts).sum()
    }

    fn drain(&mut self, mut parts: u128) {
        for queued in &mut self.queue {
            let drained = parts.min(queued.parts);
            queued.parts -= drained;
            parts -= drained;
        }
    }

    fn drain_for(&mut self, clock_us: u64, flow: u64) {
        let elapsed_us = clock_us.saturating_sub(self.at_us);
        self.drain(u128::from(elapsed_us) * u128::from(flow));
    }

    /// The queue at a moment, at the rate of the last call.
    fn at(&self, clock_us: u64) -> Self {
        let mut queue = self.clone();
        queue.drain_for(clock_us, self.flow);
        queue
    }

    pub fn used(&self, clock_us: u64) -> u64 {
        let debt = self.at(clock_us).debt();
        debt.div_ceil(u128::from(self.period_us.max(1))) as u64
    }

    /// Whether a denied call has to record that the clock stepped back.
    pub fn is_after(&self, clock_us: u64) -> bool {
        clock_us < self.at_us
    }

    /// Moves on to the time and the rate of a call that is stored. Returns whether it is still known what is left of each
    /// charge.
    pub fn advance(&mut self, rule: Rule, clock_us: u64) -> bool {
        let is_known = clock_us >= self.at_us && rule.span_us() == self.period_us;
        if rule.span_us() != self.period_us && self.period_us > 0 {
            let debt = self.debt() * u128::from(rule.span_us());
            self.queue = vec![Queued {
                number: usize::MAX,
                parts: debt.div_ceil(self.period_us.into()),
                lost: 0,
            }];
        }
        self.drain_for(clock_us, rule.flow());
        (self.at_us, self.flow, self.period_us) = (clock_us, rule.flow(), rule.span_us());
        is_known && self.debt() > 0
    }

    pub fn push(&mut self, number: usize, units: u64) {
        self.queue.push(Queued {
            number,
            parts: u128::from(units) * u128::from(self.period_us),
            lost: 0,
        });
        self.left.push(Left {
            number,
            at_us: self.at_us,
            flow: self.flow,
            debt: self.debt(),
        });
    }

    /// The parts of a charge that can be refunded: what has not drained of it, and what the contract allows at most.
    fn refundable_parts(&self, number: usize, clock_us: u64) -> u128 {
        let left = self.left.iter().find(|left| left.number == number);
        let Some(left) = left.filter(|_| !self.is_after(clock_us)) else {
            return 0;
        };
        let queue = self.at(clock_us).queue;
        let own = queue.iter().position(|queued| queued.number == number);
        let (until, later) = queue.split_at(own.unwrap() + 1);
        let undrained: u128 = until.iter().map(|queued| queued.parts).sum();
        let lost: u128 = later.iter().map(|queued| queued.lost).sum();
        let elapsed_us = u128::from(clock_us - left.at_us);
        let drained = elapsed_us * u128::from(left.flow.max(self.flow));
        let own = until.last().unwrap().parts;
        undrained
            .saturating_sub(lost)
            .min(own)
            .min(left.debt.saturating_sub(drained))
    }

    /// The same in units, rounded up.
    pub fn refundable(&self, number: usize, clock_us: u64) -> u64 {
        let parts = self.refundable_parts(number, clock_us);
        parts.div_ceil(u128::from(self.period_us.max(1))) as u64
    }

    /// Refunds units of a charge, and returns how many parts that was.
    pub fn refund(&mut self, number: usize, clock_us: u64, units: u64) -> u128 {
        let asked = u128::from(units) * u128::from(self.period_us);
        let parts = asked.min(self.refundable_parts(number, clock_us));
        let own = self.queue.iter_mut().find(|own| own.number == number);
        let own = own.unwrap();
        own.parts -= parts;
        own.lost += parts % u128::from(self.period_us);
        parts
    }

    /// Refunds units as RL.REFUND does, which cannot say whose they are: the oldest.
    pub fn refund_oldest(&mut self, clock_us: u64, units: u64) -> u64 {
        let refunded = units.min(self.used(clock_us));
        self.drain(u128::from(refunded) * u128::from(self.period_us));
        refunded
    }
}
