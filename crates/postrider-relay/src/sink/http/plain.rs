//! HTTP/1.1 without TLS, for `http://`. A request owns its connection and drives it itself, so no other task stands between a
//! delivery and its socket, and when the request is dropped the connection is closed. A connection rests after an answer that
//! was read to its end. Called by the sink; TLS and HTTP/2 are reqwest's. It follows nothing and knows no proxy.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use http_body_util::Full;
use hyper::Request;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use reqwest::header::{ACCEPT, HOST, HeaderValue, USER_AGENT};
use reqwest::{Body, Method};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use url::{Host, Position, Url};

use super::answer::{Answer, AnswerReader};
use super::connection::{self, IDLE, MAX_IDLE, Unanswered};
use super::encode::Outgoing;
use super::guard::Guard;

/// When the next address of a name is tried beside those that have not answered yet.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(300);
/// What every client takes.
const ANYTHING: HeaderValue = HeaderValue::from_static("*/*");

type Outgo = Request<Full<Bytes>>;

/// Connections, and how they are made.
pub(super) struct Plain {
    guard: Guard,
    connect_timeout: Duration,
    resting: Arc<Resting>,
}

/// A connection in the hands of one request.
struct Open {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    driver: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    ended: bool,
}

impl Plain {
    pub(super) fn new(guard: Guard, connect_timeout: Duration) -> Self {
        Self { guard, connect_timeout, resting: Arc::default() }
    }

    /// Sends a request and reads the answer.
    pub(super) async fn exchange(
        &self,
        method: &Method,
        outgoing: Outgoing,
        host: &str,
        reader: &AnswerReader,
    ) -> Result<Answer, Unanswered> {
        let url = outgoing.url.clone();
        let mut request = request(method, outgoing)?;
        let (mut open, response) = loop {
            let rested = self.resting.take(host).await;
            let reused = rested.is_some();
            let mut open = match rested {
                Some(open) => open,
                None => self.connect(&url, host).await.map_err(Unanswered::NoConnection)?,
            };
            let sent = open.sender.try_send_request(request);
            match open.drive(sent).await {
                Ok(response) => break (open, response),
                // The receiver hung up while the connection rested, and nothing was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) if reused => request = unsent,
                    _ => return Err(Unanswered::Broken(error.into_error())),
                },
            }
        };
        let answer = open.drive(reader.read(response.map(Body::wrap).into(), SystemTime::now())).await?;
        if open.is_good().await {
            self.resting.put(open);
        }
        Ok(answer)
    }

    async fn connect(&self, url: &Url, host: &str) -> Result<Open, Box<dyn StdError + Send + Sync>> {
        let connect = async {
            let addresses = match url.host() {
                Some(Host::Domain(name)) => self.guard.addresses(name).await?,
                // Checked already, for no resolver sees it.
                Some(Host::Ipv4(address)) => vec![address.into()],
                Some(Host::Ipv6(address)) => vec![address.into()],
                None => Vec::new(),
            };
            let stream = first_that_answers(addresses, url.port_or_known_default().unwrap_or(80)).await?;
            stream.set_nodelay(true)?;
            Ok(http1::handshake(TokioIo::new(stream)).await?)
        };
        let connected: Result<_, Box<dyn StdError + Send + Sync>> = timeout(self.connect_timeout, connect).await?;
        let (sender, driver) = connected?;
        Ok(Open { host: host.to_owned(), sender, driver, ended: false })
    }
}

fn request(method: &Method, outgoing: Outgoing) -> Result<Outgo, Unanswered> {
    let Outgoing { url, headers, body } = outgoing;
    let refused = |error: hyper::http::Error| Unanswered::NoConnection(error.into());
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method.clone();
    *request.uri_mut() =
        url[Position::BeforePath..Position::AfterQuery].parse().map_err(|error| refused(From::from(error)))?;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(&url[Position::BeforeHost..Position::AfterPort]);
    let headers = request.headers_mut();
    headers.insert(HOST, host.map_err(|error| refused(error.into()))?);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(connection::USER_AGENT));
    headers.entry(ACCEPT).or_insert(ANYTHING);
    Ok(request)
}

/// The addresses in their order, each beside those before it that let wait.
async fn first_that_answers(addresses: Vec<IpAddr>, port: u16) -> io::Result<TcpStream> {
    let mut left = addresses.into_iter().map(|address| TcpStream::connect(SocketAddr::new(address, port)));
    let mut under_way = FuturesUnordered::from_iter(left.next());
    loop {
        let tried = tokio::select! {
            tried = under_way.next() => tried,
            () = sleep(NEXT_ADDRESS_AFTER), if left.len() > 0 => {
                under_way.extend(left.next());
                continue;
            }
        };
        match tried {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) if under_way.is_empty() && left.len() == 0 => return Err(error),
            Some(Err(_)) => under_way.extend(left.next()),
            None => return Err(io::Error::other("the name has no address")),
        }
    }
}

impl Open {
    /// Does something on the connection.
    async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            // What one of them does may be what the other waits for; a request takes one turn, and so does a short answer.
            for _ in 0..2 {
                if let Poll::Ready(done) = work.as_mut().poll(context) {
                    return Poll::Ready(done);
                }
                if !self.ended {
                    self.ended = Pin::new(&mut self.driver).poll(context).is_ready();
                }
            }
            work.as_mut().poll(context)
        })
        .await
    }

    /// Whether another request can be sent on it: the receiver has not hung up, and nothing of an answer is left.
    async fn is_good(&mut self) -> bool {
        if !self.ended {
            self.ended = poll_fn(|context| Poll::Ready(Pin::new(&mut self.driver).poll(context).is_ready())).await;
        }
        !self.ended && self.sender.is_ready()
    }
}

/// Connections that wait for the next request.
#[derive(Default)]
struct Resting(Mutex<Rest>);

#[derive(Default)]
struct Rest {
    /// Since when; the one used last is at the end.
    connections: Vec<(Instant, Open)>,
    /// A task closes those that rest for too long.
    watched: bool,
}

impl Resting {
    async fn take(&self, host: &str) -> Option<Open> {
        loop {
            let (since, mut open) = {
                let mut rest = self.lock();
                let place = rest.connections.iter().rposition(|(_, open)| open.host == host)?;
                rest.connections.remove(place)
            };
            if since.elapsed() < IDLE && open.is_good().await {
                return Some(open);
            }
        }
    }

    fn put(self: &Arc<Self>, open: Open) {
        let mut rest = self.lock();
        if rest.connections.len() < MAX_IDLE {
            rest.connections.push((Instant::now(), open));
        }
        if !rest.watched {
            rest.watched = true;
            tokio::spawn(Self::watch(Arc::downgrade(self)));
        }
    }

    /// Until none is left.
    async fn watch(resting: Weak<Self>) {
        loop {
            sleep(IDLE).await;
            let Some(resting) = resting.upgrade() else { return };
            let mut rest = resting.lock();
            rest.connections.retain(|(since, _)| since.elapsed() < IDLE);
            if rest.connections.is_empty() {
                rest.watched = false;
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
