//! What a limiter promises while the server is available: the same with the module and with Lua.

use std::time::{Duration, Instant};

use redis::aio::ConnectionManager;
use rl_client::commands::RefundOptions;
use rl_client::{
    Backend, Builder, Calendar, DAY, DecidedBy, Error, HOUR, Limit, Limiter, MINUTE, Offset,
    SECOND, Source,
};
use rl_testkit::{Server, eventually_async, free_port};
use rstest::rstest;

use crate::support::{CALM, LimiterOf, plain_server};

fn start(backend: Backend) -> Server {
    match backend {
        Backend::Module => Server::start(),
        _ => plain_server(),
    }
}

#[rstest]
#[tokio::test]
async fn the_backend_is_detected(#[values(Backend::Module, Backend::Lua)] backend: Backend) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    let health = limiter.health();
    assert!(health.ready);
    assert_eq!(health.backend, Some(backend));
    assert_eq!(health.down_for, None);
}

#[rstest]
#[case::slide(Limit::slide(10, HOUR))]
#[case::bucket(Limit::bucket(10, 1, HOUR))]
#[case::fixed(Limit::fixed(10, 3650 * DAY))]
#[tokio::test]
async fn a_limit_allows_exactly_its_count(
    #[case] limit: Limit,
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    for left in (0..5).rev() {
        let decision = limiter.check("k", limit.clone(), 2).await.unwrap();
        assert!(decision.allowed);
        assert_eq!((decision.limit, decision.remaining), (10, left * 2));
        assert_eq!(decision.source, Source::Server);
    }
    let denied = limiter.check("k", limit.clone(), 1).await.unwrap();
    assert!(!denied.allowed && denied.denied_by() == Some(DecidedBy::Limit(0)));
    assert!(denied.retry_after > Some(SECOND) && denied.reset_after > SECOND);
    let free = limiter.check("k", limit.clone(), 0).await.unwrap();
    assert!(free.allowed && free.remaining == 0);
    let never = limiter.check("other", limit.clone(), 11).await.unwrap();
    assert!(!never.allowed && never.retry_after.is_none());
    assert_eq!(
        limiter
            .peek("other", limit.clone(), 3)
            .await
            .unwrap()
            .remaining,
        7
    );
    assert_eq!(
        limiter
            .peek("other", limit.clone(), 3)
            .await
            .unwrap()
            .remaining,
        7,
        "peeks are free"
    );
    let blocked = limiter
        .check("third", Limit::slide(0, HOUR), 1)
        .await
        .unwrap();
    assert!(!blocked.allowed);
}

/// The wait is exact: after it, the call is allowed; 1 ms earlier, it is not.
#[rstest]
#[case::slide(Limit::slide(10, 2 * SECOND), 7, 6)]
#[case::slide_two_windows(Limit::slide(10, SECOND), 10, 9)]
#[case::bucket(Limit::bucket(10, 7, SECOND), 10, 3)]
#[case::fixed(Limit::fixed(10, SECOND), 10, 1)]
#[tokio::test]
async fn the_reported_wait_is_exact(
    #[case] limit: Limit,
    #[case] first: u64,
    #[case] second: u64,
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let server = start(backend);
    let limiter = server
        .limiter()
        .deny_cache(0, SECOND)
        .build()
        .await
        .unwrap();
    for attempt in 0..20 {
        let key = format!("k{attempt}");
        let check = |cost| limiter.check(&key, limit.clone(), cost);
        let _ = check(first).await.unwrap();
        let denied = check(second).await.unwrap();
        // A fixed window may end between the two calls, and on a machine that stalls the second one may come late.
        if denied.allowed {
            continue;
        }
        tokio::time::sleep(denied.retry_after.unwrap()).await;
        let passed = check(second).await.unwrap();
        assert!(passed.allowed, "{denied:?}, then {passed:?}");
        return;
    }
    panic!("no denial in twenty attempts");
}

