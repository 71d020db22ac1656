//! A log of charges: delta-encoded, with charges of equal time merged, in chunks.
//!
//! Each chunk has the sum of everything before it, so that any time is found without reading the chunks in between.
//! Chunks are dropped as a whole, a few at a time.

use std::collections::VecDeque;

use crate::Error;
use crate::encoding::{Buffer, Reader, write_bytes, write_varint};
use crate::relocate::{Relocate, Walk};
use crate::units::MAX_USAGE;

/// Bytes of entries in a chunk: about 150 entries, which are read in a fraction of a microsecond.
const CHUNK_BYTES: usize = 512;

/// The longest entry: two varints.
const ENTRY_BYTES: usize = 20;

/// A log of this length merges further charges into its last entry. Only forced charges get that far, because no limit
/// is larger, and a chunk that has partly left the window has no more entries than bytes.
pub(crate) const MAX_ENTRIES: u64 = 1_000_000 + CHUNK_BYTES as u64;

/// The most chunks that one call drops, so that no call pauses.
const DROPS: usize = 16;

/// Times are in microseconds and signed, because a step back of the clock also moves the past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log {
    chunks: VecDeque<Chunk>,
    entries: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    first_us: i64,
    last_us: i64,
    /// Units in the log before this chunk, including dropped chunks.
    before: u64,
    units: u64,
    entries: u32,
    /// Where the last entry starts.
    tail: u32,
    /// For each entry `delta << 1 | (units ≠ 1)`, then the units if they are not 1.
    bytes: Vec<u8>,
}

/// Units charged at one time.
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
        write_varint(&mut self.bytes, delta << 1 | u64::from(!single));
        if !single {
            write_varint(&mut self.bytes, entry.units);
        }
        self.last_us = self.last_us.saturating_add_unsigned(delta);
        self.units += entry.units;
        self.entries += 1;
    }

    /// Adds units to the last entry, which moves to `at_us`.
    fn merge(&mut self, at_us: i64, units: u64) {
        let mut tail = Entries {
            at_us: 0,
            from: Reader::new(&self.bytes[self.tail as usize..]),
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
            from: Reader::new(&self.bytes),
        }
    }

    /// The same chunk with `units` fewer at one time.
    fn without(&self, at_us: i64, units: u64) -> Self {
        let left = |entry: Entry| Entry {
            units: match entry.at_us == at_us {
                true => entry.units.saturating_sub(units),
                false => entry.units,
            },
            ..entry
        };
        let mut entries = self.entries().map(left).filter(|entry| entry.units > 0);
        let first = entries.next();
        let mut kept = Self::new(first.map_or(0, |entry| entry.at_us), self.before);
        first
            .into_iter()
            .chain(entries)
            .for_each(|entry| kept.push(entry));
        kept
    }

    /// The entries of the first `units`, and the others.
    fn split(&self, units: u64) -> (Self, Self) {
        let mut first = Self::new(self.first_us, self.before);
        let mut rest: Option<Self> = None;
        for entry in self.entries() {
            match &mut rest {
                None if first.units + entry.units <= units => first.push(entry),
                rest => rest
                    .get_or_insert_with(|| Self::new(entry.at_us, self.before + first.units))
                    .push(entry),
            }
        }
        let end = Self::new(self.last_us, self.before + first.units);
        (first, rest.unwrap_or(end))
    }

    /// The same chunk with only its first `units`.
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

/// Reads a chunk; ends early if it is damaged.
struct Entries<'a> {
    at_us: i64,
    from: Reader<'a>,
}

impl Entries<'_> {
    fn read(&mut self) -> Result<Entry, Error> {
        let head = self.from.varint()?;
        let units = match head & 1 {
            0 => 1,
            _ => self.from.varint()?,
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
        if self.from.is_empty() {
            return None;
        }
        self.read().ok()
    }
}

