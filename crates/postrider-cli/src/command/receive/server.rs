//! Answers the requests of `postrider receive`. Every answer is JSON. A batch is read off the async workers, and is one
//! transaction of the store; only if the store refuses something in it is it halved until the bad event stands alone, so
//! that it harms no other. What is not known to be committed is never called accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use postrider::{Error, ErrorKind, Event, MAX_BATCH_MESSAGES, Message, Store};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_http::decompression::RequestDecompressionLayer;
use tracing::{debug, warn};

use super::answer::{Answer, Rejection, Status, cut};
use super::batch::{self, Arrival, Unreadable};
use super::sender::{Rules, Senders};
use crate::server::guard::{Guard, Refusal};
use crate::{format, output};

/// The path that the edge's forwarders know.
const BATCH_PATH: &str = "/api/v1/edge/batch";

/// Supervisors ask this.
pub(super) const PROBES: &[&str] = &["/healthz"];

/// Requests whose bodies are in memory at once; the next is asked to come again.
pub(super) const MAX_REQUESTS: usize = 16;
/// Batches that are taken apart at once: it is work for a processor, and others need theirs.
const MAX_PARSING: usize = 2;
/// How long a sender may take for one body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the store may take for one batch. A batch that was given up is rolled back, or comes again as duplicates.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the store may take to say that it is there.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// When to come again.
const RETRY_AFTER_SECONDS: u64 = 5;

pub(super) struct Server {
    store: Arc<dyn Store>,
    guard: Guard,
    senders: Senders,
    max_body: usize,
    room: Arc<Semaphore>,
    parsing: Arc<Semaphore>,
    accepted: AtomicU64,
    duplicates: AtomicU64,
    rejected: AtomicU64,
}

impl Server {
    pub(super) fn new(store: Arc<dyn Store>, guard: Guard, senders: Senders, max_body: usize) -> Self {
        Self {
            store,
            guard,
            senders,
            max_body,
            room: Arc::new(Semaphore::new(MAX_REQUESTS)),
            parsing: Arc::new(Semaphore::new(MAX_PARSING)),
            accepted: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }
    }

    /// `accepted 12, duplicates 3, rejected 0`.
    pub(super) fn account(&self) -> String {
        let [accepted, duplicates, rejected] = [&self.accepted, &self.duplicates, &self.rejected]
            .map(|counter| format::count(counter.load(Ordering::Relaxed)));
        format!("accepted {accepted}, duplicates {duplicates}, rejected {rejected}")
    }

    fn count(&self, answers: &[Answer]) {
        for (counter, status) in [
            (&self.accepted, Status::Accepted),
            (&self.duplicates, Status::Duplicate),
            (&self.rejected, Status::Rejected),
        ] {
            let count = answers.iter().filter(|answer| answer.status == status).count();
            counter.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

pub(super) fn routes(server: Arc<Server>) -> Router {
    Router::new()
        .route(BATCH_PATH, post(receive))
        .route("/healthz", get(health))
        .fallback(async || refuse(StatusCode::NOT_FOUND, "not_found", format!("POST events to {BATCH_PATH}")))
        .method_not_allowed_fallback(async || {
            refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("POST events to {BATCH_PATH}"))
        })
        // Behind the unpacking: it is the unpacked body that is bounded.
        .layer(DefaultBodyLimit::max(server.max_body))
        .layer(RequestDecompressionLayer::new().pass_through_unaccepted(true))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), guard))
        .with_state(server)
}

/// In front of every request, before a byte of its body is read.
async fn guard(State(server): State<Arc<Server>>, mut request: Request, next: Next) -> Response {
    match server.guard.check(&mut request) {
        Ok(()) => next.run(request).await,
        Err(Refusal { status, code, message, hint }) => {
            let words = hint.into_iter().fold(message, |message, hint| format!("{message}: {hint}"));
            let mut answer = refuse(status, &code.to_ascii_lowercase(), words);
            if status == StatusCode::TOO_MANY_REQUESTS {
                answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
            }
            answer
        }
    }
}

