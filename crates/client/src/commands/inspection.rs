//! The reply of RL.INSPECT.

use redis::{FromRedisValue, ParsingError, Value};

use super::fields::{Fields, text};

/// The stored state of a key, for humans: later versions may add fields. Programs should use RL.PEEK.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The algorithm's name, such as `SLIDE`, `POLICY` for several limits on one key, or `RESERVATION`.
    pub algorithm: String,
    /// The other fields, in the server's order.
    pub fields: Vec<(String, FieldValue)>,
    /// When the key expires, in Unix milliseconds; `None` if it does not.
    pub expires_at_ms: Option<u64>,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldValue {
    /// Nothing: the field does not apply.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<FieldValue>),
    /// Fields of their own: a limit of a policy, or a lease.
    Fields(Vec<(String, FieldValue)>),
}

impl FromRedisValue for Inspection {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Vec::new();
        let (mut algorithm, mut expires_at_ms) = (None, None);
        for (name, value) in Fields::read(value)?.into_iter() {
            match &*name {
                "algorithm" => algorithm = Some(text(value)?),
                "expires_at_ms" => expires_at_ms = Some(i64::from_redis_value(value)?),
                _ => fields.push((name, FieldValue::from_redis_value(value)?)),
            }
        }
        let missing = |name: &str| ParsingError::from(format!("the reply has no field {name}"));
        Ok(Self {
            algorithm: algorithm.ok_or_else(|| missing("algorithm"))?,
            fields,
            expires_at_ms: u64::try_from(expires_at_ms.ok_or_else(|| missing("expires_at_ms"))?)
                .ok(),
        })
    }
}

impl FromRedisValue for FieldValue {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        match value {
            Value::Nil => Ok(Self::Null),
            Value::Int(number) => Ok(Self::Number(number)),
            // In RESP2 a map is an array that starts with the name of a field.
            Value::Array(items) if !matches!(items.first(), Some(Value::BulkString(_))) => {
                let items = items.into_iter().map(Self::from_redis_value);
                items.collect::<Result<_, _>>().map(Self::List)
            }
            map @ (Value::Array(_) | Value::Map(_)) => {
                let fields = Fields::read(map)?.into_iter();
                let fields = fields.map(|(name, value)| Ok((name, Self::from_redis_value(value)?)));
                fields
                    .collect::<Result<_, ParsingError>>()
                    .map(Self::Fields)
            }
            other => text(other).map(Self::Text),
        }
    }
}
