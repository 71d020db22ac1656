//! Budgets: units taken from the server by the chunk, and spent locally in nanoseconds.
//!
//! A tenant with thousands of requests a second on one key costs the server as many calls.
//! [`Limiter::budgeted`](crate::Limiter::budgeted) takes a chunk of units in one call, spends it locally, and gives the
//! rest back when it goes unused. A chunk doubles when it is used up in half its life, shrinks to what was used when it
//! is not, and is never more than 1/32 of what the server has left: near the limit, every call goes to the server again.
//!
//! # What is promised
//!
//! **Never more than the limit, in total, over all nodes** that use budgets on a key, by the definition of the algorithm
//! itself: the calls that were admitted, each at the moment it was admitted, are calls that the algorithm would have
//! admitted one by one at those moments. The server counts a chunk when it is taken, so the question is only how
//! much later it may be spent:
//!
//! * SLIDE and FIXED count by windows, and it does not matter when in a window a unit is spent. The reply tells when the
//!   window in which the chunk was counted ends; what is left of it then is not spent any more.
//! * BUCKET drains all the time, so units spent `d` after they were counted are `rate · d` units too many. Chunks
//!   live for at most a time `d` in which a twentieth of the capacity flows in, and all calls of budgeted limiters
//!   see a capacity that is smaller by `2 · rate · d`: once for spending late, once for giving back late.
//!   So a burst may be up to a tenth smaller; the steady rate is not touched.
//! * What is given back, too, is only taken by the server before the moment at which it would be too late, by the
//!   server's own clock, however long the message was on its way.
//!
//! EXACT, LEAK and leases are not budgeted, and servers without the module neither: those calls go to the server, as
//! without budgets.
//!
//! # What it costs
//!
//! Units in the hands of one node are missing for the others, for as long as a chunk lives (half a second by default)
//! and not longer. A node that crashes loses at most its chunk, until the window moves on. `remaining` is what was left when the
//! chunk was taken, plus what is left of the chunk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use redis::{FromRedisValue, Value};
use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::key::{Limited, LimitedRef};
use crate::limiter::{Check, Shared};
use crate::script;
use crate::server::{Failure, Request};
use crate::{Backend, Decision, Limit, Source};

/// A chunk is at most this part of what the server has left.
const PART_OF_REMAINING: u64 = 32;
/// A budget that cannot be held this long is not worth taking.
const SHORTEST_LIFE: Duration = Duration::from_millis(10);
/// Clocks of two machines do not run at quite the same speed.
const DRIFT_PER_MILLE: u32 = 1;

pub(crate) struct Budgets {
    budgets: Cache<Limited, Arc<Budget>>,
    life: Duration,
}

struct Budget {
    key: Box<[u8]>,
    limit: Limit,
    terms: Terms,
    purse: Mutex<Purse>,
    /// Held by the one task that refills; the others wait for it.
    refill: tokio::sync::Mutex<()>,
}

/// What is at hand, and what is known of how it is used.
struct Purse {
    units: u64,
    /// Past this moment the units are not spent any more.
    expires: Instant,
    /// The server's time (µs) until which it takes units back.
    returnable_until_us: u64,
    /// What the server said with the last chunk.
    told: Decision,
    told_at: Instant,
    /// The size of the last chunk, and of the next.
    taken: u64,
    next: u64,
}

/// On what terms a limit can be budgeted.
#[derive(Debug)]
struct Terms {
    /// The limit that the server is asked to apply.
    applied: Limit,
    /// How long after it was counted a unit may be spent or given back.
    life: Duration,
    /// For algorithms that count by windows: how long after the end of a chunk's window its key is as good as new.
    window_end_before_reset: Option<Duration>,
}

impl Terms {
    fn of(limit: &Limit, life: Duration) -> Option<Self> {
        let terms = match *limit {
            Limit::Slide { window, .. } => Self {
                applied: limit.clone(),
                life: life.min(window / 4),
                window_end_before_reset: Some(window),
            },
            Limit::Fixed { window, .. } => Self {
                applied: limit.clone(),
                life: life.min(window / 4),
                window_end_before_reset: Some(Duration::ZERO),
            },
            Limit::Bucket {
                capacity,
                refill,
                period,
            } => {
                let life = life.min(limit.span() / 20);
                let late = 2 * u128::from(refill) * life.as_nanos();
                let headroom = u64::try_from(late.div_ceil(period.as_nanos().max(1))).ok()?;
                let smaller = capacity.checked_sub(headroom)?;
                Self {
                    applied: Limit::bucket(smaller, refill, period),
                    life,
                    window_end_before_reset: None,
                }
            }
            _ => return None,
        };
        (terms.life >= SHORTEST_LIFE).then_some(terms)
    }

