//! The words behind the module's path: pairs of a name and a value.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use redis_module::RedisString;

use crate::settings::{AUDIT_STREAM, Number, Settings};

pub(crate) struct Arguments {
    /// Whether to register CL.THROTTLE.
    pub(crate) throttle_compat: bool,
    /// The JSON file whose policies the server begins with.
    pub(crate) policies: Option<PathBuf>,
    /// The settings as they are unless CONFIG says otherwise.
    pub(crate) settings: Settings,
}

impl Arguments {
    /// Fails with a line for the log that names the word at fault.
    pub(crate) fn parse(words: &[RedisString]) -> Result<Self, String> {
        let mut arguments = Self {
            throttle_compat: false,
            policies: None,
            settings: Settings::new(),
        };
        for pair in words.chunks(2) {
            let name = String::from_utf8_lossy(pair[0].as_slice());
            let [_, value] = pair else {
                return Err(format!("rl: the module argument {name} has no value"));
            };
            arguments
                .accept(&name, value.as_slice())
                .map_err(|problem| format!("rl: the module argument {name} {problem}"))?;
        }
        Ok(arguments)
    }

    fn accept(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let named = |number: &&Number| number.name().to_bytes() == name.as_bytes();
        if let Some(number) = Number::ALL.iter().find(named) {
            let range = number.range();
            let value = std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse().ok());
            let value = value.filter(|value| range.contains(value)).ok_or_else(|| {
                format!(
                    "must be an integer between {} and {}",
                    range.start(),
                    range.end()
                )
            })?;
            self.settings.set(*number, value);
        } else if name.as_bytes() == AUDIT_STREAM.to_bytes() {
            if value.contains(&0) {
                return Err("must not contain a NUL".to_owned());
            }
            self.settings.audit_stream = value.to_vec();
        } else if name == "policies" {
            self.policies = Some(OsStr::from_bytes(value).into());
        } else if name == "throttle-compat" {
            self.throttle_compat = match value {
                b"yes" => true,
                b"no" => false,
                _ => return Err("must be yes or no".to_owned()),
            };
        } else {
            let mut known: Vec<_> = Number::ALL.iter().map(|number| number.name()).collect();
            known.extend([AUDIT_STREAM, c"policies", c"throttle-compat"]);
            let known = known.iter().map(|name| name.to_string_lossy());
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(format!("is unknown: there are {known}"));
        }
        Ok(())
    }
}