#[rstest]
#[tokio::test]
async fn usage_decays_over_the_next_window(
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let server = start(backend);
    let limiter = server
        .limiter()
        .deny_cache(0, SECOND)
        .build()
        .await
        .unwrap();
    let limit = Limit::slide(100, SECOND);
    let start = Instant::now();
    assert!(
        limiter
            .check("k", limit.clone(), 100)
            .await
            .unwrap()
            .allowed
    );
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let halfway = limiter.check("k", limit.clone(), 0).await.unwrap();
    // Half a window later, about half of it still counts; later still, less.
    let late = start.elapsed().as_secs_f64() - 1.0;
    assert!(halfway.remaining >= 49, "{halfway:?}");
    assert!(
        (halfway.remaining as f64) <= 100.0 * late + 1.0,
        "{halfway:?} after {late}"
    );
}

#[rstest]
#[tokio::test]
async fn several_limits_are_all_spent_or_none(
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let server = start(backend);
    let limiter = server
        .limiter()
        .deny_cache(0, SECOND)
        .build()
        .await
        .unwrap();
    let (ip, user, search) = (
        Limit::slide(100, HOUR),
        Limit::fixed(50, 3650 * DAY),
        Limit::bucket(20, 1, HOUR),
    );
    let both = |cost| {
        [
            ("{u42}:ip", ip.clone(), 1),
            ("{u42}:user", user.clone(), 1),
            ("{u42}:search", search.clone(), cost),
        ]
    };
    let first = limiter.check_all(both(5)).await.unwrap();
    assert!(first.allowed && first.denied_by().is_none());
    assert_eq!(
        (first.decided_by.index(), first.limit, first.remaining),
        (Some(2), 20, 15),
        "the fewest calls left"
    );
    for _ in 0..3 {
        assert!(limiter.check_all(both(5)).await.unwrap().allowed);
    }
    let denied = limiter.check_all(both(5)).await.unwrap();
    assert!(!denied.allowed);
    assert_eq!(denied.denied_by(), Some(DecidedBy::Limit(2)));
    assert_eq!(
        limiter
            .peek("{u42}:ip", ip.clone(), 0)
            .await
            .unwrap()
            .remaining,
        96
    );
    assert_eq!(
        limiter
            .peek("{u42}:user", user.clone(), 0)
            .await
            .unwrap()
            .remaining,
        46
    );

    let twice = [("k", ip.clone(), 1), ("k", ip.clone(), 1)];
    assert!(matches!(
        limiter.check_all(twice).await,
        Err(Error::Rejected(_))
    ));
}

#[rstest]
#[tokio::test]
async fn limits_change_with_the_next_call(
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    let check = |limit| limiter.check("k", limit, 1);
    let _ = limiter
        .check("k", Limit::slide(10, HOUR), 10)
        .await
        .unwrap();
    assert!(!check(Limit::slide(10, HOUR)).await.unwrap().allowed);
    let upgraded = check(Limit::slide(20, HOUR)).await.unwrap();
    assert!(
        upgraded.allowed,
        "an upgrade is not held back by what is remembered of the old limit"
    );
    assert_eq!(upgraded.remaining, 9, "usage is kept");
    assert!(!check(Limit::slide(5, HOUR)).await.unwrap().allowed);
    let wider = check(Limit::slide(20, DAY)).await.unwrap();
    assert!(
        wider.allowed && wider.remaining == 8,
        "no free refill by another window: {wider:?}"
    );
}

#[rstest]
#[tokio::test]
async fn costs_known_late_are_charged(#[values(Backend::Module, Backend::Lua)] backend: Backend) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    let tokens = Limit::slide(1000, HOUR);
    assert!(
        limiter
            .check("model", tokens.clone(), 900)
            .await
            .unwrap()
            .allowed
    );
    let more = limiter.charge("model", tokens.clone(), 430).await.unwrap();
    assert!(more.allowed && more.remaining == 0);
    assert!(
        !limiter
            .check("model", tokens.clone(), 1)
            .await
            .unwrap()
            .allowed
    );
    if backend == Backend::Module {
        assert_eq!(limiter.refund("model", 300).await.unwrap(), 300);
        let options = RefundOptions::new().times(1);
        let refunded = limiter.refund_with("model", 100, options).await;
        assert_eq!(refunded.unwrap(), 100);
    } else {
        assert!(matches!(
            limiter.refund("model", 1).await,
            Err(Error::NeedsModule(_))
        ));
    }
}

