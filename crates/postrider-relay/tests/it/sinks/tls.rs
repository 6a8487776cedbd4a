//! Brokers that speak TLS and ask for a certificate: each sink trusts the authority it is told to and shows what it was
//! given, and sends nothing where it does not trust.

use std::path::Path;
use std::sync::Arc;

use postrider_relay::secret::Secret;
use postrider_relay::sink::mqtt::{MqttOptions, MqttSink};
use postrider_relay::sink::nats::{NatsOptions, NatsSink};
use postrider_relay::sink::rabbitmq::{RabbitmqOptions, RabbitmqSink};
use postrider_relay::sink::redis::{RedisOptions, RedisSink};
use postrider_relay::sink::template::Template;
use postrider_relay::{FailureClass, Sink, SinkFailure};
use postrider_testkit::sink_contract::{claimed, deliver};
use postrider_testkit::{Broker as _, Mosquitto, Nats, RabbitMq, Redis};

use super::answers::{assert_delivered, failed};
use super::authority::Authority;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The trusted one delivers; the other says why it does not, and may be tried again.
async fn assert_trust_decides(trusting: Arc<dyn Sink>, other: Arc<dyn Sink>) {
    assert_delivered(&deliver(&*trusting, &[claimed("orders", "1")]).await);
    let verdicts = deliver(&*other, &[claimed("orders", "1")]).await;
    assert_eq!(failed(&verdicts[0]), (SinkFailure::UNREACHABLE, FailureClass::Retryable), "{verdicts:?}");
}

#[tokio::test]
async fn redis_with_certificates_on_both_sides() {
    let (ours, stranger) = (Authority::new(), Authority::new());
    let [cert, key] = ours.files("localhost");
    let [client_cert, client_key] = ours.files("relay");
    let port = free_port();
    let ca = ours.path("ca.pem");
    let _redis = Redis::start_with(&[
        ("tls-port", &port.to_string()),
        ("tls-cert-file", text(&cert)),
        ("tls-key-file", text(&key)),
        ("tls-ca-cert-file", text(&ca)),
    ])
    .await;
    let options = |ca: &Authority| {
        RedisOptions::new(&format!("rediss://localhost:{port}"))
            .ca(Some(ca.path("ca.pem")))
            .client_cert(Some(client_cert.clone()))
            .client_key(Some(client_key.clone()))
    };
    let sink = |options| Arc::new(RedisSink::new(options).expect("good options"));
    assert_trust_decides(sink(options(&ours)), sink(options(&stranger))).await;
    let nameless = options(&ours).client_cert(None).client_key(None);
    assert_trust_decides(sink(options(&ours)), sink(nameless)).await;
}

#[tokio::test]
async fn nats_with_certificates_on_both_sides() {
    let (ours, stranger) = (Authority::new(), Authority::new());
    let [cert, key] = ours.files("localhost");
    let [client_cert, client_key] = ours.files("relay");
    let tls = format!(
        "{{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        text(&cert),
        text(&key),
        text(&ours.path("ca.pem"))
    );
    let nats = Nats::start_with(&[("tls", &tls)]).await;
    let url = nats.url().replace("nats://127.0.0.1", "tls://localhost");
    let options = |ca: &Authority| {
        NatsOptions::new(&url)
            .ca(Some(ca.path("ca.pem")))
            .client_cert(Some(client_cert.clone()))
            .client_key(Some(client_key.clone()))
    };
    let sink = |options| NatsSink::new(options).expect("good options");
    let verdicts = deliver(&sink(options(&ours)), &[claimed("orders", "1")]).await;
    // It answers, if only that nobody made a stream.
    assert_eq!(failed(&verdicts[0]).0, "NATS_NO_RESPONDERS", "{verdicts:?}");
    let verdicts = deliver(&sink(options(&stranger)), &[claimed("orders", "1")]).await;
    assert_eq!(failed(&verdicts[0]).0, SinkFailure::UNREACHABLE, "{verdicts:?}");
}

#[tokio::test]
async fn mqtt_with_certificates_on_both_sides() {
    let (ours, stranger) = (Authority::new(), Authority::new());
    let [cert, key] = ours.files("localhost");
    let [client_cert, client_key] = ours.files("relay");
    let ca = ours.path("ca.pem");
    let settings =
        [("cafile", text(&ca)), ("certfile", text(&cert)), ("keyfile", text(&key)), ("require_certificate", "true")];
    let server = Mosquitto::start_with(&[], &settings).await;
    let url = server.url().replace("mqtt://127.0.0.1", "mqtts://localhost");
    let options = |ca: &Authority| {
        MqttOptions::default()
            .url(Secret::from(url.as_str()))
            .ca(Some(ca.path("ca.pem")))
            .client_cert(Some(client_cert.clone()))
            .client_key(Some(client_key.clone()))
            .require_subscriber(false)
    };
    let sink = |options| Arc::new(MqttSink::new(options).expect("good options"));
    assert_trust_decides(sink(options(&ours)), sink(options(&stranger))).await;
}

#[tokio::test]
async fn rabbitmq_over_tls() {
    let (ours, stranger) = (Authority::new(), Authority::new());
    let [cert, key] = ours.files("localhost");
    let port = free_port();
    let ca = ours.path("ca.pem");
    let server = RabbitMq::start_with(&[
        ("listeners.ssl.default", &format!("127.0.0.1:{port}")),
        ("ssl_options.cacertfile", text(&ca)),
        ("ssl_options.certfile", text(&cert)),
        ("ssl_options.keyfile", text(&key)),
    ])
    .await;
    drop(postrider_testkit::Consumer::rabbitmq(&server.url(), "events", "topic", "orders", "reader").await);
    let exchange: Template = "events".parse().expect("a template");
    let options = |ca: &Authority| {
        RabbitmqOptions::default()
            .url(Secret::from(format!("amqps://guest:guest@localhost:{port}/%2f").as_str()))
            .ca(Some(ca.path("ca.pem")))
            .exchange(Some(exchange.clone()))
    };
    let sink = |options| Arc::new(RabbitmqSink::new(options).expect("good options"));
    assert_trust_decides(sink(options(&ours)), sink(options(&stranger))).await;
}
