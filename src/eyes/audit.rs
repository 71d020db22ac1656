//! The latest denials, in a ring whose entries are used again: once it has gone round, recording allocates
//! nothing. What takes work to tell, such as the limit's text, is worked out when somebody asks.

use std::fmt::Write;

use rl_core::{Limit, MAX_NAME};

use super::{Answer, By, Denial, Seen};
use crate::redis::Context;

/// The newest entry is the one before `next`.
pub(crate) struct Ring {
    entries: Vec<Entry>,
    next: usize,
    max_len: usize,
    /// Of the next denial.
    id: u64,
}

/// One denial.
#[derive(Default)]
pub(crate) struct Entry {
    id: u64,
    time_us: u64,
    key: Vec<u8>,
    policy: Vec<u8>,
    /// `None` for an override that blocks the key.
    limit: Option<Limit<'static>>,
    /// Of a lease.
    holder: Vec<u8>,
    fixed_cost: bool,
    index: i64,
    cost: u64,
    at_most: u64,
    retry_after_ms: i64,
    shadow: bool,
    client: u64,
}

/// A field of an entry.
pub(crate) enum Shown<'a> {
    Number(i64),
    Text(&'a [u8]),
}

impl Ring {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            next: 0,
            max_len: 0,
            id: 0,
        }
    }

    #[inline(always)]
    pub(super) fn record(&mut self, seen: &Seen, name: &[u8], denial: &Denial, client: u64) {
        let id = self.id;
        self.id += 1;
        if self.entries.len() < self.max_len {
            self.entries.push(Entry::default());
        }
        if let Some(entry) = self.entries.get_mut(self.next) {
            entry.fill(seen, name, denial, id, client);
            self.next += 1;
            if self.next == self.max_len {
                self.next = 0;
            }
        }
    }

    /// Keeps the newest.
    pub(super) fn resize(&mut self, max_len: usize) {
        if max_len == self.max_len {
            return;
        }
        // The oldest first, as in a ring that has not gone round.
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

    /// The id of the newest.
    pub(super) fn last_id(&self) -> u64 {
        self.id.saturating_sub(1)
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Entry> {
        let (newer, older) = self.entries.split_at(self.next.min(self.entries.len()));
        newer.iter().rev().chain(older.iter().rev())
    }
}

impl Entry {
    #[inline(always)]
    pub(super) fn fill(&mut self, seen: &Seen, name: &[u8], denial: &Denial, id: u64, client: u64) {
        self.id = id;
        self.time_us = seen.now_us;
        self.key.clear();
        self.key
            .extend_from_slice(&name[..name.len().min(MAX_NAME)]);
        self.holder.clear();
        self.limit = match denial.by {
            By::Limit(limit) => {
                let (limit, holder) = limit.detached();
                if !holder.is_empty() {
                    self.holder.extend_from_slice(holder);
                }
                Some(limit)
            }
            By::Block => None,
        };
        self.policy.clear();
        (self.index, self.fixed_cost) = (0, false);
        if let Some(policy) = seen.policy {
            self.policy.extend_from_slice(policy.name);
            (self.index, self.fixed_cost) = (policy.index, policy.fixed_cost);
        }
        self.cost = seen.cost;
        self.at_most = denial.decision.limit;
        self.retry_after_ms = denial.decision.retry_after_ms;
        self.shadow = seen.answer == Answer::ShadowDenied;
        self.client = client;
    }

    /// Every field with its name, as RL.AUDIT and the stream tell it.
    pub(crate) fn fields(&self, ctx: &Context, mut each: impl FnMut(&'static str, Shown)) {
        let client = ctx.describe_client(self.client);
        let by = self.denied_by();
        each("id", Shown::Number(self.id as i64));
        each("time_ms", Shown::Number((self.time_us / 1000) as i64));
        each("key", Shown::Text(&self.key));
        each("policy", Shown::Text(&self.policy));
        each("denied_by", Shown::Text(by.as_bytes()));
        each("index", Shown::Number(self.index));
        each("cost", Shown::Number(self.cost as i64));
        each("limit", Shown::Number(self.at_most as i64));
        each("retry_after_ms", Shown::Number(self.retry_after_ms));
        each("shadow", Shown::Number(self.shadow.into()));
        each("client", Shown::Text(&client));
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
