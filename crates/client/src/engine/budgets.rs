//! Budgets: units taken from the server in chunks and spent locally, in nanoseconds.
//!
//! A tenant that makes thousands of requests per second on one key costs the server as many calls.
//! [`Limiter::with_budgets`](crate::Limiter::with_budgets) takes a chunk of units in one call, spends it locally, and refunds
//! whatever goes unused. The chunk doubles when it is used up in half its lifetime, shrinks to what was used when it is
//! not, and is never more than 1/32 of what the server has left: near the limit, every call goes to the server again.
//!
//! # Guarantee
//!
//! **Never more than the limit, in total, across all processes** that use budgets on a key, by the definition of the
//! algorithm itself: the algorithm would have allowed each call one by one, at the moment it was allowed locally. The
//! server counts a chunk when it is taken, so the only question is how much later it may be spent:
//!
//! * SLIDE and FIXED count by windows, and it does not matter when in a window a unit is spent. The reply says when the
//!   window that counted the chunk ends; units left over at that point are no longer spent.
//! * BUCKET drains continuously, so units spent `d` after they were counted exceed the limit by `rate · d`. A chunk lives
//!   at most for the time `d` in which a twentieth of the capacity refills, and all calls of budgeted limiters see a
//!   capacity that is smaller by `2 · rate · d`: once for spending late, once for refunding late. A burst may therefore be
//!   up to a tenth smaller; the steady rate is unaffected.
//! * The server accepts a refund only before the moment at which it would be too late, by its own clock, however long the
//!   message was on its way.
//!
//! EXACT, LEAK, leases and SLIDE with PRECISION are not budgeted, nor is any limit on a server without the module: those
//! calls go to the server, as they do without budgets.
//!
//! # Cost
//!
//! Units held by one process are unavailable to the others for as long as the chunk lives (half a second by default). A
//! process that crashes loses at most its chunk, until the window moves on. `remaining` is what was left when the chunk
//! was taken, plus what is left of the chunk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use redis::{FromRedisValue, Value};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::commands::{CallOptions, single_cmd};
use crate::drivers::server::{CallError, Request};
use crate::engine::key::{LimitedKey, LimitedKeyRef};
use crate::limiter::{Check, Shared};
use crate::scripts;
use crate::{Backend, Decision, Limit, Source};

/// A chunk is at most this fraction of what the server has left.
const PART_OF_REMAINING: u64 = 32;
/// A chunk that cannot be kept this long is not worth taking.
const SHORTEST_LIFE: Duration = Duration::from_millis(10);
/// Clocks of two machines do not run at quite the same speed.
const DRIFT_PER_MILLE: u32 = 1;

pub(crate) struct Budgets {
    budgets: Cache<LimitedKey, Arc<Budget>>,
    life: Duration,
}

struct Budget {
    key: Box<[u8]>,
    limit: Limit,
    params: BudgetParams,
    chunk: Mutex<Chunk>,
    /// Locked by the one task that refills; the others wait for it.
    refill: tokio::sync::Mutex<()>,
}

/// The units available locally, and how quickly the last ones were used.
struct Chunk {
    units: u64,
    /// From this moment on, the units are no longer spent.
    expires: Instant,
    /// From this moment on, the units are no longer refunded.
    refundable_until: Instant,
    /// The server's reply to the call that took the last chunk.
    last_reply: Decision,
    asked_at: Instant,
    /// The size of the last chunk.
    taken: u64,
    /// The size of the next chunk, before it is adapted to the rate and the limit.
    next: u64,
}

/// How a limit is budgeted.
#[derive(Debug)]
struct BudgetParams {
    /// The limit that the server is asked to apply.
    applied: Limit,
    /// How long after it was counted a unit may be spent or refunded.
    life: Duration,
    /// For algorithms that count by windows: the time from the end of a chunk's window until its key is fully reset.
    window_end_before_reset: Option<Duration>,
}

