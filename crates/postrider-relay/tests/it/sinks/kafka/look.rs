//! `check` on a cluster: what it finds well, weak and broken.

use std::time::Duration;

use postrider_relay::sink::kafka::{KafkaAcks, KafkaOptions, KafkaProperty, KafkaSink};
use postrider_relay::sink::{Finding, Level};
use postrider_relay::{Sink as _, SinkFailure, Verdict};
use postrider_testkit::Kafka;
use postrider_testkit::sink_contract::{claimed, deliver};
use rdkafka::mocking::MockCluster;

use super::support::options;

async fn check(options: KafkaOptions) -> Vec<Finding> {
    KafkaSink::new(options).expect("a sink").check().await
}

fn has(findings: &[Finding], level: Level, words: &str) -> bool {
    findings.iter().any(|finding| {
        let is_it = finding.level == level && finding.what.contains(words);
        assert!(!is_it || level == Level::Works || finding.fix.is_some(), "{finding:?} says what to do");
        is_it
    })
}

#[tokio::test]
async fn a_check_looks_at_the_topic_and_creates_none() {
    let kafka = Kafka::start().await;
    let topic = kafka.topic("orders", 3).await;
    let findings = check(options(kafka.address(), &topic)).await;
    assert!(has(&findings, Level::Works, "1 Kafka brokers answer"), "{findings:?}");
    assert!(has(&findings, Level::Weak, "3 partitions with 1 replicas"), "{findings:?}");
    for _ in 0..2 {
        let findings = check(options(kafka.address(), "nowhere")).await;
        assert!(has(&findings, Level::Broken, "nowhere does not exist"), "{findings:?}");
    }
    let findings = check(options(kafka.address(), "{topic}")).await;
    assert!(has(&findings, Level::Works, "topics are named by messages"), "{findings:?}");
    assert!(has(&findings, Level::Weak, "lets a producer choose any destination"), "{findings:?}");
    assert!(findings.iter().all(|finding| finding.level != Level::Broken), "{findings:?}");
}

#[tokio::test]
async fn a_check_names_what_is_weak() {
    let cluster = MockCluster::new(3).expect("a cluster");
    cluster.create_topic("orders", 4, 3).expect("a topic");
    let mut options = options(&cluster.bootstrap_servers(), "orders");
    // It does not answer a question for a topic's settings.
    options.timeout = Duration::from_secs(3);
    let findings = check(options.clone()).await;
    assert!(has(&findings, Level::Works, "3 Kafka brokers answer"), "{findings:?}");
    assert!(has(&findings, Level::Works, "4 partitions with 3 replicas"), "{findings:?}");
    options.acks = KafkaAcks::Leader;
    options.idempotent = false;
    let findings = check(options).await;
    assert!(has(&findings, Level::Weak, "acks"), "{findings:?}");
    assert!(has(&findings, Level::Weak, "idempotent"), "{findings:?}");
}

#[tokio::test]
async fn a_check_of_a_cluster_that_is_away_ends() {
    let cluster = MockCluster::new(1).expect("a cluster");
    let mut options = options(&cluster.bootstrap_servers(), "orders");
    options.timeout = Duration::from_secs(2);
    cluster.broker_down(1).expect("it goes down");
    let findings = check(options).await;
    assert!(has(&findings, Level::Broken, "cannot be reached"), "{findings:?}");
}

/// A broker that lets nobody in without a password it knows: the failure says so, and not merely that it took too long.
#[tokio::test]
async fn a_wrong_password_is_unauthorized() {
    let kafka = Kafka::start_with(&["--authentication"]).await;
    let mut options = options(kafka.address(), "orders");
    for (name, value) in [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "relay"),
        ("sasl.password", "hunter2"),
    ] {
        options.properties.insert(name.to_owned(), KafkaProperty::from(value));
    }
    let sink = KafkaSink::new(options.clone()).expect("PLAIN needs no TLS");
    let verdicts = deliver(&sink, &[claimed("orders", "1")]).await;
    let [Verdict::Failed(failure)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert_eq!(failure.code, SinkFailure::UNAUTHORIZED, "{failure:?}");
    assert!(!failure.message.contains("hunter2"), "{failure:?}");
    let findings = check(options).await;
    assert!(has(&findings, Level::Broken, "do not let us in"), "{findings:?}");
}
