//! The commands of the module as methods of redis-rs connections and pipelines.

use std::time::Duration;

use redis::aio::ConnectionLike as AsyncConnectionLike;
use redis::{Cmd, ConnectionLike, Pipeline, RedisFuture, RedisResult, ToRedisArgs};

use crate::limit::Word;
use crate::{Decision, Limit, MultiDecision};

/// Writes each command once, and makes three traits of the list.
macro_rules! commands {
    ($(
        $(#[$doc:meta])+
        fn $name:ident<$($generic:ident),+>($($arg:ident: $type:ty),+) -> $reply:ty $body:block
    )+) => {
        /// The commands on an async connection, in the manner of [`redis::AsyncCommands`].
        ///
        /// ```no_run
        /// use rl_client::{AsyncRlCommands, MINUTE};
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
        pub trait AsyncRlCommands: AsyncConnectionLike + Send + Sized {
            $(
                $(#[$doc])+
                fn $name<'a, $($generic: ToRedisArgs + Send + Sync + 'a),+>(
                    &'a mut self,
                    $($arg: $type),+
                ) -> RedisFuture<'a, $reply> {
                    let command: Cmd = $body;
                    Box::pin(async move { command.query_async(self).await })
                }
            )+
        }

        impl<C: AsyncConnectionLike + Send> AsyncRlCommands for C {}

        /// The commands on a blocking connection, in the manner of [`redis::Commands`].
        ///
        /// ```no_run
        /// use rl_client::{Limit, RlCommands, HOUR, MINUTE};
        ///
        /// # fn example() -> redis::RedisResult<()> {
        /// let mut con = redis::Client::open("redis://127.0.0.1/")?.get_connection()?;
        /// let together = con.rl_multi(&[
        ///     ("{u42}:ip", Limit::slide(100, MINUTE), 1),
        ///     ("{u42}:user", Limit::slide(1000, HOUR), 1),
        /// ])?;
        /// assert_eq!(together.limits.len(), 2);
        /// # Ok(())
        /// # }
        /// ```
        pub trait RlCommands: ConnectionLike + Sized {
            $(
                $(#[$doc])+
                fn $name<$($generic: ToRedisArgs),+>(&mut self, $($arg: $type),+) -> RedisResult<$reply> {
                    let command: Cmd = $body;
                    command.query(self)
                }
            )+
        }

        impl<C: ConnectionLike> RlCommands for C {}

        /// The commands in a pipeline; replies are read as [`Decision`], [`MultiDecision`], `bool` or `u64`.
        ///
        /// ```no_run
        /// use rl_client::{Decision, RlPipeline, MINUTE};
        ///
        /// # async fn example(mut con: redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
        /// let (ip, user): (Decision, Decision) = redis::pipe()
        ///     .rl_slide("ip:192.0.2.7", 100, MINUTE, 1)
        ///     .rl_bucket("user:42", 200, 1000, MINUTE, 5)
        ///     .query_async(&mut con)
        ///     .await?;
        /// # Ok(())
        /// # }
        /// ```
        pub trait RlPipeline {
            /// Adds a command that is already written.
            #[doc(hidden)]
            fn rl_add(&mut self, command: Cmd) -> &mut Self;

            $(
                $(#[$doc])+
                fn $name<$($generic: ToRedisArgs),+>(&mut self, $($arg: $type),+) -> &mut Self {
                    let command: Cmd = $body;
                    self.rl_add(command)
                }
            )+
        }
    };
}

commands! {
    /// RL.SLIDE: at most `limit` units per sliding `window`.
    fn rl_slide<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single(key, &Limit::slide(limit, window), cost)
    }

    /// RL.BUCKET: bursts up to `capacity`, then `refill` units per `period`.
    fn rl_bucket<K>(key: K, capacity: u64, refill: u64, period: Duration, cost: u64) -> Decision {
        single(key, &Limit::bucket(capacity, refill, period), cost)
    }

    /// RL.FIXED: at most `limit` units in each `window` of the calendar.
    fn rl_fixed<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single(key, &Limit::fixed(limit, window), cost)
    }

    /// RL.EXACT: at most `limit` units in every span of `window`, without approximation.
    fn rl_exact<K>(key: K, limit: u64, window: Duration, cost: u64) -> Decision {
        single(key, &Limit::exact(limit, window), cost)
    }

    /// RL.LEAK: a queue of `capacity` that drains `rate` units per `period`; `retry_after` of an allowed call is
    /// the time to wait before going ahead.
    fn rl_leak<K>(key: K, capacity: u64, rate: u64, period: Duration, cost: u64) -> Decision {
        single(key, &Limit::leak(capacity, rate, period), cost)
    }

    /// RL.LEASE: `holder` holds `cost` of at most `limit` units until it releases them or `ttl` has passed.
    /// The same holder again renews.
    fn rl_lease<K, H>(key: K, limit: u64, ttl: Duration, holder: H, cost: u64) -> Decision {
        let mut command = redis::cmd("RL.LEASE");
        command.arg(key).arg(limit).arg(Word::Span(ttl)).arg(holder).arg(cost);
        command
    }

    /// RL.RELEASE: whether `holder` held a lease, which it now no longer does.
    fn rl_release<K, H>(key: K, holder: H) -> bool {
        let mut command = redis::cmd("RL.RELEASE");
        command.arg(key).arg(holder);
        command
    }

    /// RL.REFUND: gives units back, never below zero usage; the units really given back.
    fn rl_refund<K>(key: K, units: u64) -> u64 {
        let mut command = redis::cmd("RL.REFUND");
        command.arg(key).arg(units);
        command
    }

    /// RL.CHECK: whatever the server's policy of this name says. `index` of the reply tells which of its limits decided.
    fn rl_check<K, P>(key: K, policy: P, cost: u64) -> Decision {
        let mut command = redis::cmd("RL.CHECK");
        command.arg(key).arg(policy).arg(cost);
        command
    }

    /// The limit's own command, chosen by the value: RL.SLIDE for [`Limit::Slide`], and so on.
    fn rl_limit<K>(key: K, limit: &Limit, cost: u64) -> Decision {
        single(key, limit, cost)
    }

    /// The limit's own command with FORCE: consumes even past the limit, for costs known only afterwards.
    fn rl_force<K>(key: K, limit: &Limit, cost: u64) -> Decision {
        let mut command = single(key, limit, cost);
        command.arg("FORCE");
        command
    }

    /// RL.PEEK: what would this call answer? Consumes nothing, and works on replicas.
    fn rl_peek<K>(key: K, limit: &Limit, cost: u64) -> Decision {
        let mut command = redis::cmd("RL.PEEK");
        command.arg(key).arg(limit).arg(cost);
        command
    }

    /// RL.MULTI: several limits at once, all consumed or none.
    fn rl_multi<K>(limits: &[(K, Limit, u64)]) -> MultiDecision {
        multi(limits.iter().map(|(key, limit, cost)| (key, limit, *cost)))
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

pub(crate) fn single(key: impl ToRedisArgs, limit: &Limit, cost: u64) -> Cmd {
    let mut command = redis::cmd(limit.command());
    command.arg(key);
    for word in limit.parameters() {
        command.arg(word);
    }
    command.arg(cost);
    command
}

pub(crate) fn multi<'a, K: ToRedisArgs + 'a>(
    limits: impl Iterator<Item = (&'a K, &'a Limit, u64)>,
) -> Cmd {
    let mut command = redis::cmd("RL.MULTI");
    for (key, limit, cost) in limits {
        command.arg(key).arg(limit).arg(cost);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{HOUR, MINUTE};

    fn line(command: &Cmd) -> String {
        let words = command.args_iter().map(|arg| match arg {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "?".to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn commands_read_as_the_contract_writes_them() {
        let slide = Limit::slide(100, MINUTE);
        assert_eq!(line(&single("k", &slide, 3)), "RL.SLIDE k 100 60 3");
        let limits = [
            ("{u}:ip", slide, 1),
            ("{u}:s", Limit::bucket(200, 1000, HOUR), 5),
        ];
        let each = limits.iter().map(|(key, limit, cost)| (key, limit, *cost));
        assert_eq!(
            line(&multi(each)),
            "RL.MULTI {u}:ip SLIDE 100 60 1 {u}:s BUCKET 200 1000 3600 5"
        );
        let lease = Limit::lease(5, MINUTE, "job");
        assert_eq!(line(&single("k", &lease, 1)), "RL.LEASE k 5 60 job 1");
        let pro = Limit::policy("pro");
        assert_eq!(line(&single("k", &pro, 2)), "RL.CHECK k pro 2");
        let together = line(&multi([(&"k", &pro, 2)].into_iter()));
        assert_eq!(together, "RL.MULTI k POLICY pro 2");
    }
}