    /// From the moment a chunk was counted: how long it may be spent, and how long given back.
    fn deadlines(&self, reset_after: Duration) -> (Duration, Duration) {
        // The reply is rounded up to a millisecond, so the window may end that much earlier.
        let millisecond = Duration::from_millis(1);
        let returnable = match self.window_end_before_reset {
            Some(after) => reset_after.saturating_sub(after + millisecond),
            None => self.life,
        };
        // The last eighth is for giving back.
        let spendable = returnable.min(self.life) * 7 / 8;
        let drift = spendable * DRIFT_PER_MILLE / 1000;
        (spendable.saturating_sub(drift), returnable)
    }
}

impl Purse {
    fn spend(&mut self, cost: u64, now: Instant) -> Option<Decision> {
        if self.units < cost || now >= self.expires {
            return None;
        }
        self.units -= cost;
        Some(self.decision(now))
    }

    fn decision(&self, now: Instant) -> Decision {
        let passed = now.saturating_duration_since(self.told_at);
        Decision {
            allowed: true,
            remaining: self.told.remaining + self.units,
            retry_after: Some(Duration::ZERO),
            reset_after: self.told.reset_after.saturating_sub(passed),
            source: Source::Budget,
            ..self.told
        }
    }

    /// How much to take for a call that finds too little at hand.
    fn chunk(&self, cost: u64, now: Instant, life: Duration) -> u64 {
        let used_up_early =
            self.taken > 0 && now.saturating_duration_since(self.told_at) < life / 2;
        let wanted = if used_up_early {
            self.next.saturating_mul(2)
        } else {
            self.next
        };
        wanted
            .min(self.told.remaining / PART_OF_REMAINING)
            .max(cost)
    }

    /// Takes out what may no longer be spent.
    fn expired(&mut self, now: Instant) -> Option<(u64, u64)> {
        (self.units > 0 && now >= self.expires).then(|| self.empty())
    }

    fn empty(&mut self) -> (u64, u64) {
        let rest = std::mem::take(&mut self.units);
        self.next = self.taken.saturating_sub(rest).max(1);
        (rest, self.returnable_until_us)
    }
}

impl Budgets {
    pub(crate) fn new(size: usize, life: Duration) -> Self {
        Self {
            budgets: Cache::new(size),
            life,
        }
    }

    /// Decides by the budget of the key, refilling it if need be; `None` if the call is none that budgets are for.
    pub(crate) async fn check(
        shared: &Arc<Shared>,
        check: &Check<'_>,
    ) -> Option<Result<Decision, Failure>> {
        if check.cost == 0 {
            return None;
        }
        let budgets = &shared.budgets;
        let budget = match budgets.budgets.get(&LimitedRef(check.key, check.limit)) {
            Some(budget) => budget,
            None => {
                if shared.server.backend() != Some(Backend::Module) {
                    return None;
                }
                budgets.create(check)?
            }
        };
        if let Some(decision) = budget.purse.lock().spend(check.cost, Instant::now()) {
            shared.server.metrics.spent.increment(check.cost);
            return Some(Ok(decision));
        }
        Some(budget.refill(shared, check).await)
    }

    fn create(&self, check: &Check<'_>) -> Option<Arc<Budget>> {
        let terms = Terms::of(check.limit, self.life)?;
        let now = Instant::now();
        let budget = Arc::new(Budget {
            key: check.key.into(),
            limit: check.limit.clone(),
            terms,
            purse: Mutex::new(Purse {
                units: 0,
                expires: now,
                returnable_until_us: 0,
                told: Decision::from_five([1, 0, 0, 0, 0]),
                told_at: now,
                taken: 0,
                next: 1,
            }),
            refill: tokio::sync::Mutex::new(()),
        });
        let owner = LimitedRef(check.key, check.limit).to_owned();
        self.budgets.insert(owner, Arc::clone(&budget));
        Some(budget)
    }

    pub(crate) async fn give_back_all(shared: &Arc<Shared>) {
        let budgets: Vec<_> = shared
            .budgets
            .budgets
            .iter()
            .map(|(_, budget)| budget)
            .collect();
        for budget in budgets {
            let (rest, until_us) = budget.purse.lock().empty();
            budget.give_back(shared, rest, until_us).await;
        }
    }
}