impl Log {
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// How many allocations have to be freed.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let chunks = self.chunks.capacity() * size_of::<Chunk>();
        let entries = |chunk: &Chunk| chunk.bytes.capacity();
        chunks + self.chunks.iter().map(entries).sum::<usize>()
    }

    pub(crate) fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        walk.allocation(|by| {
            let mut chunks = Vec::from(std::mem::take(&mut self.chunks));
            by.list(&mut chunks);
            self.chunks = chunks.into();
        });
        for chunk in &mut self.chunks {
            walk.allocation(|by| by.list(&mut chunk.bytes));
        }
    }

    /// When the last units were charged.
    pub(crate) fn last_us(&self) -> Option<i64> {
        self.chunks.back().map(|chunk| chunk.last_us)
    }

    /// All units, including those of dropped chunks.
    fn total(&self) -> u64 {
        self.chunks
            .back()
            .map_or(0, |chunk| chunk.before + chunk.units)
    }

    /// Units charged after `horizon_us`.
    pub(crate) fn units_after(&self, horizon_us: i64) -> u64 {
        // The horizon is usually in the first chunk.
        let has_left = |chunk: &Chunk| chunk.last_us <= horizon_us;
        let first = match self.chunks.front() {
            Some(chunk) if has_left(chunk) => self.chunks.partition_point(has_left),
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

    /// When the last of the first `units` after the horizon was charged: once it leaves the window, there is room.
    pub(crate) fn time_of(&self, horizon_us: i64, units: u64) -> i64 {
        let wanted = self.total() - self.units_after(horizon_us) + units;
        let index = self
            .chunks
            .partition_point(|chunk| chunk.before + chunk.units < wanted);
        let Some(chunk) = self.chunks.get(index) else {
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

    /// Units in the chunks that are left.
    fn remaining_units(&self) -> u64 {
        self.total() - self.chunks.front().map_or(0, |chunk| chunk.before)
    }

    /// Adds units at a time that is not before the last.
    pub(crate) fn push(&mut self, at_us: i64, units: u64) {
        let units = units.min(MAX_USAGE - self.remaining_units());
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

    /// Drops some of the chunks that end before the horizon.
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
        // The sums restart before those of an endless log could overflow.
        if first.before > MAX_USAGE {
            let gone = first.before;
            for chunk in &mut self.chunks {
                chunk.before -= gone;
            }
        }
    }

    /// Removes `units` before the last `newer`, the latest first, or as many as there are.
    pub(crate) fn pop_before(&mut self, newer: u64, units: u64) {
        if newer == 0 {
            return self.pop(units);
        }
        let boundary = self.total().saturating_sub(newer);
        let is_older = |chunk: &Chunk| chunk.before + chunk.units <= boundary;
        let mut later = self.chunks.split_off(self.chunks.partition_point(is_older));
        if let Some(first) = later.front_mut()
            && first.before < boundary
        {
            let (older, rest) = first.split(boundary - first.before);
            if older.entries > 0 {
                self.chunks.push_back(older);
                *first = rest;
            }
        }
        self.pop(units);
        for chunk in later {
            self.append(chunk);
        }
    }

    /// Adds a chunk of later entries, to the last one if they fit.
    fn append(&mut self, mut chunk: Chunk) {
        chunk.before = self.total();
        match self.chunks.back_mut() {
            Some(last) if last.bytes.len() + ENTRY_BYTES + chunk.bytes.len() <= CHUNK_BYTES => {
                chunk.entries().for_each(|entry| last.push(entry));
            }
            _ => self.chunks.push_back(chunk),
        }
    }

    /// Removes the last `units`, or as many as there are.
    pub(crate) fn pop(&mut self, units: u64) {
        let mut left = units;
        while let Some(chunk) = self.chunks.back_mut() {
            if chunk.units > left {
                if left > 0 {
                    let kept = chunk.cut(chunk.units - left);
                    self.entries -= u64::from(chunk.entries - kept.entries);
                    *chunk = kept;
                }
                return;
            }
            left -= chunk.units;
            self.entries -= u64::from(chunk.entries);
            self.chunks.pop_back();
        }
    }

    /// The chunk with the entry of a time.
    fn chunk_of(&self, at_us: i64) -> Option<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.last_us < at_us);
        (index < self.chunks.len()).then_some(index)
    }

    /// Units charged at exactly this time.
    pub(crate) fn units_at(&self, at_us: i64) -> u64 {
        let chunk = self
            .chunk_of(at_us)
            .and_then(|index| self.chunks.get(index));
        let entry = chunk.and_then(|chunk| chunk.entries().find(|entry| entry.at_us >= at_us));
        entry.map_or(0, |entry| match entry.at_us == at_us {
            true => entry.units,
            false => 0,
        })
    }

    /// Removes up to `units` of those that were charged at exactly this time.
    pub(crate) fn remove(&mut self, at_us: i64, units: u64) {
        let units = units.min(self.units_at(at_us));
        let Some(index) = self.chunk_of(at_us).filter(|_| units > 0) else {
            return;
        };
        let kept = self.chunks[index].without(at_us, units);
        self.entries -= u64::from(self.chunks[index].entries - kept.entries);
        for later in self.chunks.range_mut(index + 1..) {
            later.before -= units;
        }
        if kept.entries > 0 {
            self.chunks[index] = kept;
        } else {
            self.chunks.remove(index);
        }
    }

    /// The clock stepped back by `by_us`: the whole past moves with it.
    pub(crate) fn shift_back(&mut self, by_us: i64) {
        for chunk in &mut self.chunks {
            chunk.first_us = chunk.first_us.saturating_sub(by_us);
            chunk.last_us = chunk.last_us.saturating_sub(by_us);
        }
    }

    /// Writes the chunks as they are, so that a copy drops the same ones at the same time.
    pub(crate) fn write(&self, into: &mut impl Buffer) {
        write_varint(into, self.chunks.len() as u64);
        for chunk in &self.chunks {
            into.add(&chunk.first_us.to_le_bytes());
            write_bytes(into, &chunk.bytes);
        }
    }

    /// Reads what [`Log::write`] wrote, from a source that may be damaged.
    pub(crate) fn read(from: &mut Reader) -> Result<Self, Error> {
        let count = from.varint()?;
        let mut log = Self::default();
        // No more than the bytes can contain, whatever they claim.
        let capacity = count.min(1 + from.len() as u64 / 8);
        log.chunks.reserve_exact(capacity as usize);
        let mut before = 0_u64;
        for _ in 0..count {
            let first_us = i64::from_le_bytes(from.array()?);
            let bytes = from.bytes()?;
            if !(1..=CHUNK_BYTES).contains(&bytes.len()) {
                return Err(Error::DamagedState);
            }
            let mut chunk = Chunk::new(first_us, before);
            let mut entries = Entries {
                at_us: chunk.first_us,
                from: Reader::new(bytes),
            };
            while !entries.from.is_empty() {
                let entry = entries.read()?;
                // Charges of equal time are merged, and none is before the last.
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
