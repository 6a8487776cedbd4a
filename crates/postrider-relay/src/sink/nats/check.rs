//! Looks at NATS without publishing: whether JetStream answers, which stream takes our messages, and whether that stream
//! can lose or double them. Called by `postrider check`.

use std::time::Duration;

use async_nats::jetstream::context::{GetStreamByNameErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context, ErrorCode};
use futures_util::StreamExt as _;

use super::NatsSink;
use crate::sink::Finding;

/// Where subjects differ from message to message, so many streams are looked at.
const MAX_STREAMS: usize = 20;
/// The server's default. A message that is tried again after its window is stored again.
const SHORTEST_WINDOW: Duration = Duration::from_mins(2);

pub(super) async fn findings(sink: &NatsSink) -> Vec<Finding> {
    let connection = match sink.connection().await {
        Ok(connection) => connection,
        Err(failure) => {
            return vec![Finding::broken(failure.message, "make NATS reachable for the relay, then look again")];
        }
    };
    let info = connection.client.server_info();
    let mut findings = vec![Finding::works(format!(
        "NATS {} answers at {}; it takes messages of up to {} bytes",
        info.version,
        sink.connector.address(),
        info.max_payload
    ))];
    let mut context = jetstream::new(connection.client.clone());
    context.set_timeout(sink.timeout);
    if let Err(error) = context.query_account().await {
        findings.push(Finding::broken(
            format!("JetStream does not answer: {error}"),
            "turn it on (`jetstream {}` in the server's configuration), and let the relay's user use $JS.API.>",
        ));
        return findings;
    }
    match configs(sink, &context).await {
        Ok(configs) => findings.extend(configs.iter().flat_map(about)),
        Err(finding) => findings.push(finding),
    }
    findings
}

/// The streams that may take our messages.
async fn configs(sink: &NatsSink, context: &Context) -> Result<Vec<Config>, Finding> {
    let named = sink.stream.as_ref().map(|stream| stream.as_str().to_owned());
    let named = match (named, sink.subject.fixed()) {
        (Some(named), _) => Some(named),
        (None, Some(subject)) => Some(by_subject(context, subject).await?),
        (None, None) => None,
    };
    if let Some(named) = named {
        return Ok(vec![by_name(context, &named).await?]);
    }
    let infos: Vec<_> = context.streams().take(MAX_STREAMS).collect().await;
    let found: Vec<Config> = infos.into_iter().filter_map(Result::ok).map(|info| info.config).collect();
    if found.is_empty() {
        return Err(Finding::broken(
            "there is no stream that we may see",
            format!("make one: nats stream add NAME --subjects 'SUBJECT', for the subjects of {}", sink.subject),
        ));
    }
    Ok(found)
}

async fn by_subject(context: &Context, subject: &str) -> Result<String, Finding> {
    context.stream_by_subject(subject).await.map_err(|error| match error.kind() {
        GetStreamByNameErrorKind::NotFound => Finding::broken(
            format!("no stream takes the subject {subject}"),
            format!("make one: nats stream add NAME --subjects '{subject}'"),
        ),
        _ => not_seen(&format!("which stream takes the subject {subject}"), &error),
    })
}

async fn by_name(context: &Context, name: &str) -> Result<Config, Finding> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(stream.cached_info().config.clone()),
        Err(error) => Err(match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Finding::broken(format!("there is no stream {name}"), format!("make it: nats stream add {name}"))
            }
            _ => not_seen(&format!("how the stream {name} is"), &error),
        }),
    }
}

fn not_seen(what: &str, error: &dyn std::error::Error) -> Finding {
    Finding::weak(format!("it could not be asked {what}: {error}"), "let the relay's user use $JS.API.STREAM.>")
}

/// What is to be said about a stream.
fn about(config: &Config) -> Vec<Finding> {
    let name = &config.name;
    let mut findings = vec![Finding::works(format!("the stream {name} takes {}", config.subjects.join(", ")))];
    if config.no_ack {
        findings.push(Finding::broken(
            format!("the stream {name} does not acknowledge: no delivery to it can be confirmed"),
            format!("make it again without --no-ack: nats stream rm {name}, nats stream add {name} --ack"),
        ));
    }
    if config.sealed {
        findings.push(Finding::broken(format!("the stream {name} is sealed"), "make another for these subjects"));
    }
    if config.storage == StorageType::Memory {
        findings.push(Finding::weak(
            format!("the stream {name} is kept in memory: a restart of its servers loses every message"),
            "storage cannot be changed: make it again with --storage file",
        ));
    }
    if config.num_replicas < 2 {
        findings.push(Finding::weak(
            format!(
                "the stream {name} has one replica: if that server's disk is lost so are the messages, and if the machine \
                 crashes, those of the last sync_interval (two minutes by default)"
            ),
            format!("nats stream edit {name} --replicas 3, in a cluster; or `sync_interval: always` on a single server"),
        ));
    }
    if config.duplicate_window < SHORTEST_WINDOW {
        findings.push(Finding::weak(
            format!(
                "the stream {name} knows messages again for {:?} only: one that is tried again later is stored twice",
                config.duplicate_window
            ),
            format!("nats stream edit {name} --dupe-window 2m, or longer than the sink's retries take"),
        ));
    }
    let limited = config.max_messages > 0 || config.max_bytes > 0 || config.max_messages_per_subject > 0;
    if limited && config.discard == DiscardPolicy::Old {
        findings.push(Finding::weak(
            format!("the stream {name} is limited and drops its oldest messages when it is full, read or not"),
            format!("nats stream edit {name} --discard new: deliveries then wait until there is room"),
        ));
    }
    if !config.max_age.is_zero() {
        findings.push(Finding::weak(
            format!("the stream {name} drops messages after {:?}, read or not", config.max_age),
            format!("nats stream edit {name} --max-age, longer than any reader may be away"),
        ));
    }
    findings
}
