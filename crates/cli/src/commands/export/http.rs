//! As much of HTTP as a scraper speaks: GET, one answer, and the connection closes.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// A caller that dawdles is not waited for longer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Callers at once; more are turned away at once.
const MAX_CALLERS: usize = 16;
const MAX_REQUEST: u64 = 8192;

/// Answers until the process ends.
pub fn serve(listen: SocketAddr, metrics: &(impl Fn() -> String + Sync)) -> Result<(), Failure> {
    let failure = |error: io::Error| {
        Failure::new(
            format!("{listen}: {error}"),
            "choose a free address by --listen ADDR:PORT",
        )
    };
    let listener = TcpListener::bind(listen).map_err(failure)?;
    eprintln!(
        "rl: http://{}/metrics",
        listener.local_addr().map_err(failure)?
    );
    let callers = AtomicUsize::new(0);
    thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of file descriptors, most likely: leave others time to close theirs.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if callers.fetch_add(1, Relaxed) >= MAX_CALLERS {
                callers.fetch_sub(1, Relaxed);
                continue;
            }
            let callers = &callers;
            scope.spawn(move || {
                // One that hangs up early is nobody's concern.
                let _ = answer(&stream, metrics);
                callers.fetch_sub(1, Relaxed);
            });
        }
    });
    Ok(())
}

fn answer(stream: &TcpStream, metrics: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
                "rl export: the figures are at /metrics\n".to_owned(),
            ),
            _ => ("404 Not Found", "the figures are at /metrics\n".to_owned()),
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
