//! The RabbitMQ sink against a private RabbitMQ, read by pika.

mod special;

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use postrider::lifecycle::Claimed;
use postrider_relay::secret::Secret;
use postrider_relay::sink::rabbitmq::{RabbitmqOptions, RabbitmqSink};
use postrider_relay::{Sink, SinkFailure};
use postrider_testkit::sink_contract::{Destination, Refusal, claimed, until_arrived};
use postrider_testkit::{Arrival, Broker as _, Consumer, RabbitMq, Server, sink_contract};

use super::answers::template;
use super::throughput::beside_a_bare_loop;

const EXCHANGE: &str = "events";

struct Rabbit {
    server: RabbitMq,
    consumer: Consumer,
}

impl Rabbit {
    async fn start_with(settings: &[(&str, &str)]) -> Self {
        let server = RabbitMq::start_with(settings).await;
        let consumer = Consumer::rabbitmq(&server.url(), EXCHANGE, "topic", "orders.#", "reader").await;
        Self { server, consumer }
    }

    fn options(&self) -> RabbitmqOptions {
        RabbitmqOptions::default().url(Secret::from(self.server.url().as_str())).exchange(Some(template(EXCHANGE)))
    }

    /// As the consumer saw them, once there are so many different ones.
    async fn arrivals(&self, different: usize) -> Vec<Arrival> {
        until_arrived(&self.consumer, different).await;
        self.consumer.arrived_so_far()
    }
}

fn sink(options: RabbitmqOptions) -> Arc<dyn Sink> {
    Arc::new(RabbitmqSink::new(options).expect("the options are good"))
}

#[async_trait]
impl Destination for Rabbit {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        sink(self.options())
    }

    fn server(&self) -> &Server {
        self.server.server()
    }

    fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let message = |topic: &str| claimed(topic, "1");
        let nowhere = self.options().exchange(Some(template("nowhere")));
        let small = self.options().max_message_size(100);
        let large = claimed("orders", &format!("\"{}\"", "x".repeat(100)));
        let wrong = self.options().password(Some(Secret::from("wrong")));
        let vhost = Secret::from(self.server.url_as("guest", "guest", "nowhere").as_str());
        let vhost = self.options().url(vhost);
        let lane = self.options().routing_key(template("{lane}"));
        let mut copies = message("orders");
        copies.headers.insert("CC".to_owned(), "orders".to_owned());
        let mut heavy = message("orders");
        heavy.headers.insert("x-heavy".to_owned(), "x".repeat(200_000));
        let long_key = message(&"x".repeat(256));
        let forbidden = SinkFailure::FORBIDDEN_DESTINATION;
        let queue = self.options().exchange(None);
        let listed = queue.clone().destinations(["reader"].into_iter().collect());
        let exchange = self.options().exchange(Some(template("{topic}")));
        let pair = [format!("{EXCHANGE}/orders")].into_iter().collect();
        let pair = self.options().destinations(pair);
        vec![
            Refusal::retryable("nobody is bound", sink(self.options()), message("nobody"), "AMQP_NO_ROUTE"),
            Refusal::retryable("there is no such exchange", sink(nowhere), message("orders"), "AMQP_NOT_FOUND"),
            Refusal::terminal("it is too large", sink(small), large, SinkFailure::TOO_LARGE),
            Refusal::retryable("the password is wrong", sink(wrong), message("orders"), SinkFailure::UNAUTHORIZED),
            Refusal::retryable("there is no such host", sink(vhost), message("orders"), "AMQP_NOT_ALLOWED"),
            Refusal::terminal("it has no lane", sink(lane), message("orders"), SinkFailure::NO_ADDRESS),
            Refusal::terminal("its key is too long", sink(self.options()), long_key, SinkFailure::NO_ADDRESS),
            Refusal::terminal("a queue of the server's own", sink(queue), message("amq.rabbitmq.reply-to"), forbidden),
            Refusal::terminal("a queue that is not listed", sink(listed), message("orders"), forbidden),
            Refusal::terminal("an exchange of the server's own", sink(exchange), message("amq.direct"), forbidden),
            Refusal::terminal("a key that is not listed", sink(pair), message("users"), forbidden),
            Refusal::terminal("a header is RabbitMQ's own", sink(self.options()), copies, SinkFailure::INVALID_HEADER),
            Refusal::terminal("its headers fill a frame", sink(self.options()), heavy, SinkFailure::INVALID_HEADER),
        ]
    }

    fn spoil(&self, message: &mut Claimed) {
        "nobody".clone_into(&mut message.topic);
    }
}

sink_contract!(Rabbit);

/// Batches of a thousand keep at least half the rate of the bare library, which publishes them all and then waits for every
/// confirm, without lanes and with a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let server = RabbitMq::start().await;
    let url = server.url();
    // The queue is made, and nobody reads it meanwhile.
    drop(Consumer::rabbitmq(&url, EXCHANGE, "topic", "orders.#", "reader").await);
    let connection = lapin::Connection::connect(&url, lapin::ConnectionProperties::default());
    let connection = connection.await.expect("a connection");
    let channel = connection.create_channel().await.expect("a channel");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
    let exchange = Some(template(EXCHANGE));
    let sink = sink(RabbitmqOptions::default().url(Secret::from(url.as_str())).exchange(exchange));
    beside_a_bare_loop("rabbitmq", &*sink, async |batch| {
        let mut confirms = Vec::with_capacity(batch.len());
        for message in batch {
            let options = BasicPublishOptions { mandatory: true, immediate: false };
            let properties = lapin::BasicProperties::default().with_delivery_mode(2);
            let body = message.content.as_bytes();
            let publishing = channel.basic_publish(EXCHANGE.into(), "orders".into(), options, body, properties);
            confirms.push(publishing.await.expect("it is sent"));
        }
        for confirm in confirms {
            assert!(confirm.await.expect("an answer").is_ack());
        }
    })
    .await;
}
