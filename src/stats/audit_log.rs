//! The latest denials, in a ring whose entries are reused: once it has wrapped around, recording allocates nothing. What
//! is expensive to compute, such as the text of the limit, is computed when somebody asks for it.

use std::fmt::Write;

use rl_core::Limit;
use rl_core::stats::{MAX_KEY_LEN, Outcome};

use super::{Denial, DeniedBy, Observation};
use crate::server::Context;

/// The newest entry is the one before `next`.
pub(crate) struct AuditLog {
    entries: Vec<AuditEntry>,
    next: usize,
    max_len: usize,
    next_id: u64,
}

/// The index of anything that is not a limit of a policy.
const NO_INDEX: i64 = -1;

/// One denial.
#[derive(Default)]
pub(crate) struct AuditEntry {
    id: u64,
    time_us: u64,
    key: Vec<u8>,
    policy: Vec<u8>,
    /// `None` for an override that blocks the key.
    limit: Option<Limit<'static>>,
    /// The holder of a lease; empty for other limits.
    holder: Vec<u8>,
    fixed_cost: bool,
    index: i64,
    cost: u64,
    limit_value: u64,
    retry_after_ms: i64,
    shadow: bool,
    client: u64,
}

/// The value of a field of an entry.
pub(crate) enum AuditValue<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl AuditLog {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            next: 0,
            max_len: 0,
            next_id: 0,
        }
    }

    #[inline(always)]
    pub(super) fn record(&mut self, observation: &Observation, denial: &Denial, client: u64) {
        let id = self.next_id;
        self.next_id += 1;
        if self.entries.len() < self.max_len {
            self.entries.push(AuditEntry::default());
        }
        if let Some(entry) = self.entries.get_mut(self.next) {
            entry.fill(observation, denial, id, client);
            self.next += 1;
            if self.next == self.max_len {
                self.next = 0;
            }
        }
    }

    /// Changes the capacity; the newest entries are kept.
    pub(super) fn resize(&mut self, max_len: usize) {
        if max_len == self.max_len {
            return;
        }
        // The oldest first, as in a ring that has not wrapped around.
        let oldest = self.next.min(self.entries.len());
        self.entries.rotate_left(oldest);
        let surplus = self.entries.len().saturating_sub(max_len);
        self.entries.drain(..surplus);
        self.entries.shrink_to(max_len);
        self.max_len = max_len;
        self.next = match self.entries.len() {
            len if len == max_len => 0,
            len => len,
        };
    }

    pub(crate) fn reset(&mut self) {
        self.entries = Vec::new();
        self.next = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The id of the newest entry.
    pub(super) fn last_id(&self) -> u64 {
        self.next_id.saturating_sub(1)
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &AuditEntry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }
}

impl AuditEntry {
    #[inline(always)]
    pub(super) fn fill(
        &mut self,
        observation: &Observation,
        denial: &Denial,
        id: u64,
        client: u64,
    ) {
        self.id = id;
        self.time_us = observation.now_us;
        let key = observation.key.as_bytes();
        self.key.clear();
        self.key
            .extend_from_slice(&key[..key.len().min(MAX_KEY_LEN)]);
        self.holder.clear();
        self.limit = match denial.by {
            DeniedBy::Limit(limit) => {
                let (limit, holder) = limit.into_owned();
                if !holder.is_empty() {
                    self.holder.extend_from_slice(holder);
                }
                Some(limit)
            }
            DeniedBy::Block => None,
        };
        self.policy.clear();
        (self.index, self.fixed_cost) = (NO_INDEX, false);
        if let Some(policy) = observation.policy {
            self.policy.extend_from_slice(policy.name);
            (self.index, self.fixed_cost) = (policy.index, policy.fixed_cost);
        }
        self.cost = observation.cost;
        self.limit_value = denial.decision.limit;
        self.retry_after_ms = denial.decision.retry_after_ms;
        self.shadow = observation.outcome == Outcome::ShadowDenied;
        self.client = client;
    }

    /// Every field with its name, for RL.AUDIT and the stream.
    pub(crate) fn fields(&self, ctx: &Context, mut each: impl FnMut(&'static str, AuditValue)) {
        let client = ctx.describe_client(self.client);
        let by = self.denied_by();
        each("id", AuditValue::Number(self.id as i64));
        each(
            "occurred_at_ms",
            AuditValue::Number((self.time_us / 1000) as i64),
        );
        each("key", AuditValue::Text(&self.key));
        each("policy", AuditValue::Text(&self.policy));
        each("denied_by", AuditValue::Text(by.as_bytes()));
        each("limit_index", AuditValue::Number(self.index));
        each("cost", AuditValue::Number(self.cost as i64));
        each("limit", AuditValue::Number(self.limit_value as i64));
        each("retry_after_ms", AuditValue::Number(self.retry_after_ms));
        each("shadow", AuditValue::Number(self.shadow.into()));
        each("client", AuditValue::Text(&client));
    }

    pub(crate) const FIELDS: usize = 11;

    fn denied_by(&self) -> String {
        let Some(limit) = &self.limit else {
            return "BLOCK".to_owned();
        };
        let mut text = limit.to_string();
        if !self.holder.is_empty() {
            // Writing to a string does not fail.
            let _ = write!(text, " {}", self.holder.escape_ascii());
        }
        if self.fixed_cost {
            let _ = write!(text, " COST {}", self.cost);
        }
        text
    }
}
