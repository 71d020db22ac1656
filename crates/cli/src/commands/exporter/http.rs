//! A minimal HTTP server for scrapers: GET, one response, and the connection closes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// How long to wait for a slow client.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent clients; more are disconnected immediately.
const MAX_CLIENTS: usize = 16;
const MAX_REQUEST: u64 = 8192;

/// Serves until the process ends.
pub fn serve(listen: SocketAddr, metrics: &(impl Fn() -> String + Sync)) -> Result<(), Failure> {
    let failure = |error: io::Error| {
        Failure::new(
            format!("{listen}: {error}"),
            "choose a free address with --listen ADDR:PORT",
        )
    };
    let listener = TcpListener::bind(listen).map_err(failure)?;
    eprintln!(
        "rl: http://{}/metrics",
        listener.local_addr().map_err(failure)?
    );
    let clients = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Probably out of file descriptors: wait for other connections to close.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if clients.fetch_add(1, Relaxed) >= MAX_CLIENTS {
                clients.fetch_sub(1, Relaxed);
                continue;
            }
            let clients = &clients;
            scope.spawn(move || {
                // It does not matter if the client disconnects early.
                let _ = respond(&stream, metrics);
                clients.fetch_sub(1, Relaxed);
            });
        }
    });
    Ok(())
}

fn respond(stream: &TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut request = BufReader::new(stream.take(MAX_REQUEST));
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut header = String::new();
    while request.read_line(&mut header)? > 2 {
        header.clear();
    }
    let (status, body) = match first.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["GET", path, ..] => match path.split('?').next() {
            Some("/metrics") => ("200 OK", metrics()),
            Some("/") => (
                "200 OK",
                "rl exporter: the metrics are at /metrics\n".to_owned(),
            ),
            _ => ("404 Not Found", "the metrics are at /metrics\n".to_owned()),
        },
        _ => ("405 Method Not Allowed", "use GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
