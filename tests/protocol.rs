//! RESP2 and RESP3 carry the same replies, and pipelines keep them in order.

use std::io::{Read, Write};
use std::net::TcpStream;

use redis::{Connection, Pipeline, Value};
use rl_testkit::{Server, ask, ask_error, has_directive};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

fn array<const N: usize>(integers: [i64; N]) -> Value {
    Value::Array(integers.map(Value::Int).to_vec())
}

/// A connection in each protocol, and proof that it is what it is called.
fn connections(server: &Server) -> [(&'static str, Connection); 2] {
    let (mut two, mut three) = (server.connect(), server.connect_resp3());
    let config = "CONFIG GET maxmemory";
    assert!(matches!(ask(&mut two, config), Value::Array(_)));
    assert!(matches!(ask(&mut three, config), Value::Map(_)));
    [("RESP2", two), ("RESP3", three)]
}

#[rstest]
fn both_protocols_reply_integers_in_arrays(server: Server) {
    for (protocol, mut con) in connections(&server) {
        ask::<()>(&mut con, "FLUSHALL");
        let mut expect = |line: &str, expected: Value| {
            assert_eq!(ask::<Value>(&mut con, line), expected, "{protocol}: {line}");
        };
        expect("RL.SLIDE s 10 60 3", array([1, 10, 7, 0, 120_000]));
        expect("RL.SLIDE t 10 60 11", array([0, 10, 10, -1, 0]));
        expect("RL.SLIDE t 10 60 4 PEEK", array([1, 10, 6, 0, 120_000]));
        expect("RL.SLIDE t 10 60 12 FORCE", array([1, 10, 0, 0, 120_000]));
        expect("RL.BUCKET b 10 10 60 3", array([1, 10, 7, 0, 18_000]));
        expect(
            r#"RL.PEEK new "BUCKET 9 1 1 9""#,
            array([1, 9, 0, 0, 9_000]),
        );
        expect(
            r#"RL.FIRST v "TIMES 3 SLIDE 2 60" w "SLIDE 10 60""#,
            array([3, 10, 7, 0, 120_000, 1]),
        );
        expect("RL.SLIDE w 10 60 BRIEF", Value::Int(6));
        expect("RL.SLIDE w 10 60 11 BRIEF", Value::Int(-(1 << 53)));
        expect(
            r#"RL.MULTI m "SLIDE 10 60 1" n "BUCKET 5 5 60 6""#,
            Value::Array(vec![
                Value::Int(0),
                Value::Int(-1),
                Value::Array(vec![array([1, 10, 10, 0, 0]), array([0, 5, 5, -1, 0])]),
            ]),
        );
        expect(
            r#"RL.MULTI m "SLIDE 10 60 1""#,
            Value::Array(vec![
                Value::Int(1),
                Value::Int(0),
                Value::Array(vec![array([1, 10, 9, 0, 120_000])]),
            ]),
        );
        expect(
            "RL.SLIDE p 10 60 3 PRECISION 6",
            array([1, 10, 7, 0, 70_000]),
        );
        expect("RL.EXACT x 10 60 3", array([1, 10, 7, 0, 60_000]));
        expect("RL.EXACT y 10 60 11", array([0, 10, 10, -1, 0]));
        expect("RL.LEAK l 10 10 60 3", array([1, 10, 7, 0, 18_000]));
        expect("RL.LEASE h 10 60 me 3", array([1, 10, 7, 0, 60_000]));
        expect("RL.FIXED f 10 60 11", array([0, 10, 10, -1, 0]));
        expect("RL.REFUND x 2", Value::Int(2));
        expect("RL.REFUND new 2", Value::Int(0));
        expect("RL.RELEASE h me", Value::Int(1));
        expect("RL.RELEASE h me", Value::Int(0));
        expect("RL.INSPECT h", Value::Nil);
        assert_eq!(
            ask_error(&mut con, "RL.SLIDE s 10 0"),
            "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)",
            "{protocol}"
        );
    }
}

#[rstest]
fn what_a_key_holds_is_a_map_or_pairs(server: Server) {
    for (protocol, mut con) in connections(&server) {
        ask::<()>(&mut con, "FLUSHALL");
        for (key, call) in [
            ("s", "RL.SLIDE s 10 60 3"),
            ("p", "RL.SLIDE p 10 60 3 PRECISION 3"),
            ("b", "RL.BUCKET b 10 1 60 3"),
            ("f", "RL.FIXED f 10 3650d 3"),
            ("x", "RL.EXACT x 10 60 3"),
            ("l", "RL.LEAK l 10 1 60 3"),
            ("h", "RL.LEASE h 10 60 me 3"),
        ] {
            ask::<Value>(&mut con, call);
            let pairs = pairs(protocol, ask(&mut con, &format!("RL.INSPECT {key}")));
            let algorithm = call[3..].split(' ').next().unwrap();
            assert_eq!(pairs[0], (text("algorithm"), text(algorithm)));
            assert!(pairs.contains(&(text("used"), Value::Int(3))), "{pairs:?}");
            let (last, expiry) = pairs.last().unwrap();
            assert_eq!(last, &text("expires_at_ms"));
            assert!(matches!(expiry, Value::Int(1..)), "{expiry:?}");
        }
        let shown = pairs(protocol, ask(&mut con, "RL.INSPECT h"));
        let (_, leases) = shown
            .iter()
            .find(|(name, _)| name == &text("leases"))
            .unwrap();
        let Value::Array(leases) = leases else {
            panic!("{protocol}: {leases:?}");
        };
        let lease = pairs(protocol, leases[0].clone());
        assert_eq!(
            lease[..2],
            [(text("holder"), text("me")), (text("units"), Value::Int(3))]
        );
        assert_eq!(lease[2].0, text("expires_in_ms"));
    }
}

fn text(text: &str) -> Value {
    Value::BulkString(text.into())
}

/// A map in RESP3, the same in a row in RESP2 and where modules cannot send maps yet.
fn pairs(protocol: &str, value: Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) if protocol == "RESP3" => pairs,
        Value::Array(row) if protocol == "RESP2" || !has_directive("enable-module-command") => row
            .chunks(2)
            .map(|pair| (pair[0].clone(), pair[1].clone()))
            .collect(),
        other => panic!("{protocol}: {other:?}"),
    }
}

