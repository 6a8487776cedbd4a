//! What a cluster can do to a batch: refuse a request in its middle, once or for good, forget who we are, be slow, be
//! away. librdkafka's mock cluster speaks Kafka's protocol over TCP and does as it is told; the reader is confluent-kafka.

use std::sync::Arc;
use std::time::Duration;

use postrider::lifecycle::Claimed;
use postrider_relay::sink::kafka::{KafkaProperty, KafkaSink};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::Consumer;
use postrider_testkit::sink_contract::{Arrived, assert_lanes_in_order, claimed, deliver};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr as Error};

use super::support::{all_delivered, options};
use crate::sinks::answers::{failed, in_lane, lane};

const FINE: Error = Error::RD_KAFKA_RESP_ERR_NO_ERROR;
/// Not of a topic: that would also fail, here, whatever else is on its way there.
const NOT_ALLOWED: Error = Error::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
const TOO_LARGE: Error = Error::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
const TOPIC: &str = "orders";

struct Cluster(MockCluster<'static, DefaultProducerContext>);

impl Cluster {
    /// One broker with topics of one partition each.
    fn start(topics: &[&str]) -> Self {
        let cluster = MockCluster::new(1).expect("a cluster");
        for topic in topics {
            cluster.create_topic(topic, 1, 1).expect("a topic");
        }
        Self(cluster)
    }

    fn sink(&self, topic: &str, timeout: Duration, properties: &[(&str, i64)]) -> Arc<KafkaSink> {
        let mut options = options(&self.0.bootstrap_servers(), topic);
        options.timeout = timeout;
        for (name, value) in properties {
            options.properties.insert((*name).to_owned(), KafkaProperty::Number(*value));
        }
        Arc::new(KafkaSink::new(options).expect("a sink"))
    }

    /// What the next requests that carry messages are answered.
    fn answer(&self, errors: &[Error]) {
        self.0.request_errors(RDKafkaApiKey::Produce, errors);
    }

    async fn consumer(&self, topics: &[&str]) -> Consumer {
        Consumer::kafka(&self.0.bootstrap_servers(), topics).await
    }
}

/// A cluster with its consumer, and a sink with a request for each message, so that one in the middle can be refused.
async fn one_by_one(timeout: Duration) -> (Cluster, Arc<KafkaSink>, Consumer) {
    let cluster = Cluster::start(&[TOPIC]);
    let sink = cluster.sink(TOPIC, timeout, &[("batch.num.messages", 1)]);
    let consumer = cluster.consumer(&[TOPIC]).await;
    (cluster, sink, consumer)
}

fn arrived(consumer: &Consumer) -> Vec<Arrived> {
    let arrivals = consumer.arrived_so_far();
    arrivals.into_iter().map(|arrival| Arrived::new(arrival.headers, arrival.body)).collect()
}

/// Delivers a lane, what is left of it again and again, as the relay would.
async fn until_delivered(sink: &KafkaSink, messages: &[Claimed]) {
    let mut left = messages;
    let mut last = Vec::new();
    for _ in 0..30 {
        last = deliver(sink, left).await;
        let done = last.iter().take_while(|verdict| matches!(verdict, Verdict::Delivered(_))).count();
        left = &left[done..];
        if left.is_empty() {
            return;
        }
    }
    panic!("not delivered: {last:?}");
}

/// Longer than a loaded machine needs for anything here, and less than a delivery of a test may take.
const PATIENT: Duration = Duration::from_secs(30);

/// Refusals that pass, in the middle of a lane and at its very start, where brokers do not know the producer yet and would
/// take any number: nothing overtakes, nothing is lost, nothing comes twice.
#[tokio::test]
async fn what_a_cluster_refuses_for_a_while_keeps_its_lane_in_order() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        Error::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        Error::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
        Error::RD_KAFKA_RESP_ERR__TRANSPORT,
    ] {
        let (cluster, sink, mut consumer) = one_by_one(PATIENT).await;
        cluster.answer(&[error, FINE, FINE, error, error, FINE, error]);
        let verdicts = deliver(&*sink, &lane("a", 20)).await;
        assert!(all_delivered(&verdicts), "{error:?}: {verdicts:?}");
        consumer.take(20).await;
        let arrived = arrived(&consumer);
        assert_eq!(arrived.len(), 20, "{error:?}: each once");
        assert_lanes_in_order(&arrived);
    }
}

