//! The fields of INFO.

use std::collections::HashMap;

use redis::{FromRedisValue, ParsingError, Value};

#[derive(Clone, Debug, Default)]
pub struct Info(HashMap<String, String>);

impl Info {
    pub fn get(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.get(field)?.parse().ok()
    }

    pub fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == Some(value)
    }
}

impl From<&str> for Info {
    fn from(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim().split_once(':'));
        Self(
            fields
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }
}

impl FromRedisValue for Info {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        Ok(Self::from(&*String::from_redis_value(value)?))
    }
}
