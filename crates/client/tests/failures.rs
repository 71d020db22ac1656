//! Servers that crash, stall, slow down and come back, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rl_client::{Backend, Builder, FailureMode, HOUR, Limit, Limiter, SECOND, Source};
use rl_testkit::{PATIENCE, Server, eventually_async, free_port};
use rstest::rstest;

use crate::support::{CALM, LimiterOf, plain_server, remaining};

const LOCAL: FailureMode = FailureMode::Local { share: 0.2 };

/// How a server fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The process is killed, and comes back empty.
    Kill,
    /// It stops replying, with its connections open.
    Pause,
}

impl Fault {
    fn strike(self, server: &mut Server) {
        match self {
            Self::Kill => server.kill(),
            Self::Pause => server.pause(),
        }
    }

    fn heal(self, server: &mut Server) {
        match self {
            Self::Kill => server.start_again_on_same_port(),
            Self::Pause => server.resume(),
        }
    }
}

/// A limiter whose timeouts suit a busy machine.
fn limiter(server: &Server) -> Builder {
    Limiter::builder(server.url())
        .timeout(Duration::from_millis(500))
        .breaker_backoff(Duration::from_millis(20), Duration::from_millis(200))
}

/// Calls in the background without pause: how many there were, and the slowest.
struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<Duration>,
}

impl Load {
    fn start(limiter: &Limiter) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (limiter, stop, calls) = (limiter.clone(), Arc::clone(&stop), Arc::clone(&calls));
            tasks.spawn(async move {
                let mut slowest = Duration::ZERO;
                let begin = Instant::now();
                while !stop.load(Relaxed) {
                    assert!(begin.elapsed() < PATIENCE, "the load was not stopped");
                    let start = Instant::now();
                    let _ = limiter
                        .check("load", Limit::slide(1 << 40, HOUR), 1)
                        .await
                        .unwrap();
                    slowest = slowest.max(start.elapsed());
                    calls.fetch_add(1, Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                slowest
            });
        }
        Self { stop, calls, tasks }
    }

    async fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Relaxed);
        let slowest = self.tasks.join_all().await.into_iter().max().unwrap();
        (self.calls.load(Relaxed), slowest)
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn every_mode_keeps_its_promise(#[values(Fault::Kill, Fault::Pause)] fault: Fault) {
    let mut server = Server::start();
    let limiter = limiter(&server).build().await.unwrap();
    let open = limiter.with_failure_mode(FailureMode::Open);
    let closed = limiter.with_failure_mode(FailureMode::Closed);
    let local = limiter.with_failure_mode(LOCAL);
    let limit = || Limit::slide(100, HOUR);
    assert!(closed.check("k", limit(), 1).await.unwrap().allowed);

    let load = Load::start(&limiter);
    let struck = Instant::now();
    fault.strike(&mut server);
    eventually_async("the breaker opens", || !limiter.health().ready).await;
    println!("{fault:?}: noticed after {:?}", struck.elapsed());
    assert!(limiter.health().down_for.is_some());

    let allowed = async |limiter: &Limiter, key: &'static str| {
        let (mut allowed, mut sources) = (0, Vec::new());
        for _ in 0..50 {
            let decision = limiter.check(key, limit(), 1).await.unwrap();
            allowed += u64::from(decision.allowed);
            assert!(decision.allowed || decision.retry_after.is_some());
            sources.push(decision.source);
        }
        sources.dedup();
        (allowed, sources)
    };
    assert_eq!(allowed(&open, "open").await, (50, vec![Source::FailOpen]));
    assert_eq!(
        allowed(&closed, "closed").await,
        (0, vec![Source::FailClosed])
    );
    assert_eq!(
        allowed(&local, "local").await,
        (20, vec![Source::FailLocal])
    );
    let dear = local.check("dear", limit(), 50).await.unwrap();
    assert!(
        !dear.allowed && dear.retry_after.is_some(),
        "it may pass when the server is back"
    );

    let healed = Instant::now();
    fault.heal(&mut server);
    eventually_async("the breaker closes", || limiter.health().ready).await;
    println!("{fault:?}: back after {:?}", healed.elapsed());
    let (calls, slowest) = load.stop().await;
    assert!(calls > 0);
    // The deadline is 500 ms; the rest allows for a busy machine.
    assert!(
        slowest < Duration::from_secs(10),
        "a caller waited {slowest:?}"
    );

    // What was allowed in the meantime counts now. Calls that timed out may have reached a paused server as well.
    let left = |key| remaining(&server, key, "SLIDE 100 3600");
    eventually_async("accounts are settled", || {
        left("local") <= 80 && left("open") <= 50
    })
    .await;
    assert_eq!(left("local"), 80);
    assert_eq!(left("open"), 50);
    assert_eq!(left("closed"), 100);
    let exact = closed.check("local", limit(), 81).await.unwrap();
    assert!(!exact.allowed && exact.source == Source::Server);
    assert!(closed.check("local", limit(), 80).await.unwrap().allowed);
}