/// A refusal for good in the middle of a lane: what stood before has arrived, what comes after was not sent, other lanes
/// are there in full, and when the rest is tried again it arrives in order.
#[tokio::test]
async fn what_a_cluster_refuses_for_good_holds_its_lane_only() {
    let (cluster, sink, mut consumer) = one_by_one(PATIENT).await;
    let messages: Vec<Claimed> = (1..=6).flat_map(|number| ["a", "b"].map(|lane| in_lane(lane, number))).collect();
    cluster.answer(&[FINE, FINE, FINE, FINE, NOT_ALLOWED]);
    let verdicts = deliver(&*sink, &messages).await;
    let mut left = Vec::new();
    for (message, verdict) in messages.iter().zip(&verdicts) {
        match (message.lane.as_deref(), message.sequence_id) {
            (Some("a"), Some(3)) => {
                assert_eq!(failed(verdict), (SinkFailure::UNAUTHORIZED, FailureClass::Retryable));
                left.push(message.clone());
            }
            (Some("a"), Some(4..)) => {
                assert_eq!(*verdict, Verdict::NotSent, "{:?}", message.sequence_id);
                left.push(message.clone());
            }
            _ => assert!(matches!(verdict, Verdict::Delivered(_)), "{:?}: {verdict:?}", message.sequence_id),
        }
    }
    consumer.take(8).await;
    assert!(all_delivered(&deliver(&*sink, &left).await));
    consumer.take(4).await;
    assert_lanes_in_order(&arrived(&consumer));
}

/// The very first message is refused for good: what follows in its lane was not even sent, because a broker that does not
/// know the producer yet would take it.
#[tokio::test]
async fn the_first_of_a_lane_goes_before_the_others() {
    let (cluster, sink, mut consumer) = one_by_one(PATIENT).await;
    let messages = lane("a", 10);
    cluster.answer(&[NOT_ALLOWED]);
    // Long enough for librdkafka to have the next request ready when the answer comes.
    cluster.0.broker_round_trip_time(1, Duration::from_millis(300)).expect("a slow broker");
    let verdicts = deliver(&*sink, &messages).await;
    cluster.0.broker_round_trip_time(1, Duration::ZERO).expect("a fast broker");
    assert_eq!(failed(&verdicts[0]).0, SinkFailure::UNAUTHORIZED);
    assert!(verdicts[1..].iter().all(|verdict| *verdict == Verdict::NotSent), "{verdicts:?}");
    assert!(all_delivered(&deliver(&*sink, &messages).await));
    consumer.take(10).await;
    assert_lanes_in_order(&arrived(&consumer));
}

/// A broker that says that a request is too large means all of its records: each is tried alone before one of them is
/// called too large, so that no message dies of its neighbours.
#[tokio::test]
async fn a_request_that_is_too_large_is_taken_apart() {
    let cluster = Cluster::start(&[TOPIC]);
    let sink = cluster.sink(TOPIC, PATIENT, &[("linger.ms", 500)]);
    let mut consumer = cluster.consumer(&[TOPIC]).await;
    cluster.answer(&[TOO_LARGE, FINE, TOO_LARGE]);
    let messages: Vec<Claimed> = (0..5).map(|number| claimed("orders", &number.to_string())).collect();
    let verdicts = deliver(&*sink, &messages).await;
    for (place, verdict) in verdicts.iter().enumerate() {
        if place == 1 {
            assert_eq!(failed(verdict), (SinkFailure::TOO_LARGE, FailureClass::Terminal));
        } else {
            assert!(matches!(verdict, Verdict::Delivered(_)), "{place}: {verdict:?}");
        }
    }
    assert_eq!(consumer.take(4).await.len(), 4);
}

