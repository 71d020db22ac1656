//! Every RL.* command with typed arguments and a typed reply.
//!
//! Each function here returns a [`TypedCmd`]: a command that knows the type of its reply. Most callers use the same
//! commands as methods of a connection or pipeline, through [`AsyncRlCommands`], [`RlCommands`] or [`RlPipeline`].
//!
//! ```no_run
//! use rl_client::{commands, MINUTE};
//!
//! # fn example() -> rl_client::redis::RedisResult<()> {
//! let mut con = rl_client::redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
//! let decision = commands::slide("user:42", 100, MINUTE, 1).query(&mut con)?;
//! println!("allowed: {}", decision.allowed);
//! # Ok(())
//! # }
//! ```

mod args;
mod decision;
mod fields;
mod inspection;
mod observability;
mod overrides;
mod policy;
mod refund_options;
mod reservation;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

#[cfg(feature = "tokio")]
use redis::RedisFuture;
#[cfg(feature = "tokio")]
use redis::aio::ConnectionLike as AsyncConnectionLike;
use redis::{Cmd, ConnectionLike, FromRedisValue, Pipeline, RedisResult, ToRedisArgs};

use crate::Limit;
use crate::limit::LimitArg;
pub(crate) use args::{SpecArg, multi_cmd, single_cmd};
use reservation::reserve_cmd;

pub use args::{CallOptions, Spec};
pub use decision::{BriefDecision, DecidedBy, Decision, FirstDecision, MultiDecision, Source};
pub use inspection::{FieldValue, Inspection};
pub use observability::{Counts, Denial, HotKey, Stats, TopBy};
pub use overrides::{NewOverride, OverrideAction, OverrideRecord};
pub use policy::{ParseLimitError, PolicyDefinition, PolicyRule};
pub use refund_options::RefundOptions;
pub use reservation::Reservation;

/// A command and the type of its reply.
#[must_use = "a command does nothing until it is sent"]
pub struct TypedCmd<R> {
    cmd: Cmd,
    reply: PhantomData<fn() -> R>,
}

impl<R: FromRedisValue> TypedCmd<R> {
    /// Sends the command on a blocking connection.
    pub fn query(&self, con: &mut dyn ConnectionLike) -> RedisResult<R> {
        self.cmd.query(con)
    }

    /// Sends the command on an async connection.
    #[cfg(feature = "tokio")]
    pub async fn query_async(&self, con: &mut impl AsyncConnectionLike) -> RedisResult<R> {
        self.cmd.query_async(con).await
    }
}

impl<R> TypedCmd<R> {
    /// The command without the type of its reply.
    pub const fn as_cmd(&self) -> &Cmd {
        &self.cmd
    }
}

impl<R> From<Cmd> for TypedCmd<R> {
    fn from(cmd: Cmd) -> Self {
        Self {
            cmd,
            reply: PhantomData,
        }
    }
}

impl<R> From<TypedCmd<R>> for Cmd {
    fn from(typed: TypedCmd<R>) -> Self {
        typed.cmd
    }
}

impl<R> Clone for TypedCmd<R> {
    fn clone(&self) -> Self {
        self.cmd.clone().into()
    }
}

impl<R> fmt::Debug for TypedCmd<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedCmd").field(&self.cmd).finish()
    }
}

