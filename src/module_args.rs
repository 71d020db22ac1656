//! The arguments of MODULE LOAD: pairs of a name and a value.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use redis_module::RedisString;

use crate::config::{AUDIT_STREAM, Config};
use crate::server::Settings;

pub(crate) struct ModuleArgs {
    /// Whether to register CL.THROTTLE.
    pub(crate) redis_cell_compat: bool,
    /// The JSON file with the initial policies.
    pub(crate) policies: Option<PathBuf>,
    /// The settings, unless CONFIG says otherwise.
    pub(crate) config: Config,
}

impl ModuleArgs {
    /// Fails with a line for the log that names the wrong argument.
    pub(crate) fn parse(args: &[RedisString]) -> Result<Self, String> {
        let mut parsed = Self {
            redis_cell_compat: false,
            policies: None,
            config: Config::new(),
        };
        for pair in args.chunks(2) {
            let name = String::from_utf8_lossy(pair[0].as_slice());
            let [_, value] = pair else {
                return Err(format!("rl: the module argument {name} has no value"));
            };
            parsed
                .accept(&name, value.as_slice())
                .map_err(|problem| format!("rl: the module argument {name} {problem}"))?;
        }
        Ok(parsed)
    }

    fn accept(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        let mut numbers = Config::NUMBERS.iter();
        let named = numbers.position(|number| number.name.to_bytes() == name.as_bytes());
        if let Some(index) = named {
            let range = &Config::NUMBERS[index].range;
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
            self.config.set(index, value);
        } else if name.as_bytes() == AUDIT_STREAM.to_bytes() {
            if value.contains(&0) {
                return Err("must not contain a NUL".to_owned());
            }
            self.config.audit_stream = value.to_vec();
        } else if name == "policies" {
            self.policies = Some(OsStr::from_bytes(value).into());
        } else if name == "redis-cell-compat" {
            self.redis_cell_compat = match value {
                b"yes" => true,
                b"no" => false,
                _ => return Err("must be yes or no".to_owned()),
            };
        } else {
            let mut known: Vec<_> = Config::NUMBERS.iter().map(|number| number.name).collect();
            known.extend([AUDIT_STREAM, c"policies", c"redis-cell-compat"]);
            let known = known.iter().map(|name| name.to_string_lossy());
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(format!("is unknown: there are {known}"));
        }
        Ok(())
    }
}