/// A broker that has forgotten the producer, or lost count: the producer is replaced, and the batch goes on.
#[tokio::test]
async fn a_producer_that_the_cluster_disowns_is_replaced() {
    for error in [
        Error::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
        Error::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
    ] {
        let cluster = Cluster::start(&[TOPIC]);
        // All of a wave in one request: the mock cluster does not look at sequence numbers, and would take the next one.
        let sink = cluster.sink(TOPIC, PATIENT, &[("linger.ms", 300)]);
        let mut consumer = cluster.consumer(&[TOPIC]).await;
        cluster.answer(&[FINE, error]);
        let verdicts = deliver(&*sink, &lane("a", 10)).await;
        assert!(all_delivered(&verdicts), "{error:?}: {verdicts:?}");
        consumer.take(10).await;
        assert_lanes_in_order(&arrived(&consumer));
    }
}

/// A lane that goes to two topics: what is refused at one holds what would go to the other.
#[tokio::test]
async fn a_lane_over_two_topics_waits_for_itself() {
    let cluster = Cluster::start(&["one", "two"]);
    let sink = cluster.sink("{topic}", PATIENT, &[]);
    let mut messages = lane("a", 4);
    for (place, message) in messages.iter_mut().enumerate() {
        ["one", "two"][place % 2].clone_into(&mut message.topic);
    }
    cluster.answer(&[FINE, NOT_ALLOWED]);
    let verdicts = deliver(&*sink, &messages).await;
    assert!(matches!(verdicts[0], Verdict::Delivered(_)), "{verdicts:?}");
    assert_eq!(failed(&verdicts[1]).0, SinkFailure::UNAUTHORIZED);
    assert_eq!(verdicts[2..], [Verdict::NotSent, Verdict::NotSent]);
    assert!(all_delivered(&deliver(&*sink, &messages[1..]).await));
    let mut consumer = cluster.consumer(&["one", "two"]).await;
    consumer.take(4).await;
    assert_eq!(arrived(&consumer).len(), 4, "each once");
}

/// A cluster that is too slow: the sink itself gives up in time, says so of the first of the lane, takes back the others,
/// and is of use again afterwards.
#[tokio::test]
async fn a_slow_cluster_is_given_up_in_time() {
    let (cluster, sink, mut consumer) = one_by_one(Duration::from_secs(1)).await;
    assert!(all_delivered(&deliver(&*sink, &[in_lane("warm", 1)]).await));
    cluster.0.broker_round_trip_time(1, Duration::from_secs(5)).expect("a slow broker");
    let messages = lane("a", 5);
    let verdicts = deliver(&*sink, &messages).await;
    assert_eq!(failed(&verdicts[0]), (SinkFailure::TIMEOUT, FailureClass::Retryable));
    assert!(verdicts[1..].iter().all(|verdict| *verdict == Verdict::NotSent), "{verdicts:?}");
    cluster.0.broker_round_trip_time(1, Duration::ZERO).expect("a fast broker");
    until_delivered(&sink, &messages).await;
    consumer.take(6).await;
    assert_lanes_in_order(&arrived(&consumer));
}

/// A cluster that goes away and comes back: unreachable, then delivered.
#[tokio::test]
async fn a_cluster_that_is_away_is_unreachable() {
    let cluster = Cluster::start(&[TOPIC]);
    let sink = cluster.sink(TOPIC, Duration::from_secs(2), &[]);
    assert!(all_delivered(&deliver(&*sink, &[in_lane("a", 1)]).await));
    cluster.0.broker_down(1).expect("it goes down");
    let verdicts = deliver(&*sink, &[in_lane("a", 2)]).await;
    assert_eq!(failed(&verdicts[0]).0, SinkFailure::UNREACHABLE, "{verdicts:?}");
    cluster.0.broker_up(1).expect("it comes up");
    let sink = cluster.sink(TOPIC, PATIENT, &[]);
    assert!(all_delivered(&deliver(&*sink, &[in_lane("a", 2)]).await));
}

