//! Sends the relay's spans to a collector, as OTLP over HTTP, and carries the traces of producers on to receivers. A
//! collector that is down costs spans, never a delivery.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanProcessor};
use postrider_relay::RelayBuilder;
use postrider_relay::trace::{Propagate, TARGET};
use tokio::runtime::Handle;
use tracing::{Subscriber, info, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// The longest one export may take.
const EXPORT_MOST: Duration = Duration::from_secs(10);
/// At the end, how long the last spans may take.
const FLUSH_MOST: Duration = Duration::from_secs(5);
/// What is read of a collector's answer, at most.
const ANSWER_BYTES: usize = 64 * 1024;

static TRACES: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Begins to trace. Once in a process, inside its runtime, before the log is started and the relay is built.
pub(super) fn start() -> Result<()> {
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::new(ExitCode::Failure, format!("traces cannot be exported: {error}"))
            .hint("unset OTEL_EXPORTER_OTLP_ENDPOINT to run without traces")
    };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Collector::new().map_err(|error| cannot(&error.without_url()))?)
        .build()
        .map_err(|error| cannot(&error))?;
    let provider = SdkTracerProvider::builder()
        .with_span_processor(WithoutIdleClaims(BatchSpanProcessor::builder(exporter).build()))
        .with_resource(resource())
        .build();
    // An error means that it was started before, which is as good.
    drop(TRACES.set(provider));
    Ok(())
}

/// The layer of the log's subscriber that makes the spans; `None` without a collector.
pub(super) fn layer<S>() -> Option<impl Layer<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let tracer = TRACES.get()?.tracer("postrider");
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_level(false)
        .with_target(false)
        .with_tracked_inactivity(false);
    Some(layer.with_filter(Targets::new().with_target(TARGET, LevelFilter::DEBUG)))
}

/// Has the relay carry traces on; without a collector it stays as it is.
pub(super) fn join(relay: RelayBuilder) -> RelayBuilder {
    if TRACES.get().is_some() { relay.propagate(W3c(TraceContextPropagator::new())) } else { relay }
}

/// Sends the last spans, for a few seconds at most.
pub(super) async fn finish() {
    let Some(provider) = TRACES.get() else { return };
    // What could not be sent has been said by the client.
    drop(tokio::task::spawn_blocking(|| provider.shutdown_with_timeout(FLUSH_MOST)).await);
}

/// What every span says about this process: what the environment says, and else what we are.
fn resource() -> Resource {
    let named = Resource::builder();
    let unknown = |resource: &Resource| {
        resource.get(&Key::new("service.name")).is_none_or(|name| name.as_str().starts_with("unknown_service"))
    };
    let named = if unknown(&Resource::builder().build()) { named.with_service_name("postrider") } else { named };
    named
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", Uuid::new_v4().to_string()))
        .build()
}

/// Leaves out claims that brought nothing: a relay that waits makes some every second.
#[derive(Debug)]
struct WithoutIdleClaims(BatchSpanProcessor);

impl SpanProcessor for WithoutIdleClaims {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.0.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let idle = span.name == "claim" && !span.attributes.iter().any(|one| one.key.as_str() == "messages");
        if !idle {
            self.0.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}

/// Traces as the W3C writes them into headers: `traceparent` and `tracestate`, in any case.
struct W3c(TraceContextPropagator);

struct Headers<'a>(&'a mut BTreeMap<String, String>);

impl Propagate for W3c {
    fn propagate(&self, span: &tracing::Span, headers: &mut BTreeMap<String, String>) {
        let producers = self.0.extract_with_context(&Context::new(), &Headers(headers));
        if producers.span().span_context().is_valid() {
            // An error means that nobody collects this span; then its context is not valid either.
            drop(span.set_parent(producers));
        }
        let own = span.context();
        if own.span().span_context().is_valid() {
            headers.retain(|name, _| !self.0.fields().any(|field| field.eq_ignore_ascii_case(name)));
            self.0.inject_context(&own, &mut Headers(headers));
        }
    }
}

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        // A state without entries is better not sent.
        if !value.is_empty() {
            self.0.insert(key.to_owned(), value);
        }
    }
}

/// How spans get to the collector. The exporter calls from a thread of its own; the runtime sends.
#[derive(Debug)]
struct Collector {
    client: reqwest::Client,
    runtime: Handle,
    /// Spans are being lost, and it was said.
    said: AtomicBool,
}

impl Collector {
    fn new() -> std::result::Result<Self, reqwest::Error> {
        // The client takes the process's cryptography and panics if there is none.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder()
            .timeout(EXPORT_MOST)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()?;
        Ok(Self { client, runtime: Handle::current(), said: AtomicBool::new(false) })
    }

    /// Said when it begins and when it is over. Neither address nor answer is repeated: both may hold what is secret.
    fn tell(&self, trouble: Option<String>) {
        match trouble {
            Some(error) if !self.said.swap(true, Ordering::AcqRel) => {
                warn!(error, "the collector does not take our traces; deliveries go on, and spans are lost");
            }
            None if self.said.swap(false, Ordering::AcqRel) => info!("the collector takes our traces again"),
            _ => {}
        }
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> std::result::Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move { exchange(&client, request).await }).await;
        let answered = sent.map_err(HttpError::from).and_then(|sent| sent);
        self.tell(match &answered {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        });
        answered
    }
}

async fn exchange(
    client: &reqwest::Client,
    request: Request<Bytes>,
) -> std::result::Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
    let mut response = client.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(reqwest::Error::without_url)? {
        body.extend_from_slice(&piece[..piece.len().min(ANSWER_BYTES - body.len())]);
        if body.len() == ANSWER_BYTES {
            break;
        }
    }
    let mut answer = Response::new(Bytes::from(body));
    *answer.status_mut() = response.status();
    *answer.headers_mut() = std::mem::take(response.headers_mut());
    Ok(answer)
}
