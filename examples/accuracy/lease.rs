//! Jobs under a lease: how many run at once, and how many would without it.

use rl_core::{Limit, Mode, State};

use crate::contender;
use crate::random::Random;
use crate::traffic::at;

pub const LIMIT: u64 = 5;
const TTL_S: f64 = 90.0;
pub const SCENE_S: f64 = 900.0;

/// The start and end of every job, in seconds.
pub struct Scene {
    pub offered: Vec<(f64, f64)>,
    pub held: Vec<(f64, f64)>,
    pub bytes: usize,
}

/// A quarter of an hour of jobs: one every 10 s on average, each taking 20 s to 80 s. Every sixth job that gets a lease
/// crashes, so that its lease lasts until its ttl has passed.
pub fn scene() -> Scene {
    let mut random = Random::new(7);
    let mut state: Option<State> = None;
    let mut scene = Scene {
        offered: Vec::new(),
        held: Vec::new(),
        bytes: 0,
    };
    let mut ends: Vec<(f64, String)> = Vec::new();
    let mut begin_s = random.gap(10.0);
    while begin_s < SCENE_S {
        let length_s = random.between(20.0, 80.0);
        scene.offered.push((begin_s, begin_s + length_s));
        ends.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        while ends.first().is_some_and(|&(end_s, _)| end_s <= begin_s) {
            let (end_s, holder) = ends.remove(0);
            release(&mut state, at(end_s), holder.as_bytes());
        }
        let holder = format!("worker-{:04}", scene.offered.len());
        let limit = rl_core::LeaseLimit::new(LIMIT, (TTL_S * 1000.0) as u64, holder.as_bytes());
        let limit = Limit::Lease(limit.unwrap());
        let outcome = limit.evaluate(state.as_ref(), at(begin_s), 1, Mode::Check);
        let outcome = outcome.unwrap();
        if let Some(next) = outcome.update {
            match &mut state {
                Some(state) => state.apply(next),
                None => state = next.into_initial(),
            }
        }
        if outcome.decision.allowed {
            let dies = scene.held.len() % 6 == 5;
            let held_s = if dies { TTL_S } else { length_s };
            scene.held.push((begin_s, begin_s + held_s));
            if !dies {
                ends.push((begin_s + length_s, holder));
            }
        }
        scene.bytes = scene
            .bytes
            .max(state.as_ref().map_or(0, contender::state_bytes));
        begin_s += random.gap(10.0);
    }
    scene
}

fn release(stored: &mut Option<State>, now_us: u64, holder: &[u8]) {
    let Some(state) = stored else {
        return;
    };
    let released = state.release(now_us, holder).unwrap();
    match (released.units, released.update) {
        (0, _) => {}
        (_, Some(next)) => state.apply(next),
        (_, None) => *stored = None,
    }
}

/// The most leases held at any time.
pub fn most(scene: &Scene) -> u64 {
    let at_once = |&(begin_s, _): &(f64, f64)| {
        let holds = |&&(from_s, until_s): &&(f64, f64)| from_s <= begin_s && begin_s < until_s;
        scene.held.iter().filter(holds).count() as u64
    };
    scene.held.iter().map(at_once).max().unwrap_or(0)
}
