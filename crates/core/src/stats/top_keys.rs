//! The hottest keys, from tables of a fixed size: counting allocates nothing.
//!
//! Each key belongs to one bucket of four slots. A key without a slot may decrement a small count in its bucket, less
//! likely the larger that count is, and takes the slot over when the count reaches 0. So a count never exceeds the
//! number of calls, frequent keys stay, and a flood of other keys does not displace them. Each minute starts with an
//! empty table; reports cover the current minute and the previous one.

use super::counters::{Gap, MINUTE_US, gap_between, minute_of};

/// Longer keys are cut to this many bytes.
pub const MAX_KEY_LEN: usize = 256;

/// Slots in a bucket, which then has the size of a cache line.
const SLOTS: usize = 4;

/// How the keys are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankBy {
    /// By all checks.
    Checks,
    /// By denied checks.
    Denials,
}

/// A key, and how many of its checks were counted in this minute and the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotKey<'a> {
    /// The key, cut at [`MAX_KEY_LEN`].
    pub name: &'a [u8],
    /// All checks.
    pub checks: u64,
    /// The denied ones among them.
    pub denials: u64,
}

/// Counts the checks of the most frequent keys.
#[derive(Clone, Debug)]
pub struct TopKeys {
    size: usize,
    /// Secret, so that nobody can choose keys that displace others from their bucket.
    seed: u64,
    random: u64,
    minute_us: u64,
    checks: Sketch,
    denials: Sketch,
}

#[derive(Clone, Debug)]
struct Sketch {
    current: Table,
    previous: Table,
}

#[derive(Clone, Debug)]
struct Table {
    buckets: Box<[Bucket]>,
    /// The key in every slot of every bucket.
    names: Box<[[u8; MAX_KEY_LEN]]>,
}

/// Keys are distinguished only by their 64-bit hash: two of a few thousand will not share one.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    hashes: [u64; SLOTS],
    /// 0 for a free slot.
    counts: [u32; SLOTS],
    lens: [u16; SLOTS],
}

impl TopKeys {
    /// Reports up to `size` keys; `seed` should be random.
    #[must_use]
    pub fn new(size: usize, seed: u64, now_us: u64) -> Self {
        let size = size.max(1);
        Self {
            size,
            seed,
            random: seed,
            minute_us: minute_of(now_us),
            checks: Sketch::new(size),
            denials: Sketch::new(size),
        }
    }

    /// Counts a call.
    pub fn record(&mut self, name: &[u8], denied: bool, now_us: u64) {
        self.roll_minute(now_us);
        if denied {
            self.record_denial(name);
        } else {
            self.record_check(name);
        }
    }

    /// Counts a call in the minute of the last [`TopKeys::roll_minute`].
    #[inline(always)]
    pub fn record_check(&mut self, name: &[u8]) {
        let hash = hash(self.seed, name);
        self.checks.current.count(hash, name, &mut self.random);
    }

    /// Does the same for a denied call.
    #[inline(always)]
    pub fn record_denial(&mut self, name: &[u8]) {
        let hash = hash(self.seed, name);
        self.checks.current.count(hash, name, &mut self.random);
        self.denials.current.count(hash, name, &mut self.random);
    }

    /// Up to `count` keys, the hottest first.
    pub fn hottest(&mut self, count: usize, by: RankBy, now_us: u64) -> Vec<HotKey<'_>> {
        self.roll_minute(now_us);
        let mut all: Vec<HotKey> = match by {
            RankBy::Checks => &self.checks,
            RankBy::Denials => &self.denials,
        }
        .entries()
        .map(|(hash, name)| {
            let denials = self.denials.count_of(hash);
            HotKey {
                name,
                // Every denial is a call, even if the table of calls lost the key.
                checks: self.checks.count_of(hash).max(denials),
                denials,
            }
        })
        .collect();
        let hotter = |a: &HotKey, b: &HotKey| {
            let heat = |hot: &HotKey| match by {
                RankBy::Checks => (hot.checks, hot.denials),
                RankBy::Denials => (hot.denials, hot.checks),
            };
            heat(b).cmp(&heat(a)).then_with(|| a.name.cmp(b.name))
        };
        let count = count.min(self.size);
        if count < all.len() {
            all.select_nth_unstable_by(count, hotter);
            all.truncate(count);
        }
        all.sort_unstable_by(hotter);
        all
    }

    /// Starts a new minute if the current one is over.
    pub fn roll_minute(&mut self, now_us: u64) {
        // Also true for a clock that stepped back.
        if now_us.wrapping_sub(self.minute_us) >= MINUTE_US {
            let gap = gap_between(self.minute_us, now_us);
            self.checks.roll_minute(&gap);
            self.denials.roll_minute(&gap);
            self.minute_us = minute_of(now_us);
        }
    }
}

