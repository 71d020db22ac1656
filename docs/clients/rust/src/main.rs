//! Limits from Rust, through a Redis Cluster: cargo run -- HOST:PORT USER

use redis::RedisResult;
use redis::cluster::ClusterClient;

type Five = (i64, i64, i64, i64, i64);

fn main() -> RedisResult<()> {
    let mut args = std::env::args().skip(1);
    let (Some(address), Some(user)) = (args.next(), args.next()) else {
        panic!("usage: limits HOST:PORT USER");
    };
    let mut con = ClusterClient::new(vec![format!("redis://{address}")])?.get_connection()?;
    let (requests, search) = (format!("{{{user}}}:requests"), format!("{{{user}}}:search"));

    let (allowed, limit, remaining, _, _): Five = redis::cmd("RL.SLIDE")
        .arg(&requests)
        .arg(100)
        .arg("60s")
        .query(&mut con)?;
    println!("SLIDE allowed={allowed} limit={limit} remaining={remaining}");

    let (allowed, limit, remaining, _, _): Five = redis::cmd("RL.BUCKET")
        .arg(&search)
        .arg(&[200, 100])
        .arg("1h")
        .arg(5)
        .query(&mut con)?;
    println!("BUCKET allowed={allowed} limit={limit} remaining={remaining}");

    // Both or none.
    let (allowed, _, limits): (i64, i64, Vec<Five>) = redis::cmd("RL.MULTI")
        .arg(&requests)
        .arg("SLIDE 100 60s")
        .arg(&search)
        .arg("BUCKET 200 100 1h 5")
        .query(&mut con)?;
    println!("MULTI allowed={allowed} remaining={},{}", limits[0].2, limits[1].2);
    Ok(())
}