async fn health(State(server): State<Arc<Server>>) -> Response {
    match timeout(HEALTH_TIMEOUT, server.store.can_write()).await {
        Ok(Ok(())) => Json(serde_json::json!({"status": "ok"})).into_response(),
        Ok(Err(error)) if error.kind() == ErrorKind::ReadOnly => away("the database takes no writes"),
        Ok(Err(_)) | Err(_) => away("the database does not answer"),
    }
}

async fn receive(State(server): State<Arc<Server>>, request: Request) -> Response {
    let Some(rules) = server.senders.rules_for(request.headers()) else {
        let mut answer =
            refuse(StatusCode::UNAUTHORIZED, "unauthorized", "give the token as Authorization: Bearer ...");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return answer;
    };
    if let Err(words) = check_type(request.headers()) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", words);
    }
    let Ok(own_place) = Arc::clone(&rules.places).try_acquire_owned() else {
        return away("too many requests of this sender at once");
    };
    let Ok(place) = Arc::clone(&server.room).try_acquire_owned() else { return away("too many requests at once") };
    let places = [own_place, place];
    let body = match body(request, server.max_body).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let Some((read, _places)) = parse(&server, body, rules, places).await else {
        return refuse(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the batch could not be read: see the server's log",
        );
    };
    let arrivals = match read {
        Ok(arrivals) => arrivals,
        Err(Unreadable::TooManyEvents) => {
            let words = format!("a batch holds at most {MAX_BATCH_MESSAGES} events: send fewer at once");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_many_events", words);
        }
        Err(Unreadable::NoBatch(words)) => return refuse(StatusCode::BAD_REQUEST, "invalid_json", words),
    };
    match take(&*server.store, arrivals).await {
        Some(answers) => {
            server.count(&answers);
            debug!(events = answers.len(), "answered a batch");
            answer(answers)
        }
        None => away("the database does not answer: nothing of this batch is known to be stored"),
    }
}

/// The whole body, unpacked; or the answer to one that is too large, too slow or broken.
async fn body(request: Request, max_body: usize) -> Result<Bytes, Response> {
    match timeout(READ_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let words = format!("the batch is larger than {max_body} bytes: send fewer events");
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, "too_large", words))
        }
        Ok(Err(rejection)) => {
            let words = cut(&format!("the body cannot be read: {}", rejection.body_text()));
            Err(refuse(StatusCode::BAD_REQUEST, "unreadable_body", words))
        }
        Err(_) => Err(refuse(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time")),
    }
}

/// A request's place among its sender's, and among all.
type Places = [OwnedSemaphorePermit; 2];

/// Takes a body apart on a thread of its own. The request's places go with it: a sender that hangs up does not make room
/// for another while its body is still here. `None`: it panicked, which is in the log.
async fn parse(
    server: &Server,
    body: Bytes,
    rules: Rules,
    places: Places,
) -> Option<(Result<Vec<Arrival>, Unreadable>, Places)> {
    // It is never closed.
    let turn = Arc::clone(&server.parsing).acquire_owned().await.ok()?;
    let parsed = spawn_blocking(move || {
        let read = batch::read(&body, &rules);
        drop((body, turn));
        (read, places)
    });
    parsed.await.ok()
}

/// What kind of body this is, by what the sender says.
fn check_type(headers: &HeaderMap) -> Result<(), &'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?").trim());
    let kind = text(header::CONTENT_TYPE).and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if !kind.trim().eq_ignore_ascii_case("application/json") {
        return Err("give the batch as Content-Type: application/json");
    }
    // After the unpacking: what was gzip has no such header any more.
    match text(header::CONTENT_ENCODING) {
        None | Some("identity") => Ok(()),
        Some(_) => Err("give the batch plain, or as Content-Encoding: gzip"),
    }
}