#[rstest]
#[tokio::test]
async fn wrong_calls_are_errors(#[values(Backend::Module, Backend::Lua)] backend: Backend) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    for limit in [
        Limit::slide(1 << 60, HOUR),
        Limit::slide(10, Duration::ZERO),
        Limit::slide(10, 3651 * DAY),
        Limit::bucket(10, 0, HOUR),
    ] {
        let answer = limiter.check("k", limit.clone(), 1).await;
        assert!(
            matches!(answer, Err(Error::Rejected(_))),
            "{limit}: {answer:?}"
        );
    }
    let _ = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    let wrong = limiter
        .check("k", Limit::fixed(10, HOUR), 1)
        .await
        .unwrap_err();
    assert!(wrong.to_string().contains("WRONGTYPE"), "{wrong}");
    let _: () = server.run("RPUSH", &["list", "x"]);
    assert!(matches!(
        limiter.check("list", Limit::slide(10, HOUR), 1).await,
        Err(Error::Rejected(_))
    ));
    assert!(
        limiter.health().ready,
        "mistakes of the caller are no faults of the server"
    );
}

#[rstest]
#[tokio::test]
async fn keys_expire_after_their_window(#[values(Backend::Module, Backend::Lua)] backend: Backend) {
    let server = start(backend);
    let limiter = server.limiter().build().await.unwrap();
    let short = Duration::from_millis(50);
    for (key, limit) in [
        ("a", Limit::slide(10, short)),
        ("b", Limit::bucket(10, 100, short)),
        ("c", Limit::fixed(10, short)),
    ] {
        assert!(limiter.check(key, limit, 1).await.unwrap().allowed);
    }
    eventually_async("the keys are gone", || {
        server.run::<i64>("DBSIZE", &[]) == 0
    })
    .await;
}

#[tokio::test]
async fn leases_end_after_their_ttl() {
    let server = Server::start();
    let limiter = server.limiter().build().await.unwrap();
    let lease = |holder: &str| Limit::lease(2, MINUTE, holder);
    assert!(limiter.check("jobs", lease("a"), 1).await.unwrap().allowed);
    assert!(limiter.check("jobs", lease("b"), 1).await.unwrap().allowed);
    assert!(!limiter.check("jobs", lease("c"), 1).await.unwrap().allowed);
    assert!(limiter.release("jobs", "a").await.unwrap());
    assert!(
        limiter.check("jobs", lease("c"), 1).await.unwrap().allowed,
        "a denial of a lease is not remembered"
    );
}

#[tokio::test]
async fn a_monthly_quota_is_checked_peeked_and_charged() {
    let server = Server::start();
    let limiter = server.limiter().build().await.unwrap();
    let quota = Limit::fixed_calendar(10, Calendar::Month).with_offset(Offset::Later(14 * DAY));
    let decision = limiter.check("q", quota.clone(), 4).await.unwrap();
    assert_eq!((decision.allowed, decision.remaining), (true, 6));
    assert!(decision.reset_after <= 31 * DAY);
    let peeked = limiter.peek("q", quota.clone(), 7).await.unwrap();
    assert!(!peeked.allowed && peeked.retry_after <= Some(31 * DAY));
    assert!(limiter.charge("q", quota.clone(), 9).await.unwrap().allowed);
    let both = [("{q}", quota.clone(), 1), ("q", quota, 1)];
    assert!(!limiter.check_all(both).await.unwrap().allowed);
}

#[tokio::test]
async fn the_lua_backend_reports_what_it_lacks() {
    let server = plain_server();
    let limiter = server.limiter().build().await.unwrap();
    for limit in [
        Limit::exact(1, HOUR),
        Limit::leak(1, 1, HOUR),
        Limit::lease(1, HOUR, "a"),
        Limit::slide(1, HOUR).with_precision(4),
        Limit::fixed(1, HOUR).with_offset(Offset::Later(MINUTE)),
        Limit::fixed_calendar(1, Calendar::Month),
    ] {
        assert!(matches!(
            limiter.check("k", limit, 1).await,
            Err(Error::NeedsModule(_))
        ));
    }
}

