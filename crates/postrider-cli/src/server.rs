//! Serves HTTP for the admin API and for `postrider receive`, with what a server that others can reach must bound: how many
//! connections there are, and how long one may be silent. What is asked and answered is the router's.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// After an accept that failed, as it does when the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// What callers may use up.
#[derive(Clone, Copy)]
struct Bounds {
    /// Connections at once; further ones wait until one ends.
    connections: usize,
    /// How long a connection may take for the head of a request, from its opening or from the answer before.
    silence: Duration,
    /// How long an answer may lie unread.
    unread: Duration,
}

const BOUNDS: Bounds = Bounds { connections: 256, silence: Duration::from_secs(10), unread: Duration::from_secs(30) };

/// Answers until `stop`, then ends the connections in good order: what is being answered is answered.
pub(crate) async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    serve_within(BOUNDS, listener, routes, stop).await;
}

async fn serve_within(bounds: Bounds, listener: TcpListener, routes: Router, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(bounds.connections));
    let connections = TaskTracker::new();
    let accepting = async {
        // It is never closed.
        while let Ok(place) = Arc::clone(&room).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let answering = answer(bounds, stream, peer, routes.clone(), stop.clone());
                    connections.spawn(async move {
                        answering.await;
                        drop(place);
                    });
                }
                // It was given up before its turn came.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    warn!("cannot take a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn answer(bounds: Bounds, stream: TcpStream, peer: SocketAddr, routes: Router, stop: CancellationToken) {
    // Small answers are not held back to be sent with the next.
    drop(stream.set_nodelay(true));
    // Whoever asks and does not read would keep the connection for ever.
    #[cfg(target_os = "linux")]
    if let Err(error) = sockopt::set_tcp_user_timeout(&stream, millis(bounds.unread)) {
        debug!("a connection from {peer} has no limit for what it leaves unread: {error}");
    }
    let service = TowerToHyperService::new(routes.layer(Extension(ConnectInfo(peer))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.silence)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!("a connection from {peer} ended: {error}");
    }
}

#[cfg(target_os = "linux")]
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";

    async fn start(connections: usize, silence: Duration) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let routes =
            Router::new().route("/", get(|| async { "here" })).route("/much", get(|| async { vec![0; 32 << 20] }));
        let bounds = Bounds { connections, silence, unread: Duration::from_millis(300) };
        tokio::spawn(serve_within(bounds, listener, routes, stop.clone()));
        (address, stop)
    }

    async fn say(stream: &mut TcpStream, words: &[u8]) -> String {
        stream.write_all(words).await.unwrap();
        let mut answer = Vec::new();
        // A connection that is cut may end with a reset.
        drop(stream.read_to_end(&mut answer).await);
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn who_is_silent_is_cut_off() {
        let (address, _stop) = start(8, Duration::from_millis(100)).await;
        for words in ["", "GET / HTTP/1.1\r\nhost: he"] {
            let mut slow = TcpStream::connect(address).await.unwrap();
            let answer = tokio::time::timeout(Duration::from_secs(10), say(&mut slow, words.as_bytes())).await;
            assert!(!answer.expect("the connection is still open").contains("200 OK"), "{words:?}");
        }
        assert!(say(&mut TcpStream::connect(address).await.unwrap(), ASK).await.ends_with("here"));
    }

    #[tokio::test]
    async fn one_too_many_waits_for_a_place() {
        let (address, _stop) = start(1, Duration::from_mins(1)).await;
        let first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(ASK).await.unwrap();
        let early = tokio::time::timeout(Duration::from_millis(200), second.readable()).await;
        assert!(early.is_err(), "the second was answered beside the first");
        drop(first);
        assert!(say(&mut second, b"").await.ends_with("here"));
    }

    #[tokio::test]
    async fn who_does_not_read_is_cut_off() {
        let (address, _stop) = start(1, Duration::from_mins(1)).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /much HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        deaf.readable().await.unwrap();
        let mut next = TcpStream::connect(address).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(30), say(&mut next, ASK)).await;
        assert!(answer.expect("the place is still taken").ends_with("here"));
    }

    #[tokio::test]
    async fn a_stop_ends_idle_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(serve(listener, Router::new(), stop.clone()));
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        idle.readable().await.unwrap();
        stop.cancel();
        tokio::time::timeout(Duration::from_secs(5), serving).await.expect("it goes on").unwrap();
    }
}
