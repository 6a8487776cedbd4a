//! Looks at a cluster without sending: whether it answers, whether the topic is there, and how safe a confirmed record is
//! in it. It never creates a topic.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use rdkafka::metadata::{Metadata, MetadataTopic};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::connection::Producers;
use super::options::{KafkaAcks, KafkaKey, KafkaOptions};
use super::{METADATA_SLICE, failure};
use crate::sink::{Finding, SinkFailure};

pub(super) async fn findings(options: &KafkaOptions) -> Vec<Finding> {
    let mut findings = settings(options);
    let mut config = match options.client_config() {
        Ok(config) => config,
        Err(error) => return vec![Finding::broken(error.to_string(), "correct the sink's options")],
    };
    config.set("allow.auto.create.topics", "false");
    match metadata(options, &config).await {
        Err(failure) => findings.push(Finding::broken(failure.message, "see what is said, then check again")),
        Ok(metadata) => {
            let brokers: Vec<String> =
                metadata.brokers().iter().map(|broker| format!("{}:{}", broker.host(), broker.port())).collect();
            findings.push(Finding::works(format!("{} Kafka brokers answer: {}", brokers.len(), brokers.join(", "))));
            match options.topic.fixed() {
                None => findings.push(Finding::works(format!("topics are named by messages: {}", options.topic))),
                Some(name) => topic(options, &config, name, &metadata, &mut findings).await,
            }
        }
    }
    findings
}

/// What can be said without asking.
fn settings(options: &KafkaOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    if options.acks == KafkaAcks::Leader {
        findings.push(Finding::weak(
            "acks = \"1\": a broker that dies loses what it confirmed and no other has yet",
            "set acks = \"all\" and idempotent = true",
        ));
    }
    if !options.idempotent {
        findings.push(Finding::weak(
            "idempotent = false: a record is written twice when a confirmation is lost, and a lane goes one by one",
            "set idempotent = true",
        ));
    }
    if options.key == KafkaKey::MessageId {
        findings.push(Finding::weak(
            "key = \"message_id\": the messages of a lane lie in several partitions, which consumers read in any order",
            "set key = \"lane\" if consumers need the order of lanes",
        ));
    }
    findings
}

async fn metadata(options: &KafkaOptions, config: &ClientConfig) -> Result<Metadata, SinkFailure> {
    let until = Instant::now() + options.timeout;
    let producers = Producers::new(config.clone());
    let current = producers.current(until).await?;
    loop {
        let slice = METADATA_SLICE.min(options.timeout);
        let answer = producers.metadata(&current, options.topic.fixed(), slice).await;
        let error = match answer {
            Some(Ok(metadata)) => return Ok(metadata),
            Some(Err(error)) => error.to_string(),
            None => "its thread ended".to_owned(),
        };
        if Instant::now() >= until || current.state.is_unauthorized() {
            let words = format!("the Kafka brokers did not answer in time: {error}; check brokers");
            return Err(current.state.failure(SinkFailure::retryable(SinkFailure::UNREACHABLE, words)));
        }
    }
}

async fn topic(
    options: &KafkaOptions,
    config: &ClientConfig,
    name: &str,
    metadata: &Metadata,
    findings: &mut Vec<Finding>,
) {
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
        let words = format!("the brokers say nothing about the topic {name}");
        findings.push(Finding::broken(words, "create it, and allow the sink's user to describe it"));
        return;
    };
    match topic.error().map(Code::from) {
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => findings.push(Finding::broken(
            format!("the topic {name} does not exist, unless the brokers create it when it is first written to"),
            "create it, with three replicas and min.insync.replicas = 2",
        )),
        Some(code) => {
            let failure = failure::of(code, name);
            findings.push(Finding::broken(failure.message, "correct it at the cluster"));
        }
        None => {
            findings.extend(partitions(name, topic));
            let replicas = fewest_replicas(topic);
            let in_sync = min_in_sync(options, config, name).await;
            findings.extend(in_sync.and_then(|in_sync| durability(name, replicas, in_sync)));
        }
    }
}

fn fewest_replicas(topic: &MetadataTopic) -> usize {
    topic.partitions().iter().map(|partition| partition.replicas().len()).min().unwrap_or(0)
}

fn partitions(name: &str, topic: &MetadataTopic) -> Vec<Finding> {
    let (count, replicas) = (topic.partitions().len(), fewest_replicas(topic));
    let what = format!("the topic {name} has {count} partitions with {replicas} replicas");
    let mut findings = vec![if replicas < 2 {
        Finding::weak(format!("{what}: what a broker confirmed is lost with it"), "give the topic three replicas")
    } else {
        Finding::works(what)
    }];
    let headless: Vec<String> = topic
        .partitions()
        .iter()
        .filter(|partition| partition.leader() < 0)
        .map(|partition| partition.id().to_string())
        .collect();
    if !headless.is_empty() {
        let words = format!("the topic {name} has no leader for the partitions {}", headless.join(", "));
        findings.push(Finding::broken(words, "bring back the brokers that are down"));
    }
    findings
}

fn durability(name: &str, replicas: usize, in_sync: usize) -> Option<Finding> {
    if in_sync > replicas {
        let words =
            format!("the topic {name} wants {in_sync} replicas in sync and has {replicas}: nothing can be written");
        return Some(Finding::broken(words, "lower min.insync.replicas, or add replicas"));
    }
    (in_sync < 2 && replicas > 1).then(|| {
        let words =
            format!("the topic {name} has min.insync.replicas = {in_sync}: one broker alone may confirm a record");
        Finding::weak(words, "set min.insync.replicas = 2")
    })
}

/// `None` if the broker does not tell.
async fn min_in_sync(options: &KafkaOptions, config: &ClientConfig, name: &str) -> Option<usize> {
    let admin: AdminClient<DefaultClientContext> = config.create().ok()?;
    let asked = AdminOptions::new().request_timeout(Some(options.timeout));
    let topic = ResourceSpecifier::Topic(name);
    let answer = admin.describe_configs([&topic], &asked).await;
    // Its end blocks.
    drop(tokio::task::spawn_blocking(move || drop(admin)));
    let resource = answer.ok()?.into_iter().next()?.ok()?;
    resource.get("min.insync.replicas")?.value.as_ref()?.parse().ok()
}
