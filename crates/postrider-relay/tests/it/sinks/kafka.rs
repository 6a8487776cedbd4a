//! Kafka, as the broker nisshi speaks it; what nisshi cannot be made to do (refuse, forget, move a leader) librdkafka's
//! mock cluster does, in `faults`. Read by confluent-kafka.

mod faults;
mod grouping;
mod look;
mod support;
mod throughput;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::sink::kafka::{KafkaProperty, KafkaSink};
use postrider_relay::{Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{Arrived, Destination, Refusal, claimed, deliver, distinct};
use postrider_testkit::{Broker as _, Consumer, Kafka, Server};
use tokio::sync::Mutex;

use self::support::{options, reference};

/// More than any message of the contract has, and less than `spoil` makes of one.
const MAX_BYTES: i64 = 300_000;

struct Nisshi {
    kafka: Kafka,
    topic: String,
    /// With how many of its arrivals were taken.
    consumer: Mutex<(Consumer, usize)>,
}

impl Nisshi {
    fn sink_to(&self, topic: &str) -> Arc<dyn Sink> {
        let mut options = options(self.kafka.address(), topic);
        for (name, value) in [
            ("message.max.bytes", KafkaProperty::Number(MAX_BYTES)),
            ("allow.auto.create.topics", KafkaProperty::Flag(false)),
        ] {
            options.properties.insert(name.to_owned(), value);
        }
        Arc::new(KafkaSink::new(options).expect("a sink"))
    }
}

#[async_trait]
impl Destination for Nisshi {
    async fn start() -> Self {
        let kafka = Kafka::start().await;
        let topic = kafka.topic("orders", 3).await;
        let consumer = Consumer::kafka(kafka.address(), &[&topic]).await;
        Self { kafka, topic, consumer: Mutex::new((consumer, 0)) }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        self.sink_to(&self.topic)
    }

    fn server(&self) -> &Server {
        self.kafka.server()
    }

    async fn arrived(&self, different: usize) -> Vec<Arrived> {
        let mut guard = self.consumer.lock().await;
        let (consumer, taken) = &mut *guard;
        loop {
            let arrived: Vec<Arrived> = consumer
                .arrived_so_far()
                .into_iter()
                .map(|arrival| Arrived::new(arrival.headers, arrival.body))
                .collect();
            match different.saturating_sub(distinct(&arrived)) {
                0 => return arrived,
                missing => {
                    // At least so many more have to come; to take less would be to look at all of them again and again.
                    let until = arrived.len() + missing;
                    consumer.take(until - *taken).await;
                    *taken = until;
                }
            }
        }
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let mut large = claimed("orders", "1");
        self.spoil(&mut large);
        let (ours, by_topic) = (self.sink_to(&self.topic), self.sink_to("{topic}"));
        let own = claimed("__consumer_offsets", "1");
        let (order, no_address) = (|| claimed("orders", "1"), SinkFailure::NO_ADDRESS);
        let unknown = "KAFKA_UNKNOWN_TOPIC_OR_PARTITION";
        vec![
            Refusal::terminal("larger than message.max.bytes", ours, large, SinkFailure::TOO_LARGE),
            Refusal::terminal("no tenant for the topic", self.sink_to("{tenant_id}"), order(), no_address),
            Refusal::terminal("no name of a topic", by_topic.clone(), claimed("orders of today", "1"), no_address),
            Refusal::terminal("a topic of Kafka's own", by_topic, own, SinkFailure::FORBIDDEN_DESTINATION),
            Refusal::retryable("a topic that is not there", self.sink_to("nowhere"), order(), unknown),
        ]
    }

    fn spoil(&self, message: &mut Claimed) {
        message.content = Content::Bytes(vec![b'x'; 400_000]);
        message.content_type = Some("application/octet-stream".to_owned());
    }
}

postrider_testkit::sink_contract!(Nisshi);

/// What the broker says comes back: where the record lies, which is where a consumer finds it, under its key.
#[tokio::test]
async fn a_receipt_says_where_the_record_lies() {
    let nisshi = Nisshi::start().await;
    let sink = nisshi.sink().await;
    let mut messages: Vec<Claimed> = (0..30).map(|number| claimed("orders", &number.to_string())).collect();
    for message in &mut messages[..15] {
        message.lane = Some("a".to_owned());
    }
    let verdicts = deliver(&*sink, &messages).await;
    let arrivals = nisshi.consumer.lock().await.0.take(messages.len()).await;
    let by_reference: HashMap<String, &postrider_testkit::Arrival> = arrivals
        .iter()
        .map(|arrival| {
            let partition = arrival.partition.expect("a partition");
            (format!("{}/{partition}@{}", nisshi.topic, arrival.id), arrival)
        })
        .collect();
    for (message, verdict) in messages.iter().zip(&verdicts) {
        let Verdict::Delivered(receipt) = verdict else { panic!("{verdict:?}") };
        let arrival = by_reference[reference(receipt)];
        let id = message.message_id.to_string();
        assert_eq!(arrival.header("postrider-message-id"), Some(id.as_str()));
        let key = message.lane.as_ref().unwrap_or(&id);
        assert_eq!(arrival.key.as_deref(), Some(key.as_bytes()), "the lane, or else the message id");
    }
}
