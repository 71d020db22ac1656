//! Reads and writes numbers and byte strings, from sources that may be damaged.

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

/// Writes a number in as few bytes as it needs, 7 bits in each.
pub(crate) fn write_varint(into: &mut impl Extend<u8>, mut value: u64) {
    while value >> 7 != 0 {
        into.extend([value as u8 | 0x80]);
        value >>= 7;
    }
    into.extend([value as u8]);
}

/// Writes a byte string with its length in front.
pub(crate) fn write_bytes(into: &mut impl Extend<u8>, bytes: &[u8]) {
    write_varint(into, bytes.len() as u64);
    into.extend(bytes.iter().copied());
}