impl Budget {
    /// Takes a chunk, once for all that wait for it.
    async fn refill(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        check: &Check<'_>,
    ) -> Result<Decision, Failure> {
        let server = &shared.server;
        let deadline = tokio::time::Instant::now() + server.timeout;
        let Ok(_turn) = timeout_at(deadline, self.refill.lock()).await else {
            return Err(Failure::Fault(None));
        };
        // While waiting, another task may have filled the purse or met a denial.
        let now = Instant::now();
        let (chunk, expired) = {
            let mut purse = self.purse.lock();
            if let Some(decision) = purse.spend(check.cost, now) {
                server.metrics.spent.increment(check.cost);
                return Ok(decision);
            }
            let expired = purse.expired(now);
            (purse.chunk(check.cost, now, self.terms.life), expired)
        };
        if let Some(denial) = shared.denied.get(check.key, check.limit, check.cost) {
            return Ok(denial);
        }
        // A chunk that the server has counted must not be lost because its caller has gone or was impatient.
        let (answer, answered) = oneshot::channel();
        let mut answer = Answer(Some(answer));
        let (budget, held_by) = (Arc::clone(self), Arc::clone(shared));
        let cost = check.cost;
        server.runtime.spawn(async move {
            if let Err(failure) = budget.take(&held_by, chunk, cost, &mut answer).await {
                answer.give(Err(failure));
            }
            if let Some((rest, until_us)) = expired {
                budget.give_back(&held_by, rest, until_us).await;
            }
            budget.give_back_when_expired(&held_by).await;
        });
        match timeout_at(deadline, answered).await {
            Ok(Ok(decision)) => decision,
            Ok(Err(_)) => Err(Failure::Fault(None)),
            Err(_) => Err(server.timed_out(server.lanes.of(&self.key))),
        }
    }

    /// Asks for a chunk, or if that is not to be had, for the cost of the call; puts the rest into the purse.
    async fn take(
        &self,
        shared: &Shared,
        chunk: u64,
        cost: u64,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let server = &shared.server;
        let mut call = script::TAKE.on([&*self.key].into_iter());
        call.arg(self.terms.applied.command());
        for word in self.terms.applied.parameters() {
            call.arg(word);
        }
        call.arg(chunk).arg(cost);
        let lane = server.lanes.of(&self.key);
        let asked = Instant::now();
        // Longer than the caller waits: a chunk that comes late can still be used or given back.
        let patience = server.timeout.max(self.terms.life);
        let reply = server.ask(lane, &Request::Script(call), patience).await?;
        let (told, taken, time_us) = read(reply)?;
        // The limit as the caller knows it, not as it was applied.
        let told = Decision {
            limit: self.limit.limit(),
            ..told
        };
        if !told.allowed {
            shared.denied.learn(&self.key, &self.limit, cost, &told);
            answer.give(Ok(told));
            return Ok(());
        }
        server.metrics.taken.increment(taken);
        server.metrics.spent.increment(cost);
        let (spendable, returnable) = self.terms.deadlines(told.reset_after);
        let returnable_until_us =
            time_us.saturating_add(u64::try_from(returnable.as_micros()).unwrap_or(u64::MAX));
        let mut purse = self.purse.lock();
        let rest = purse.units;
        *purse = Purse {
            units: rest + taken.saturating_sub(cost),
            // Units of two chunks in one purse live as long as the older.
            expires: match rest {
                0 => asked + spendable,
                _ => purse.expires.min(asked + spendable),
            },
            returnable_until_us: match rest {
                0 => returnable_until_us,
                _ => purse.returnable_until_us.min(returnable_until_us),
            },
            told,
            told_at: asked,
            taken,
            next: taken,
        };
        let decision = Decision {
            source: Source::Redis,
            ..purse.decision(asked)
        };
        // While the purse is locked: what a caller who has gone leaves behind belongs to this chunk and no other.
        if !answer.give(Ok(decision)) {
            purse.units += cost;
        }
        Ok(())
    }

    async fn give_back_when_expired(&self, shared: &Shared) {
        let expires = self.purse.lock().expires;
        tokio::time::sleep_until(expires.into()).await;
        let expired = self.purse.lock().expired(Instant::now());
        if let Some((rest, until_us)) = expired {
            self.give_back(shared, rest, until_us).await;
        }
    }

    async fn give_back(&self, shared: &Shared, units: u64, until_us: u64) {
        if units == 0 {
            return;
        }
        let server = &shared.server;
        let mut call = script::GIVE_BACK.on([&*self.key].into_iter());
        call.arg(units).arg(until_us);
        let lane = server.lanes.of(&self.key);
        let patience = server.timeout.max(self.terms.life);
        // If it fails, the units are lost until the window moves on.
        if let Ok(reply) = server.ask(lane, &Request::Script(call), patience).await {
            let returned = u64::from_redis_value(reply).unwrap_or(0);
            server.metrics.returned.increment(returned);
        }
    }
}

