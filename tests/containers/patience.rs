//! Promotions and full copies take seconds; on a busy machine, many.

use std::thread::sleep;
use std::time::{Duration, Instant};

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "not within two minutes: {what}");
        sleep(Duration::from_millis(20));
    }
}
