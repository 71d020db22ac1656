//! Commands written as one line, and replies.

use redis::{Connection, FromRedisValue, RedisError, RedisResult, Value};

/// The reply of a command with one limit: allowed, limit, remaining, retry_after_ms, reset_after_ms.
pub type Reply = (i64, i64, i64, i64, i64);

/// The reply of RL.CHECK: the five integers, and the index of the limit that decided.
pub type CheckReply = (i64, i64, i64, i64, i64, i64);

/// The reply of RL.MULTI: allowed, retry_after_ms, and the reply of each limit.
pub type MultiReply = (i64, i64, Vec<Reply>);

/// Sends one command, written as one line (see [`split_args`]), and returns its reply.
#[track_caller]
pub fn ask<T: FromRedisValue>(con: &mut Connection, line: &str) -> T {
    try_ask(con, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Sends one command like [`ask`], and returns its error if there is one.
pub fn try_ask<T: FromRedisValue>(con: &mut Connection, line: &str) -> RedisResult<T> {
    command(line).query(con)
}

/// Sends one command that must fail, and returns the text of its error.
#[track_caller]
pub fn ask_error(con: &mut Connection, line: &str) -> String {
    match try_ask::<Value>(con, line) {
        Ok(value) => panic!("{line} answered {value:?}"),
        Err(error) => error_text(&error),
    }
}

/// A line as a command, for a pipeline or another kind of connection.
pub fn command(line: &str) -> redis::Cmd {
    let args = split_args(line);
    let mut command = redis::cmd(args[0]);
    command.arg(&args[1..]);
    command
}

/// Splits a line into arguments at its spaces. Text in double quotes is one argument; there are no escapes.
pub fn split_args(line: &str) -> Vec<&str> {
    let mut args = Vec::new();
    let mut rest = Some(line);
    while let Some(line) = rest {
        let (arg, after) = match line.strip_prefix('"') {
            Some(quoted) => {
                let (arg, after) = quoted.split_once('"').expect("a quote is not closed");
                assert!(after.is_empty() || after.starts_with(' '), "{line}");
                (arg, after.strip_prefix(' '))
            }
            None => match line.split_once(' ') {
                Some((arg, after)) => (arg, Some(after)),
                None => (line, None),
            },
        };
        args.push(arg);
        rest = after;
    }
    args
}

/// The whole error line, code first, as redis-cli prints it.
pub fn error_text(error: &RedisError) -> String {
    let code = error.code().unwrap_or("ERR");
    format!("{code} {}", error.detail().unwrap_or_default())
}

/// Sends a command that has to reply OK.
#[track_caller]
pub fn ask_ok(con: &mut Connection, line: &str) {
    assert_eq!(ask::<String>(con, line), "OK", "{line}");
}