impl Sketch {
    fn new(buckets: usize) -> Self {
        Self {
            current: Table::new(buckets),
            previous: Table::new(buckets),
        }
    }

    fn roll_minute(&mut self, gap: &Gap) {
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        if *gap == Gap::Minutes {
            self.previous.clear();
        }
    }

    fn count_of(&self, hash: u64) -> u64 {
        let count = |table: &Table| table.slot_of(hash).map_or(0, |(_, count)| u64::from(count));
        count(&self.current) + count(&self.previous)
    }

    /// Every key once, with its hash.
    fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let previous = self.previous.entries();
        let previous = previous.filter(|(hash, _)| self.current.slot_of(*hash).is_none());
        self.current.entries().chain(previous)
    }
}

impl Table {
    fn new(buckets: usize) -> Self {
        Self {
            buckets: vec![Bucket::default(); buckets].into(),
            names: vec![[0; MAX_KEY_LEN]; buckets * SLOTS].into(),
        }
    }

    /// The keys in free slots need not be erased.
    fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn count(&mut self, hash: u64, name: &[u8], random: &mut u64) {
        let index = self.bucket_of(hash);
        let bucket = &mut self.buckets[index];
        for (known, count) in bucket.hashes.iter().zip(&mut bucket.counts) {
            if *known == hash {
                // A minute is too short for more than 2^32 calls.
                *count = count.wrapping_add(1);
                return;
            }
        }
        // Knuth's generator; the upper half is random enough for this.
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let dice = *random >> 32;
        // Most keys of a flood cost no more work than this: at most one in eight may decrement a count in a full bucket.
        if dice >> 29 != 0 && bucket.hashes[SLOTS - 1] != 0 {
            return;
        }
        // The smaller of two counts, which is cheaper to find than the smallest: a frequent key hardly ever loses.
        let one = dice as usize % SLOTS;
        let other = (one + 1) % SLOTS;
        let least = if bucket.counts[other] < bucket.counts[one] {
            other
        } else {
            one
        };
        let count = &mut bucket.counts[least];
        // Once in `count` + 1 calls.
        if (dice * (u64::from(*count) + 1)) >> 32 != 0 && bucket.hashes[SLOTS - 1] != 0 {
            return;
        }
        if *count > 1 && bucket.hashes[SLOTS - 1] != 0 {
            *count -= 1;
            return;
        }
        self.take_over(index, least, hash, name);
    }

    #[inline(never)]
    fn take_over(&mut self, index: usize, least: usize, hash: u64, name: &[u8]) {
        let bucket = &mut self.buckets[index];
        // Slots are filled in order before any is taken over.
        let free = bucket.hashes.iter().position(|hash| *hash == 0);
        let at = free.unwrap_or(least);
        let len = name.len().min(MAX_KEY_LEN);
        bucket.hashes[at] = hash;
        bucket.counts[at] = 1;
        bucket.lens[at] = len as u16;
        self.names[index * SLOTS + at][..len].copy_from_slice(&name[..len]);
    }

    /// The slot of a key, and its count.
    fn slot_of(&self, hash: u64) -> Option<(usize, u32)> {
        let index = self.bucket_of(hash);
        let bucket = &self.buckets[index];
        let at = bucket.hashes.iter().position(|known| *known == hash)?;
        (bucket.counts[at] > 0).then_some((index * SLOTS + at, bucket.counts[at]))
    }

    fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.names.iter().enumerate().filter_map(|(slot, name)| {
            let (bucket, at) = (&self.buckets[slot / SLOTS], slot % SLOTS);
            let name = &name[..usize::from(bucket.lens[at])];
            (bucket.counts[at] > 0).then_some((bucket.hashes[at], name))
        })
    }
}

/// The digits of the golden ratio, as good as any odd number.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hashes eight bytes at a time, of which the last may overlap. Never 0, which marks a free slot.
#[inline(always)]
fn hash(seed: u64, name: &[u8]) -> u64 {
    // Added rather than xored: which keys would cancel out a length depends on the seed.
    let mut hash = seed.wrapping_add((name.len() as u64).wrapping_mul(ODD));
    let word = |at: usize| match name[at..].first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => 0,
    };
    match name.len() {
        0..8 => hash ^= short(name),
        8..=16 => hash = mix(hash ^ word(0)) ^ word(name.len() - 8),
        len => {
            for at in (0..len - 8).step_by(8) {
                hash = mix(hash ^ word(at));
            }
            hash ^= word(len - 8);
        }
    }
    mix(hash) | 1
}

fn short(name: &[u8]) -> u64 {
    let bytes = name.iter();
    bytes.fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Folds both halves of a product.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(ODD);
    product as u64 ^ (product >> 64) as u64
}
