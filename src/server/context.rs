//! The server as a command or an event handler sees it: its replies, its replication, its clock and its mode.

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::slice;

use bitflags::bitflags;
use redis_module::raw::{self, *};

use super::{ServerStr, api, c_line};

bitflags! {
    /// What the server says about itself and the current call.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(super) struct ContextFlags: u32 {
        const PRIMARY = REDISMODULE_CTX_FLAGS_MASTER;
        const REPLICA = REDISMODULE_CTX_FLAGS_SLAVE;
        const READONLY = REDISMODULE_CTX_FLAGS_READONLY;
        const CLUSTER = REDISMODULE_CTX_FLAGS_CLUSTER;
        const AOF = REDISMODULE_CTX_FLAGS_AOF;
        const EVICT = REDISMODULE_CTX_FLAGS_EVICT;
        const REPLICATED = REDISMODULE_CTX_FLAGS_REPLICATED;
        const LOADING = REDISMODULE_CTX_FLAGS_LOADING;
        const ACTIVE_CHILD = REDISMODULE_CTX_FLAGS_ACTIVE_CHILD;
        const IS_CHILD = REDISMODULE_CTX_FLAGS_IS_CHILD;
        const ASYNC_LOADING = REDISMODULE_CTX_FLAGS_ASYNC_LOADING;
    }
}

/// The command that replicas and the AOF receive: `RL.LOAD key expire-at-ms blob`.
pub(crate) const LOAD_COMMAND: &CStr = c"RL.LOAD";
/// Its arguments, for the server: a string of the server, a long long, a buffer and its length.
pub(super) const LOAD_FORMAT: &CStr = c"slb";

/// Valid during the call that it was passed to.
pub(crate) struct Context {
    pub(super) raw: *mut RedisModuleCtx,
}

impl Context {
    /// # Safety
    /// `raw` must be a context from the server, and the result must not outlive the call.
    pub(super) unsafe fn new(raw: *mut RedisModuleCtx) -> Self {
        Self { raw }
    }

    pub(crate) fn from_load(context: &redis_module::Context) -> Self {
        Self { raw: context.ctx }
    }

    /// The server's clock in microseconds. On servers that keep one time for a whole script or transaction (7.2 and
    /// later), this is that time.
    pub(crate) fn now_us(&self) -> u64 {
        // SAFETY: a plain read of a function pointer that the server set at load, and a call of it.
        let us = match unsafe { raw::RedisModule_CachedMicroseconds.map(|cached| cached()) } {
            Some(us) => us,
            None => wall_clock_us(),
        };
        u64::try_from(us).unwrap_or(0)
    }

