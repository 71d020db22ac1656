//! A state field by field, for a person.

/// One field of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// What it is called.
    pub name: &'static str,
    /// What it holds.
    pub value: Shown,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shown {
    /// A number.
    Number(u64),
    /// Several numbers.
    Numbers(Vec<u64>),
    /// The algorithm and the fields of each member of a policy's state.
    Members(Vec<(&'static str, Vec<Field>)>),
    /// Who holds how many units for how many milliseconds more.
    Holders(Vec<(Box<[u8]>, u64, u64)>),
}

impl Field {
    pub(crate) fn number(name: &'static str, value: u64) -> Self {
        let value = Shown::Number(value);
        Self { name, value }
    }

    /// A time or a duration, kept in microseconds and shown in milliseconds.
    pub(crate) fn ms(name: &'static str, us: u64) -> Self {
        Self::number(name, us / 1000)
    }

    pub(crate) fn numbers(name: &'static str, values: &[u64]) -> Self {
        let value = Shown::Numbers(values.to_vec());
        Self { name, value }
    }
}
