//! The hottest keys, from tables of a fixed size: counting allocates nothing.
//!
//! A key has one bucket of four places. One that has no place in it wears down a small count there, the
//! less likely the larger that count is, and takes the place over when the count is gone. So a key's
//! count is never more than it was seen, keys that come often stay, and a flood of others passes by. Each
//! minute begins with an empty table; what is told is the current minute and the one before.

use crate::tally::{Gap, MINUTE_US, follows, minute_of};

/// Longer names are cut to this many bytes.
pub const MAX_NAME: usize = 256;

/// Places in a bucket, which then has the size of a cache line.
const PLACES: usize = 4;

/// What makes a key hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Calls, whatever their answer.
    Checks,
    /// Calls that were denied.
    Denials,
}

/// A key and how often it was seen in this minute and the one before, or somewhat more often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot<'a> {
    /// The key's name, cut at [`MAX_NAME`].
    pub name: &'a [u8],
    /// Calls.
    pub checks: u64,
    /// Denied calls among them.
    pub denials: u64,
}

/// Counts the calls of the keys that are called most.
#[derive(Clone, Debug)]
pub struct Top {
    size: usize,
    /// Without it nobody can choose keys that push others out of their bucket.
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
    /// Of every place of every bucket.
    names: Box<[[u8; MAX_NAME]]>,
}

/// Keys are told apart by their 64-bit hash alone: two of a few thousand will not share one.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    hashes: [u64; PLACES],
    /// 0 for a place that is free.
    counts: [u32; PLACES],
    lens: [u16; PLACES],
}

impl Top {
    /// Tells up to `size` keys; `seed` should be random.
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
    pub fn saw(&mut self, name: &[u8], denied: bool, now_us: u64) {
        self.turn(now_us);
        if denied {
            self.saw_denied_now(name);
        } else {
            self.saw_now(name);
        }
    }

    /// Counts a call in the minute that was current last.
    #[inline(always)]
    pub fn saw_now(&mut self, name: &[u8]) {
        let hash = hash(self.seed, name);
        self.checks.current.count(hash, name, &mut self.random);
    }

    /// The same for a call that was denied.
    #[inline(always)]
    pub fn saw_denied_now(&mut self, name: &[u8]) {
        let hash = hash(self.seed, name);
        self.checks.current.count(hash, name, &mut self.random);
        self.denials.current.count(hash, name, &mut self.random);
    }

    /// The hottest keys, the hottest first.
    pub fn hottest(&mut self, most: usize, by: By, now_us: u64) -> Vec<Hot<'_>> {
        self.turn(now_us);
        let mut all: Vec<Hot> = match by {
            By::Checks => &self.checks,
            By::Denials => &self.denials,
        }
        .entries()
        .map(|(hash, name)| {
            let denials = self.denials.count_of(hash);
            Hot {
                name,
                // Every denial is a call, even where the table of calls lost sight of the key.
                checks: self.checks.count_of(hash).max(denials),
                denials,
            }
        })
        .collect();
        let hotter = |a: &Hot, b: &Hot| {
            let heat = |hot: &Hot| match by {
                By::Checks => (hot.checks, hot.denials),
                By::Denials => (hot.denials, hot.checks),
            };
            heat(b).cmp(&heat(a)).then_with(|| a.name.cmp(b.name))
        };
        let most = most.min(self.size);
        if most < all.len() {
            all.select_nth_unstable_by(most, hotter);
            all.truncate(most);
        }
        all.sort_unstable_by(hotter);
        all
    }

    /// Begins a new minute, if it is time.
    pub fn turn(&mut self, now_us: u64) {
        // True as well for a clock that stepped back.
        if now_us.wrapping_sub(self.minute_us) >= MINUTE_US {
            let gap = follows(self.minute_us, now_us);
            self.checks.turn(&gap);
            self.denials.turn(&gap);
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

    fn turn(&mut self, gap: &Gap) {
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        if *gap == Gap::Minutes {
            self.previous.clear();
        }
    }

    fn count_of(&self, hash: u64) -> u64 {
        let count = |table: &Table| {
            table
                .place_of(hash)
                .map_or(0, |(_, count)| u64::from(count))
        };
        count(&self.current) + count(&self.previous)
    }

    /// Every key once, with its hash.
    fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let gone = self.previous.entries();
        let gone = gone.filter(|(hash, _)| self.current.place_of(*hash).is_none());
        self.current.entries().chain(gone)
    }
}

