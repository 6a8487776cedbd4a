//! Connections that nobody asked for: however many are held open, from one address or from many, a probe is answered
//! within its time, and what they keep in memory is bounded.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

use super::server::{Server, until};
use crate::support::outboxes;

/// What the manifests in `deploy/` give a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// More than there are connections.
const CROWD: u32 = 300;

fn address(server: &Server) -> SocketAddr {
    server.url.strip_prefix("http://").unwrap().parse().unwrap()
}

/// Connections from these addresses of this machine, one after the other, that say nothing.
async fn crowd(server: &Server, from: impl Fn(u32) -> Ipv4Addr) -> Vec<tokio::net::TcpStream> {
    let mut held = Vec::new();
    for nth in 0..CROWD {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((IpAddr::V4(from(nth)), 0).into()).unwrap();
        held.push(socket.connect(address(server)).await.unwrap());
    }
    held
}

/// A probe on a connection of its own, as supervisors make it; whether it was answered in time.
fn probe(server: &Server, path: &str) -> bool {
    let begun = Instant::now();
    let mut stream = TcpStream::connect_timeout(&address(server), PROBE_TIMEOUT).unwrap();
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).is_ok_and(|_| answer.starts_with("HTTP/1.1 200"))
        && begun.elapsed() < PROBE_TIMEOUT
}

#[tokio::test]
async fn a_probe_is_answered_while_one_address_holds_all_it_can_get() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    for from in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        let held = crowd(&server, |_| from).await;
        for path in ["/api/health", "/api/ready", "/api/health"] {
            assert!(probe(&server, path), "{path} while {from} holds {} connections", held.len());
        }
    }
}

#[tokio::test]
async fn a_probe_is_answered_while_many_addresses_hold_every_place() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let held = crowd(&server, |nth| Ipv4Addr::from(0x7f00_0100 + nth)).await;
    for path in ["/api/health", "/api/ready", "/api/health"] {
        assert!(probe(&server, path), "{path} while {} connections are held", held.len());
    }
    assert_eq!(server.get("/api/v1/sync/state").await.status, 200, "and so is everybody else");
}

/// Heads that never end are refused when they are too long, and take no memory beyond that.
#[tokio::test]
async fn a_head_is_bounded() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let before = server.memory_bytes();
    let filler = vec![b'x'; 390 * 1024];
    let mut waiting = Vec::new();
    for mut stream in crowd(&server, |nth| Ipv4Addr::from(0x7f00_0100 + nth % 250)).await {
        // It may be closed at any byte.
        drop(tokio::io::AsyncWriteExt::write_all(&mut stream, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: ").await);
        drop(tokio::time::timeout(PROBE_TIMEOUT, tokio::io::AsyncWriteExt::write_all(&mut stream, &filler)).await);
        waiting.push(stream);
    }
    let grown = server.memory_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{} heads took {grown} bytes", waiting.len());

    let mut stream = TcpStream::connect(address(&server)).unwrap();
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(17 * 1024));
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
    until("everybody else is answered", async || server.get("/api/v1/sync/state").await.status == 200).await;
}
