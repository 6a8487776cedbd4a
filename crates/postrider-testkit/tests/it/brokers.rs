//! What each private broker does for its test, seen with the client library of its field: what it has acknowledged
//! survives a kill, a stall is silence, a consumer gets over both, and nothing is left when it is dropped.

use std::{env, io, net::TcpStream as StdTcpStream, time::Duration};

use postrider_testkit::{Arrival, Broker, Consumer, Kafka, Mosquitto, Nats, RabbitMq, Redis, python};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
    time::timeout,
};

/// Long enough to see that nobody answers.
const SILENCE: Duration = Duration::from_millis(300);
const NAMED_KAFKA: &str = "POSTRIDER_TEST_KAFKA";
const PATIENCE: Duration = Duration::from_mins(1);

async fn publish(kind: &str, url: &str, subject: &str, body: &str) {
    let output = python(include_str!("publish.py"), &[kind, url, subject, body], b"").await;
    assert!(output.status.success(), "{}", output.stderr);
}

/// A consumer of everything that is published, and how to publish it.
struct Field<'a> {
    kind: &'a str,
    url: String,
    subject: String,
    /// What makes the broker say something on a fresh connection.
    hello: &'a [u8],
}

/// The one life that every broker must be able to lead.
async fn lead<B: Broker>(broker: B, field: Field<'_>, consume: impl AsyncFn() -> Consumer) -> Arrival {
    let Field { kind, url, subject, hello } = &field;
    // What has to be declared is then there, and the consumer is away when the broker dies.
    drop(consume().await);
    publish(kind, url, subject, "one").await;
    broker.kill();
    assert!(StdTcpStream::connect(("127.0.0.1", broker.port())).is_err(), "nobody listens");
    broker.restart().await;
    let mut consumer = consume().await;
    let first = consumer.take(1).await.remove(0);
    assert_eq!((first.subject.as_str(), first.body.as_slice()), (subject.as_str(), b"one".as_slice()));
    assert_eq!(first.header("colour"), Some("blue"));

    broker.stall();
    let mut connection = TcpStream::connect(("127.0.0.1", broker.port())).await.unwrap();
    connection.write_all(hello).await.unwrap();
    let answer = connection.read_u8();
    tokio::pin!(answer);
    assert!(timeout(SILENCE, &mut answer).await.is_err(), "no answer, and no error either");
    broker.resume();
    timeout(PATIENCE, answer).await.expect("an answer after the stall").unwrap();

    broker.kill();
    broker.restart().await;
    publish(kind, url, subject, "two").await;
    assert_eq!(consumer.take(1).await[0].body, b"two", "the consumer found its way back");
    assert_eq!(consumer.arrived_so_far().len(), 2);

    // A clean restart, although it stands still.
    broker.stall();
    broker.restart().await;
    let (directory, port) = (broker.server().directory(), broker.port());
    drop(broker);
    assert!(!directory.exists(), "{}", directory.display());
    assert_eq!(StdTcpStream::connect(("127.0.0.1", port)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    first
}

#[tokio::test]
async fn redis_keeps_what_it_acknowledged() {
    let redis = Redis::start().await;
    let url = redis.url();
    let field = Field { kind: "redis", url: url.clone(), subject: "orders".into(), hello: b"PING\r\n" };
    let first = lead(redis, field, async || Consumer::redis(&url, &["orders", "unused"]).await).await;
    assert_eq!(first.key.as_deref(), Some(b"k".as_slice()));
    assert!(first.id.ends_with("-0"), "an entry's id: {}", first.id);
}

#[tokio::test]
async fn nats_keeps_what_it_acknowledged() {
    let nats = Nats::start().await;
    let url = nats.url();
    let field = Field { kind: "nats", url: url.clone(), subject: "orders.placed".into(), hello: b"" };
    let first = lead(nats, field, async || Consumer::nats(&url, "ORDERS", &["orders.>"]).await).await;
    assert_eq!(first.id, "1", "the stream's sequence");
}

#[tokio::test]
async fn mosquitto_keeps_what_it_acknowledged() {
    let mosquitto = Mosquitto::start().await;
    let url = mosquitto.url();
    // CONNECT of MQTT 5 with a client id that the server chooses.
    let hello = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00";
    let field = Field { kind: "mqtt", url: url.clone(), subject: "orders/placed".into(), hello };
    let first = lead(mosquitto, field, async || Consumer::mqtt(&url, "reader", "orders/#").await).await;
    assert_eq!(first.header("mqtt.ContentType"), Some("text/plain"));
}

#[tokio::test]
async fn rabbitmq_keeps_what_it_confirmed() {
    let rabbitmq = RabbitMq::start().await;
    let url = rabbitmq.url();
    let field =
        Field { kind: "rabbitmq", url: url.clone(), subject: "orders.placed".into(), hello: b"AMQP\x00\x00\x09\x01" };
    let consume = async || Consumer::rabbitmq(&url, "events", "topic", "orders.#", "reader").await;
    let first = lead(rabbitmq, field, consume).await;
    assert_eq!(first.header("amqp.delivery_mode"), Some("2"));
    assert_eq!(first.id, "m1");
}

#[tokio::test]
async fn kafka_keeps_what_it_acknowledged() {
    let kafka = Kafka::start().await;
    if !kafka.is_private() {
        return;
    }
    let address = kafka.address().to_owned();
    let topic = kafka.topic("orders", 3).await;
    // ApiVersions, version 0, without a client id.
    let hello = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff";
    let field = Field { kind: "kafka", url: address.clone(), subject: topic.clone(), hello };
    let first = lead(kafka, field, async || Consumer::kafka(&address, &[&topic]).await).await;
    assert_eq!(first.key.as_deref(), Some(b"k".as_slice()));
    assert_eq!((first.partition, first.id.as_str()), (Some(1), "0"));
}

#[tokio::test]
async fn a_kafka_that_is_named_is_used_and_left_alone() {
    let kafka = Kafka::start().await;
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "brokers::with_a_named_kafka", "--ignored"])
        .env(NAMED_KAFKA, kafka.address())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(said.contains("unset POSTRIDER_TEST_KAFKA"), "it went on to the kill, which was refused: {said}");
    kafka.topic("still-there", 1).await;
}

