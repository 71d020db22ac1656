//! A log of units and when they were taken: delta-coded, units of equal time merged, in chunks.
//!
//! Chunks know what lies before them, so that any moment is found without reading what is in between;
//! they are dropped whole, a few at a time.

use std::collections::VecDeque;

use crate::Error;
use crate::bounds::MAX_USAGE;
use crate::encoding::varint;

/// Bytes of entries in a chunk: some 150 entries, read in a fraction of a microsecond.
const CHUNK_BYTES: usize = 512;

/// Longest entry: two varints.
const ENTRY_BYTES: usize = 20;

/// A log this long merges what comes next into its last entry. Only forced units get so far, because a
/// limit is at most as large.
pub(crate) const MAX_ENTRIES: u64 = 1_000_000;

/// Chunks dropped by one call at most, so that no call pauses.
const DROPS: usize = 16;

/// Times are in microseconds and signed: a clock that steps back moves the past along with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    chunks: VecDeque<Chunk>,
    entries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    first_us: i64,
    last_us: i64,
    /// Units in this log before this chunk, of dropped ones too.
    before: u64,
    units: u64,
    entries: u32,
    /// Where the last entry begins.
    tail: u32,
    /// For each entry `delta << 1 | (units ≠ 1)`, followed by its units if they are not 1.
    bytes: Vec<u8>,
}

/// Units taken at a moment.
#[derive(Clone, Copy)]
struct Entry {
    at_us: i64,
    units: u64,
}

impl Chunk {
    fn new(at_us: i64, before: u64) -> Self {
        Self {
            first_us: at_us,
            last_us: at_us,
            before,
            units: 0,
            entries: 0,
            tail: 0,
            bytes: Vec::new(),
        }
    }

    fn push(&mut self, entry: Entry) {
        let delta = entry.at_us.saturating_sub(self.last_us).max(0) as u64;
        let single = entry.units == 1;
        self.tail = self.bytes.len() as u32;
        varint::write(&mut self.bytes, delta << 1 | u64::from(!single));
        if !single {
            varint::write(&mut self.bytes, entry.units);
        }
        self.last_us = self.last_us.saturating_add_unsigned(delta);
        self.units += entry.units;
        self.entries += 1;
    }

    /// Adds units to the last entry, which moves to the time given.
    fn merge(&mut self, at_us: i64, units: u64) {
        let mut tail = Entries {
            at_us: 0,
            bytes: &self.bytes[self.tail as usize..],
        };
        let Ok(last) = tail.read() else {
            return;
        };
        self.bytes.truncate(self.tail as usize);
        self.units -= last.units;
        self.entries -= 1;
        if self.entries == 0 {
            self.first_us = at_us;
            self.last_us = at_us;
        } else {
            self.last_us = self.last_us.saturating_sub(last.at_us);
        }
        let units = last.units + units;
        self.push(Entry { at_us, units });
    }

    fn entries(&self) -> Entries<'_> {
        Entries {
            at_us: self.first_us,
            bytes: &self.bytes,
        }
    }

    /// The same with its first entries only: those that hold `units`.
    fn cut(&self, mut units: u64) -> Self {
        let mut kept = Self::new(self.first_us, self.before);
        for entry in self.entries() {
            let units_here = entry.units.min(units);
            if units_here == 0 {
                break;
            }
            units -= units_here;
            let units = units_here;
            kept.push(Entry { units, ..entry });
        }
        kept
    }
}

/// Reads a chunk; ends early where it is damaged.
struct Entries<'a> {
    at_us: i64,
    bytes: &'a [u8],
}

impl Entries<'_> {
    fn read(&mut self) -> Result<Entry, Error> {
        let head = varint::read(&mut self.bytes)?;
        let units = match head & 1 {
            0 => 1,
            _ => varint::read(&mut self.bytes)?,
        };
        self.at_us = self.at_us.saturating_add_unsigned(head >> 1);
        let at_us = self.at_us;
        Ok(Entry { at_us, units })
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        if self.bytes.is_empty() {
            return None;
        }
        self.read().ok()
    }
}

