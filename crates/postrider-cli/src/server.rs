//! Serves HTTP for the admin API and for `postrider receive`, with what a server that others can reach must bound: how many
//! connections there are, in all and from one client, how long one may be silent, and how much it may send before it asks.
//! `server/guard.rs` stands in front of the routers; what is asked and answered is theirs.

mod connections;
pub(crate) mod guard;
pub(crate) mod host;
pub(crate) mod token;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request};
use hyper::body::Frame;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
#[cfg(target_os = "linux")]
use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use self::connections::{Busy, Connections, Kept, Limits, Slot};

/// After an accept that failed, as it does when the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// What is read of a request before it is answered: its line and its headers. Those of a browser take a tenth of it.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// What callers may use up.
#[derive(Clone, Copy)]
struct Bounds {
    places: Limits,
    /// How long a connection may take for the head of a request, from its opening or from the answer before.
    silence: Duration,
    /// How long an answer may lie unread.
    unread: Duration,
    /// How long a connection that is kept for probes may last.
    probe: Duration,
}

/// A client may have as many connections as the admin API answers requests at once. So a proxy, whose callers all have its
/// address here, loses nothing: what it keeps open beside that is idle.
const BOUNDS: Bounds = Bounds {
    places: Limits { connections: 256, per_client: 64, kept: 16 },
    silence: Duration::from_secs(10),
    unread: Duration::from_secs(30),
    probe: Duration::from_secs(5),
};

/// Answers until `stop`, then ends the connections in good order: what is being answered is answered.
pub(crate) async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    serve_within(BOUNDS, listener, routes, stop).await;
}

async fn serve_within(bounds: Bounds, listener: TcpListener, routes: Router, stop: CancellationToken) {
    let places = Connections::new(bounds.places);
    let connections = TaskTracker::new();
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let place = places.take(peer.ip());
                    connections.spawn(answer(bounds, place, stream, peer, routes.clone(), stop.clone()));
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

/// Until it ends, or has to make room for another.
async fn answer(
    bounds: Bounds,
    place: Slot,
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    stop: CancellationToken,
) {
    let (cut, kept) = (place.cut.clone(), place.kept);
    let answering = cut.run_until_cancelled_owned(converse(bounds, place, stream, peer, routes, stop));
    let ended = if kept { tokio::time::timeout(bounds.probe, answering).await.ok().flatten() } else { answering.await };
    if ended.is_none() {
        debug!("a connection from {peer} was closed to make room");
    }
}

async fn converse(
    bounds: Bounds,
    place: Slot,
    stream: TcpStream,
    peer: SocketAddr,
    routes: Router,
    stop: CancellationToken,
) {
    // Small answers are not held back to be sent with the next.
    drop(stream.set_nodelay(true));
    // Whoever asks and does not read would keep the connection for ever.
    #[cfg(target_os = "linux")]
    if let Err(error) = sockopt::set_tcp_user_timeout(&stream, millis(bounds.unread)) {
        debug!("a connection from {peer} has no limit for what it leaves unread: {error}");
    }
    let kept = place.kept;
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |request| {
        let mut request: Request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        if kept {
            request.extensions_mut().insert(Kept);
        }
        let (busy, answering) = (place.busy(), routes.call(request));
        async move { answering.await.map(|answer| answer.map(|body| Answering { body, _busy: busy })) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.silence)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(!kept)
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

/// The body of an answer: until it was sent, its connection is not idle.
struct Answering {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(target_os = "linux")]
fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use axum::Extension;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    use super::*;

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";

    async fn start(per_client: usize, silence: Duration) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let routes = Router::new()
            .route(
                "/",
                get(|kept: Option<Extension<Kept>>| async move { if kept.is_some() { "kept" } else { "here" } }),
            )
            .route("/much", get(|| async { vec![0; 32 << 20] }))
            .route("/never", get(never));
        let places = Limits { connections: 8, per_client, kept: 1 };
        let (unread, probe) = (Duration::from_millis(300), Duration::from_millis(300));
        let bounds = Bounds { places, silence, unread, probe };
        tokio::spawn(serve_within(bounds, listener, routes, stop.clone()));
        (address, stop)
    }

    /// A request that is never answered has begun.
    static BEGUN: Notify = Notify::const_new();

    async fn never() {
        BEGUN.notify_one();
        std::future::pending::<()>().await;
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
    async fn one_that_waits_makes_room_for_the_next() {
        let (address, _stop) = start(1, Duration::from_mins(1)).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        assert!(say(&mut second, ASK).await.ends_with("here"));
        assert_eq!(say(&mut first, b"").await, "", "it is closed");
    }

    /// The request that is being answered stays; what comes beside it is kept for probes, one request each, not for long.
    #[tokio::test]
    async fn one_that_is_being_answered_stays() {
        let (address, _stop) = start(1, Duration::from_mins(1)).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(b"GET /never HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        BEGUN.notified().await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let answer = say(&mut second, b"GET / HTTP/1.1\r\nhost: here\r\n\r\n").await;
        assert!(answer.ends_with("kept"), "{answer}");
        let mut silent = TcpStream::connect(address).await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(10), say(&mut silent, b"")).await;
        assert_eq!(ended.expect("a place for probes is held"), "");
        assert!(first.try_read(&mut [0]).is_err(), "the first still waits for its answer");
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_refused() {
        let (address, _stop) = start(8, Duration::from_mins(1)).await;
        for (filler, status) in [(MAX_HEAD_BYTES / 2, "200"), (MAX_HEAD_BYTES, "431")] {
            let head = format!("GET / HTTP/1.1\r\nconnection: close\r\nhost: {}\r\n\r\n", "x".repeat(filler));
            let answer = say(&mut TcpStream::connect(address).await.unwrap(), head.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{filler}: {answer}");
        }
    }

    #[tokio::test]
    async fn who_does_not_read_is_cut_off() {
        let (address, _stop) = start(1, Duration::from_mins(1)).await;
        let mut deaf = TcpStream::connect(address).await.unwrap();
        deaf.write_all(b"GET /much HTTP/1.1\r\nhost: here\r\n\r\n").await.unwrap();
        deaf.readable().await.unwrap();
        let next = async {
            // As long as the first has the place, the next is one for probes.
            while !say(&mut TcpStream::connect(address).await.unwrap(), ASK).await.ends_with("here") {}
        };
        tokio::time::timeout(Duration::from_secs(30), next).await.expect("the place is still taken");
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
