//! RL.SETTLE: changes what a reservation charged to what was used, once per key.

use rl_core::Mode;
use rl_core::reservation::{
    ActualUsage, CLOSED_FOR_MS, ExtraCharge, KeyChange, OpenReservation, Reservation, ReservedKey,
    StoredReservation,
};
use rl_core::syntax::{self, LimitSource, Spec};
use smallvec::SmallVec;

use super::state_source::StateSource;
use super::{INLINE_REQUESTS, Request};
use crate::commit::{self, Change};
use crate::error::{CALLS, CommandError, not_reserved};
use crate::policy::EffectivePolicy;
use crate::replication;
use crate::server::{Context, Key, ServerStr};
use crate::stats;

/// One key to settle, and the units that it used.
pub(crate) struct SettledKey<'a> {
    pub(crate) key: ServerStr<'a>,
    pub(crate) actual: u64,
}

pub(crate) type Charged = SmallVec<[u64; INLINE_REQUESTS]>;

/// Settles the named keys. Returns the units that stay charged, key by key; `None` if the id is unknown, which closes it.
pub(crate) fn settle(
    ctx: &Context,
    id_name: ServerStr,
    calls: u64,
    keys: &[SettledKey],
    now_us: u64,
) -> Result<Option<Charged>, CommandError> {
    let mut id = Key::open_to_write(ctx, id_name);
    let stored = id.reservation()?.cloned();
    let reservation = match &stored {
        Some(stored) => stored.reservation()?,
        None => Reservation::Closed,
    };
    let Reservation::Open(mut open) = reservation else {
        let closed = StoredReservation::closed();
        let expire_at_ms = (now_us / 1000 + CLOSED_FOR_MS) as i64;
        mark_if(
            ctx,
            commit::commit_reservation(ctx, &mut id, id_name, closed, expire_at_ms)?,
        );
        return Ok(None);
    };
    if calls > open.times {
        return Err(CALLS);
    }
    let mut pending = SmallVec::<[Pending; INLINE_REQUESTS]>::new();
    for settled in keys {
        let name = settled.key.as_bytes();
        let index = open.position(name).ok_or_else(|| not_reserved(name))?;
        let one = Pending::prepare(ctx, &open, index, settled, calls, now_us);
        pending.push(one.map_err(|error| error.with_key(name))?);
    }
    let is_new = |one: &Pending| open.keys[one.index].settled.is_none();
    if pending.iter().any(is_new) {
        let expire_at_ms = id.expire_at_ms().max(0);
        let mut refunded = 0;
        let mut unreplicated = false;
        for one in &mut pending {
            let key = &mut open.keys[one.index];
            if key.settled.is_none() {
                let (charged, change) = one.commit(ctx, key, now_us, &mut refunded)?;
                key.settled = Some(charged);
                unreplicated |= change;
            }
        }
        let stored = StoredReservation::open(&open);
        let change = commit::commit_reservation(ctx, &mut id, id_name, stored, expire_at_ms)?;
        if unreplicated || change == Change::Unreplicated {
            replication::mark_dirty(ctx);
        }
        stats::record_refund(ctx, refunded);
    }
    let charged = pending.iter().map(|one| open.keys[one.index].settled);
    Ok(Some(charged.map(Option::unwrap_or_default).collect()))
}

fn mark_if(ctx: &Context, change: Change) {
    if change == Change::Unreplicated {
        replication::mark_dirty(ctx);
    }
}

/// A key that is about to be settled. Everything that can fail is done before anything changes.
struct Pending<'a> {
    index: usize,
    name: ServerStr<'a>,
    key: Key,
    actual: ActualUsage,
    extra: Option<Extra<'a>>,
}

/// Units to charge in addition.
struct Extra<'a> {
    request: Request<'a>,
    charge: ExtraCharge,
    source: StateSource,
}

