//! What a server reports about itself: INFO, digests and expiries.

use redis::Value;

use crate::{Deadline, Server};

/// The value of a field in the reply of INFO.
pub fn info_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
}

impl Server {
    /// Whether the server accepts a command. Older versions lack some.
    pub fn has_command(&self, command: &[&str]) -> bool {
        self.try_run::<Value>(command[0], &command[1..]).is_ok()
    }

    /// A field of an INFO section.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info: String = self.run("INFO", &[section]);
        let value = info_field(&info, field);
        value
            .unwrap_or_else(|| panic!("no {field} in INFO {section}"))
            .to_owned()
    }

    /// A field of an INFO section that is a number.
    #[track_caller]
    pub fn info_number(&self, section: &str, field: &str) -> i64 {
        self.info(section, field).parse().unwrap()
    }

    /// How often the server has run a command or one of its subcommands.
    pub fn calls(&self, command: &str) -> i64 {
        let info: String = self.run("INFO", &["commandstats"]);
        let prefix = format!("cmdstat_{command}").to_lowercase();
        let calls = |line: &str| -> Option<i64> {
            let line = line.to_lowercase();
            let (name, counts) = line.strip_prefix(&prefix)?.split_once(":calls=")?;
            let is_command = name.is_empty() || name.starts_with('|');
            is_command.then(|| counts.split(',').next().unwrap().parse().unwrap())
        };
        info.lines().filter_map(calls).sum()
    }

    /// The digest of a value. Equal states have equal digests.
    pub fn digest(&self, key: &str) -> String {
        let digests: Vec<String> = self.run("DEBUG", &["DIGEST-VALUE", key]);
        digests[0].clone()
    }

    /// The digest of the whole dataset, expiries included.
    pub fn digest_all(&self) -> String {
        self.run("DEBUG", &["DIGEST"])
    }

    /// The key's expiry as a Unix time in milliseconds, as PEXPIRETIME reports it: -1 means none and -2 means that the
    /// key is missing. Before Redis 7.0 it is exact to 1 ms.
    pub fn expire_at_ms(&self, key: &str) -> i64 {
        if let Ok(at) = self.try_run("PEXPIRETIME", &[key]) {
            return at;
        }
        let mut con = self.connect();
        let mut pipe = redis::pipe();
        pipe.atomic().cmd("TIME").cmd("PTTL").arg(key).cmd("TIME");
        let deadline = Deadline::start();
        loop {
            deadline.check("TIME is the same before and after PTTL");
            let (before, ttl, after): ((i64, i64), i64, (i64, i64)) = pipe.query(&mut con).unwrap();
            let [before, after] = [before, after].map(|(s, us)| s * 1000 + us / 1000);
            if ttl < 0 {
                return ttl;
            }
            if before == after {
                return before + ttl;
            }
        }
    }
}