/// A delivery that is dropped stops: of twenty requests, one after the other, most are never made. What another delivery
/// had handed over meanwhile goes its way.
#[tokio::test]
async fn a_dropped_delivery_sends_nothing_more() {
    let (cluster, sink, mut consumer) = one_by_one(PATIENT).await;
    assert!(all_delivered(&deliver(&*sink, &[in_lane("warm", 1)]).await));
    cluster.0.broker_round_trip_time(1, Duration::from_millis(300)).expect("a slow broker");
    let messages = lane("a", 20);
    let other = Arc::clone(&sink);
    let other = tokio::spawn(async move { deliver(&*other, &lane("b", 2)).await });
    let dropped = tokio::time::timeout(Duration::from_millis(1_200), deliver(&*sink, &messages)).await;
    assert!(dropped.is_err(), "twenty times 300 ms are not over yet");
    let verdicts = other.await.expect("no panic");
    assert!(all_delivered(&verdicts), "{verdicts:?}");
    cluster.0.broker_round_trip_time(1, Duration::ZERO).expect("a fast broker");
    assert!(all_delivered(&deliver(&*sink, &[in_lane("c", 1)]).await));
    while !arrived(&consumer).iter().any(|message| message.lane == Some(("c".to_owned(), 1))) {
        consumer.take(1).await;
    }
    let before: Vec<Arrived> = arrived(&consumer);
    let of_a = before.iter().filter(|message| message.lane.as_ref().is_some_and(|(lane, _)| lane == "a")).count();
    assert!(of_a < 12, "{of_a} of 20 were sent, of which at most six had the time");
    assert!(all_delivered(&deliver(&*sink, &messages).await));
    while arrived(&consumer).iter().filter(|message| message.lane == Some(("a".to_owned(), 20))).count() == 0 {
        consumer.take(1).await;
    }
    assert_lanes_in_order(&arrived(&consumer));
}

/// Proves H9: a batch is one flow of records, grouped by topic. However its messages are mixed, each topic gets one request
/// with all of its messages: when the cluster refuses a single request, exactly the messages of one topic fail.
#[tokio::test]
async fn a_batch_is_one_request_for_each_topic() {
    let topics = ["blue", "green", "red"];
    let cluster = Cluster::start(&topics);
    // Longer than it takes to hand over 600 messages, on any machine.
    let sink = cluster.sink("{topic}", PATIENT, &[("linger.ms", 1_000)]);
    let messages: Vec<Claimed> = (0..600).map(|number| claimed(topics[number % 3], &number.to_string())).collect();
    cluster.answer(&[NOT_ALLOWED]);
    let verdicts = deliver(&*sink, &messages).await;
    let mut failed: Vec<&str> = Vec::new();
    for (message, verdict) in messages.iter().zip(&verdicts) {
        match verdict {
            Verdict::Failed(failure) => {
                assert_eq!(failure.code, SinkFailure::UNAUTHORIZED);
                failed.push(&message.topic);
            }
            other => assert!(matches!(other, Verdict::Delivered(_)), "{other:?}"),
        }
    }
    assert_eq!(failed.len(), 200, "one request had all messages of one topic");
    assert!(failed.iter().all(|topic| *topic == failed[0]), "and of no other");
}

/// Without the idempotent producer a batch has one message of a lane, and the relay keeps the order.
#[tokio::test]
async fn without_idempotence_a_batch_has_one_message_of_a_lane() {
    let cluster = Cluster::start(&[TOPIC]);
    let mut options = options(&cluster.0.bootstrap_servers(), TOPIC);
    options.idempotent = false;
    let sink = KafkaSink::new(options).expect("a sink");
    assert!(!sink.batching().ordered);
    let mut consumer = cluster.consumer(&[TOPIC]).await;
    cluster.answer(&[NOT_ALLOWED]);
    // Handed several of a lane all the same, it sends one after the other.
    let lane_a = lane("a", 3);
    let messages: Vec<Arc<Claimed>> = lane_a.iter().cloned().map(Arc::new).collect();
    let verdicts = sink.deliver(&messages).await;
    assert_eq!(failed(&verdicts[0]).0, SinkFailure::UNAUTHORIZED);
    assert_eq!(verdicts[1..], [Verdict::NotSent, Verdict::NotSent]);
    until_delivered(&sink, &lane_a).await;
    consumer.take(3).await;
    assert_lanes_in_order(&arrived(&consumer));
}
