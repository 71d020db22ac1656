//! The typed commands: async, blocking, pipelined.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::Duration;

use rl_client::{
    AsyncRlCommands, Decision, HOUR, Limit, MINUTE, MultiDecision, RlCommands, RlPipeline,
};
use support::Server;

#[tokio::test]
async fn every_command_on_an_async_connection() {
    let server = Server::start();
    let mut con = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .unwrap();

    let slide = con.rl_slide("slide", 100, MINUTE, 30).await.unwrap();
    assert!(slide.allowed);
    assert_eq!((slide.limit, slide.remaining), (100, 70));
    assert_eq!(slide.retry_after, Some(Duration::ZERO));
    assert_eq!(slide.reset_after, 2 * MINUTE);
    let denied = con.rl_slide("slide", 100, MINUTE, 80).await.unwrap();
    assert!(!denied.allowed && denied.retry_after > Some(Duration::ZERO));
    let never = con.rl_slide("slide", 100, MINUTE, 101).await.unwrap();
    assert!(!never.allowed && never.retry_after.is_none());

    let bucket = con
        .rl_bucket("bucket", 200, 1000, MINUTE, 50)
        .await
        .unwrap();
    assert_eq!((bucket.limit, bucket.remaining), (200, 150));
    let fixed = con.rl_fixed("fixed", 10, HOUR, 4).await.unwrap();
    assert_eq!((fixed.limit, fixed.remaining), (10, 6));
    let exact = con.rl_exact("exact", 10, HOUR, 4).await.unwrap();
    assert_eq!((exact.limit, exact.remaining), (10, 6));

    let first = con.rl_leak("leak", 10, 10, MINUTE, 1).await.unwrap();
    assert_eq!(first.retry_after, Some(Duration::ZERO), "goes at once");
    let second = con.rl_leak("leak", 10, 10, MINUTE, 1).await.unwrap();
    assert!(
        second.allowed && second.retry_after > Some(Duration::from_secs(1)),
        "waits its turn"
    );

    assert!(
        con.rl_lease("jobs", 1, MINUTE, "a", 1)
            .await
            .unwrap()
            .allowed
    );
    assert!(
        !con.rl_lease("jobs", 1, MINUTE, "b", 1)
            .await
            .unwrap()
            .allowed
    );
    assert!(con.rl_release("jobs", "a").await.unwrap());
    assert!(!con.rl_release("jobs", "a").await.unwrap());

    assert_eq!(con.rl_refund("slide", 10).await.unwrap(), 10);
    let limit = Limit::slide(100, MINUTE);
    let peek = con.rl_peek("slide", &limit, 0).await.unwrap();
    assert_eq!(peek.remaining, 80);
    let same = con.rl_limit("slide", &limit, 80).await.unwrap();
    assert!(same.allowed && same.remaining == 0);
    let forced = con.rl_force("slide", &limit, 50).await.unwrap();
    assert!(forced.allowed && forced.remaining == 0);

    let limits = [
        ("{u}:a", limit.clone(), 1),
        ("{u}:b", Limit::bucket(5, 5, HOUR), 6),
    ];
    let multi = con.rl_multi(&limits).await.unwrap();
    assert!(
        !multi.allowed && multi.retry_after.is_none(),
        "6 of 5 never fit"
    );
    assert!(multi.limits[0].allowed && !multi.limits[1].allowed);
    assert_eq!(multi.limits[0].remaining, 100, "nothing was spent");
}

#[test]
fn the_same_on_a_blocking_connection_and_in_a_pipeline() {
    let server = Server::start();
    let mut con = server.connect();
    assert_eq!(con.rl_slide("k", 10, MINUTE, 3).unwrap().remaining, 7);
    assert_eq!(con.rl_refund("k", 2).unwrap(), 2);

    let multi = [("{u}:a", Limit::fixed(10, HOUR), 1)];
    let (slide, refunded, together, released): (Decision, u64, MultiDecision, bool) = redis::pipe()
        .rl_slide("k", 10, MINUTE, 1)
        .rl_refund("k", 1)
        .rl_multi(&multi)
        .rl_release("nobody", "me")
        .query(&mut con)
        .unwrap();
    assert_eq!(slide.remaining, 8);
    assert_eq!(refunded, 1);
    assert_eq!(together.limits[0].remaining, 9);
    assert!(!released);
}

#[test]
fn keys_are_any_bytes_and_errors_are_the_servers() {
    let server = Server::start();
    let mut con = server.connect();
    assert!(
        con.rl_slide(&b"\xff\x00"[..], 10, MINUTE, 1)
            .unwrap()
            .allowed
    );
    let error = con.rl_slide("k", 10, Duration::ZERO, 1).unwrap_err();
    assert!(error.to_string().contains("window must be"), "{error}");
    con.rl_slide("k", 10, MINUTE, 1).unwrap();
    let error = con.rl_bucket("k", 10, 10, MINUTE, 1).unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}