/// Where the caller waits for its decision.
struct Answer(Option<oneshot::Sender<Result<Decision, Failure>>>);

impl Answer {
    /// Whether someone was there to take it.
    fn give(&mut self, decision: Result<Decision, Failure>) -> bool {
        let waiting = self.0.take();
        waiting.is_some_and(|waiting| waiting.send(decision).is_ok())
    }
}

fn read(reply: Value) -> Result<(Decision, u64, u64), Failure> {
    FromRedisValue::from_redis_value(reply)
        .map_err(|error: redis::ParsingError| Failure::Fault(Some(error.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{DAY, HOUR, MINUTE, SECOND};

    const LIFE: Duration = Duration::from_millis(500);

    fn terms(limit: &Limit) -> Terms {
        Terms::of(limit, LIFE).unwrap_or_else(|| panic!("{limit} is not budgeted"))
    }

    #[test]
    fn units_of_a_window_are_spent_within_it() {
        // Counted 20 s into a window of a minute: as good as new in 100 s, the window ends in 40 s.
        let (spendable, returnable) =
            terms(&Limit::slide(9, MINUTE)).deadlines(Duration::from_secs(100));
        assert!(spendable < LIFE, "life is the shorter bound here");
        assert_eq!(returnable, Duration::from_millis(39_999));
        // Counted 100 ms before the end.
        let (spendable, returnable) =
            terms(&Limit::slide(9, MINUTE)).deadlines(Duration::from_millis(60_100));
        assert_eq!(returnable, Duration::from_millis(99));
        assert!(spendable < returnable);
        let (spendable, _) =
            terms(&Limit::slide(9, MINUTE)).deadlines(Duration::from_millis(60_001));
        assert_eq!(spendable, Duration::ZERO);
        let (_, returnable) = terms(&Limit::fixed(9, MINUTE)).deadlines(Duration::from_secs(40));
        assert_eq!(returnable, Duration::from_millis(39_999));
    }

    #[test]
    fn a_bucket_keeps_room_for_what_drains_meanwhile() {
        // 1000 a minute, 200 at once: 12 s to fill, so 500 ms are allowed, in which 8.33 flow in.
        let some = terms(&Limit::bucket(200, 1000, MINUTE));
        assert_eq!(some.life, LIFE);
        assert_eq!(some.applied, Limit::bucket(200 - 17, 1000, MINUTE));
        // 100 a second, 100 at once: a twentieth flows in within 50 ms.
        let fast = terms(&Limit::bucket(100, 100, SECOND));
        assert_eq!(fast.life, Duration::from_millis(50));
        assert_eq!(fast.applied, Limit::bucket(90, 100, SECOND));
    }

    #[test]
    fn not_every_limit_is_worth_it() {
        assert!(
            Terms::of(&Limit::bucket(1, 100, SECOND), LIFE).is_none(),
            "too fast"
        );
        assert!(Terms::of(&Limit::slide(9, Duration::from_millis(20)), LIFE).is_none());
        assert!(Terms::of(&Limit::exact(9, HOUR), LIFE).is_none());
        assert!(Terms::of(&Limit::lease(9, HOUR, "me"), LIFE).is_none());
        assert!(Terms::of(&Limit::bucket(u64::MAX, u64::MAX, DAY), LIFE).is_some());
    }

    #[test]
    fn chunks_follow_the_rate_and_shrink_near_the_limit() {
        let now = Instant::now();
        let mut purse = Purse {
            units: 0,
            expires: now + LIFE,
            returnable_until_us: 0,
            told: Decision::from_five([1, 10_000, 9_000, 0, 60_000]),
            told_at: now,
            taken: 16,
            next: 16,
        };
        assert_eq!(purse.chunk(1, now, LIFE), 32, "used up at once");
        assert_eq!(purse.chunk(1, now + LIFE, LIFE), 16, "lasted");
        assert_eq!(purse.chunk(100, now, LIFE), 100, "never less than the call");
        purse.told.remaining = 320;
        assert_eq!(purse.chunk(1, now, LIFE), 10, "a part of what is left");
        purse.told.remaining = 5;
        assert_eq!(purse.chunk(1, now, LIFE), 1);

        purse.units = 12;
        assert!(purse.expired(now).is_none());
        assert!(purse.spend(1, now + LIFE).is_none(), "too late");
        assert_eq!(purse.expired(now + LIFE), Some((12, 0)));
        assert_eq!(purse.next, 4, "what was used");
    }
}