/// Started by the one above in a process of its own.
#[tokio::test]
#[ignore = "only a part of another test of this file"]
async fn with_a_named_kafka() {
    let Ok(named) = env::var(NAMED_KAFKA) else { return };
    let kafka = Kafka::start().await;
    assert_eq!((kafka.address(), kafka.is_private()), (named.as_str(), false));
    let topic = kafka.topic("orders", 2).await;
    let mut consumer = Consumer::kafka(kafka.address(), &[&topic]).await;
    publish("kafka", kafka.address(), &topic, "one").await;
    assert_eq!(consumer.take(1).await[0].body, b"one");
    kafka.kill();
}

#[tokio::test]
#[should_panic(expected = "waited for 1 messages; the consumer ended, 2 messages came before")]
async fn a_consumer_that_ends_is_not_waited_for() {
    let redis = Redis::start().await;
    let mut consumer = Consumer::redis(&redis.url(), &["orders", "other"]).await;
    publish("redis", &redis.url(), "orders", "one").await;
    publish("redis", &redis.url(), "orders", "two").await;
    assert_eq!(consumer.take(2).await.len(), 2);
    // Something else under the name of its stream is nothing that it gets over.
    let set = "import redis, sys; redis.Redis.from_url(sys.argv[1]).set('other', '')";
    assert!(python(set, &[&redis.url()], b"").await.status.success());
    consumer.take(1).await;
}

#[tokio::test]
#[should_panic(expected = "NotFoundError")]
async fn a_consumer_that_cannot_start_tells_why() {
    let nats = Nats::start().await;
    Consumer::nats(&nats.url(), "MISSING", &[]).await;
}
