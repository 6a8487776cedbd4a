//! The MQTT sink against a private Mosquitto, read by paho.
//!
//! Mosquitto itself forgets on SIGKILL what it has acknowledged and not yet written, to its file or to a subscriber's
//! socket: one storm in three lost hundreds of messages. That is not the sink's to prove, so the server is stopped as an
//! operator stops it, with SIGTERM, in the middle of the deliveries, and started again.

mod special;

use std::sync::Arc;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use postrider_relay::secret::Secret;
use postrider_relay::sink::mqtt::{MqttOptions, MqttSink};
use postrider_relay::{Sink, SinkFailure};
use postrider_testkit::sink_contract::{Destination, Refusal, claimed, until_arrived};
use postrider_testkit::{Arrival, Broker as _, Consumer, Mosquitto, Server, sink_contract};

use super::answers::template;
use super::throughput::beside_a_bare_loop;

/// What the server sends to a subscriber does not wait for the subscriber's answers.
const NO_LIMIT: (&str, &str) = ("max_inflight_messages", "0");
/// It saves at its end. To write the whole file after every message makes the storm last minutes.
const SELDOM_SAVED: (&str, &str) = ("autosave_on_changes", "false");

struct Mqtt {
    server: Mosquitto,
    consumer: Consumer,
}

impl Mqtt {
    async fn start_with(settings: &[(&str, &str)]) -> Self {
        let server = Mosquitto::start_with(&[], &[&[NO_LIMIT, SELDOM_SAVED], settings].concat()).await;
        let consumer = Consumer::mqtt(&server.url(), "reader", "orders/#").await;
        Self { server, consumer }
    }

    fn options(&self) -> MqttOptions {
        MqttOptions::default().url(Secret::from(self.server.url().as_str()))
    }

    /// As the consumer saw them, once there are so many different ones.
    async fn arrivals(&self, different: usize) -> Vec<Arrival> {
        until_arrived(&self.consumer, different).await;
        self.consumer.arrived_so_far()
    }
}

fn sink(options: MqttOptions) -> Arc<dyn Sink> {
    Arc::new(MqttSink::new(options).expect("the options are good"))
}

#[async_trait]
impl Destination for Mqtt {
    async fn start() -> Self {
        Self::start_with(&[("max_packet_size", "300000")]).await
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        sink(self.options())
    }

    async fn kill(&mut self) {
        self.server.stop().await;
    }

    fn server(&self) -> &Server {
        self.server.server()
    }

    fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let large = claimed("orders", &format!("\"{}\"", "x".repeat(300_000)));
        let lane = self.options().topic(template("orders/{lane}"));
        let mut lines = claimed("orders", "1");
        lines.headers.insert("x-note".to_owned(), "two\nlines".to_owned());
        let no_address = SinkFailure::NO_ADDRESS;
        vec![
            Refusal::retryable("nobody listens", sink(self.options()), claimed("nobody", "1"), "MQTT_NO_SUBSCRIBERS"),
            Refusal::terminal("it is too large", sink(self.options()), large, SinkFailure::TOO_LARGE),
            Refusal::terminal("its topic is a filter", sink(self.options()), claimed("orders/#", "1"), no_address),
            Refusal::terminal("its topic is another", sink(self.options()), claimed("orders/+", "1"), no_address),
            Refusal::terminal("it has no lane", sink(lane), claimed("orders", "1"), no_address),
            Refusal::terminal("a header has two lines", sink(self.options()), lines, SinkFailure::INVALID_HEADER),
        ]
    }

    fn spoil(&self, message: &mut Claimed) {
        "nobody".clone_into(&mut message.topic);
    }
}

sink_contract!(Mqtt);

/// Batches of a thousand keep at least half the rate of the bare library, which publishes them all and then waits for every
/// acknowledgement, without lanes and with a hundred.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let server = Mosquitto::start_with(&[], &[SELDOM_SAVED]).await;
    let mut bare = rumqttc::MqttOptions::new("bare", ("127.0.0.1", server.port()));
    bare.set_max_request_batch(100);
    let (client, mut events) = rumqttc::AsyncClient::builder(bare).capacity(1_000).build();
    let polling = tokio::spawn(async move { while events.poll().await.is_ok() {} });
    // Nobody reads, so that the reader is not what is measured.
    let url = Secret::from(server.url().as_str());
    let sink = sink(MqttOptions::default().url(url).require_subscriber(false));
    beside_a_bare_loop("mqtt", &*sink, async |batch| {
        let mut notices = Vec::with_capacity(batch.len());
        for message in batch {
            let options = rumqttc::PublishOptions::at_least_once();
            let publishing = client.publish_tracked("orders", message.content.as_bytes().to_vec(), options);
            notices.push(publishing.await.expect("it is sent"));
        }
        for notice in notices {
            notice.wait_async().await.expect("an answer");
        }
    })
    .await;
    polling.abort();
}