/// Defines each command once: as a function and as a method of the three traits.
macro_rules! commands {
    ($(
        $(#[$doc:meta])+
        fn $function:ident, $method:ident<$($generic:ident),*>($($arg:ident: $type:ty),*) -> $reply:ty $body:block
    )+) => {
        $(
            $(#[$doc])+
            pub fn $function<$($generic: ToRedisArgs),*>($($arg: $type),*) -> TypedCmd<$reply> {
                let cmd: Cmd = $body;
                cmd.into()
            }
        )+

        /// The commands as methods of an async connection, like [`redis::AsyncCommands`].
        ///
        /// ```no_run
        /// use rl_client::{AsyncRlCommands, MINUTE, redis};
        ///
        /// # async fn example() -> redis::RedisResult<()> {
        /// let client = redis::Client::open("redis://127.0.0.1/")?;
        /// let mut con = client.get_multiplexed_async_connection().await?;
        /// let decision = con.rl_slide("user:42", 100, MINUTE, 1).await?;
        /// if !decision.allowed {
        ///     println!("try again in {:?}", decision.retry_after);
        /// }
        /// # Ok(())
        /// # }
        /// ```
        #[cfg(feature = "tokio")]
        pub trait AsyncRlCommands: AsyncConnectionLike + Send + Sized {
            $(
                $(#[$doc])+
                fn $method<'a, $($generic: ToRedisArgs + Send + Sync + 'a),*>(
                    &'a mut self,
                    $($arg: $type),*
                ) -> RedisFuture<'a, $reply> {
                    let command = self::$function($($arg),*);
                    Box::pin(async move { command.query_async(self).await })
                }
            )+
        }

        #[cfg(feature = "tokio")]
        impl<C: AsyncConnectionLike + Send> AsyncRlCommands for C {}

        /// The commands as methods of a blocking connection, like [`redis::Commands`].
        ///
        /// ```no_run
        /// use rl_client::{Limit, RlCommands, HOUR, MINUTE, redis};
        ///
        /// # fn example() -> redis::RedisResult<()> {
        /// let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
        /// let multi = con.rl_multi(&[
        ///     ("{u42}:ip", Limit::slide(100, MINUTE), 1),
        ///     ("{u42}:user", Limit::slide(1000, HOUR), 1),
        /// ])?;
        /// assert_eq!(multi.decisions.len(), 2);
        /// # Ok(())
        /// # }
        /// ```
        pub trait RlCommands: ConnectionLike + Sized {
            $(
                $(#[$doc])+
                fn $method<$($generic: ToRedisArgs),*>(&mut self, $($arg: $type),*) -> RedisResult<$reply> {
                    self::$function($($arg),*).query(self)
                }
            )+
        }

        impl<C: ConnectionLike> RlCommands for C {}

        /// The commands in a pipeline; read each reply as the type that the connection's method returns.
        ///
        /// ```no_run
        /// use rl_client::{Decision, RlPipeline, MINUTE, redis};
        ///
        /// # fn example(con: &mut redis::Connection) -> redis::RedisResult<()> {
        /// let (ip, user): (Decision, Decision) = redis::pipe()
        ///     .rl_slide("ip:192.0.2.7", 100, MINUTE, 1)
        ///     .rl_bucket("user:42", 200, 1000, MINUTE, 5)
        ///     .query(con)?;
        /// # Ok(())
        /// # }
        /// ```
        pub trait RlPipeline {
            /// Adds a command.
            #[doc(hidden)]
            fn rl_add(&mut self, command: Cmd) -> &mut Self;

            $(
                $(#[$doc])+
                fn $method<$($generic: ToRedisArgs),*>(&mut self, $($arg: $type),*) -> &mut Self {
                    self.rl_add(self::$function($($arg),*).into())
                }
            )+
        }
    };
}

commands! {
    /// RL.SLIDE: at most `limit` units per sliding `window`.
    fn slide, rl_slide<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single_cmd(key, &Limit::slide(limit, window), cost, CallOptions::default())
    }

    /// RL.BUCKET: bursts up to `capacity`, then `refill` units per `period`.
    fn bucket, rl_bucket<K>(key: K, capacity: u64, refill: u64, period: Duration, cost: u64) -> Decision {
        single_cmd(key, &Limit::bucket(capacity, refill, period), cost, CallOptions::default())
    }

    /// RL.FIXED: at most `limit` units per fixed `window`, aligned to the Unix epoch.
    fn fixed, rl_fixed<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single_cmd(key, &Limit::fixed(limit, window), cost, CallOptions::default())
    }

    /// RL.EXACT: at most `limit` units in any span of `window`, without approximation.
    fn exact, rl_exact<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single_cmd(key, &Limit::exact(limit, window), cost, CallOptions::default())
    }

    /// RL.LEAK: a queue of `capacity` that drains `rate` units per `period`. For an allowed call, `retry_after` is the
    /// time to wait before proceeding.
    fn leak, rl_leak<K>(key: K, capacity: u64, rate: u64, period: Duration, cost: u64) -> Decision {
        single_cmd(key, &Limit::leak(capacity, rate, period), cost, CallOptions::default())
    }

    /// RL.LEASE: `holder` holds `cost` of at most `limit` units until it releases them or `ttl` has passed. The same
    /// holder calling again renews its lease.
    fn lease, rl_lease<K, H>(key: K, limit: u64, ttl: Duration, holder: H, cost: u64) -> Decision {
        let mut cmd = redis::cmd("RL.LEASE");
        cmd.arg(key).arg(limit).arg(LimitArg::Duration(ttl)).arg(holder).arg(cost);
        cmd
    }

    /// RL.RELEASE: ends the lease of `holder`. Returns whether it was held.
    fn release, rl_release<K, H>(key: K, holder: H) -> bool {
        let mut cmd = redis::cmd("RL.RELEASE");
        cmd.arg(key).arg(holder);
        cmd
    }

    /// RL.REFUND: refunds the `cost` of an earlier call; usage never drops below zero. Returns the units actually refunded.
    fn refund, rl_refund<K>(key: K, cost: u64) -> u64 {
        let mut cmd = redis::cmd("RL.REFUND");
        cmd.arg(key).arg(cost);
        cmd
    }

    /// RL.REFUND with options.
    fn refund_with, rl_refund_with<K>(key: K, cost: u64, options: RefundOptions) -> u64 {
        let mut cmd = redis::cmd("RL.REFUND");
        cmd.arg(key).arg(cost).arg(options);
        cmd
    }

    /// RL.INSPECT: the stored state, field by field; `None` if there is no such key.
    fn inspect, rl_inspect<K>(key: K) -> Option<Inspection> {
        let mut cmd = redis::cmd("RL.INSPECT");
        cmd.arg(key);
        cmd
    }

    /// RL.LOAD: stores a state in the server's own encoding. Internal: replicas and the AOF receive it.
    fn load, rl_load<K, B>(key: K, expire_at_ms: i64, blob: B) -> () {
        let mut cmd = redis::cmd("RL.LOAD");
        cmd.arg(key).arg(expire_at_ms).arg(blob);
        cmd
    }

    /// RL.CHECK: checks and charges a policy. [`Decision::decided_by`] says which of its limits decided.
    fn check, rl_check<K, P>(key: K, policy: P, cost: u64) -> Decision {
        check_with(key, policy, cost, CallOptions::default()).into()
    }

    /// RL.CHECK with options.
    fn check_with, rl_check_with<K, P>(key: K, policy: P, cost: u64, options: CallOptions) -> Decision {
        let mut cmd = redis::cmd("RL.CHECK");
        cmd.arg(key).arg(policy).arg(cost).arg(options);
        cmd
    }

    /// The one-limit command of `limit`: RL.SLIDE for [`Limit::Slide`], RL.CHECK for [`Limit::Policy`], and so on.
    fn check_limit, rl_check_limit<K>(key: K, limit: &Limit, cost: u64) -> Decision {
        single_cmd(key, limit, cost, CallOptions::default())
    }

    /// The one-limit command of `limit`, with options.
    fn check_limit_with, rl_check_limit_with<K>(key: K, limit: &Limit, cost: u64, options: CallOptions) -> Decision {
        single_cmd(key, limit, cost, options)
    }

    /// RL.PEEK: what would this call reply? Charges nothing, and works on replicas.
    fn peek, rl_peek<K>(key: K, limit: &Limit, cost: u64) -> Decision {
        let mut cmd = redis::cmd("RL.PEEK");
        cmd.arg(key).arg(SpecArg::new(limit, cost));
        cmd
    }

    /// The one-limit command of `limit` with options and BRIEF: the reply is one integer.
    fn check_limit_brief, rl_check_limit_brief<K>(key: K, limit: &Limit, cost: u64, options: CallOptions) -> BriefDecision {
        single_cmd(key, limit, cost, options.brief())
    }

    /// RL.MULTI: several limits at once; all of them are charged, or none.
    fn multi, rl_multi<K>(limits: &[(K, Limit, u64)]) -> MultiDecision {
        let specs = limits.iter().map(|(key, limit, cost)| (key, SpecArg::new(limit, *cost)));
        multi_cmd("RL.MULTI", specs, CallOptions::default())
    }

    /// RL.MULTI with options, and with limits that may be SHADOW.
    fn multi_with, rl_multi_with<K>(limits: &[(K, Spec)], options: CallOptions) -> MultiDecision {
        multi_cmd("RL.MULTI", limits.iter().map(|(key, spec)| (key, spec.as_arg())), options)
    }

    /// RL.MULTI with options and BRIEF: the reply is one integer.
    fn multi_brief, rl_multi_brief<K>(limits: &[(K, Spec)], options: CallOptions) -> BriefDecision {
        multi_cmd("RL.MULTI", limits.iter().map(|(key, spec)| (key, spec.as_arg())), options.brief())
    }

    /// RL.FIRST: charges the first limit that allows the call, and no other.
    fn first, rl_first<K>(limits: &[(K, Limit, u64)]) -> FirstDecision {
        let specs = limits.iter().map(|(key, limit, cost)| (key, SpecArg::new(limit, *cost)));
        multi_cmd("RL.FIRST", specs, CallOptions::default())
    }

    /// RL.FIRST with options, and with limits that may be SHADOW.
    fn first_with, rl_first_with<K>(limits: &[(K, Spec)], options: CallOptions) -> FirstDecision {
        multi_cmd("RL.FIRST", limits.iter().map(|(key, spec)| (key, spec.as_arg())), options)
    }

    /// RL.FIRST with options and BRIEF: the reply is one integer.
    fn first_brief, rl_first_brief<K>(limits: &[(K, Spec)], options: CallOptions) -> BriefDecision {
        multi_cmd("RL.FIRST", limits.iter().map(|(key, spec)| (key, spec.as_arg())), options.brief())
    }

    /// RL.RESERVE: several limits at once, like RL.MULTI, recorded under `id` for `ttl`. Repeating the call charges nothing, and
    /// RL.SETTLE changes the charge to what was used.
    fn reserve, rl_reserve<I, K>(id: I, ttl: Duration, limits: &[(K, Limit, u64)]) -> Reservation {
        let limits = limits.iter().map(|(key, limit, cost)| (key, SpecArg::new(limit, *cost)));
        reserve_cmd(id, ttl, limits, CallOptions::default())
    }

    /// RL.RESERVE with options, and with limits that may be SHADOW.
    fn reserve_with, rl_reserve_with<I, K>(id: I, ttl: Duration, limits: &[(K, Spec)], options: CallOptions) -> Reservation {
        reserve_cmd(id, ttl, limits.iter().map(|(key, spec)| (key, spec.as_arg())), options)
    }

    /// RL.SETTLE: changes what a reservation charged to the units that `calls` calls used. Returns the units that stay charged,
    /// key by key; `None` if the id is unknown, which closes it.
    fn settle, rl_settle<I, K>(id: I, calls: u64, usage: &[(K, u64)]) -> Option<Vec<u64>> {
        let mut cmd = redis::cmd("RL.SETTLE");
        cmd.arg(id).arg(calls);
        for (key, actual) in usage {
            cmd.arg(key).arg(actual);
        }
        cmd
    }

    /// RL.POLICY SET: creates or replaces a policy. It applies to the next call on every key.
    fn policy_set, rl_policy_set<P>(name: P, policy: &PolicyDefinition) -> () {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("SET").arg(name).arg(policy);
        cmd
    }

    /// RL.POLICY GET: a policy; `None` if there is no such policy.
    fn policy_get, rl_policy_get<P>(name: P) -> Option<PolicyDefinition> {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("GET").arg(name);
        cmd
    }

    /// RL.POLICY DEL: deletes a policy. Returns whether it existed.
    fn policy_del, rl_policy_del<P>(name: P) -> bool {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("DEL").arg(name);
        cmd
    }

    /// RL.POLICY LIST: the names of all policies, or of those that start with `prefix`.
    fn policy_list, rl_policy_list<>(prefix: Option<&str>) -> Vec<String> {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("LIST").arg(prefix);
        cmd
    }

    /// RL.POLICY DUMP: all policies as JSON.
    fn policy_dump, rl_policy_dump<>() -> String {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("DUMP");
        cmd
    }

    /// RL.POLICY LOAD: replaces all policies by those in the JSON text. Returns how many there are.
    fn policy_load, rl_policy_load<>(json: &str) -> usize {
        let mut cmd = redis::cmd("RL.POLICY");
        cmd.arg("LOAD").arg(json);
        cmd
    }

    /// RL.OVERRIDE SET: overrides a policy for one key.
    fn override_set, rl_override_set<K, P>(key: K, policy: P, new: &NewOverride) -> () {
        let mut cmd = redis::cmd("RL.OVERRIDE");
        cmd.arg("SET").arg(key).arg(policy).arg(new);
        cmd
    }

    /// RL.OVERRIDE GET: the overrides of a key, sorted by policy.
    fn override_get, rl_override_get<K>(key: K) -> Vec<OverrideRecord> {
        let mut cmd = redis::cmd("RL.OVERRIDE");
        cmd.arg("GET").arg(key);
        cmd
    }

    /// RL.OVERRIDE DEL: removes the override of a policy from a key. Returns whether there was one.
    fn override_del, rl_override_del<K, P>(key: K, policy: P) -> bool {
        let mut cmd = redis::cmd("RL.OVERRIDE");
        cmd.arg("DEL").arg(key).arg(policy);
        cmd
    }

    /// RL.STATS: the totals and per-minute counts of the node.
    fn stats, rl_stats<>() -> Stats {
        redis::cmd("RL.STATS")
    }

    /// RL.STATS policy: the totals and per-minute counts of one policy.
    fn policy_stats, rl_policy_stats<P>(policy: P) -> Stats {
        let mut cmd = redis::cmd("RL.STATS");
        cmd.arg(policy);
        cmd
    }

    /// RL.TOP: the `count` hottest keys, by checks or by denials.
    fn top, rl_top<>(count: usize, by: TopBy) -> Vec<HotKey> {
        let mut cmd = redis::cmd("RL.TOP");
        cmd.arg("COUNT").arg(count).arg("BY").arg(by);
        cmd
    }

    /// RL.AUDIT GET: the latest `count` denials, newest first.
    fn audit_get, rl_audit_get<>(count: usize) -> Vec<Denial> {
        let mut cmd = redis::cmd("RL.AUDIT");
        cmd.arg("GET").arg(count);
        cmd
    }

    /// RL.AUDIT LEN: how many denials are kept.
    fn audit_len, rl_audit_len<>() -> usize {
        let mut cmd = redis::cmd("RL.AUDIT");
        cmd.arg("LEN");
        cmd
    }

    /// RL.AUDIT RESET: deletes all recorded denials.
    fn audit_reset, rl_audit_reset<>() -> () {
        let mut cmd = redis::cmd("RL.AUDIT");
        cmd.arg("RESET");
        cmd
    }
}

impl RlPipeline for Pipeline {
    fn rl_add(&mut self, command: Cmd) -> &mut Self {
        self.add_command(command)
    }
}

#[cfg(feature = "cluster")]
impl RlPipeline for redis::cluster::ClusterPipeline {
    fn rl_add(&mut self, command: Cmd) -> &mut Self {
        self.add_command(command)
    }
}
