//! The texts of COMMAND DOCS and of redis-cli's hints, on servers that support them (7.0 and later).

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::ptr;

use redis_module::raw::*;
use rl_core::Error;

use super::{CommandFlags, Keys};

/// A command's page in COMMAND DOCS.
pub(crate) struct Docs {
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    /// The first version that has the command.
    pub(crate) since: &'static CStr,
    pub(crate) arguments: &'static [Argument],
}

/// One argument of a command, as a tree.
#[derive(Clone, Copy)]
pub(crate) struct Argument {
    name: &'static CStr,
    kind: RedisModuleCommandArgType,
    token: Option<&'static CStr>,
    /// Computed when the command is registered.
    summary: Option<fn() -> String>,
    flags: u32,
    parts: &'static [Argument],
}

impl Argument {
    const fn new(name: &'static CStr, kind: RedisModuleCommandArgType) -> Self {
        Self {
            name,
            kind,
            token: None,
            summary: None,
            flags: REDISMODULE_CMD_ARG_NONE,
            parts: &[],
        }
    }

    pub(crate) const KEY: Self = Self::key(c"key");

    /// A key with a name of its own.
    pub(crate) const fn key(name: &'static CStr) -> Self {
        Self::new(name, RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY)
    }

    pub(crate) const fn integer(name: &'static CStr) -> Self {
        Self::new(name, RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER)
    }

    pub(crate) const fn text(name: &'static CStr) -> Self {
        Self::new(name, RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING)
    }

    pub(crate) const fn token(name: &'static CStr, token: &'static CStr) -> Self {
        let kind = RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
        Self {
            token: Some(token),
            ..Self::new(name, kind)
        }
    }

    /// A token followed by an integer.
    pub(crate) const fn integer_option(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::integer(name)
        }
    }

    /// A token followed by a text.
    pub(crate) const fn text_option(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::text(name)
        }
    }

    pub(crate) const fn block(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK;
        Self {
            parts,
            ..Self::new(name, kind)
        }
    }

    pub(crate) const fn one_of(name: &'static CStr, parts: &'static [Self]) -> Self {
        let kind = RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
        Self {
            parts,
            ..Self::new(name, kind)
        }
    }

    /// A token followed by one of several.
    pub(crate) const fn choice(
        name: &'static CStr,
        token: &'static CStr,
        parts: &'static [Self],
    ) -> Self {
        Self {
            token: Some(token),
            ..Self::one_of(name, parts)
        }
    }

    pub(crate) const fn with_summary(self, summary: fn() -> String) -> Self {
        Self {
            summary: Some(summary),
            ..self
        }
    }

    pub(crate) const fn optional(self) -> Self {
        Self {
            flags: self.flags | REDISMODULE_CMD_ARG_OPTIONAL,
            ..self
        }
    }

    pub(crate) const fn repeated(self) -> Self {
        Self {
            flags: self.flags | REDISMODULE_CMD_ARG_MULTIPLE,
            ..self
        }
    }
}

/// The syntax, as in `[COUNT n]` or `limit [limit ...]`.
impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |flag| self.flags & flag != 0;
        let optional = has(REDISMODULE_CMD_ARG_OPTIONAL);
        let is_choice = self.kind == RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF;
        let is_token = self.kind == RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN;
        if optional {
            f.write_str("[")?;
        }
        if let Some(token) = self.token {
            let space = if is_token { "" } else { " " };
            write!(f, "{}{space}", token.to_string_lossy())?;
        }
        if !self.parts.is_empty() {
            let in_parentheses = is_choice && !optional && self.token.is_none();
            let separator = if is_choice { " | " } else { " " };
            let parts: Vec<_> = self.parts.iter().map(Self::to_string).collect();
            let parts = parts.join(separator);
            if in_parentheses {
                write!(f, "({parts})")?;
            } else {
                f.write_str(&parts)?;
            }
        } else if !is_token {
            f.write_str(&self.name.to_string_lossy())?;
        }
        if has(REDISMODULE_CMD_ARG_MULTIPLE) {
            write!(f, " [{} ...]", self.name.to_string_lossy())?;
        }
        if optional {
            f.write_str("]")?;
        }
        Ok(())
    }
}

