//! A state field by field, for people.

/// One field of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateField {
    /// The name of the field.
    pub name: &'static str,
    /// The value of the field.
    pub value: FieldValue,
}

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue {
    /// One number.
    Number(u64),
    /// Several numbers.
    Numbers(Vec<u64>),
    /// The algorithm and the fields of each limit of a policy.
    Limits(Vec<(&'static str, Vec<StateField>)>),
    /// The holder, the units and the remaining milliseconds of each lease.
    Leases(Vec<(Box<[u8]>, u64, u64)>),
}

impl StateField {
    pub(crate) fn number(name: &'static str, value: u64) -> Self {
        let value = FieldValue::Number(value);
        Self { name, value }
    }

    /// A time or a duration, stored in microseconds and shown in milliseconds.
    pub(crate) fn ms(name: &'static str, us: u64) -> Self {
        Self::number(name, us / 1000)
    }

    pub(crate) fn numbers(name: &'static str, values: &[u64]) -> Self {
        let value = FieldValue::Numbers(values.to_vec());
        Self { name, value }
    }
}
