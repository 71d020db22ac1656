//! What COMMAND DOCS and redis-cli's hints say, on servers that have them (7.0 and later).

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use redis_module::raw::*;

use super::Access;

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
    flags: u32,
    parts: &'static [Argument],
}

impl Argument {
    const fn new(name: &'static CStr, kind: RedisModuleCommandArgType) -> Self {
        Self {
            name,
            kind,
            token: None,
            flags: REDISMODULE_CMD_ARG_NONE,
            parts: &[],
        }
    }

    pub(crate) const KEY: Self =
        Self::new(c"key", RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY);

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

    /// A word and an integer behind it.
    pub(crate) const fn valued(name: &'static CStr, token: &'static CStr) -> Self {
        Self {
            token: Some(token),
            ..Self::integer(name)
        }
    }

    /// A word and a text behind it.
    pub(crate) const fn text_behind(name: &'static CStr, token: &'static CStr) -> Self {
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

    /// A word and one of several behind it.
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

const VERSION: RedisModuleCommandInfoVersion = RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<RedisModuleCommandArg>(),
};

/// Where a command's keys are.
pub(super) struct Keys {
    /// The position of the first, if there is one.
    pub(super) first: usize,
    pub(super) access: Access,
    /// Whether there may be others, of which the command must be asked.
    pub(super) more: bool,
}

/// Hands the page to the server, which copies all of it.
///
/// # Safety
/// `command` must be a command of this module.
pub(super) unsafe fn publish(
    command: *mut RedisModuleCommand,
    docs: &Docs,
    arity: c_int,
    keys: Keys,
) -> bool {
    // SAFETY: a plain read of a function pointer that the server set at load.
    let Some(set_info) = (unsafe { RedisModule_SetCommandInfo }) else {
        return true;
    };
    let mut arena = Vec::new();
    let arguments = to_c(docs.arguments, &mut arena);
    let mut keys = key_specs(keys);
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
    unsafe { set_info(command, &info) == REDISMODULE_OK as c_int }
}

/// The first key, by which clients route; and, where more follow, a sign that the command must be asked.
fn key_specs(keys: Keys) -> [RedisModuleCommandKeySpec; 3] {
    // SAFETY: a C struct of integers, unions of integers and pointers, for all of which zero is valid;
    // an all-zero spec ends the list.
    let mut specs: [RedisModuleCommandKeySpec; 3] = unsafe { std::mem::zeroed() };
    let flags = match keys.access {
        Access::Read => REDISMODULE_CMD_KEY_RO | REDISMODULE_CMD_KEY_ACCESS,
        Access::Write => {
            REDISMODULE_CMD_KEY_RW | REDISMODULE_CMD_KEY_ACCESS | REDISMODULE_CMD_KEY_UPDATE
        }
        Access::Keyless => return specs,
    };
    specs[0].flags = u64::from(flags);
    specs[0].begin_search_type = RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    specs[0].bs.index.pos = keys.first as c_int;
    specs[0].find_keys_type = RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    specs[0].fk.range.keystep = 1;
    if keys.more {
        specs[1].flags = u64::from(flags | REDISMODULE_CMD_KEY_INCOMPLETE);
        specs[1].begin_search_type = RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_UNKNOWN;
        specs[1].find_keys_type = RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_UNKNOWN;
    }
    specs
}

/// Translates a tree; `arena` keeps its lists alive.
fn to_c(
    arguments: &[Argument],
    arena: &mut Vec<Box<[RedisModuleCommandArg]>>,
) -> *mut RedisModuleCommandArg {
    if arguments.is_empty() {
        return ptr::null_mut();
    }
    let key = RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY;
    let mut list: Vec<RedisModuleCommandArg> = arguments
        .iter()
        .map(|argument| RedisModuleCommandArg {
            name: argument.name.as_ptr(),
            type_: argument.kind,
            key_spec_index: if argument.kind == key { 0 } else { -1 },
            token: argument.token.map_or(ptr::null::<c_char>(), CStr::as_ptr),
            summary: ptr::null(),
            since: ptr::null(),
            flags: argument.flags as c_int,
            deprecated_since: ptr::null(),
            subargs: to_c(argument.parts, arena),
            display_text: ptr::null(),
        })
        .collect();
    // SAFETY: a C struct of integers and pointers, for all of which zero is valid; it ends the list.
    list.push(unsafe { std::mem::zeroed() });
    let mut list = list.into_boxed_slice();
    let first = list.as_mut_ptr();
    arena.push(list);
    first
}