impl Table {
    fn new(buckets: usize) -> Self {
        Self {
            buckets: vec![Bucket::default(); buckets].into(),
            names: vec![[0; MAX_NAME]; buckets * PLACES].into(),
        }
    }

    /// Names of places that are free need not be erased.
    fn clear(&mut self) {
        self.buckets.fill(Bucket::default());
    }

    #[inline(always)]
    fn bucket_of(&self, hash: u64) -> usize {
        (((hash >> 32) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn count(&mut self, hash: u64, name: &[u8], random: &mut u64) {
        let place = self.bucket_of(hash);
        let bucket = &mut self.buckets[place];
        for (known, count) in bucket.hashes.iter().zip(&mut bucket.counts) {
            if *known == hash {
                // A minute is too short for more than 2^32 calls.
                *count = count.wrapping_add(1);
                return;
            }
        }
        // Knuth's; the upper half is random enough for this.
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let dice = *random >> 32;
        // Mostly a flood of keys passes by with no more work than this: a bucket that is full is worn down by one
        // of eight at most.
        if dice >> 29 != 0 && bucket.hashes[PLACES - 1] != 0 {
            return;
        }
        // The smaller of two, for less work than the smallest of all: a key that comes often loses
        // to its neighbours hardly ever.
        let one = dice as usize % PLACES;
        let other = (one + 1) % PLACES;
        let least = if bucket.counts[other] < bucket.counts[one] {
            other
        } else {
            one
        };
        let count = &mut bucket.counts[least];
        // Once in `count` + 1 times.
        if (dice * (u64::from(*count) + 1)) >> 32 != 0 && bucket.hashes[PLACES - 1] != 0 {
            return;
        }
        if *count > 1 && bucket.hashes[PLACES - 1] != 0 {
            *count -= 1;
            return;
        }
        self.take_over(place, least, hash, name);
    }

    #[inline(never)]
    fn take_over(&mut self, place: usize, least: usize, hash: u64, name: &[u8]) {
        let bucket = &mut self.buckets[place];
        // Places are filled in order, before any is taken over.
        let free = bucket.hashes.iter().position(|hash| *hash == 0);
        let at = free.unwrap_or(least);
        let len = name.len().min(MAX_NAME);
        bucket.hashes[at] = hash;
        bucket.counts[at] = 1;
        bucket.lens[at] = len as u16;
        self.names[place * PLACES + at][..len].copy_from_slice(&name[..len]);
    }

    /// Where a key is, and its count.
    fn place_of(&self, hash: u64) -> Option<(usize, u32)> {
        let place = self.bucket_of(hash);
        let bucket = &self.buckets[place];
        let at = bucket.hashes.iter().position(|known| *known == hash)?;
        (bucket.counts[at] > 0).then_some((place * PLACES + at, bucket.counts[at]))
    }

    fn entries(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.names.iter().enumerate().filter_map(|(place, name)| {
            let (bucket, at) = (&self.buckets[place / PLACES], place % PLACES);
            let name = &name[..usize::from(bucket.lens[at])];
            (bucket.counts[at] > 0).then_some((bucket.hashes[at], name))
        })
    }
}

/// The golden ratio's digits, as good as any.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Eight bytes at a time, the last of which may overlap; never 0, by which a free place is known.
#[inline(always)]
fn hash(seed: u64, name: &[u8]) -> u64 {
    // Added rather than xored: which names would make up for another length depends on the seed.
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

/// Both halves of a product, folded.
#[inline(always)]
fn mix(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(ODD);
    product as u64 ^ (product >> 64) as u64
}