const VERSION: RedisModuleCommandInfoVersion = RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<RedisModuleCommandArg>(),
};

/// Passes the page to the server, which copies all of it.
///
/// # Safety
/// `command` must be a command of this module.
pub(super) unsafe fn publish(
    command: *mut RedisModuleCommand,
    docs: &Docs,
    arity: c_int,
    keys: Keys,
    flags: CommandFlags,
) -> Result<(), Error> {
    // SAFETY: a plain read of a function pointer that the server set at load.
    let Some(set_info) = (unsafe { RedisModule_SetCommandInfo }) else {
        return Ok(());
    };
    let mut arena = Arena::default();
    let arguments = arena.list(docs.arguments);
    let mut keys = key_specs(keys, flags);
    let info = RedisModuleCommandInfo {
        version: &VERSION,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: docs.since.as_ptr(),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity,
        key_specs: keys.as_mut_ptr(),
        args: arguments,
    };
    // SAFETY: promised by the caller; every pointer lives until the call returns, every list ends with
    // a zeroed entry.
    match unsafe { set_info(command, &info) } {
        REDISMODULE_OK_INT => Ok(()),
        _ => Err(Error::Internal),
    }
}

const REDISMODULE_OK_INT: c_int = REDISMODULE_OK as c_int;

/// Where clients and the server find every key, by position.
fn key_specs(keys: Keys, flags: CommandFlags) -> [RedisModuleCommandKeySpec; 2] {
    // SAFETY: a C struct of integers, unions of integers and pointers, for all of which zero is valid;
    // an all-zero spec ends the list.
    let mut specs: [RedisModuleCommandKeySpec; 2] = unsafe { std::mem::zeroed() };
    // A range ends relative to its start, or (-1) with the last argument.
    let (first, last, step) = match keys {
        Keys::None => return specs,
        Keys::At(position) => (position, 0, 1),
        Keys::Pairs(first) => (first, -1, 2),
    };
    let access = if flags.is_write() {
        REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE
    } else {
        REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS
    };
    specs[0].flags = u64::from(access);
    specs[0].begin_search_type = RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    specs[0].bs.index.pos = first as c_int;
    specs[0].find_keys_type = RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    specs[0].fk.range.lastkey = last;
    specs[0].fk.range.keystep = step;
    specs
}

/// Lists for the server. They are kept as raw pointers, because moving a `Box` would invalidate the pointers into it.
#[derive(Default)]
struct Arena {
    lists: Vec<*mut [RedisModuleCommandArg]>,
    texts: Vec<CString>,
}

impl Arena {
    /// The result is valid as long as the arena.
    fn text(&mut self, compute: Option<fn() -> String>) -> *const c_char {
        let Some(compute) = compute else {
            return ptr::null();
        };
        // A C string does not move with its owner.
        let text = CString::new(compute()).unwrap_or_default();
        let raw = text.as_ptr();
        self.texts.push(text);
        raw
    }

    /// Translates a tree. The result is valid as long as the arena.
    fn list(&mut self, arguments: &[Argument]) -> *mut RedisModuleCommandArg {
        if arguments.is_empty() {
            return ptr::null_mut();
        }
        let key = RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
        let text = |text: Option<&'static CStr>| text.map_or(ptr::null::<c_char>(), CStr::as_ptr);
        let mut list: Vec<RedisModuleCommandArg> = arguments
            .iter()
            .map(|argument| RedisModuleCommandArg {
                name: argument.name.as_ptr(),
                type_: argument.kind,
                key_spec_index: if argument.kind == key { 0 } else { -1 },
                token: text(argument.token),
                summary: self.text(argument.summary),
                since: ptr::null(),
                flags: argument.flags as c_int,
                deprecated_since: ptr::null(),
                subargs: self.list(argument.parts),
                display_text: ptr::null(),
            })
            .collect();
        // SAFETY: a C struct of integers and pointers, for all of which zero is valid; it ends the list.
        list.push(unsafe { std::mem::zeroed() });
        let list = Box::into_raw(list.into_boxed_slice());
        self.lists.push(list);
        list.cast()
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for &list in &self.lists {
            // SAFETY: from `Box::into_raw`, freed once, and not used after the arena.
            drop(unsafe { Box::from_raw(list) });
        }
    }
}
