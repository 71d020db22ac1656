//! Reads and writes numbers and byte strings, from sources that may be damaged.

use smallvec::SmallVec;

use crate::Error;

/// Reads bytes from front to back. Every read fails with [`Error::DamagedState`] where the bytes end too early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes are left.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `value`, if everything has been read.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Error> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(Error::DamagedState)
        }
    }

    /// Reads a number of 7 bits per byte. Only the shortest form is accepted.
    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.bytes.split_first().ok_or(Error::DamagedState)?;
            self.bytes = rest;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (byte == 0 && shift > 0) {
                return Err(Error::DamagedState);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::DamagedState)
    }

    /// Reads a byte string, which has its length in front.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let len = usize::try_from(self.varint()?).map_err(|_| Error::DamagedState)?;
        let (bytes, rest) = self
            .bytes
            .split_at_checked(len)
            .ok_or(Error::DamagedState)?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// Reads `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or(Error::DamagedState)?;
        self.bytes = rest;
        Ok(*array)
    }

    /// Everything that has not been read yet.
    pub(crate) const fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// A buffer that bytes are added to.
pub(crate) trait Buffer {
    fn add(&mut self, bytes: &[u8]);
}

impl Buffer for Vec<u8> {
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl<const N: usize> Buffer for SmallVec<[u8; N]>
where
    [u8; N]: smallvec::Array<Item = u8>,
{
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes a number in as few bytes as it needs, 7 bits in each.
pub(crate) fn write_varint(into: &mut impl Buffer, value: u64) {
    write_varints(into, [value]);
}

/// Writes up to five numbers; adding their bytes at once is faster than one by one.
#[inline]
pub(crate) fn write_varints<const N: usize>(into: &mut impl Buffer, values: [u64; N]) {
    const MAX_LEN: usize = u64::BITS.div_ceil(7) as usize;
    const { assert!(N <= 5) };
    let (mut bytes, mut len) = ([0; 5 * MAX_LEN], 0);
    for mut value in values {
        while value >> 7 != 0 {
            bytes[len] = value as u8 | 0x80;
            value >>= 7;
            len += 1;
        }
        bytes[len] = value as u8;
        len += 1;
    }
    into.add(&bytes[..len]);
}

/// Writes a byte string with its length in front.
pub(crate) fn write_bytes(into: &mut impl Buffer, bytes: &[u8]) {
    write_varint(into, bytes.len() as u64);
    into.add(bytes);
}