/// Whatever a node allowed without the server, a key is at most full afterwards.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn reconciling_charges_at_most_the_limit(
    #[values(Backend::Module, Backend::Lua)] backend: Backend,
) {
    let mut server = match backend {
        Backend::Module => Server::start(),
        _ => plain_server(),
    };
    let mut nodes = Vec::new();
    for _ in 0..10 {
        let node = limiter(&server)
            .failure_mode(FailureMode::Open)
            .build()
            .await
            .unwrap();
        assert_eq!(node.health().backend, Some(backend));
        nodes.push(node);
    }
    server.kill();
    let limit = || Limit::bucket(100, 1, HOUR);
    for node in &nodes {
        for _ in 0..30 {
            assert!(node.check("k", limit(), 1).await.unwrap().allowed);
        }
    }
    server.start_again_on_same_port();
    eventually_async("all are back", || {
        nodes.iter().all(|node| node.health().ready)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let full = nodes[0].peek("k", limit(), 1).await.unwrap();
    assert!(!full.allowed && full.remaining == 0);
    // One capacity is charged, not ten times 30 units.
    assert!(full.retry_after <= Some(HOUR), "{full:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_slows_down_and_recovers_is_noticed() {
    let server = Server::with(&["enable-debug-command", "yes"]);
    let limiter = limiter(&server)
        .timeout(Duration::from_millis(50))
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let load = Load::start(&limiter.with_failure_mode(FailureMode::Open));
    // The server repeatedly does not reply for half a second.
    let sleeper = std::thread::spawn({
        let client = server.client();
        move || {
            for _ in 0..4 {
                let mut con = client.get_connection().unwrap();
                let _: () = redis::cmd("DEBUG")
                    .arg("SLEEP")
                    .arg("0.5")
                    .query(&mut con)
                    .unwrap();
            }
        }
    });
    eventually_async("slowness opens the breaker", || !limiter.health().ready).await;
    let during = Instant::now();
    let refused = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    assert!(during.elapsed() < Duration::from_secs(5));
    assert!(!refused.allowed || refused.source == Source::Server);
    tokio::task::spawn_blocking(|| sleeper.join().unwrap())
        .await
        .unwrap();
    eventually_async("speed closes it", || limiter.health().ready).await;
    let (calls, slowest) = load.stop().await;
    assert!(
        calls > 10 && slowest < Duration::from_secs(10),
        "{slowest:?}"
    );
    let start = Instant::now();
    while !limiter
        .check("k2", Limit::slide(1000, HOUR), 1)
        .await
        .unwrap()
        .allowed
    {
        // On a busy machine, single calls may still take too long.
        assert!(start.elapsed() < PATIENCE, "nothing is allowed");
    }
}

#[tokio::test]
async fn the_timeout_holds_while_the_server_is_silent() {
    let server = Server::start();
    let limiter = Limiter::builder(server.url())
        .failure_mode(FailureMode::Closed)
        .breaker_failures(1000)
        .build()
        .await
        .unwrap();
    server.pause();
    for _ in 0..5 {
        let start = Instant::now();
        let decision = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
        assert_eq!(decision.source, Source::FailClosed);
        // 5 ms by default, and some more on a busy machine.
        assert!(start.elapsed() >= Duration::from_millis(5));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    server.resume();
}

/// Failures too few to open the breaker: what was allowed is charged nevertheless.
#[tokio::test]
async fn single_failures_are_reconciled_too() {
    let server = Server::start();
    let limiter = limiter(&server)
        .connect_timeout(Duration::from_millis(500))
        .breaker_failures(1000)
        .failure_mode(FailureMode::Open)
        .build()
        .await
        .unwrap();
    server.pause();
    for _ in 0..3 {
        let decision = limiter
            .check("k", Limit::slide(100, HOUR), 1)
            .await
            .unwrap();
        assert_eq!(decision.source, Source::FailOpen);
    }
    // In the meantime there is no server to reconcile with.
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.resume();
    // Reconciled, and also counted by the server when it resumed: a call may count twice, but never less than once.
    eventually_async("accounts are settled", || {
        remaining(&server, "k", "SLIDE 100 3600") == 94
    })
    .await;
    assert!(limiter.health().ready);
}

#[tokio::test]
async fn a_limiter_can_start_before_its_server() {
    let mut server = Server::start();
    server.kill();
    let limiter = limiter(&server).failure_mode(LOCAL).build_lazy().unwrap();
    assert!(!limiter.health().ready);
    let early = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    assert_eq!(early.source, Source::FailLocal);
    server.start_again_on_same_port();
    eventually_async("it finds its server", || limiter.health().ready).await;
    let later = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    assert_eq!(later.source, Source::Server);
    assert_eq!(later.remaining, 8, "the early one was charged");
}

#[tokio::test]
async fn a_server_that_comes_back_without_the_module_is_used_by_lua() {
    let mut server = Server::start();
    let limiter = limiter(&server).build().await.unwrap();
    assert_eq!(limiter.health().backend, Some(Backend::Module));
    server.kill();
    let _ = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    server.remove_config("loadmodule");
    server.start_again_on_same_port();
    eventually_async("it is back", || limiter.health().ready).await;
    assert_eq!(limiter.health().backend, Some(Backend::Lua));
    let decision = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
    assert_eq!((decision.source, decision.remaining), (Source::Server, 8));
}

/// A replica replies but refuses writes, so it counts as unavailable.
#[tokio::test]
async fn a_server_that_refuses_writes_is_a_fault() {
    let server = Server::start();
    let limiter = limiter(&server)
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let nowhere = free_port().to_string();
    let _: () = server.run("REPLICAOF", &["127.0.0.1", &nowhere]);
    for _ in 0..10 {
        let decision = limiter.check("k", Limit::slide(10, HOUR), 1).await.unwrap();
        assert_eq!(decision.source, Source::FailClosed);
    }
    assert!(!limiter.health().ready);
    let _: () = server.run("REPLICAOF", &["NO", "ONE"]);
    eventually_async("it takes writes again", || limiter.health().ready).await;
    assert!(
        limiter
            .check("k", Limit::slide(10, HOUR), 1)
            .await
            .unwrap()
            .allowed
    );
}

/// A limiter without calls notices that the server is unavailable.
#[tokio::test]
async fn an_idle_limiter_notices_a_lost_server() {
    let mut server = Server::start();
    let limiter = limiter(&server).build().await.unwrap();
    server.kill();
    eventually_async("the loss is noticed", || !limiter.health().ready).await;
    server.start_again_on_same_port();
    eventually_async("the return is noticed", || limiter.health().ready).await;
}

/// Units that the server granted before it became unavailable may still be spent.
#[tokio::test]
async fn a_budget_outlives_its_server() {
    let mut server = Server::start();
    let limiter = limiter(&server)
        .timeout(CALM)
        .budgets(100, 10 * SECOND)
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap()
        .with_budgets();
    let limit = || Limit::slide(100_000, HOUR);
    for _ in 0..100 {
        let _ = limiter.check("hot", limit(), 1).await.unwrap();
    }
    server.kill();
    let next = limiter.check("hot", limit(), 1).await.unwrap();
    assert!(next.allowed && next.source == Source::Budget);
    let mut last = next;
    let start = Instant::now();
    while last.allowed {
        assert!(start.elapsed() < PATIENCE, "budgets do not end");
        last = limiter.check("hot", limit(), 1).await.unwrap();
    }
    assert_eq!(last.source, Source::FailClosed);
}

/// Callers that give up do not affect the others.
#[tokio::test]
async fn cancelled_calls_leave_nothing_behind() {
    let server = Server::start();
    let limiter = server
        .limiter()
        .budgets(100, HOUR)
        .build()
        .await
        .unwrap()
        .with_budgets();
    let limit = || Limit::slide(100_000, HOUR);
    for _ in 0..200 {
        let call = limiter.check("hot", limit(), 1);
        let _ = tokio::time::timeout(Duration::from_micros(fastrand::u64(0..300)), call).await;
    }
    assert!(limiter.check("hot", limit(), 1).await.unwrap().allowed);
    assert!(limiter.health().ready);
}