impl Log {
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// How many pieces of memory it takes to free.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let chunks = self.chunks.capacity() * size_of::<Chunk>();
        let entries = |chunk: &Chunk| chunk.bytes.capacity();
        chunks + self.chunks.iter().map(entries).sum::<usize>()
    }

    /// When the last units were taken.
    pub(crate) fn last_us(&self) -> Option<i64> {
        self.chunks.back().map(|chunk| chunk.last_us)
    }

    /// All units, of dropped chunks too.
    fn total(&self) -> u64 {
        self.chunks
            .back()
            .map_or(0, |chunk| chunk.before + chunk.units)
    }

    /// Units taken later than `horizon_us`.
    pub(crate) fn units_after(&self, horizon_us: i64) -> u64 {
        // Usually the first chunk has the horizon in it.
        let over = |chunk: &Chunk| chunk.last_us <= horizon_us;
        let first = match self.chunks.front() {
            Some(chunk) if over(chunk) => self.chunks.partition_point(over),
            _ => 0,
        };
        let Some(chunk) = self.chunks.get(first) else {
            return 0;
        };
        let mut before = chunk.before;
        if chunk.first_us <= horizon_us {
            let gone = chunk.entries().take_while(|e| e.at_us <= horizon_us);
            before += gone.map(|entry| entry.units).sum::<u64>();
        }
        self.total() - before
    }

    /// When the units were taken whose leaving makes room: of those after the horizon, the first `units`.
    pub(crate) fn time_of(&self, horizon_us: i64, units: u64) -> i64 {
        let wanted = self.total() - self.units_after(horizon_us) + units;
        let place = self
            .chunks
            .partition_point(|chunk| chunk.before + chunk.units < wanted);
        let Some(chunk) = self.chunks.get(place) else {
            return self.last_us().unwrap_or(horizon_us);
        };
        let mut sum = chunk.before;
        for entry in chunk.entries() {
            sum += entry.units;
            if sum >= wanted {
                return entry.at_us;
            }
        }
        chunk.last_us
    }

    /// Units in the chunks at hand.
    fn held(&self) -> u64 {
        self.total() - self.chunks.front().map_or(0, |chunk| chunk.before)
    }

    /// Adds units at a moment that is not before the last.
    pub(crate) fn push(&mut self, at_us: i64, units: u64) {
        let units = units.min(MAX_USAGE - self.held());
        if units == 0 {
            return;
        }
        let total = self.total();
        if let Some(chunk) = self.chunks.back_mut() {
            if chunk.last_us == at_us || self.entries >= MAX_ENTRIES {
                chunk.merge(at_us, units);
                return;
            }
            if chunk.bytes.len() + ENTRY_BYTES <= CHUNK_BYTES {
                chunk.push(Entry { at_us, units });
                self.entries += 1;
                return;
            }
        } else {
            self.chunks.reserve_exact(1);
        }
        let mut chunk = Chunk::new(at_us, total);
        chunk.push(Entry { at_us, units });
        self.chunks.push_back(chunk);
        self.entries += 1;
    }

    /// Drops some of the chunks that hold nothing after the horizon.
    pub(crate) fn trim(&mut self, horizon_us: i64) {
        for _ in 0..DROPS {
            match self.chunks.front() {
                Some(chunk) if chunk.last_us <= horizon_us => {
                    self.entries -= u64::from(chunk.entries);
                    self.chunks.pop_front();
                }
                _ => break,
            }
        }
        let Some(first) = self.chunks.front() else {
            return;
        };
        // Before the sums of a log that never ends could overflow, they begin anew.
        if first.before > MAX_USAGE {
            let gone = first.before;
            for chunk in &mut self.chunks {
                chunk.before -= gone;
            }
        }
    }

    /// Takes back the last `units`; how many there were.
    pub(crate) fn pop(&mut self, units: u64) -> u64 {
        let mut left = units;
        while let Some(chunk) = self.chunks.back_mut() {
            if chunk.units > left {
                if left > 0 {
                    let kept = chunk.cut(chunk.units - left);
                    self.entries -= u64::from(chunk.entries - kept.entries);
                    *chunk = kept;
                }
                return units;
            }
            left -= chunk.units;
            self.entries -= u64::from(chunk.entries);
            self.chunks.pop_back();
        }
        units - left
    }

    /// The clock stepped back by so much: all of the past moves along.
    pub(crate) fn shift_back(&mut self, by_us: i64) {
        for chunk in &mut self.chunks {
            chunk.first_us = chunk.first_us.saturating_sub(by_us);
            chunk.last_us = chunk.last_us.saturating_sub(by_us);
        }
    }

    /// Chunks as they are, so that a copy drops the same ones at the same time.
    pub(crate) fn write(&self, into: &mut impl Extend<u8>) {
        varint::write(into, self.chunks.len() as u64);
        for chunk in &self.chunks {
            into.extend(chunk.first_us.to_le_bytes());
            varint::write(into, chunk.bytes.len() as u64);
            into.extend(chunk.bytes.iter().copied());
        }
    }

    /// Reads what [`Log::write`] wrote, from a source that may be damaged.
    pub(crate) fn read(from: &mut &[u8]) -> Result<Self, Error> {
        let count = varint::read(from)?;
        let mut log = Self::default();
        // Not more than the bytes at hand can hold, whatever they say.
        let most = count.min(1 + from.len() as u64 / 8);
        log.chunks.reserve_exact(most as usize);
        let mut before = 0_u64;
        for _ in 0..count {
            let (first_us, rest) = from.split_first_chunk().ok_or(Error::DamagedState)?;
            *from = rest;
            let len = varint::read(from)?;
            let len = usize::try_from(len).map_err(|_| Error::DamagedState)?;
            if !(1..=CHUNK_BYTES).contains(&len) {
                return Err(Error::DamagedState);
            }
            let (bytes, rest) = from.split_at_checked(len).ok_or(Error::DamagedState)?;
            *from = rest;

            let mut chunk = Chunk::new(i64::from_le_bytes(*first_us), before);
            let mut entries = Entries {
                at_us: chunk.first_us,
                bytes,
            };
            while !entries.bytes.is_empty() {
                let entry = entries.read()?;
                // Units of equal time are merged; nothing is taken before the last.
                let in_order = match log.last_us() {
                    _ if chunk.entries > 0 => entry.at_us > chunk.last_us,
                    Some(last_us) => entry.at_us > last_us,
                    None => true,
                };
                if !(1..=MAX_USAGE).contains(&entry.units) || !in_order {
                    return Err(Error::DamagedState);
                }
                chunk.push(entry);
            }
            before = chunk.before + chunk.units;
            log.entries += u64::from(chunk.entries);
            if before > MAX_USAGE || log.entries > MAX_ENTRIES || chunk.bytes != bytes {
                return Err(Error::DamagedState);
            }
            chunk.bytes.shrink_to_fit();
            log.chunks.push_back(chunk);
        }
        Ok(log)
    }
}
