//! What an operator can set: by `CONFIG SET rl.<name>` on servers that support it (7.0 and later), and by module
//! arguments of the same names without the prefix. Code that needs a value subscribes to changes.

use std::ffi::CStr;

use crate::server::{ConfigAccess, Context, MainThread, NumericConfig, Settings};

macro_rules! numeric_settings {
    ($($(#[$doc:meta])* $setting:ident: $name:literal, $range:expr, default $default:literal;)+) => {
        /// The settings that are numbers, in the order of [`NUMBERS`].
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum NumericSetting { $($(#[$doc])* $setting,)+ }

        const NUMBERS: [NumericConfig; [$($name,)+].len()] = [
            $(NumericConfig { name: $name, range: $range, default: $default },)+
        ];
    };
}

numeric_settings! {
    /// How many denials RL.AUDIT keeps; 0 for none.
    AuditMaxLen: c"audit-max-len", 0..=100_000, default 128;
    /// One in this many denials is recorded; 0 for none.
    AuditSampleEvery: c"audit-sample-every", 0..=1_000_000_000, default 1;
    /// How many entries the stream keeps, approximately.
    AuditStreamMaxLen: c"audit-stream-max-len", 1..=1_000_000_000, default 10_000;
    /// How many keys RL.TOP can report; 0 for none.
    TopSize: c"top-size", 0..=10_000, default 128;
}

/// The key of the stream that sampled denials are added to; empty for none.
pub(crate) const AUDIT_STREAM: &CStr = c"audit-stream";

#[derive(Clone)]
pub(crate) struct Config {
    numbers: [i64; NUMBERS.len()],
    pub(crate) audit_stream: Vec<u8>,
}

/// Called with the new values whenever a setting changes.
pub(crate) type Subscriber = fn(&ConfigAccess, &Config);

struct Current {
    config: Config,
    subscribers: &'static [Subscriber],
}

static CURRENT: MainThread<Current> = MainThread::new(Current {
    config: Config::new(),
    subscribers: &[],
});

impl Config {
    pub(crate) const fn new() -> Self {
        let mut numbers = [0; NUMBERS.len()];
        let mut index = 0;
        while index < numbers.len() {
            numbers[index] = NUMBERS[index].default;
            index += 1;
        }
        Self {
            numbers,
            audit_stream: Vec::new(),
        }
    }

    pub(crate) fn number(&self, which: NumericSetting) -> i64 {
        self.numbers[which as usize]
    }

    pub(crate) fn set(&mut self, index: usize, value: i64) {
        self.numbers[index] = value;
    }
}

/// Sets the initial values, and passes them to the subscribers.
pub(crate) fn init(ctx: &Context, config: Config, subscribers: &'static [Subscriber]) {
    let access = ConfigAccess::at_load(ctx);
    CURRENT.with(&access, |current| current.subscribers = subscribers);
    change(&access, |current| *current = config);
}

fn change(access: &ConfigAccess, body: impl FnOnce(&mut Config)) {
    let changed = CURRENT.with(access, |current| {
        body(&mut current.config);
        (current.config.clone(), current.subscribers)
    });
    if let Some((config, subscribers)) = changed {
        for subscriber in subscribers {
            subscriber(access, &config);
        }
    }
}

impl Settings for Config {
    const NUMBERS: &'static [NumericConfig] = &NUMBERS;
    const TEXT: &'static CStr = AUDIT_STREAM;

    fn number(access: &ConfigAccess, index: usize) -> i64 {
        let number = CURRENT.with(access, |current| current.config.numbers[index]);
        number.unwrap_or(NUMBERS[index].default)
    }

    fn set_number(access: &ConfigAccess, index: usize, value: i64) {
        change(access, |config| config.set(index, value));
    }

    fn text(access: &ConfigAccess) -> Vec<u8> {
        let text = CURRENT.with(access, |current| current.config.audit_stream.clone());
        text.unwrap_or_default()
    }

    fn set_text(access: &ConfigAccess, value: &[u8]) {
        change(access, |config| config.audit_stream = value.to_vec());
    }
}
