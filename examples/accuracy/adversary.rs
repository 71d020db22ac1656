//! A client who knows the algorithm and takes what it can in one window.

use crate::contender::{Contender, MIDNIGHT_US, WINDOW_US};
use crate::replay::{Counting, Replay};

const ATTACKS: u64 = 60;

/// From one attack to the next: long enough that the key is as good as new.
pub const CYCLE_US: u64 = 4 * WINDOW_US;

/// One attack: a call on the full minute, so that it is known where windows and their parts begin. The whole
/// limit at once, 1 ms before the first part ends: an estimate will let it fade as if it had been spread over the
/// part, a fixed window forgets it a moment later, and to a bucket all moments are the same. Then a call
/// whenever the last reply says that it will pass, for as long as the burst is in the window.
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
