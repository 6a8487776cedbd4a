//! Traces for OpenTelemetry, if the environment names a collector: the relay's spans go there as OTLP over HTTP, and the
//! trace that a producer began goes on through the relay to the receiver. Started by the commands that deliver; without a
//! collector nothing here costs anything. A build without the feature `otlp` says so and makes no traces.

#[cfg(feature = "otlp")]
mod otlp;

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Uri;
use postrider_relay::RelayBuilder;
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::failure::{Failure, Result};

/// Where spans go. The first that is set counts; the second gets `/v1/traces` behind it.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// What the exporter speaks, if the environment says.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// Traces were asked for, and this build has none.
static LEFT_OUT: AtomicBool = AtomicBool::new(false);

/// Begins to trace if the environment asks for it. Once in a process, inside its runtime, before the log is started and
/// the relay is built.
pub(crate) fn start() -> Result<()> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if !wanted(set)? {
        return Ok(());
    }
    #[cfg(feature = "otlp")]
    otlp::start()?;
    LEFT_OUT.store(cfg!(not(feature = "otlp")), Ordering::Release);
    Ok(())
}

/// Says in the log that traces were asked for and cannot be made.
pub(crate) fn warn_if_left_out() {
    if LEFT_OUT.load(Ordering::Acquire) {
        warn!(
            "the environment names a collector, but this postrider was built without traces: build it with --features otlp"
        );
    }
}

/// The layer of the log's subscriber that makes the spans; `None` without a collector.
pub(crate) fn layer<S>() -> Option<impl Layer<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    #[cfg(feature = "otlp")]
    return otlp::layer();
    #[cfg(not(feature = "otlp"))]
    None::<tracing_subscriber::layer::Identity>
}

/// Has the relay carry traces on; without a collector it stays as it is.
pub(crate) fn join(relay: RelayBuilder) -> RelayBuilder {
    #[cfg(feature = "otlp")]
    let relay = otlp::join(relay);
    relay
}

/// Sends the last spans, for a few seconds at most.
#[cfg_attr(
    not(feature = "otlp"),
    expect(clippy::unused_async, reason = "there is nothing to wait for in a build without traces")
)]
pub(crate) async fn finish() {
    #[cfg(feature = "otlp")]
    otlp::finish().await;
}

/// Whether the environment asks for traces, and for some that can be made.
fn wanted(set: impl Fn(&str) -> Option<String>) -> Result<bool> {
    let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let Some((name, endpoint)) = ENDPOINTS.iter().find_map(|name| Some((name, set(name)?))).filter(|_| !off) else {
        return Ok(false);
    };
    // The value itself may hold a password.
    if !is_an_address(&endpoint) {
        return Err(Failure::usage(format!("{name} is not the address of a collector"))
            .hint("give it a URL of HTTP, such as http://localhost:4318, or unset it to run without traces"));
    }
    if let Some((name, protocol)) = PROTOCOLS.iter().find_map(|name| Some((name, set(name)?)))
        && protocol != "http/protobuf"
    {
        return Err(Failure::usage(format!("{name} is {protocol:?}, but traces are sent as http/protobuf only"))
            .hint("set it to http/protobuf and give the collector's port for HTTP, which is 4318 by default"));
    }
    Ok(true)
}

/// A URL of HTTP with a host.
fn is_an_address(endpoint: &str) -> bool {
    let uri = endpoint.trim().parse::<Uri>();
    uri.is_ok_and(|uri| uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(variables: &[(&str, &str)]) -> Result<bool> {
        wanted(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn traces_are_made_only_if_the_environment_names_a_collector() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        assert!(!asked(&[]).unwrap());
        assert!(asked(&[endpoint]).unwrap());
        assert!(asked(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/v1/traces")]).unwrap());
        assert!(!asked(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).unwrap());
        assert!(!asked(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).unwrap());
    }

    #[test]
    fn a_collector_that_cannot_be_asked_is_refused_without_its_password() {
        let refused = asked(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "user:s3cret@collector:4317")]).unwrap_err();
        let words = format!("{refused:?}");
        assert!(words.contains("OTEL_EXPORTER_OTLP_ENDPOINT") && !words.contains("s3cret"), "{words}");
        let grpc =
            asked(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert!(format!("{:?}", grpc.unwrap_err()).contains("http/protobuf only"));
    }
}
