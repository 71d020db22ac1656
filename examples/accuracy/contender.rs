//! The algorithms, each configured as people usually configure "100 per minute".

use rl_core::{Decision, Limit, Mode, State};

pub const LIMIT: u64 = 100;
pub const WINDOW_US: u64 = 60_000_000;
const WINDOW_MS: u64 = WINDOW_US / 1000;

/// 2024-10-04, 00:00 UTC: a boundary of fixed windows of any usual length.
pub const MIDNIGHT_US: u64 = 20_000 * 24 * 60 * WINDOW_US;

#[derive(Clone, Copy)]
pub struct Contender {
    pub limit: Limit<'static>,
    /// The units that it allows per window.
    pub units: u64,
    /// The number of parts into which SLIDE splits its window; 1 for the others.
    pub parts: u8,
}

pub fn all() -> Vec<Contender> {
    let mut all: Vec<_> = [1, 2, 4, 8, 16, 60].map(slide).into();
    all.extend([exact(LIMIT), fixed(), bucket(), leak()]);
    all
}

/// The algorithms that have their own section on the page.
pub fn shown() -> [Contender; 6] {
    let two = slide(1);
    [two, slide(8), exact(LIMIT), fixed(), bucket(), leak()]
}

/// SLIDE with its window in so many parts; 1 stands for no PRECISION.
pub fn slide(parts: u8) -> Contender {
    slide_of(parts, LIMIT)
}

/// The same with another limit.
pub fn slide_of(parts: u8, units: u64) -> Contender {
    let limit = rl_core::SlideLimit::new(units, WINDOW_MS).unwrap();
    let limit = match parts {
        1 => limit,
        parts => limit.with_precision(parts).unwrap(),
    };
    Contender {
        limit: Limit::Slide(limit),
        units,
        parts,
    }
}

pub fn exact(units: u64) -> Contender {
    let limit = rl_core::ExactLimit::new(units, WINDOW_MS).unwrap();
    of(Limit::Exact(limit), units)
}

pub fn fixed() -> Contender {
    let limit = rl_core::FixedLimit::new(LIMIT, WINDOW_MS).unwrap();
    of(Limit::Fixed(limit), LIMIT)
}

pub fn bucket() -> Contender {
    let limit = rl_core::BucketLimit::new(LIMIT, LIMIT, WINDOW_MS).unwrap();
    of(Limit::Bucket(limit), LIMIT)
}

pub fn leak() -> Contender {
    let limit = rl_core::LeakLimit::new(LIMIT, LIMIT, WINDOW_MS).unwrap();
    of(Limit::Leak(limit), LIMIT)
}

fn of(limit: Limit<'static>, units: u64) -> Contender {
    Contender {
        limit,
        units,
        parts: 1,
    }
}

impl Contender {
    pub fn name(&self) -> String {
        let name = self.limit.algorithm().name();
        match self.parts {
            1 => name.into(),
            parts => format!("{name} PRECISION {parts}"),
        }
    }

    /// The anchor of its section on the page, and the name of its figure.
    pub fn anchor(&self) -> &'static str {
        match self.limit {
            Limit::Slide(_) if self.parts > 1 => "slide-precision",
            Limit::Slide(_) => "slide",
            Limit::Exact(_) => "exact",
            Limit::Fixed(_) => "fixed",
            Limit::Bucket(_) => "bucket",
            Limit::Leak(_) => "leak",
            Limit::Lease(_) => "lease",
            Limit::Policy(_) => "policy",
        }
    }

    /// The call that a client makes.
    pub fn command(&self) -> String {
        let name = self.limit.algorithm().name();
        match (self.limit, self.parts) {
            (Limit::Bucket(_) | Limit::Leak(_), _) => format!("RL.{name} key {LIMIT} {LIMIT} 1m"),
            (_, 1) => format!("RL.{name} key {LIMIT} 1m"),
            (_, parts) => format!("RL.{name} key {LIMIT} 1m 1 PRECISION {parts}"),
        }
    }

    /// Whether the reply tells an admitted call to wait, so that it takes place later.
    pub fn is_queue(&self) -> bool {
        matches!(self.limit, Limit::Leak(_))
    }
}

/// One key, as a server would store it.
pub struct Key {
    limit: Limit<'static>,
    state: Option<State>,
}

impl Key {
    pub fn new(contender: &Contender) -> Self {
        Self {
            limit: contender.limit,
            state: None,
        }
    }

    pub fn call(&mut self, now_us: u64) -> Decision {
        self.evaluate(now_us, Mode::Check)
    }

    /// Decides like a limiter that also counts the calls that it denies.
    pub fn call_and_count(&mut self, now_us: u64) -> Decision {
        let stored = self.state.as_ref();
        let checked = self.limit.evaluate(stored, now_us, 1, Mode::Check);
        let _ = self.evaluate(now_us, Mode::Force);
        checked.unwrap().decision
    }

    fn evaluate(&mut self, now_us: u64, mode: Mode) -> Decision {
        let outcome = self.limit.evaluate(self.state.as_ref(), now_us, 1, mode);
        let outcome = outcome.unwrap();
        if let Some(next) = outcome.update {
            match &mut self.state {
                Some(state) => state.apply(next),
                None => self.state = next.into_initial(),
            }
        }
        outcome.decision
    }

    /// The size of the state: its packed integers, or the value and its allocations.
    pub fn bytes(&self) -> usize {
        self.state.as_ref().map_or(0, state_bytes)
    }
}

pub fn state_bytes(state: &State) -> usize {
    match state.packed() {
        Some(integers) => size_of_val(integers.as_slice()),
        None => size_of::<State>() + state.heap_bytes(),
    }
}
