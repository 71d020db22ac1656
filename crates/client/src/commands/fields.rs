//! Replies that are maps.
//!
//! A map is a RESP3 map, or in RESP2 an array of its keys and values. Fields that a newer module adds are ignored.

use redis::{FromRedisValue, ParsingError, Value};

pub(super) struct Fields(Vec<(String, Value)>);

impl Fields {
    pub(super) fn read(value: Value) -> Result<Self, ParsingError> {
        let fields = value
            .into_map_iter()
            .map_err(|other| ParsingError::from(format!("expected a map, not {other:?}")))?;
        let named = fields.map(|(name, value)| Ok((text(name)?, value)));
        named.collect::<Result<_, ParsingError>>().map(Self)
    }

    /// Removes and returns a field.
    pub(super) fn take<T: FromRedisValue>(&mut self, name: &str) -> Result<T, ParsingError> {
        self.take_optional(name)?
            .ok_or_else(|| format!("the reply has no field {name}").into())
    }

    pub(super) fn take_optional<T: FromRedisValue>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ParsingError> {
        let Some(index) = self.0.iter().position(|(field, _)| field == name) else {
            return Ok(None);
        };
        T::from_redis_value(self.0.swap_remove(index).1).map(Some)
    }

    pub(super) fn take_text(&mut self, name: &str) -> Result<String, ParsingError> {
        text(self.take(name)?)
    }

    /// A field in which −1 means "none" or "never".
    pub(super) fn take_unless_negative(&mut self, name: &str) -> Result<Option<u64>, ParsingError> {
        Ok(u64::try_from(self.take::<i64>(name)?).ok())
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = (String, Value)> {
        self.0.into_iter()
    }
}

/// Keys may be any bytes; those that are not UTF-8 are escaped.
pub(super) fn text(value: Value) -> Result<String, ParsingError> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| error.into_bytes().escape_ascii().to_string())),
        other => String::from_redis_value(other),
    }
}
