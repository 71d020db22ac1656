//! `RL.POLICY SET | GET | DEL | LIST | DUMP | LOAD`: limits by name, for all keys of this server.

use std::ffi::CStr;

use rl_core::policy::{self, MAX_JSON_LEN, Policy};

use crate::commit;
use crate::error::{CommandError, JSON_TOO_LONG};
use crate::policy::registry;
use crate::replication;
use crate::server::{Args, Argument, CommandFlags, Container, Context, Docs, Keys, Subcommand};

pub(crate) struct PolicyCommand;

const NAME_ARGUMENT: Argument = Argument::text(c"name");
const WRITE: CommandFlags = CommandFlags::WRITE.union(CommandFlags::DANGEROUS);
const READ: CommandFlags = CommandFlags::READONLY;

const fn docs(
    summary: &'static CStr,
    complexity: &'static CStr,
    arguments: &'static [Argument],
) -> Docs {
    Docs {
        summary,
        complexity,
        since: c"0.1.0",
        arguments,
    }
}

impl Container for PolicyCommand {
    const NAME: &'static CStr = c"RL.POLICY";
    const KEYS: Keys = Keys::None;
    const DOCS: Docs = docs(
        c"Sets, shows, lists, deletes and loads policies, which are named sets of limits.",
        c"Depends on the subcommand",
        &[],
    );
    const SUBCOMMANDS: &'static [Subcommand] = &[
        Subcommand {
            name: c"set",
            flags: WRITE,
            min_args: 4,
            max_args: usize::MAX,
            docs: docs(
                c"Sets a policy; it applies to the next call on every key.",
                c"O(1)",
                &[
                    NAME_ARGUMENT,
                    Argument::text(c"limit").repeated(),
                    Argument::token(c"shadow", c"SHADOW").optional(),
                    Argument::text_option(c"note", c"NOTE").optional(),
                ],
            ),
            run: set,
        },
        Subcommand {
            name: c"get",
            flags: READ,
            min_args: 3,
            max_args: 3,
            docs: docs(c"Shows a policy.", c"O(1)", &[NAME_ARGUMENT]),
            run: get,
        },
        Subcommand {
            name: c"del",
            flags: WRITE,
            min_args: 3,
            max_args: 3,
            docs: docs(c"Deletes a policy.", c"O(1)", &[NAME_ARGUMENT]),
            run: del,
        },
        Subcommand {
            name: c"list",
            flags: READ,
            min_args: 2,
            max_args: 3,
            docs: docs(
                c"Lists the names of policies.",
                c"O(N) where N is the number of policies",
                &[Argument::text(c"prefix").optional()],
            ),
            run: list,
        },
        Subcommand {
            name: c"dump",
            flags: READ,
            min_args: 2,
            max_args: 2,
            docs: docs(
                c"Shows all policies as JSON.",
                c"O(N) where N is the number of policies",
                &[],
            ),
            run: dump,
        },
        Subcommand {
            name: c"load",
            flags: WRITE,
            min_args: 3,
            max_args: 3,
            docs: docs(
                c"Replaces all policies with those in a JSON text.",
                c"O(N) where N is the number of policies",
                &[Argument::text(c"json")],
            ),
            run: load,
        },
    ];
}

fn set(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let name = policy::check_name(args.get(2).as_bytes())?;
    let policy = Policy::parse(&mut args.from(3))?;
    commit::check_memory_unless_replicated(ctx, true)?;
    registry::insert(ctx, name, policy)?;
    replication::send_command(ctx);
    ctx.reply_ok();
    Ok(())
}

fn get(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let Ok(named) = registry::find(ctx, args.get(2).as_bytes()) else {
        ctx.reply_null();
        return Ok(());
    };
    let policy = &named.definition;
    ctx.reply_map(4);
    ctx.reply_text(b"name");
    ctx.reply_text(named.name.as_bytes());
    ctx.reply_text(b"limits");
    let rules = policy.rules().as_slice();
    ctx.reply_array(rules.len());
    for rule in rules {
        ctx.reply_text(rule.to_string().as_bytes());
    }
    ctx.reply_text(b"shadow");
    ctx.reply_integer(i64::from(policy.shadow));
    ctx.reply_text(b"note");
    ctx.reply_text(policy.note.as_bytes());
    Ok(())
}

fn del(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let removed = registry::remove(ctx, args.get(2).as_bytes())?;
    if removed {
        replication::send_command(ctx);
    }
    ctx.reply_integer(i64::from(removed));
    Ok(())
}

fn list(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let prefix = args.from(2).next().unwrap_or_default();
    let list = registry::list(ctx, prefix);
    ctx.reply_array(list.len());
    for named in list {
        ctx.reply_text(named.name.as_bytes());
    }
    Ok(())
}

fn dump(ctx: &Context, _args: Args) -> Result<(), CommandError> {
    ctx.reply_text(registry::dump(ctx).as_bytes());
    Ok(())
}

fn load(ctx: &Context, args: Args) -> Result<(), CommandError> {
    let json = args.get(2).as_bytes();
    // What this module wrote itself is accepted at any length.
    if json.len() > MAX_JSON_LEN && ctx.is_from_client() {
        return Err(JSON_TOO_LONG);
    }
    commit::check_memory_unless_replicated(ctx, true)?;
    let count =
        registry::load(ctx, json).map_err(|why| CommandError::Formatted(format!("ERR {why}")))?;
    replication::send_command(ctx);
    ctx.reply_integer(count as i64);
    Ok(())
}