impl BudgetParams {
    fn of(limit: &Limit, life: Duration) -> Option<Self> {
        let params = match *limit {
            Limit::Slide {
                window,
                precision: None,
                ..
            } => Self {
                applied: limit.clone(),
                life: life.min(window / 4),
                window_end_before_reset: Some(window),
            },
            Limit::Fixed { window, .. } => Self {
                applied: limit.clone(),
                life: life.min(window.shortest() / 4),
                window_end_before_reset: Some(Duration::ZERO),
            },
            Limit::Bucket {
                capacity,
                refill,
                period,
            } => {
                let life = life.min(limit.refill_time() / 20);
                let late = 2 * u128::from(refill) * life.as_nanos();
                let headroom = u64::try_from(late.div_ceil(period.as_nanos().max(1))).ok()?;
                let smaller = capacity.checked_sub(headroom)?;
                Self {
                    applied: Limit::bucket(smaller, refill, period),
                    life,
                    window_end_before_reset: None,
                }
            }
            // Units of these cannot be spent later than they were charged.
            Limit::Slide {
                precision: Some(_), ..
            }
            | Limit::Exact { .. }
            | Limit::Leak { .. }
            | Limit::Lease { .. }
            | Limit::Policy { .. } => return None,
        };
        (params.life >= SHORTEST_LIFE).then_some(params)
    }

    /// How long a chunk may be spent and how long it may be refunded, from the moment it was counted.
    fn deadlines(&self, reset_after: Duration) -> (Duration, Duration) {
        // The reply is rounded up to a millisecond, so the window may end that much earlier.
        let millisecond = Duration::from_millis(1);
        let refundable = match self.window_end_before_reset {
            Some(after) => reset_after.saturating_sub(after + millisecond),
            None => self.life,
        };
        // The last eighth is reserved for the refund.
        let spendable = refundable.min(self.life) * 7 / 8;
        let drift = spendable * DRIFT_PER_MILLE / 1000;
        (spendable.saturating_sub(drift), refundable)
    }
}

impl Chunk {
    fn spend(&mut self, cost: u64, now: Instant) -> Option<Decision> {
        if self.units < cost || now >= self.expires {
            return None;
        }
        self.units -= cost;
        Some(self.decision(now))
    }

    fn decision(&self, now: Instant) -> Decision {
        let passed = now.saturating_duration_since(self.asked_at);
        Decision {
            allowed: true,
            allowed_calls: 1,
            remaining: self.last_reply.remaining + self.units,
            retry_after: Some(Duration::ZERO),
            reset_after: self.last_reply.reset_after.saturating_sub(passed),
            source: Source::Budget,
            ..self.last_reply
        }
    }

    /// How much to take for a call that costs more than is left locally.
    fn next_size(&self, cost: u64, now: Instant, life: Duration) -> u64 {
        let used_up_early =
            self.taken > 0 && now.saturating_duration_since(self.asked_at) < life / 2;
        let wanted = if used_up_early {
            self.next.saturating_mul(2)
        } else {
            self.next
        };
        wanted
            .min(self.last_reply.remaining / PART_OF_REMAINING)
            .max(cost)
    }

    /// Removes units that may no longer be spent, and returns them with their refund deadline.
    fn expired(&mut self, now: Instant) -> Option<(u64, Instant)> {
        (self.units > 0 && now >= self.expires).then(|| self.empty())
    }

    fn empty(&mut self) -> (u64, Instant) {
        let rest = std::mem::take(&mut self.units);
        self.next = self.taken.saturating_sub(rest).max(1);
        (rest, self.refundable_until)
    }
}

impl Budgets {
    pub(crate) fn new(size: usize, life: Duration) -> Self {
        Self {
            budgets: Cache::new(size),
            life,
        }
    }

