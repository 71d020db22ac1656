//! HELP: the syntax of a command, from the same tables as COMMAND DOCS.

use std::ffi::CStr;

use super::command::{Command, CommandFlags, Container, Subcommand};
use super::{Args, CommandError, Context, Docs};

/// HELP as it is registered; [`reply_container`] replies to it.
pub(super) const SUBCOMMAND: Subcommand = Subcommand {
    name: c"help",
    flags: CommandFlags::ALLOW_LOADING.union(CommandFlags::ALLOW_STALE),
    min_args: 2,
    max_args: 2,
    docs: Docs {
        summary: c"Shows the syntax of every subcommand.",
        complexity: c"O(1)",
        since: c"0.1.0",
        arguments: &[],
    },
    run: |_, _| Err(CommandError::WrongArity),
};

/// Whether a command was called as `command HELP`.
pub(crate) fn is_help(args: Args) -> bool {
    args.len() == 2 && args.get(1).as_bytes().eq_ignore_ascii_case(b"HELP")
}

pub(crate) fn reply<C: Command>(ctx: &Context) {
    ctx.reply_array(2);
    let name = C::NAME.to_string_lossy();
    ctx.reply_status(&syntax(&name, &C::DOCS));
    ctx.reply_status(&indented(C::DOCS.summary));
}

pub(super) fn reply_container<C: Container>(ctx: &Context) {
    let name = C::NAME.to_string_lossy();
    ctx.reply_array(1 + 2 * (C::SUBCOMMANDS.len() + 1));
    ctx.reply_status(&format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    for subcommand in C::SUBCOMMANDS.iter().chain([&SUBCOMMAND]) {
        let name = subcommand.name.to_string_lossy().to_uppercase();
        ctx.reply_status(&syntax(&name, &subcommand.docs));
        ctx.reply_status(&indented(subcommand.docs.summary));
    }
}

fn syntax(name: &str, docs: &Docs) -> String {
    let arguments = docs.arguments.iter().map(|argument| format!(" {argument}"));
    format!("{name}{}", arguments.collect::<String>())
}

fn indented(summary: &CStr) -> String {
    format!("    {}", summary.to_string_lossy())
}
