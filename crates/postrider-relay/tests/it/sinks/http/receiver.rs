//! A real HTTP server that does what a test says: answers anything, never ends an answer, stands still, is killed with its
//! connections and started again on its port. It keeps every request as it came, and counts connections.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::support::patiently;

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()).expect("UTF-8"))
    }
}

/// What to answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    /// What follows the body.
    pub(super) rest: Rest,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Rest {
    /// The end.
    #[default]
    Nothing,
    /// The same again and again, as fast as it is read.
    Endless,
    /// Nothing, and no end.
    Silence,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self { status, body: body.to_string().into_bytes(), ..Self::default() }
    }
}

type Answering = dyn Fn(&Received) -> Reply + Send + Sync;

struct State {
    answering: Box<Answering>,
    tls: Option<TlsAcceptor>,
    received: Mutex<Vec<Received>>,
    count: watch::Sender<usize>,
    stalled: watch::Sender<bool>,
    connections: AtomicUsize,
    hung_up: watch::Sender<usize>,
}

pub(super) struct Receiver {
    port: u16,
    state: Arc<State>,
    serving: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1.
    pub(super) async fn start(answering: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(None, answering).await
    }

    pub(super) async fn start_with(
        tls: Option<rustls::ServerConfig>,
        answering: impl Fn(&Received) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let state = State {
            answering: Box::new(answering),
            tls: tls.map(|config| TlsAcceptor::from(Arc::new(config))),
            received: Mutex::default(),
            count: watch::Sender::new(0),
            stalled: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            hung_up: watch::Sender::new(0),
        };
        let mut receiver = Self { port: 0, state: Arc::new(state), serving: None };
        receiver.serve().await;
        receiver
    }

    /// Takes everything.
    pub(super) async fn accepting() -> Self {
        Self::start(|_| Reply::status(204)).await
    }

    pub(super) async fn serve(&mut self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).await.expect("the port is free");
        self.port = listener.local_addr().expect("an address").port();
        self.serving = Some(tokio::spawn(accept(listener, Arc::clone(&self.state))));
    }

    /// Ends it at once: the port is closed, and so is every connection, whatever is on its way.
    pub(super) async fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            drop(serving.await);
        }
    }

    pub(super) fn stall(&self, stall: bool) {
        self.state.stalled.send_replace(stall);
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(super) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> Vec<Received> {
        self.state.received.lock().expect("lock").clone()
    }

    /// The only request that came.
    pub(super) fn only(&self) -> Received {
        let mut received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        received.remove(0)
    }

    /// Waits until so many clients have hung up while it stood still.
    pub(super) async fn until_hung_up(&self, count: usize) {
        let mut counting = self.state.hung_up.subscribe();
        patiently("clients hang up", counting.wait_for(|hung_up| *hung_up >= count)).await.expect("it counts");
    }

    /// Waits until so many requests have come.
    pub(super) async fn until_received(&self, count: usize) {
        let mut counting = self.state.count.subscribe();
        patiently("requests come", counting.wait_for(|received| *received >= count)).await.expect("it counts");
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

/// The connections end with it.
async fn accept(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        state.connections.fetch_add(1, Ordering::SeqCst);
        stream.set_nodelay(true).expect("a socket option");
        let state = Arc::clone(&state);
        connections.spawn(async move {
            match state.tls.clone() {
                // A handshake that fails is the client's to tell.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        connection(stream, state).await;
                    }
                }
                None => connection(stream, state).await,
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: Arc<State>) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { Ok::<_, Infallible>(answer(request, &state).await) }
    });
    // Clients may hang up.
    drop(Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await);
}

async fn answer(request: Request<Incoming>, state: &State) -> Response<Answer> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Response::new(Answer::default()) };
    let waiting = Waiting(state);
    drop(state.stalled.subscribe().wait_for(|stalled| !stalled).await);
    std::mem::forget(waiting);
    let received = Received {
        method: parts.method,
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        version: parts.version,
        headers: parts.headers,
        body: body.to_bytes(),
    };
    let reply = {
        let mut all = state.received.lock().expect("lock");
        let reply = (state.answering)(&received);
        all.push(received);
        reply
    };
    state.count.send_modify(|count| *count += 1);
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response.body(Answer { piece: Some(reply.body.into()), rest: reply.rest }).expect("an answer")
}

/// Dropped when the client hangs up before its answer.
struct Waiting<'a>(&'a State);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.hung_up.send_modify(|count| *count += 1);
    }
}

/// The body of an answer.
#[derive(Debug, Default)]
struct Answer {
    piece: Option<Bytes>,
    rest: Rest,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = if self.rest == Rest::Endless { self.piece.clone() } else { self.piece.take() };
        match piece {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if self.rest == Rest::Silence => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}
