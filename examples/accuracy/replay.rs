//! Replays calls through an algorithm, and compares each decision with that of an exact window.

use std::collections::VecDeque;

use crate::contender::{Contender, Key, WINDOW_US};

/// An exact sliding window in its simplest form: the times of all units that count. A unit taken at `t` counts in
/// `[t, t + window)`.
#[derive(Default)]
struct Oracle {
    taken: VecDeque<u64>,
}

impl Oracle {
    fn used(&mut self, now_us: u64) -> u64 {
        while let Some(&first) = self.taken.front()
            && first + WINDOW_US <= now_us
        {
            self.taken.pop_front();
        }
        self.taken.len() as u64
    }

    fn take(&mut self, now_us: u64) {
        self.taken.push_back(now_us);
    }
}

/// What a limit counts.
#[derive(Clone, Copy, PartialEq)]
pub enum Counting {
    /// The calls that it admitted, as RL does.
    Admitted,
    /// Every call, admitted or not.
    All,
}

/// How an algorithm performed.
#[derive(Clone, Copy, Default)]
pub struct Verdict {
    pub calls: u64,
    pub admitted: u64,
    /// Admitted, though an exact window with the same past was full.
    pub wrongly_admitted: u64,
    /// Denied, though an exact window with the same past had room.
    pub wrongly_denied: u64,
    /// The sum of the room that was left whenever it denied wrongly.
    room: u64,
    /// The most units in any window of one key.
    pub most: u64,
    /// The shortest time, within a window, in which one key took one unit more than the limit.
    pub shortest_us: Option<u64>,
}

impl Verdict {
    pub fn wrong(&self) -> u64 {
        self.wrongly_admitted + self.wrongly_denied
    }

    /// The units that an exact window still had on average when a call was wrongly denied.
    pub fn mean_room(&self) -> String {
        match self.wrongly_denied {
            0 => "—".into(),
            denied => format!("{:.1}", self.room as f64 / denied as f64),
        }
    }

    pub fn denied(&self) -> u64 {
        self.calls - self.admitted
    }

    /// Adds the verdict of another key.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.admitted += other.admitted;
        self.wrongly_admitted += other.wrongly_admitted;
        self.wrongly_denied += other.wrongly_denied;
        self.room += other.room;
        self.most = self.most.max(other.most);
        let both = [self.shortest_us, other.shortest_us];
        self.shortest_us = both.into_iter().flatten().min();
    }
}

/// The calls on one key, in order.
pub struct Replay {
    key: Key,
    counting: Counting,
    oracle: Oracle,
    verdict: Verdict,
    pub offered_us: Vec<u64>,
    pub admitted_us: Vec<u64>,
    /// When admitted calls take place; with a queue that is later.
    pub released_us: Vec<u64>,
    limit: u64,
    queue: bool,
}

impl Replay {
    pub fn new(contender: &Contender, counting: Counting) -> Self {
        Self {
            key: Key::new(contender),
            counting,
            oracle: Oracle::default(),
            verdict: Verdict::default(),
            offered_us: Vec::new(),
            admitted_us: Vec::new(),
            released_us: Vec::new(),
            limit: contender.units,
            queue: contender.is_queue(),
        }
    }

    /// Makes one call and judges the decision. If the call is denied, returns when to retry.
    pub fn call(&mut self, now_us: u64) -> Result<(), u64> {
        // The exact window has the same history: the calls that this algorithm counted.
        let room = self.limit.saturating_sub(self.oracle.used(now_us));
        let decision = match self.counting {
            Counting::Admitted => self.key.call(now_us),
            Counting::All => self.key.call_and_count(now_us),
        };
        let wait_us = decision.retry_after_ms.unsigned_abs() * 1000;
        self.verdict.calls += 1;
        self.verdict.wrongly_admitted += u64::from(decision.allowed && room == 0);
        if !decision.allowed && room > 0 {
            self.verdict.wrongly_denied += 1;
            self.verdict.room += room;
        }
        self.offered_us.push(now_us);
        if decision.allowed {
            self.verdict.admitted += 1;
            self.admitted_us.push(now_us);
            self.released_us
                .push(now_us + if self.queue { wait_us } else { 0 });
        }
        if decision.allowed || self.counting == Counting::All {
            self.oracle.take(now_us);
        }
        if decision.allowed {
            Ok(())
        } else {
            Err(now_us + wait_us)
        }
    }

    pub fn verdict(&self) -> Verdict {
        // Waits are in whole milliseconds, so a waiting call may overtake another by less than one.
        let mut times = self.released_us.clone();
        times.sort_unstable();
        let mut first = 0;
        let mut most = 0;
        for (last, &now_us) in times.iter().enumerate() {
            while times[first] + WINDOW_US <= now_us {
                first += 1;
            }
            most = most.max(last + 1 - first);
        }
        let over = times.windows(self.limit as usize + 1);
        let spans = over.map(|units| units[self.limit as usize] - units[0]);
        Verdict {
            most: most as u64,
            shortest_us: spans.filter(|&span| span < WINDOW_US).min(),
            ..self.verdict
        }
    }
}

pub fn one_key(contender: &Contender, counting: Counting, calls: &[u64]) -> Verdict {
    let mut replay = Replay::new(contender, counting);
    for &now_us in calls {
        let _ = replay.call(now_us);
    }
    replay.verdict()
}
