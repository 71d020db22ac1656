//! Calls of the server's own commands.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::slice;
use std::sync::OnceLock;

use redis_module::raw::*;

use super::{Context, ServerStr, api};

/// In which directions slots of this node are moving, key by key.
pub(crate) struct MovingSlots {
    pub(crate) importing: bool,
    pub(crate) migrating: bool,
}

impl Context {
    /// Runs a command that replicas and the AOF receive as well; `false` if it failed.
    pub(crate) fn call_and_replicate(&self, command: &CStr, args: &[&[u8]]) -> bool {
        let reply = self.call(command, c"!v", args);
        if reply.is_null() {
            return false;
        }
        // SAFETY: the reply is ours to free.
        unsafe {
            let kind = api!(RedisModule_CallReplyType)(reply);
            api!(RedisModule_FreeCallReply)(reply);
            kind != REDISMODULE_REPLY_ERROR as c_int
        }
    }

    /// Whether the server would run a command on both keys here. If not, their slot is being moved and at least one key
    /// is not here. If `missing` is set, the first key must not exist.
    pub(crate) fn serves_both(&self, one: ServerStr, other: ServerStr, missing: bool) -> bool {
        // SAFETY: all pointers are valid during the calls; the formats match: s a string of the server, c a C string.
        // The reply is ours to free.
        unsafe {
            let call = api!(RedisModule_Call);
            let (raw, one, other) = (self.raw, one.raw, other.raw);
            let dry = self.has_dry_runs();
            let reply = if dry {
                call(raw, c"EXISTS".as_ptr(), c"Dss".as_ptr(), one, other)
            } else if missing {
                // This does nothing without its first key and, unlike EXISTS, counts no misses.
                let (name, format) = (c"SMOVE".as_ptr(), c"ssc".as_ptr());
                call(raw, name, format, one, other, c"rl".as_ptr())
            } else {
                call(raw, c"EXISTS".as_ptr(), c"ss".as_ptr(), one, other)
            };
            if let Some(serves) = is_served(reply, dry) {
                return serves;
            }
            // An operator has renamed that command. Our own cannot be renamed.
            let format = if dry { c"Dscsc" } else { c"scsc" };
            let spec = c"PEEK SLIDE 1 1".as_ptr();
            let name = c"RL.MULTI".as_ptr();
            let last = c"SLIDE 1 1".as_ptr();
            let reply = call(raw, name, format.as_ptr(), one, spec, other, last);
            is_served(reply, dry) == Some(true)
        }
    }

    /// Whether the server can check a call without making it (7.2 and later).
    fn has_dry_runs(&self) -> bool {
        static KNOWN: OnceLock<bool> = OnceLock::new();
        *KNOWN.get_or_init(|| {
            // SAFETY: the context is valid and there are no arguments; the reply is ours to free. A server that does not
            // know the letter of the format returns null.
            unsafe {
                let error = api!(RedisModule_Call)(self.raw, c"rl.nothing".as_ptr(), c"D".as_ptr());
                if error.is_null() {
                    return false;
                }
                api!(RedisModule_FreeCallReply)(error);
                true
            }
        })
    }

    /// In which directions slots of this node are moving, key by key; `None` if the server does not say.
    pub(crate) fn moving_slots(&self) -> Option<MovingSlots> {
        let nodes = self.call_for_text(c"CLUSTER", &[b"NODES"])?;
        let nodes = String::from_utf8_lossy(&nodes);
        // `[93-<-id]` is being imported, `[77->-id]` is being migrated.
        // A hostname may contain anything, so look only at the flags (third field) and the slots (ninth and later).
        let is_own = |line: &&str| {
            let flags = line.split(' ').nth(2).unwrap_or_default();
            flags.split(',').any(|flag| flag == "myself")
        };
        let own = nodes.lines().find(is_own)?;
        let moves = |how: &str| own.split(' ').skip(8).any(|slots| slots.contains(how));
        Some(MovingSlots {
            importing: moves("-<-"),
            migrating: moves("->-"),
        })
    }

    /// The text that a command replies with, or the last of several.
    pub(super) fn call_for_text(&self, command: &CStr, args: &[&[u8]]) -> Option<Vec<u8>> {
        let reply = self.call(command, c"v", args);
        if reply.is_null() {
            return None;
        }
        // SAFETY: the reply is ours to free; parts of it are freed with it.
        unsafe {
            let mut part = reply;
            if api!(RedisModule_CallReplyType)(reply) == REDISMODULE_REPLY_ARRAY as c_int {
                part = match api!(RedisModule_CallReplyLength)(reply) {
                    0 => ptr::null_mut(),
                    len => api!(RedisModule_CallReplyArrayElement)(reply, len - 1),
                };
            }
            let mut text = None;
            let string = REDISMODULE_REPLY_STRING as c_int;
            if !part.is_null() && api!(RedisModule_CallReplyType)(part) == string {
                let mut len = 0;
                let bytes = api!(RedisModule_CallReplyStringPtr)(part, &mut len);
                if !bytes.is_null() {
                    text = Some(slice::from_raw_parts(bytes.cast::<u8>(), len).to_vec());
                }
            }
            api!(RedisModule_FreeCallReply)(reply);
            text
        }
    }

    /// Calls one of the server's own commands; null if it cannot be called. The reply is the caller's to free.
    fn call(&self, command: &CStr, format: &CStr, args: &[&[u8]]) -> *mut RedisModuleCallReply {
        let create = |arg: &&[u8]| {
            // SAFETY: the context is valid; the server copies the bytes.
            unsafe { api!(RedisModule_CreateString)(self.raw, arg.as_ptr().cast(), arg.len()) }
        };
        let argv: Vec<*mut RedisModuleString> = args.iter().map(create).collect();
        // SAFETY: the context is valid and the format matches: a vector of strings and its length. The strings are
        // ours to free.
        unsafe {
            let (name, format) = (command.as_ptr(), format.as_ptr());
            let reply = api!(RedisModule_Call)(self.raw, name, format, argv.as_ptr(), argv.len());
            for arg in argv {
                api!(RedisModule_FreeString)(self.raw, arg);
            }
            reply
        }
    }
}

/// Whether the server served a call, or would serve it; `None` if it does not know the command. It reads `errno`, so it
/// has to be called right after the call.
///
/// # Safety
/// `reply` must be the reply of the call, and is not used again.
unsafe fn is_served(reply: *mut RedisModuleCallReply, dry: bool) -> Option<bool> {
    let unknown = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT);
    if reply.is_null() {
        // A dry run replies nothing if all is well.
        return if dry {
            Some(true)
        } else {
            (!unknown).then_some(false)
        };
    }
    // SAFETY: promised by the caller.
    let is_error = unsafe {
        let kind = api!(RedisModule_CallReplyType)(reply);
        api!(RedisModule_FreeCallReply)(reply);
        kind == REDISMODULE_REPLY_ERROR as c_int
    };
    // A call that was made and failed was served.
    if !dry || !is_error {
        return Some(true);
    }
    (!unknown).then_some(false)
}