    /// Decides using the key's budget, refilling it if necessary; `None` if this call cannot be budgeted.
    pub(crate) async fn check(
        shared: &Arc<Shared>,
        check: &Check<'_>,
    ) -> Option<Result<Decision, CallError>> {
        if check.cost == 0 {
            return None;
        }
        let budgets = &shared.budgets;
        let budget = match budgets.budgets.get(&LimitedKeyRef(check.key, check.limit)) {
            Some(budget) => budget,
            None => {
                if shared.server.backend() != Some(Backend::Module) {
                    return None;
                }
                budgets.create(check)?
            }
        };
        if let Some(decision) = budget.chunk.lock().spend(check.cost, Instant::now()) {
            shared.server.metrics.spent.increment(check.cost);
            return Some(Ok(decision));
        }
        Some(budget.refill(shared, check).await)
    }

    fn create(&self, check: &Check<'_>) -> Option<Arc<Budget>> {
        let params = BudgetParams::of(check.limit, self.life)?;
        let now = Instant::now();
        let budget = Arc::new(Budget {
            key: check.key.into(),
            limit: check.limit.clone(),
            params,
            chunk: Mutex::new(Chunk {
                units: 0,
                expires: now,
                refundable_until: now,
                last_reply: Decision::from_integers([1, 0, 0, 0, 0]),
                asked_at: now,
                taken: 0,
                next: 1,
            }),
            refill: tokio::sync::Mutex::new(()),
        });
        let owner = LimitedKeyRef(check.key, check.limit).to_owned();
        self.budgets.insert(owner, Arc::clone(&budget));
        Some(budget)
    }

    pub(crate) async fn refund_all(shared: &Arc<Shared>) {
        let budgets: Vec<_> = shared
            .budgets
            .budgets
            .iter()
            .map(|(_, budget)| budget)
            .collect();
        for budget in budgets {
            let (rest, until) = budget.chunk.lock().empty();
            budget.refund(shared, rest, until).await;
        }
    }
}