/// Each node has its own limiter; together they allow exactly the limit.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_nodes_allow_exactly_the_limit() {
    let server = Server::start();
    let mut nodes = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let builder = server.limiter().deny_cache(0, SECOND);
        nodes.spawn(async move {
            let limiter = builder.build().await.unwrap();
            let mut allowed = 0;
            for _ in 0..20 {
                let decision = limiter
                    .check("one", Limit::slide(1000, HOUR), 1)
                    .await
                    .unwrap();
                assert_eq!(decision.source, Source::Server);
                allowed += u64::from(decision.allowed);
            }
            allowed
        });
    }
    assert_eq!(nodes.join_all().await.into_iter().sum::<u64>(), 1000);
}

#[tokio::test]
async fn an_abusive_client_costs_the_server_few_calls() {
    let server = Server::start();
    let limiter = server.limiter().build().await.unwrap();
    let limit = Limit::slide(10, MINUTE);
    let start = Instant::now();
    let (mut denied, mut remembered) = (0_u64, 0_u64);
    while start.elapsed() < Duration::from_millis(2500) {
        let decision = limiter.check("abuser", limit.clone(), 1).await.unwrap();
        denied += u64::from(!decision.allowed);
        remembered += u64::from(decision.source == Source::DenyCache);
    }
    let seconds = start.elapsed().as_secs_f64();
    // First one probe, ten allowed calls and one denial; then one denial per second, and a heartbeat or two.
    let calls = server.calls("rl.slide");
    assert!(
        calls as f64 <= 12.0 + 3.0 * seconds + 2.0,
        "{calls} calls in {seconds} s"
    );
    assert!(
        denied > 1000 && remembered + 10 > denied,
        "{remembered} of {denied} remembered"
    );
}

#[tokio::test]
async fn the_deny_cache_remembers_a_denial_for_its_own_wait() {
    let server = Server::start();
    let limiter = server
        .limiter()
        .deny_cache(100, MINUTE)
        .build()
        .await
        .unwrap();
    // Slow, so that a machine that stalls still makes the next calls within the wait.
    let limit = Limit::bucket(10, 5, 4 * SECOND);
    assert!(limiter.check("k", limit.clone(), 10).await.unwrap().allowed);
    let denied = limiter.check("k", limit.clone(), 5).await.unwrap();
    assert_eq!(denied.source, Source::Server);
    let again = limiter.check("k", limit.clone(), 6).await.unwrap();
    assert_eq!(again.source, Source::DenyCache, "a higher cost");
    assert!(again.retry_after <= denied.retry_after);
    let cheaper = limiter.check("k", limit.clone(), 1).await.unwrap();
    assert_ne!(cheaper.source, Source::DenyCache, "cheaper may pass");
    tokio::time::sleep(denied.retry_after.unwrap() + Duration::from_millis(300)).await;
    let after = limiter.check("k", limit.clone(), 5).await.unwrap();
    assert!(after.allowed, "{after:?}");
    // In a call with several limits, a cached denial of one of them denies the call.
    let _ = limiter.check("k", limit.clone(), 5).await.unwrap();
    let both = [("other", Limit::slide(5, HOUR), 1), ("k", limit.clone(), 9)];
    let known = limiter.check_all(both.clone()).await.unwrap();
    let known = if known.source == Source::Server {
        limiter.check_all(both).await.unwrap()
    } else {
        known
    };
    assert_eq!(
        (known.source, known.denied_by()),
        (Source::DenyCache, Some(DecidedBy::Limit(1)))
    );
}

#[tokio::test]
async fn a_limiter_works_on_a_connection_of_the_user() {
    let server = Server::start();
    let manager = ConnectionManager::new(server.client()).await.unwrap();
    let limiter = Builder::connection(manager)
        .timeout(CALM)
        .build()
        .await
        .unwrap();
    assert_eq!(
        limiter
            .check("k", Limit::slide(10, HOUR), 1)
            .await
            .unwrap()
            .remaining,
        9
    );
}

#[tokio::test]
async fn wrong_addresses_are_errors() {
    assert!(matches!(
        Limiter::builder("nonsense").build().await,
        Err(Error::Config(_))
    ));
    let no_server = format!("redis://127.0.0.1:{}/", free_port());
    assert!(matches!(
        Limiter::builder(no_server).build().await,
        Err(Error::Unavailable(_))
    ));
}

#[test]
fn outside_of_a_runtime_there_is_an_error_and_no_panic() {
    assert!(matches!(
        Limiter::builder("redis://127.0.0.1/").build_lazy(),
        Err(Error::Config(_))
    ));
}
