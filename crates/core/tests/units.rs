//! The numbers that other programs rely on, as they are documented.

use rl_core::policy::MAX_JSON_LEN;
use rl_core::stats::MINUTE_US;
use rl_core::{
    MAX_COUNT, MAX_PACKED_LEN, MAX_PERIOD_MS, MAX_TIME_US, MAX_WAIT_MS, NEVER, OVERRIDE_INDEX,
};

#[test]
fn the_range_of_every_quantity_stays_as_it_is() {
    assert_eq!(MAX_COUNT, 9_007_199_254_740_991);
    assert_eq!(MAX_WAIT_MS, 9_007_199_254_740_991);
    assert_eq!(MAX_PERIOD_MS, 315_360_000_000);
    assert_eq!(MAX_TIME_US, 1_152_921_504_606_846_975);
    assert_eq!(MAX_JSON_LEN, 16_777_216);
    assert_eq!(MAX_PACKED_LEN, 263);
    assert_eq!(MINUTE_US, 60_000_000);
}

#[test]
fn replies_say_never_and_override_as_minus_one() {
    assert_eq!(NEVER, -1);
    assert_eq!(OVERRIDE_INDEX, -1);
}