impl Budget {
    /// Takes a chunk, once for all tasks that wait for it.
    async fn refill(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        check: &Check<'_>,
    ) -> Result<Decision, CallError> {
        let server = &shared.server;
        let deadline = tokio::time::Instant::now() + server.timeout;
        let Ok(_turn) = timeout_at(deadline, self.refill.lock()).await else {
            return Err(CallError::Server(None));
        };
        // While this task waited, another one may have refilled the budget or been denied.
        let now = Instant::now();
        let (size, expired) = {
            let mut chunk = self.chunk.lock();
            if let Some(decision) = chunk.spend(check.cost, now) {
                server.metrics.spent.increment(check.cost);
                return Ok(decision);
            }
            let expired = chunk.expired(now);
            (chunk.next_size(check.cost, now, self.params.life), expired)
        };
        if let Some(denial) = shared.denied.get(check.key, check.limit, check.cost) {
            return Ok(denial);
        }
        // A chunk that the server has counted must not be lost because its caller has gone away or timed out.
        let (answer, answered) = oneshot::channel();
        let mut answer = Answer(Some(answer));
        let (budget, held_by) = (Arc::clone(self), Arc::clone(shared));
        let cost = check.cost;
        server.runtime.spawn(async move {
            if let Err(failure) = budget.take(&held_by, size, cost, &mut answer).await {
                answer.give(Err(failure));
            }
            if let Some((rest, until)) = expired {
                budget.refund(&held_by, rest, until).await;
            }
            budget.refund_when_expired(&held_by).await;
        });
        match timeout_at(deadline, answered).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_)) => Err(CallError::Server(None)),
            Err(_) => Err(server.timed_out(server.slot_groups.of(&self.key))),
        }
    }

    /// Takes a chunk, or as much of it as is allowed, and keeps what the call does not use.
    async fn take(
        &self,
        shared: &Shared,
        size: u64,
        cost: u64,
        answer: &mut Answer,
    ) -> Result<(), CallError> {
        let server = &shared.server;
        // Each unit is a call of its own: as many as are allowed, but at least those of this call.
        let options = CallOptions::default().times(size).at_least(cost);
        let command = single_cmd(&*self.key, &self.params.applied, 1, options);
        let group = server.slot_groups.of(&self.key);
        let asked = Instant::now();
        // Longer than the caller waits: a chunk that arrives late can still be used or refunded.
        let max_wait = server.timeout.max(self.params.life);
        let reply = server
            .ask(group, &Request::Command(command), max_wait)
            .await?;
        let last_reply = read(reply)?;
        let taken = last_reply.allowed_calls;
        // Report the caller's limit, not the smaller one that was applied.
        let last_reply = Decision {
            limit: self.limit.limit(),
            ..last_reply
        };
        if !last_reply.allowed {
            shared
                .denied
                .learn(&self.key, &self.limit, cost, &last_reply);
            answer.give(Ok(last_reply));
            return Ok(());
        }
        server.metrics.taken.increment(taken);
        server.metrics.spent.increment(cost);
        let (spendable, refundable) = self.params.deadlines(last_reply.reset_after);
        let refundable_until = asked + refundable;
        let mut chunk = self.chunk.lock();
        let rest = chunk.units;
        *chunk = Chunk {
            units: rest + taken.saturating_sub(cost),
            // Units left over from the previous chunk expire first, so all of them do.
            expires: match rest {
                0 => asked + spendable,
                _ => chunk.expires.min(asked + spendable),
            },
            refundable_until: match rest {
                0 => refundable_until,
                _ => chunk.refundable_until.min(refundable_until),
            },
            last_reply,
            asked_at: asked,
            taken,
            next: taken,
        };
        let decision = Decision {
            source: Source::Server,
            ..chunk.decision(asked)
        };
        // If the caller has gone away, its units go back into this chunk, before the lock is released and another
        // chunk can replace it.
        if !answer.give(Ok(decision)) {
            chunk.units += cost;
        }
        Ok(())
    }

    async fn refund_when_expired(&self, shared: &Shared) {
        let expires = self.chunk.lock().expires;
        tokio::time::sleep_until(expires.into()).await;
        let expired = self.chunk.lock().expired(Instant::now());
        if let Some((rest, until)) = expired {
            self.refund(shared, rest, until).await;
        }
    }

    /// Refunds units, unless the server would receive them too late. If it fails, they are lost until the window moves on.
    async fn refund(&self, shared: &Shared, units: u64, until: Instant) {
        if units == 0 {
            return;
        }
        // The deadline by the server's clock. The server read its time before the reply arrived here, so this is never
        // later than `until`.
        let Some((_, server_us)) = self.ask_refund(shared, 0, 0).await else {
            return;
        };
        let left = until.saturating_duration_since(Instant::now());
        let left = left.saturating_sub(left * DRIFT_PER_MILLE / 1000);
        if left.is_zero() {
            return;
        }
        let until_us =
            server_us.saturating_add(u64::try_from(left.as_micros()).unwrap_or(u64::MAX));
        if let Some((refunded, _)) = self.ask_refund(shared, units, until_us).await {
            shared.server.metrics.refunded.increment(refunded);
        }
    }

    /// Returns the units that were refunded and the server's time.
    async fn ask_refund(&self, shared: &Shared, units: u64, until_us: u64) -> Option<(u64, u64)> {
        let server = &shared.server;
        let mut call = scripts::REFUND_BUDGET.on([&*self.key].into_iter());
        call.arg(units).arg(until_us);
        let group = server.slot_groups.of(&self.key);
        let max_wait = server.timeout.max(self.params.life);
        let reply = server.ask(group, &Request::Script(call), max_wait).await;
        FromRedisValue::from_redis_value(reply.ok()?).ok()
    }
}

/// The channel on which the caller waits for its decision.
struct Answer(Option<oneshot::Sender<Result<Decision, CallError>>>);

impl Answer {
    /// Sends the decision; false if the caller has gone away or already has one.
    fn give(&mut self, decision: Result<Decision, CallError>) -> bool {
        let waiting = self.0.take();
        waiting.is_some_and(|waiting| waiting.send(decision).is_ok())
    }
}