impl<'a> Pending<'a> {
    fn prepare(
        ctx: &Context,
        open: &OpenReservation<'a>,
        index: usize,
        settled: &SettledKey<'a>,
        calls: u64,
        now_us: u64,
    ) -> Result<Self, CommandError> {
        let reserved = &open.keys[index];
        let mut one = Self {
            index,
            name: settled.key,
            key: Key::none(),
            actual: ActualUsage {
                times: open.times,
                calls,
                units: settled.actual,
            },
            extra: None,
        };
        if reserved.settled.is_some() {
            return Ok(one);
        }
        one.key = Key::open_to_write(ctx, settled.key);
        if let Some(charge) = reserved.extra_charge(one.actual) {
            one.extra = Extra::prepare(ctx, reserved, charge, settled.key, &mut one.key, now_us)?;
            if one.extra.is_none() {
                one.actual.units = reserved.reserved.unwrap_or(0);
            }
        }
        Ok(one)
    }

    /// Charges, refunds, and returns the units that stay charged and whether a change was not replicated.
    fn commit(
        &mut self,
        ctx: &Context,
        reserved: &ReservedKey,
        now_us: u64,
        refunded: &mut u64,
    ) -> Result<(u64, bool), CommandError> {
        let mut unreplicated = false;
        if let Some(extra) = &self.extra {
            let (charged, change) = extra.commit(ctx, &mut self.key, now_us)?;
            unreplicated |= change == Change::Unreplicated;
            match reserved.reserved {
                // No limit was charged before, and those that fix their cost do not charge `actual`.
                Some(0) => self.actual.units = charged,
                Some(reserved) if change == Change::Nothing => self.actual.units = reserved,
                _ => {}
            }
        }
        // A key of another type counts nothing of the reservation.
        let is_ours = self.key.read_any().is_ok();
        let state = self.key.state().filter(|_| is_ours);
        let settlement = reserved.settle(state, now_us, self.actual)?;
        *refunded = refunded.saturating_add(settlement.refunded);
        match settlement.change {
            KeyChange::Keep => {}
            KeyChange::Update(update) => {
                let change = commit::commit(ctx, &mut self.key, self.name, update, None)?;
                unreplicated |= change == Change::Unreplicated;
            }
            KeyChange::Delete => commit::delete(ctx, &mut self.key, self.name),
        }
        Ok((settlement.charged, unreplicated))
    }
}

impl<'a> Extra<'a> {
    /// `None` if there is nothing to charge any more: the policy is gone, or an override decides for it.
    fn prepare(
        ctx: &Context,
        reserved: &ReservedKey<'a>,
        charge: ExtraCharge,
        name: ServerStr<'a>,
        key: &mut Key,
        now_us: u64,
    ) -> Result<Option<Self>, CommandError> {
        let cost = charge.units;
        let request = match syntax::recorded_spec(reserved.spec)?.source {
            LimitSource::Spec(Spec { limit, .. }) => Request::inline(name, Spec { limit, cost }),
            LimitSource::Policy { name: policy, .. } => {
                match EffectivePolicy::find(ctx, name, policy, cost, now_us) {
                    Ok(policy) => Request::policy(name, policy),
                    Err(_) => return Ok(None),
                }
            }
        };
        if request.decision_of_override().is_some() {
            return Ok(None);
        }
        let (limit, cost) = request.limit_for_settling(charge.times)?;
        let source = StateSource::read(&request, key, &limit)?;
        // Forced: only a lease's key with too many holders refuses it.
        let _ = source.evaluate(key, &limit, now_us, cost, Mode::Force)?;
        Ok(Some(Self {
            request,
            charge,
            source,
        }))
    }

    /// Returns the units that were charged: the most of any limit.
    fn commit(
        &self,
        ctx: &Context,
        key: &mut Key,
        now_us: u64,
    ) -> Result<(u64, Change), CommandError> {
        let (limit, cost) = self.request.limit_for_settling(self.charge.times)?;
        let evaluation = self
            .source
            .evaluate(key, &limit, now_us, cost, Mode::Force)?;
        let change = match evaluation.update {
            Some(update) => {
                let expiry = evaluation.expiry;
                self.source
                    .commit(ctx, key, &self.request, update, expiry)?
            }
            // All limits of the policy fix their cost.
            None => Change::Nothing,
        };
        Ok((limit.highest_charge(cost), change))
    }
}
