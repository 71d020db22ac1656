//! Everything random comes from one seed, in streams that do not disturb one another.

use rl_testkit::Random;

/// A stream of its own for each use of a seed.
pub fn stream(seed: u64, of: u64) -> Random {
    let mut random = Random(mix(seed ^ mix(of)) | 1);
    random.below(2);
    random
}

/// splitmix64: seeds in a row give unrelated streams.
fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

pub trait Choose {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T;
    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool;
    fn between(&mut self, from: u64, to: u64) -> u64;
}

impl Choose for Random {
    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }
}
