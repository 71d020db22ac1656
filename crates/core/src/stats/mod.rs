//! Statistics of constant size: counters per minute, and the hottest keys.

mod counters;
mod top_keys;

pub use counters::{Counters, MINUTE_US, Outcome};
pub use top_keys::{HotKey, MAX_KEY_LEN, RankBy, TopKeys};
