//! The state of the server: its INFO, and what follows from it.

use std::ffi::{CStr, CString, c_int};

use redis_module::raw::{self, *};

use super::context::ContextFlags;
use super::{Context, api};

/// Something receives what is replicated, or may soon do so: replicas or the AOF.
pub(crate) struct Receivers {
    /// Whether all of them are replicas that wait for a snapshot that has not been started.
    pub(crate) only_waiting: bool,
}

impl Context {
    /// Who may receive what is replicated now; `None` only if it is certain that nothing does. If the server does not
    /// say, there is a receiver.
    pub(crate) fn receivers(&self) -> Option<Receivers> {
        const NEEDED: ContextFlags = ContextFlags::PRIMARY
            .union(ContextFlags::CLUSTER)
            .union(ContextFlags::AOF)
            .union(ContextFlags::LOADING)
            .union(ContextFlags::ACTIVE_CHILD);
        let receivers = |only_waiting| Some(Receivers { only_waiting });
        // SAFETY: a plain call; the function is checked for.
        let known = unsafe { raw::RedisModule_GetContextFlagsAll.map_or(0, |all| all() as u32) };
        let known = ContextFlags::from_bits_retain(known);
        let flags = self.flags() & (NEEDED | ContextFlags::ASYNC_LOADING);
        if !known.contains(NEEDED) || flags != ContextFlags::PRIMARY {
            return receivers(false);
        }
        let info = ServerInfo::read(self, c"replication");
        let replicas = info.number(c"connected_slaves");
        match (replicas, info.number(c"repl_backlog_active")) {
            (Some(0), Some(0)) => None,
            (Some(replicas @ 1..), _) => receivers((0..replicas).all(|n| info.is_waiting(n))),
            _ => receivers(false),
        }
    }

    /// The error with which the server refuses write commands of clients now, if it does. For servers that cannot check
    /// subcommands themselves (before 7.0).
    pub(crate) fn write_refusal(&self) -> Option<&'static str> {
        let setting = |name: &[u8]| {
            self.call_for_text(c"CONFIG", &[b"GET", name])
                .unwrap_or_default()
        };
        let failed = |field| self.info_text(c"persistence", field).as_deref() == Some(b"err");
        let saves =
            || setting(b"stop-writes-on-bgsave-error") == b"yes" && !setting(b"save").is_empty();
        if failed(c"rdb_last_bgsave_status") && saves() {
            return Some(
                "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
            );
        }
        if failed(c"aof_last_write_status") && self.has_aof() {
            return Some("MISCONF Errors writing to the AOF file");
        }
        // The field exists only if the server demands replicas.
        if let Some(good) = self.info_number(c"replication", c"min_slaves_good_slaves") {
            let least = setting(b"min-replicas-to-write");
            let least = std::str::from_utf8(&least).ok()?.parse::<i64>().ok()?;
            if good < least {
                return Some("NOREPLICAS Not enough good replicas to write.");
            }
        }
        None
    }

    fn info_text(&self, section: &CStr, field: &CStr) -> Option<Vec<u8>> {
        let info = ServerInfo::read(self, section);
        info.text(field).map(|text| text.to_vec())
    }

    fn info_number(&self, section: &CStr, field: &CStr) -> Option<i64> {
        ServerInfo::read(self, section).number(field)
    }
}

/// A section of INFO.
struct ServerInfo<'a> {
    ctx: &'a Context,
    raw: *mut RedisModuleServerInfoData,
}

impl<'a> ServerInfo<'a> {
    fn read(ctx: &'a Context, section: &CStr) -> Self {
        // SAFETY: the context is valid; the result is freed when dropped.
        let raw = unsafe { api!(RedisModule_GetServerInfo)(ctx.raw, section.as_ptr()) };
        Self { ctx, raw }
    }

    /// `None` if the field is missing or not a number.
    fn number(&self, field: &CStr) -> Option<i64> {
        let mut error = 0;
        // SAFETY: the info is valid until dropped.
        let number = unsafe {
            api!(RedisModule_ServerInfoGetFieldSigned)(self.raw, field.as_ptr(), &mut error)
        };
        (error == REDISMODULE_OK as c_int).then_some(number)
    }

    /// Whether a replica waits for a snapshot that has not been started.
    fn is_waiting(&self, replica: i64) -> bool {
        let Ok(field) = CString::new(format!("slave{replica}")) else {
            return false;
        };
        let text = self.text(&field);
        text.is_some_and(|text| contains(text, b"state=wait_bgsave"))
    }

    fn text(&self, field: &CStr) -> Option<&[u8]> {
        // SAFETY: the info is valid until dropped; the server returns null or a C string that is a part of it.
        unsafe {
            let text = api!(RedisModule_ServerInfoGetFieldC)(self.raw, field.as_ptr());
            (!text.is_null()).then(|| CStr::from_ptr(text).to_bytes())
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

impl Drop for ServerInfo<'_> {
    fn drop(&mut self) {
        // SAFETY: read with the same context, and not used again.
        unsafe { api!(RedisModule_FreeServerInfo)(self.ctx.raw, self.raw) };
    }
}