fn read(reply: Value) -> Result<Decision, CallError> {
    FromRedisValue::from_redis_value(reply)
        .map_err(|error: redis::ParsingError| CallError::Server(Some(error.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{DAY, HOUR, MINUTE, SECOND};

    const LIFE: Duration = Duration::from_millis(500);

    fn params(limit: &Limit) -> BudgetParams {
        BudgetParams::of(limit, LIFE).unwrap_or_else(|| panic!("{limit} is not budgeted"))
    }

    #[test]
    fn units_of_a_window_are_spent_within_it() {
        // Counted 20 s into a window of one minute: fully reset in 100 s; the window ends in 40 s.
        let (spendable, refundable) =
            params(&Limit::slide(9, MINUTE)).deadlines(Duration::from_secs(100));
        assert!(spendable < LIFE, "life is the shorter bound here");
        assert_eq!(refundable, Duration::from_millis(39_999));
        // Counted 100 ms before the end.
        let (spendable, refundable) =
            params(&Limit::slide(9, MINUTE)).deadlines(Duration::from_millis(60_100));
        assert_eq!(refundable, Duration::from_millis(99));
        assert!(spendable < refundable);
        let (spendable, _) =
            params(&Limit::slide(9, MINUTE)).deadlines(Duration::from_millis(60_001));
        assert_eq!(spendable, Duration::ZERO);
        let (_, refundable) = params(&Limit::fixed(9, MINUTE)).deadlines(Duration::from_secs(40));
        assert_eq!(refundable, Duration::from_millis(39_999));
    }

    #[test]
    fn a_bucket_keeps_room_for_what_drains_meanwhile() {
        // 1000 per minute, 200 at once: it takes 12 s to fill, so 500 ms are allowed, in which 8.33 are refilled.
        let some = params(&Limit::bucket(200, 1000, MINUTE));
        assert_eq!(some.life, LIFE);
        assert_eq!(some.applied, Limit::bucket(200 - 17, 1000, MINUTE));
        // 100 per second, 100 at once: a twentieth is refilled within 50 ms.
        let fast = params(&Limit::bucket(100, 100, SECOND));
        assert_eq!(fast.life, Duration::from_millis(50));
        assert_eq!(fast.applied, Limit::bucket(90, 100, SECOND));
    }

    #[test]
    fn not_every_limit_is_worth_it() {
        assert!(
            BudgetParams::of(&Limit::bucket(1, 100, SECOND), LIFE).is_none(),
            "too fast"
        );
        assert!(BudgetParams::of(&Limit::slide(9, Duration::from_millis(20)), LIFE).is_none());
        assert!(BudgetParams::of(&Limit::exact(9, HOUR), LIFE).is_none());
        let precise = Limit::slide(9, HOUR).with_precision(10);
        assert!(BudgetParams::of(&precise, LIFE).is_none());
        assert!(BudgetParams::of(&Limit::lease(9, HOUR, "me"), LIFE).is_none());
        assert!(BudgetParams::of(&Limit::bucket(u64::MAX, u64::MAX, DAY), LIFE).is_some());
    }

    #[test]
    fn chunks_follow_the_rate_and_shrink_near_the_limit() {
        let now = Instant::now();
        let mut chunk = Chunk {
            units: 0,
            expires: now + LIFE,
            refundable_until: now + LIFE,
            last_reply: Decision::from_integers([1, 10_000, 9_000, 0, 60_000]),
            asked_at: now,
            taken: 16,
            next: 16,
        };
        assert_eq!(chunk.next_size(1, now, LIFE), 32, "used up at once");
        assert_eq!(chunk.next_size(1, now + LIFE, LIFE), 16, "lasted");
        assert_eq!(
            chunk.next_size(100, now, LIFE),
            100,
            "never less than the call"
        );
        chunk.last_reply.remaining = 320;
        assert_eq!(chunk.next_size(1, now, LIFE), 10, "a part of what is left");
        chunk.last_reply.remaining = 5;
        assert_eq!(chunk.next_size(1, now, LIFE), 1);

        chunk.units = 12;
        assert!(chunk.expired(now).is_none());
        assert!(chunk.spend(1, now + LIFE).is_none(), "too late");
        assert_eq!(chunk.expired(now + LIFE), Some((12, now + LIFE)));
        assert_eq!(chunk.next, 4, "what was used");
    }
}
