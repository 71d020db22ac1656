//! What a limit continues from: the stored state or, after its policy changed, as much of it as can be carried over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rl_core::{CarriedUsage, Error, Evaluation, Expiry, Limit, Mode, Update};

use super::Request;
use crate::commit::{self, Change};
use crate::error::CommandError;
use crate::server::{Context, Key};

/// How often a call by policy discarded a key's state, because none of its usage could be carried over. After a change of algorithms
/// this grows for a while; if it keeps growing, two policies share keys and reset each other's state.
static POLICY_STATE_RESETS: AtomicU64 = AtomicU64::new(0);

pub(crate) fn policy_state_resets() -> u64 {
    POLICY_STATE_RESETS.load(Relaxed)
}

/// What a decision is made from.
#[derive(Clone, Copy)]
pub(super) enum StateSource {
    /// The stored state.
    Stored,
    /// As much of it as can be carried over to limits that have changed. It stays in the key: a denied call copies
    /// nothing.
    CarriedOver,
}

impl StateSource {
    /// Reads the key, and determines what the limit continues from.
    #[inline(always)]
    pub(super) fn read(
        request: &Request,
        key: &mut Key,
        limit: &Limit,
    ) -> Result<Self, CommandError> {
        match key.read(limit.algorithm()) {
            Ok(()) => match limit {
                Limit::Policy(_) if key.state().is_some_and(|state| !limit.fits(state)) => {
                    Self::ensure_can_carry_over(key, limit)
                }
                _ => Ok(Self::Stored),
            },
            // Only a policy may change the algorithm of a key.
            Err(CommandError::WrongAlgorithm { .. }) if request.effective_policy().is_some() => {
                key.read_any()?;
                Self::ensure_can_carry_over(key, limit)
            }
            Err(error) => Err(error),
        }
    }

    /// Only checks that usage can be carried over; [`Self::evaluate`] and [`Self::commit`] do it.
    #[cold]
    fn ensure_can_carry_over(key: &Key, limit: &Limit) -> Result<Self, CommandError> {
        let Some(state) = key.state() else {
            return Ok(Self::Stored);
        };
        limit
            .carry_over(state)
            .map_err(|_| CommandError::WrongAlgorithm {
                stored: state.algorithm(),
                requested: limit.algorithm(),
            })?;
        Ok(Self::CarriedOver)
    }

    #[inline(always)]
    pub(super) fn evaluate<'l>(
        self,
        key: &Key,
        limit: &Limit<'l>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<Update<'l>>, Error> {
        match self {
            Self::Stored => limit.evaluate(key.state(), now_us, cost, mode),
            Self::CarriedOver => evaluate_carried_over(key, limit, now_us, cost, mode),
        }
    }

    /// The most calls of `cost` each, up to `max`, that the limit allows.
    #[cold]
    pub(super) fn affordable_calls(
        self,
        key: &Key,
        limit: &Limit,
        now_us: u64,
        cost: u64,
        max: u64,
    ) -> Result<u64, Error> {
        let carried_over = match self {
            Self::Stored => return limit.affordable_calls(key.state(), now_us, cost, max),
            Self::CarriedOver => carried_over(key, limit)?,
        };
        match carried_over {
            Some(carried_over) => carried_over.affordable_calls(limit, now_us, cost, max),
            None => limit.affordable_calls(None, now_us, cost, max),
        }
    }

    #[inline(always)]
    pub(super) fn commit(
        self,
        ctx: &Context,
        key: &mut Key,
        request: &Request,
        update: Update,
        expiry: Expiry,
    ) -> Result<Change, CommandError> {
        match self {
            Self::Stored => commit::commit(ctx, key, request.key, update, Some(expiry)),
            Self::CarriedOver => commit_carried_over(ctx, key, request, update, expiry),
        }
    }
}

// Out of line, so that the code of the usual case stays small enough to be inlined into each command.
#[cold]
#[inline(never)]
fn commit_carried_over(
    ctx: &Context,
    key: &mut Key,
    request: &Request,
    update: Update,
    expiry: Expiry,
) -> Result<Change, CommandError> {
    let (limit, _) = request.limit(1)?;
    let Some(update) = apply_carried_over(key, &limit, update)? else {
        return Ok(Change::Nothing);
    };
    let expiry = Expiry {
        unchanged: false,
        ..expiry
    };
    commit::commit(ctx, key, request.key, update, Some(expiry))
}

fn carried_over<'k>(key: &'k Key, limit: &Limit) -> Result<Option<CarriedUsage<'k>>, Error> {
    Ok(match key.state() {
        Some(state) => limit.carry_over(state)?,
        None => None,
    })
}

#[cold]
#[inline(never)]
fn evaluate_carried_over<'l>(
    key: &Key,
    limit: &Limit<'l>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Evaluation<Update<'l>>, Error> {
    match carried_over(key, limit)? {
        Some(carried_over) => carried_over.evaluate(limit, now_us, cost, mode),
        None => limit.evaluate(None, now_us, cost, mode),
    }
}

/// The whole state that results if the update is applied to what is carried over.
#[cold]
fn apply_carried_over<'a>(
    key: &Key,
    limit: &Limit,
    update: Update<'a>,
) -> Result<Option<Update<'a>>, Error> {
    let state = match carried_over(key, limit)?.and_then(CarriedUsage::into_state) {
        Some(mut state) => {
            state.apply(update);
            Some(state)
        }
        None => {
            let state = update.into_initial();
            if state.is_some() {
                POLICY_STATE_RESETS.fetch_add(1, Relaxed);
            }
            state
        }
    };
    Ok(state.map(Update::Replace))
}