#[rstest]
fn the_bytes_on_the_wire_are_the_same(server: Server) {
    let exchange = |hello: &str, key: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        // Inline commands, as typed into telnet.
        write!(
            stream,
            "{hello}\r\nECHO begin\r\nRL.SLIDE {key} 10 60\r\nRL.MULTI {key} \"SLIDE 10 60 10\"\r\nQUIT\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // What HELLO says differs.
        let (_, replies) = answer.split_once("begin\r\n").unwrap();
        replies.to_owned()
    };
    let (two, three) = (exchange("PING", "a"), exchange("HELLO 3", "b"));
    let first = "*5\r\n:1\r\n:10\r\n:9\r\n:0\r\n:120000\r\n*3\r\n:0\r\n:";
    assert!(two.starts_with(first), "{two}");
    assert!(three.starts_with(first), "{three}");
    // Times are a few milliseconds apart; everything else is the same.
    let shape = |reply: &str| -> Vec<String> {
        let one = |line: &str| if line.len() < 6 { line } else { ":time" }.to_owned();
        reply.lines().map(one).collect()
    };
    assert_eq!(shape(&two), shape(&three));
    assert!(two.ends_with("+OK\r\n"), "{two}");
}

#[rstest]
fn replies_of_a_pipeline_are_in_order(server: Server) {
    for (protocol, mut con) in connections(&server) {
        let mut pipe = Pipeline::new();
        for _ in 0..1000 {
            pipe.cmd("RL.SLIDE").arg(protocol).arg(600).arg("1h");
        }
        let replies: Vec<(i64, i64, i64, i64, i64)> = pipe.query(&mut con).unwrap();
        let seen: Vec<_> = replies.iter().map(|reply| (reply.0, reply.2)).collect();
        let admitted = (0..600).rev().map(|left| (1, left));
        let denied = std::iter::repeat_n((0, 0), 400);
        assert_eq!(seen, admitted.chain(denied).collect::<Vec<_>>());
    }
}

#[rstest]
fn errors_in_a_pipeline_leave_their_neighbours_alone(server: Server) {
    for (protocol, mut con) in connections(&server) {
        let mut pipe = Pipeline::new();
        pipe.ignore_errors();
        for n in 0..300 {
            match n % 3 {
                0 => pipe.cmd("RL.SLIDE").arg(protocol).arg(1000).arg("1h"),
                1 => pipe.cmd("RL.SLIDE").arg(protocol).arg("x").arg("1h"),
                _ => pipe.cmd("RL.MULTI").arg(protocol).arg("SLIDE 1000"),
            };
        }
        let replies: Vec<redis::RedisResult<Value>> = pipe.query(&mut con).unwrap();
        assert_eq!(replies.len(), 300);
        for (n, reply) in replies.iter().enumerate() {
            match (n % 3, reply) {
                (0, Ok(Value::Array(reply))) => {
                    assert_eq!(reply[2], Value::Int(999 - n as i64 / 3), "{protocol} {n}");
                }
                (1 | 2, Err(_)) => {}
                (_, other) => panic!("{protocol} {n}: {other:?}"),
            }
        }
    }
}
