//! A client that knows the algorithm and gets as many calls into one window as it can.

use crate::contender::{Contender, MIDNIGHT_US, WINDOW_US};
use crate::replay::{Counting, Replay};

const ATTACKS: u64 = 60;

/// The time from one attack to the next: long enough that the key is fully reset.
pub const CYCLE_US: u64 = 4 * WINDOW_US;

/// Attacks repeatedly. Each attack starts with a call on the full minute, so that the boundaries of windows and their
/// parts are known. Then it uses the whole limit at once, 1 ms before the first part ends: an estimate treats the burst
/// as if it had been spread over the part, a fixed window forgets it a moment later, and to a bucket all moments are
/// the same. After that it calls whenever the last reply says that the call will be allowed, for as long as the burst
/// is in the window.
pub fn attack(contender: &Contender) -> Replay {
    let mut replay = Replay::new(contender, Counting::Admitted);
    for attack in 0..ATTACKS {
        let start_us = MIDNIGHT_US + attack * CYCLE_US;
        let part_us = WINDOW_US.div_ceil(contender.parts.into());
        let burst_us = start_us + part_us - 1000;
        let _ = replay.call(start_us);
        let mut now_us = burst_us;
        while now_us < burst_us + WINDOW_US {
            if let Err(retry_us) = replay.call(now_us) {
                now_us = retry_us;
            }
        }
    }
    replay
}