/// Stores what keeps the rules. `None`: the store is away, and the sender should send all of it again.
async fn take(store: &dyn Store, arrivals: Vec<Arrival>) -> Option<Vec<Answer>> {
    let mut good: Vec<(Event, Message)> = Vec::new();
    let mut verdicts = Vec::with_capacity(arrivals.len());
    for Arrival { event_id, content } in arrivals {
        verdicts.push((event_id, content.map(|content| good.push(content))));
    }
    let mut outcomes = match forward(store, &good).await {
        Ok(first) => first.into_iter().map(|first| Ok(status(first))).collect(),
        // Something in it breaks a rule that only the store knows, such as JSON that is nested too deeply for it.
        Err(Some(error)) if error.kind() == ErrorKind::Refused => in_halves(store, &good).await,
        Err(_) => return None,
    }
    .into_iter();
    let answers = verdicts
        .into_iter()
        .map(|(event_id, verdict)| match verdict.map(|()| outcomes.next()) {
            Err(why) | Ok(Some(Err(why))) => Answer::rejected(event_id, why),
            Ok(Some(Ok(status))) => Answer::plain(event_id, status),
            Ok(None) => Answer::plain(event_id, Status::Retry),
        })
        .collect();
    Some(answers)
}

/// In halves, and those in halves, until each event that is refused stands alone; in order, so that lanes keep theirs. When
/// the store goes away or time is up, what is left is to be sent again.
async fn in_halves(store: &dyn Store, good: &[(Event, Message)]) -> Vec<Result<Status, Rejection>> {
    let give_up_at = Instant::now() + STORE_TIMEOUT;
    let mut outcomes = Vec::with_capacity(good.len());
    let (left, right) = good.split_at(good.len() / 2);
    let mut waiting = vec![right, left];
    while let Some(part) = waiting.pop() {
        if Instant::now() >= give_up_at {
            break;
        }
        match forward(store, part).await {
            Ok(first) => outcomes.extend(first.into_iter().map(|first| Ok(status(first)))),
            Err(Some(error)) if error.kind() == ErrorKind::Refused => {
                if let [_] = part {
                    outcomes.push(Err(Rejection::by_the_store(error.reason().unwrap_or_default())));
                } else {
                    let (left, right) = part.split_at(part.len() / 2);
                    waiting.extend([right, left]);
                }
            }
            Err(_) => break,
        }
    }
    outcomes
}

/// `Err(None)`: it took too long.
async fn forward(store: &dyn Store, good: &[(Event, Message)]) -> Result<Vec<bool>, Option<Error>> {
    if good.is_empty() {
        return Ok(Vec::new());
    }
    let done = timeout(STORE_TIMEOUT, store.forward(good)).await;
    match &done {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::Refused => {}
        Ok(Err(error)) => warn!("cannot store a batch: {}", output::printable(&error.in_short())),
        Err(_) => warn!("the database took longer than {} for a batch", format::span(STORE_TIMEOUT)),
    }
    done.map_err(|_| None)?.map_err(Some)
}

fn status(first: bool) -> Status {
    if first { Status::Accepted } else { Status::Duplicate }
}

fn answer(results: Vec<Answer>) -> Response {
    #[derive(Serialize)]
    struct Document {
        results: Vec<Answer>,
    }
    let all_well = results.iter().all(|answer| matches!(answer.status, Status::Accepted | Status::Duplicate));
    let code = if all_well { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    (code, Json(Document { results })).into_response()
}

fn refuse(code: StatusCode, word: &str, message: impl Into<String>) -> Response {
    let message: String = message.into();
    (code, Json(serde_json::json!({"error": {"code": word, "message": message}}))).into_response()
}

/// 503, with the time to wait.
fn away(words: &'static str) -> Response {
    let mut answer = refuse(StatusCode::SERVICE_UNAVAILABLE, "unavailable", words);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
    answer
}