    pub(crate) fn reply_array(&self, len: usize) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithArray)(self.raw, len as _) };
    }

    pub(crate) fn reply_integer(&self, value: i64) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.raw, value) };
    }

    /// Starts a map of `len` pairs; a flat array if the server or the protocol has no maps.
    pub(crate) fn reply_map(&self, len: usize) {
        // SAFETY: the context is valid.
        unsafe {
            match raw::RedisModule_ReplyWithMap {
                Some(reply) => reply(self.raw, len as _),
                None => api!(RedisModule_ReplyWithArray)(self.raw, 2 * len as c_long),
            };
        }
    }

    pub(crate) fn reply_text(&self, text: &[u8]) {
        // SAFETY: the context is valid; the server copies the bytes.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(self.raw, text.as_ptr().cast(), text.len());
        }
    }

    pub(crate) fn reply_null(&self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplyWithNull)(self.raw) };
    }

    pub(crate) fn reply_ok(&self) {
        // SAFETY: the context is valid, the string is static and ends with a NUL.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.raw, c"OK".as_ptr()) };
    }

    /// Replies with a simple string, which must not contain line breaks.
    pub(crate) fn reply_status(&self, text: &str) {
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the context is valid and the text ends with a NUL; the server copies it.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.raw, text.as_ptr()) };
    }

    /// Replies with an error. The parts make up the whole line, code first.
    pub(crate) fn reply_error(&self, parts: &[&str]) {
        let line = c_line(parts);
        // SAFETY: the context is valid and the line ends with a NUL; the server copies it.
        unsafe { api!(RedisModule_ReplyWithError)(self.raw, line.as_ptr().cast()) };
    }

    /// Replies with an error: a whole line, code first. The line is cut, because it may quote arguments of any length.
    pub(crate) fn reply_error_line(&self, line: &str) {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let line: String = line.chars().take(300).map(plain).collect();
        let line = CString::new(line).unwrap_or_default();
        // SAFETY: the context is valid and the line ends with a NUL; the server copies it.
        unsafe { api!(RedisModule_ReplyWithError)(self.raw, line.as_ptr()) };
    }

    pub(crate) fn reply_wrong_arity(&self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_WrongArity)(self.raw) };
    }

    /// Notifies WATCH and client-side caches that the key changed.
    pub(crate) fn signal_modified(&self, name: ServerStr) {
        // SAFETY: context and name are valid during the call.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.raw, name.raw) };
    }

    /// Sends the command itself to replicas and the AOF, and counts a change towards save points.
    pub(crate) fn replicate_verbatim(&self) {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.raw) };
    }

    /// Sends `RL.LOAD key expire-at-ms blob` to replicas and the AOF, in place of the command.
    pub(crate) fn replicate_load(&self, name: ServerStr, expire_at_ms: i64, blob: &[u8]) {
        // SAFETY: all pointers are valid during the call; the arguments are those of the format.
        unsafe {
            api!(RedisModule_Replicate)(
                self.raw,
                LOAD_COMMAND.as_ptr(),
                LOAD_FORMAT.as_ptr(),
                name.raw,
                expire_at_ms,
                blob.as_ptr(),
                blob.len(),
            )
        };
    }

    /// Sends `DEL key` to replicas and the AOF, in place of the command.
    pub(crate) fn replicate_delete(&self, name: ServerStr) {
        // SAFETY: all pointers are valid during the call and the format matches.
        unsafe {
            api!(RedisModule_Replicate)(self.raw, c"DEL".as_ptr(), c"s".as_ptr(), name.raw);
        }
    }

    /// Sends `RL.POLICY LOAD json` to replicas and the AOF.
    pub(crate) fn replicate_policies(&self, json: &str) {
        // SAFETY: all pointers are valid during the call; the format's letters match the arguments:
        // c a C string, b a buffer and its length.
        unsafe {
            api!(RedisModule_Replicate)(
                self.raw,
                c"RL.POLICY".as_ptr(),
                c"cb".as_ptr(),
                c"LOAD".as_ptr(),
                json.as_ptr(),
                json.len(),
            )
        };
    }

    /// The id of the caller; within a script, that of the script.
    pub(crate) fn client_id(&self) -> u64 {
        // SAFETY: the context is valid.
        unsafe { api!(RedisModule_GetClientId)(self.raw) }
    }

    /// Describes a client as `id=7 addr=127.0.0.1:4711 name=gw1`. If the client is gone, only its id is known.
    pub(crate) fn describe_client(&self, id: u64) -> Vec<u8> {
        let mut text = format!("id={id}").into_bytes();
        let mut info = RedisModuleClientInfo {
            version: REDISMODULE_CLIENTINFO_VERSION.into(),
            flags: 0,
            id: 0,
            addr: [0; 46],
            port: 0,
            db: 0,
        };
        // SAFETY: the server writes one struct of the version that it says, with an address that ends with a
        // NUL; a name is a string that is ours to free.
        unsafe {
            let found = api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), id);
            if found != REDISMODULE_OK as c_int {
                return text;
            }
            let addr = CStr::from_ptr(info.addr.as_ptr()).to_bytes();
            if info.flags & u64::from(REDISMODULE_CLIENTINFO_FLAG_UNIXSOCKET) != 0 {
                text.extend_from_slice(b" addr=unixsocket");
            } else if addr.contains(&b':') {
                text.extend_from_slice(&[b" addr=[", addr, b"]:"].concat());
                text.extend_from_slice(info.port.to_string().as_bytes());
            } else if !addr.is_empty() {
                text.extend_from_slice(&[b" addr=", addr, b":"].concat());
                text.extend_from_slice(info.port.to_string().as_bytes());
            }
            if let Some(name_of) = raw::RedisModule_GetClientNameById {
                let name = name_of(self.raw, id);
                if !name.is_null() {
                    let mut len = 0;
                    let bytes = api!(RedisModule_StringPtrLen)(name, &mut len);
                    text.extend_from_slice(b" name=");
                    text.extend_from_slice(slice::from_raw_parts(bytes.cast(), len));
                    api!(RedisModule_FreeString)(self.raw, name);
                }
            }
        }
        text
    }

    /// Selects the database of the following calls.
    pub(crate) fn select_db(&self, db: u16) {
        // SAFETY: the context is valid; a database that is not there is not selected.
        unsafe { api!(RedisModule_SelectDb)(self.raw, c_int::from(db)) };
    }

    pub(super) fn flags(&self) -> ContextFlags {
        // SAFETY: the context is valid.
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw) };
        ContextFlags::from_bits_retain(flags as u32)
    }

    /// Whether this server's data comes from a primary or a file, so that it must be applied as it comes.
    pub(crate) fn is_replica_or_loading(&self) -> bool {
        let flags = ContextFlags::LOADING | ContextFlags::REPLICATED | ContextFlags::REPLICA;
        self.flags().intersects(flags)
    }

    pub(crate) fn is_loading(&self) -> bool {
        self.flags().contains(ContextFlags::LOADING)
    }

    /// Whether a client makes the current call: it comes neither from a primary nor from a file.
    pub(crate) fn is_from_client(&self) -> bool {
        let replayed = ContextFlags::LOADING | ContextFlags::REPLICATED;
        !self.flags().intersects(replayed)
    }

    pub(crate) fn is_read_only_replica(&self) -> bool {
        self.flags().contains(ContextFlags::READONLY)
    }

    /// Whether nothing may be sent to replicas now, as during a failover. Sending anyway would abort the server.
    pub(crate) fn avoids_replication(&self) -> bool {
        // SAFETY: a plain call of a function that every supported server has.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Whether memory is over `maxmemory` and nothing may be evicted.
    #[cold]
    pub(crate) fn is_full(&self) -> bool {
        // SAFETY: a plain call. The ratio is far cheaper than the flags, and mostly enough.
        let used = unsafe { api!(RedisModule_GetUsedMemoryRatio)() };
        used > 1.0 && !self.flags().contains(ContextFlags::EVICT)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.flags().contains(ContextFlags::CLUSTER)
    }

    pub(super) fn has_aof(&self) -> bool {
        self.flags().contains(ContextFlags::AOF)
    }

    /// Whether this is a copy of the server's process that takes a snapshot.
    pub(crate) fn is_child(&self) -> bool {
        self.flags().contains(ContextFlags::IS_CHILD)
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.flags().contains(ContextFlags::PRIMARY)
    }

    /// Sets the options of the module: I/O errors are reported to it instead of ending the server, keys count as modified
    /// only when it says so, replicas may load a dataset while they serve reads, and whole slots may migrate.
    pub(crate) fn set_options(&self) {
        /// An option of Valkey 9.0 and later.
        const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;
        let mut options = REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
            | REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED
            | REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD;
        if self.is_valkey() {
            options |= HANDLE_ATOMIC_SLOT_MIGRATION;
        }
        // SAFETY: the context is valid; unknown options are ignored by older servers.
        unsafe { api!(RedisModule_SetModuleOptions)(self.raw, options as c_int) };
    }

    /// Whether this is Valkey, which offers its functions under its own name as well.
    fn is_valkey(&self) -> bool {
        let mut function = std::ptr::null_mut::<c_void>();
        // SAFETY: the name is static; the server writes one pointer.
        unsafe {
            raw::RedisModule_GetApi.is_some_and(|get| {
                let into = (&raw mut function).cast();
                get(c"ValkeyModule_Alloc".as_ptr(), into) == REDISMODULE_OK as c_int
            })
        }
    }

    pub(crate) fn log_warning(&self, message: &CStr) {
        // SAFETY: the context is valid; "%s" takes exactly one C string.
        unsafe {
            api!(RedisModule_Log)(
                self.raw,
                c"warning".as_ptr(),
                c"%s".as_ptr(),
                message.as_ptr(),
            );
        }
    }
}

/// The time as the server reads it; `SystemTime` takes twice as long.
fn wall_clock_us() -> i64 {
    let mut now = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    // SAFETY: writes to a local; cannot fail for a valid pointer.
    unsafe { libc::gettimeofday(&mut now, std::ptr::null_mut()) };
    now.tv_sec * 1_000_000 + now.tv_usec
}
