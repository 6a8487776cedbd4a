//! The events in Kafka, by `kafka.toml` and a drain.

use std::collections::BTreeMap;

use example_contacts::{Identity, TenantId, resolve};
use postrider_testkit::{Consumer, Kafka, python};
use uuid::Uuid;

use crate::resolve::service;
use crate::script::programs;

const CREATE_TOPIC: &str = include_str!("../../../../crates/postrider-testkit/python/create_topic.py");
const CONTACTS: usize = 20;

/// Proves H9: one drain delivers the events of two topics to two topics of a broker, each once, with the contact as the key.
#[tokio::test]
async fn a_drain_delivers_to_kafka_by_topic() {
    let (database, pool) = service().await;
    let kafka = Kafka::start().await;
    // The broker may be a shared one.
    let prefix = format!("test-{}", Uuid::new_v4().simple());
    let topics = ["contact.created", "contact.identified"].map(|topic| format!("{prefix}.{topic}"));
    for topic in &topics {
        let created = python(CREATE_TOPIC, &[kafka.address(), topic, "3"], b"").await;
        assert!(created.status.success(), "{}", created.stderr);
    }
    let mut consumer = Consumer::kafka(kafka.address(), &[&topics[0], &topics[1]]).await;
    for number in 0..CONTACTS {
        let identities =
            [Identity::Email(format!("{number}@example.org")), Identity::ExternalId(format!("crm-{number}"))];
        resolve(&pool, TenantId::from_u128(1), &identities).await.unwrap();
    }
    let drain = tokio::process::Command::new(programs().join("postrider"))
        .args(["drain", "--config", concat!(env!("CARGO_MANIFEST_DIR"), "/kafka.toml")])
        .args(["--database-url", &database.url()])
        .env("POSTRIDER__SINKS__DEFAULT__KAFKA__BROKERS", kafka.address())
        .env("POSTRIDER__SINKS__DEFAULT__KAFKA__TOPIC", format!("{prefix}.{{topic}}"))
        .env("POSTRIDER__SINKS__DEFAULT__KAFKA__DESTINATIONS", format!("[\"{prefix}.contact.*\"]"))
        .output()
        .await
        .unwrap();
    assert!(drain.status.success(), "{}", String::from_utf8_lossy(&drain.stderr));
    let mut by_topic: BTreeMap<String, usize> = BTreeMap::new();
    for arrival in consumer.take(3 * CONTACTS).await {
        assert_eq!(arrival.key.as_deref(), arrival.header("postrider-lane").map(str::as_bytes));
        *by_topic.entry(arrival.subject).or_default() += 1;
    }
    let [created, identified] = topics;
    assert_eq!(by_topic, BTreeMap::from([(created, CONTACTS), (identified, 2 * CONTACTS)]));
}
