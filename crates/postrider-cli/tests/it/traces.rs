//! One trace from the producer over the relay to the receiver, with a real process, a receiver of messages and a
//! collector that takes OTLP. And what the process says meanwhile: neither payloads nor secrets.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message as _;
use tempfile::TempDir;

use crate::support::{Ran, command, run_at};

const PATIENCE: Duration = Duration::from_mins(1);
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PRODUCER: &str = "00f067aa0ba902b7";
const SECRET: &str = "do-not-tell";
const PAYLOAD: &str = "for-the-receiver-alone";

/// What came to the server: where, its headers, its body.
type Came = (String, HeaderMap, Bytes);

/// Takes everything, but the first message.
async fn server() -> (u16, Receiver<Came>) {
    let (tell, came) = channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let routes = Router::new().fallback(take).with_state(tell);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (port, came)
}

async fn take(State(tell): State<Sender<Came>>, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let first = headers.get("postrider-topic").is_some_and(|topic| topic == "first.fails") && !seen_before();
    tell.send((uri.path().to_owned(), headers, body)).unwrap();
    if first { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// Whether this was asked before, in this process.
fn seen_before() -> bool {
    static SEEN: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    SEEN.swap(true, std::sync::atomic::Ordering::SeqCst)
}

/// An embedded outbox and a configuration that sends to `/hook` of the server.
struct Site {
    directory: TempDir,
    url: String,
}

impl Site {
    fn new(port: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "[sinks.default.retry]\nbase = \"10ms\"\nmax = \"10ms\"\n[sinks.default.http]\n\
             url = \"http://127.0.0.1:{port}/hook\"\nbearer = \"{SECRET}\"\n"
        );
        std::fs::write(directory.path().join("postrider.toml"), config).unwrap();
        let url = format!("sqlite:{}/outbox.db", directory.path().display());
        assert_eq!(run_at(&url, &["drain"]).code, 0);
        Self { directory, url }
    }

    fn enqueue(&self, topic: &str) -> String {
        let traceparent = format!("traceparent=00-{TRACE}-{PRODUCER}-01");
        let payload = format!("{{\"for\":\"{PAYLOAD}\"}}");
        let args = ["enqueue", "--json", "--topic", topic, "--payload", &payload, "--header", &traceparent];
        run_at(&self.url, &args).json()["message_id"].as_str().unwrap().to_owned()
    }

    fn run(&self, environment: &[(&str, String)]) -> Child {
        let config = self.directory.path().join("postrider.toml");
        let mut command = command(&["run", "--log", "trace", "--config", config.to_str().unwrap()]);
        command.env("DATABASE_URL", &self.url).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(environment.iter().map(|(name, value)| (name, value))).spawn().unwrap()
    }
}

/// Stops it in good order.
fn stop(child: Child) -> Ran {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

#[track_caller]
fn is_discreet(ran: &Ran) {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("DEBUG") || ran.stderr.contains("stopped: "), "it says something: {}", ran.stderr);
    for secret in [SECRET, PAYLOAD] {
        assert!(!ran.stderr.contains(secret), "{secret} is in: {}", ran.stderr);
    }
}

fn hook(came: &Receiver<Came>) -> HeaderMap {
    let (path, headers, _) = came.recv_timeout(PATIENCE).unwrap();
    assert_eq!(path, "/hook");
    headers
}

fn text<'a>(attributes: &'a [KeyValue], name: &str) -> &'a str {
    let value = attributes.iter().find(|one| one.key == name).and_then(|one| one.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

fn number(attributes: &[KeyValue], name: &str) -> i64 {
    let value = attributes.iter().find(|one| one.key == name).and_then(|one| one.value.as_ref()?.value.as_ref());
    match value {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The spans that the collector got, and what they say about their process.
fn spans(came: &Receiver<Came>) -> (Vec<Span>, Vec<KeyValue>) {
    let (mut spans, mut process) = (Vec::new(), Vec::new());
    for (path, headers, body) in came.try_iter() {
        assert_eq!(
            (path.as_str(), &headers["content-type"]),
            ("/v1/traces", &"application/x-protobuf".parse().unwrap())
        );
        assert_eq!(headers["x-key"], SECRET, "the collector's own headers are sent");
        for part in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
            process = part.resource.unwrap().attributes;
            spans.extend(part.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    (spans, process)
}

/// One trace id end to end, and every attempt a span of its own that the receiver's spans hang on. The exporter waits for
/// an hour between two exports here, so all that comes was sent by the flush at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_relay_and_receiver_share_one_trace() {
    let (port, came) = server().await;
    let site = Site::new(port);
    let id = site.enqueue("first.fails");
    let running = site.run(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("x-key={SECRET}")),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000".to_owned()),
    ]);
    let sent: Vec<String> = (0..2).map(|_| hook(&came)["traceparent"].to_str().unwrap().to_owned()).collect();
    let ran = stop(running);
    is_discreet(&ran);
    let (spans, process) = spans(&came);
    assert_eq!(text(&process, "service.name"), "postrider");
    let claims: Vec<&Span> = spans.iter().filter(|span| span.name == "claim").collect();
    let deliveries: Vec<&Span> = spans.iter().filter(|span| span.name == "deliver").collect();
    assert_eq!((claims.len(), deliveries.len()), (2, 2), "claims that bring nothing are left out: {spans:#?}");
    for (n, span) in deliveries.iter().enumerate() {
        assert_eq!((hex(&span.trace_id).as_str(), hex(&span.parent_span_id).as_str()), (TRACE, PRODUCER));
        assert_eq!(sent[n], format!("00-{TRACE}-{}-01", hex(&span.span_id)), "the receiver's parent is the delivery");
        assert_eq!(span.kind(), SpanKind::Producer);
        let said = ["sink", "topic", "message_id"].map(|name| text(&span.attributes, name));
        assert_eq!(said, ["default", "first.fails", &id]);
        assert_eq!(number(&span.attributes, "attempt_no"), i64::try_from(n).unwrap() + 1);
        let claim = claims.iter().find(|claim| claim.span_id == span.links[0].span_id).expect("a link to its claim");
        assert_eq!((number(&claim.attributes, "messages"), text(&claim.attributes, "sink")), (1, "default"));
    }
    let outcomes = [0, 1].map(|n| text(&deliveries[n].attributes, "outcome"));
    assert_eq!(outcomes, ["RETRYABLE", "DISPATCHED"]);
    assert_eq!(text(&deliveries[0].attributes, "error_code"), "HTTP_503");
    assert_eq!(deliveries[0].status.as_ref().unwrap().code(), SpanStatus::Error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_costs_spans_and_no_delivery() {
    let (port, came) = server().await;
    let site = Site::new(port);
    // Bound and not listened to by anybody who answers: a port of our own that refuses.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let running = site.run(&[
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("http://user:{SECRET}@127.0.0.1:{nobody}/v1/traces")),
        ("OTEL_BSP_SCHEDULE_DELAY", "50".to_owned()),
    ]);
    for _ in 0..3 {
        site.enqueue("t");
        let traceparent = hook(&came)["traceparent"].to_str().unwrap().to_owned();
        assert!(traceparent.starts_with(&format!("00-{TRACE}-")) && !traceparent.contains(PRODUCER), "{traceparent}");
    }
    let ran = stop(running);
    is_discreet(&ran);
    assert_eq!(ran.stderr.matches("the collector does not take our traces").count(), 1, "{}", ran.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_the_producers_header_passes() {
    let (port, came) = server().await;
    let site = Site::new(port);
    let running = site.run(&[]);
    site.enqueue("t");
    assert_eq!(hook(&came)["traceparent"], format!("00-{TRACE}-{PRODUCER}-01").as_str());
    is_discreet(&stop(running));
    let refused = {
        let mut command = command(&["run"]);
        command.env("DATABASE_URL", &site.url).env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("{SECRET}:4317"));
        crate::support::finish(command, b"")
    };
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT") && !refused.stderr.contains(SECRET));
}
