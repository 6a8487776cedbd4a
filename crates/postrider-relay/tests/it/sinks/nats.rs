//! The NATS sink against a real server with JetStream, read by nats-py.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use async_trait::async_trait;
use futures_util::future::try_join_all;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::secret::Secret;
use postrider_relay::sink::Level;
use postrider_relay::sink::nats::{NatsOptions, NatsSink};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{Destination, Refusal, assert_lanes_in_order, claimed, deliver, until_arrived};
use postrider_testkit::{Broker as _, Consumer, Nats, Server};

use super::answers::{assert_delivered, deliver_a_long_lane_in_parts, failed, failure, has, in_lane, lane, template};
use super::throughput::beside_a_bare_loop;

/// Takes what the contract sends.
const STREAM: &str = "ORDERS";
/// A topic that no stream takes.
const NOWHERE: &str = "nowhere";
/// A topic of a stream that takes one message.
const FULL: &str = "full";

struct NatsDestination {
    nats: Nats,
    consumer: Consumer,
}

#[async_trait]
impl Destination for NatsDestination {
    async fn start() -> Self {
        let nats = Nats::start().await;
        let full = Config { max_messages: 1, discard: DiscardPolicy::New, ..stream("FULL", FULL) };
        make(&nats, full).await.publish(FULL, "the one".into()).await.expect("sent").await.expect("stored");
        let consumer = Consumer::nats(&nats.url(), STREAM, &["orders"]).await;
        Self { nats, consumer }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(sink(options(&self.nats)))
    }

    fn server(&self) -> &Server {
        self.nats.server()
    }

    fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let plain = || sink(options(&self.nats));
        let mut header = claimed("orders", "1");
        header.headers.insert("x-lines".to_owned(), "one\r\ntwo".to_owned());
        let mut large = claimed("orders", "1");
        large.content = Content::Bytes(vec![b'x'; 1024 * 1024]);
        let elsewhere = sink(options(&self.nats).stream(Some("INVOICES".to_owned())));
        let listed = sink(options(&self.nats).destinations(["orders"].into_iter().collect()));
        let forbidden = SinkFailure::FORBIDDEN_DESTINATION;
        vec![
            Refusal::retryable("no stream", plain(), claimed(NOWHERE, "1"), "NATS_NO_RESPONDERS"),
            Refusal::retryable("the stream is full", plain(), claimed(FULL, "1"), "NATS_10077"),
            Refusal::terminal("beyond max_payload", plain(), large, SinkFailure::TOO_LARGE),
            Refusal::terminal("a line break in a header", plain(), header, SinkFailure::INVALID_HEADER),
            Refusal::terminal("a wildcard", plain(), claimed("orders.>", "1"), SinkFailure::NO_ADDRESS),
            Refusal::terminal("the server's own", plain(), claimed("$JS.API.INFO", "1"), forbidden),
            Refusal::terminal("a subject that is not listed", listed, claimed(NOWHERE, "1"), forbidden),
            Refusal::retryable("another stream takes the subject", elsewhere, claimed("orders", "1"), "NATS_10060"),
        ]
    }

    fn spoil(&self, message: &mut Claimed) {
        FULL.clone_into(&mut message.topic);
    }
}

postrider_testkit::sink_contract!(NatsDestination);

fn options(nats: &Nats) -> NatsOptions {
    NatsOptions::new(&nats.url())
}

fn sink(options: NatsOptions) -> NatsSink {
    NatsSink::new(options).expect("options that work")
}

/// A stream on files that takes one subject.
fn stream(name: &str, subject: &str) -> Config {
    Config { name: name.to_owned(), subjects: vec![subject.to_owned()], ..Config::default() }
}

async fn context(nats: &Nats) -> Context {
    jetstream::new(async_nats::connect(nats.url()).await.expect("a connection"))
}

async fn make(nats: &Nats, config: Config) -> Context {
    let context = context(nats).await;
    context.create_stream(config).await.expect("a stream");
    context
}

/// A server with a stream, and a sink that leads there.
async fn orders() -> (Nats, Context, NatsSink) {
    let nats = Nats::start().await;
    let context = make(&nats, stream(STREAM, "orders")).await;
    let sink = sink(options(&nats));
    (nats, context, sink)
}

async fn stored(context: &Context, stream: &str) -> u64 {
    context.get_stream(stream).await.expect("the stream").cached_info().state.messages
}

#[tokio::test]
async fn the_same_message_twice_is_stored_once_and_delivered_twice() {
    let (_nats, context, sink) = orders().await;
    let message = claimed("orders", "1");
    let verdicts = [deliver(&sink, std::slice::from_ref(&message)).await, deliver(&sink, &[message]).await].concat();
    let [Verdict::Delivered(first), Verdict::Delivered(second)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    assert_eq!((first.reference.as_deref(), first.code.as_deref()), (Some("ORDERS@1"), None));
    assert_eq!((second.reference.as_deref(), second.code.as_deref()), (Some("ORDERS@1"), Some("DUPLICATE")));
    assert_eq!(stored(&context, STREAM).await, 1);
}

/// Two sinks that lead into one stream: both deliveries are stored.
#[tokio::test]
async fn a_message_for_two_sinks_of_one_stream_is_stored_twice() {
    let (_nats, context, sink) = orders().await;
    let mut copies = [claimed("orders", "1"), claimed("orders", "1")];
    copies[1].message_id = copies[0].message_id;
    "audit".clone_into(&mut copies[1].sink);
    assert_delivered(&deliver(&sink, &copies).await);
    assert_eq!(stored(&context, STREAM).await, 2);
}

/// A producer's header does not command the server: `Nats-Rollup` would empty the stream, and the id is the message's.
#[tokio::test]
async fn a_producer_does_not_command_the_server() {
    let nats = Nats::start().await;
    let context = make(&nats, Config { allow_rollup: true, ..stream(STREAM, "orders") }).await;
    let consumer = Consumer::nats(&nats.url(), STREAM, &[]).await;
    let sink = sink(options(&nats));
    let mut messages = [claimed("orders", "1"), claimed("orders", "2")];
    for message in &mut messages {
        for (name, value) in [("Nats-Rollup", "all"), ("nats-msg-id", "one for both"), ("natsuki", "kept")] {
            message.headers.insert(name.to_owned(), value.to_owned());
        }
    }
    assert_delivered(&deliver(&sink, &messages).await);
    assert_eq!(stored(&context, STREAM).await, 2);
    for (arrived, message) in until_arrived(&consumer, 2).await.iter().zip(&messages) {
        assert_eq!(arrived.headers["nats-msg-id"], format!("{}/default", message.message_id).into_bytes());
        assert_eq!(arrived.headers["natsuki"], b"kept");
        assert!(!arrived.headers.contains_key("nats-rollup"));
    }
}

/// The stream is deleted between two batches and made again: what is refused meanwhile says how to make it.
#[tokio::test]
async fn a_stream_that_is_deleted_and_made_again() {
    let (_nats, context, sink) = orders().await;
    assert_delivered(&deliver(&sink, &[in_lane("a", 1), in_lane("b", 1)]).await);
    context.delete_stream(STREAM).await.expect("it goes");
    let next = [in_lane("a", 2), in_lane("a", 3), in_lane("b", 2)];
    let verdicts = deliver(&sink, &next).await;
    let refused = failure(&verdicts[..1]);
    assert_eq!((refused.code.as_str(), refused.class), ("NATS_NO_RESPONDERS", FailureClass::Retryable));
    assert!(refused.message.contains("nats stream add NAME --subjects 'orders'"), "{refused:?}");
    assert_eq!(verdicts[1], Verdict::NotSent);
    context.create_stream(stream(STREAM, "orders")).await.expect("a stream");
    assert_delivered(&deliver(&sink, &next).await);
    assert_eq!(stored(&context, STREAM).await, 3);
}

/// A stream that refuses large messages, in the middle of a lane: the message is dead, and nothing after it was sent.
#[tokio::test]
async fn a_message_that_only_the_stream_finds_too_large_stops_its_lane() {
    let nats = Nats::start_with(&[("max_payload", "64KB")]).await;
    let context = make(&nats, Config { max_message_size: 4_096, ..stream(STREAM, "orders") }).await;
    let sink = sink(options(&nats));
    for size in [8_192, 100_000] {
        let mut messages = lane("a", 4);
        messages[1].content = Content::Bytes(vec![b'x'; size]);
        let verdicts = deliver(&sink, &messages).await;
        assert_delivered(&verdicts[..1]);
        assert_eq!(failed(&verdicts[1]), (SinkFailure::TOO_LARGE, FailureClass::Terminal));
        assert_eq!(verdicts[2..], [Verdict::NotSent, Verdict::NotSent]);
    }
    assert_eq!(stored(&context, STREAM).await, 2);
}

#[tokio::test]
async fn a_wrong_login_may_be_tried_again_and_is_not_told() {
    let nats = Nats::start_with(&[("authorization", "{ user: relay, password: hunter2 }")]).await;
    let url = nats.url_as("relay", "hunter2");
    let login = async_nats::ConnectOptions::with_user_and_password("relay".to_owned(), "hunter2".to_owned());
    let context = jetstream::new(login.connect(nats.url()).await.expect("a connection"));
    context.create_stream(stream(STREAM, "orders")).await.expect("a stream");
    let as_user = |password: &str| options(&nats).user(Some("relay".to_owned())).password(Some(Secret::from(password)));
    let token = options(&nats).token(Some(Secret::from("hunter3")));
    for wrong in [options(&nats), as_user("hunter3"), NatsOptions::new(&nats.url_as("relay", "hunter3")), token] {
        assert!(!format!("{wrong:?}").contains("hunter3"));
        let verdicts = deliver(&sink(wrong), &[claimed("orders", "1")]).await;
        let refused = failure(&verdicts);
        assert_eq!((refused.code.as_str(), refused.class), (SinkFailure::UNAUTHORIZED, FailureClass::Retryable));
        assert!(!refused.message.contains("hunter"), "{refused:?}");
    }
    for right in [as_user("hunter2"), NatsOptions::new(&url)] {
        assert_delivered(&deliver(&sink(right), &[claimed("orders", "1")]).await);
    }
}

/// NATS does not answer to what may not be published: it says so beside, and the failure tells it.
#[tokio::test]
async fn what_may_not_be_published_is_told() {
    let users = "{ users: [ { user: relay, password: secret, permissions: { publish: { deny: [\"orders\"] } } } ] }";
    let nats = Nats::start_with(&[("authorization", users)]).await;
    let url = nats.url_as("relay", "secret");
    let sink = sink(NatsOptions::new(&url).timeout(Duration::from_millis(500)));
    let verdicts = deliver(&sink, &[claimed("orders", "1")]).await;
    let refused = failure(&verdicts);
    assert_eq!((refused.code.as_str(), refused.class), (SinkFailure::UNREACHABLE, FailureClass::Retryable));
    assert!(refused.message.to_lowercase().contains("permissions violation"), "{refused:?}");
}

/// A server that stands still while a large batch is being written: what did not get out before the delivery was dropped
/// stays here, but for what the library had in its hands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_written_when_a_delivery_is_dropped_is_not_sent() {
    let (nats, context, sink) = orders().await;
    assert_delivered(&deliver(&sink, &[claimed("orders", "0")]).await);
    nats.stall();
    let large = |_| {
        let mut message = claimed("orders", "0");
        message.content = Content::Bytes(vec![b'x'; 500_000]);
        message
    };
    let large: Vec<Claimed> = (0..200).map(large).collect();
    let cut_off = tokio::time::timeout(Duration::from_secs(2), deliver(&sink, &large)).await;
    assert!(cut_off.is_err(), "{cut_off:?}");
    nats.resume();
    assert_delivered(&deliver(&sink, &[claimed("orders", "1")]).await);
    // Once it is dropped, the connection ends when the server has read what was written.
    let until = std::time::Instant::now() + Duration::from_mins(1);
    let mut before = 0;
    let arrived = loop {
        let arrived = stored(&context, STREAM).await;
        if arrived == before {
            break arrived;
        }
        assert!(std::time::Instant::now() < until, "it does not come to an end");
        before = arrived;
        context.client().flush().await.expect("the server answers");
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    assert!(arrived < 100, "{arrived} of 200 came although the delivery was dropped");
}

/// A lane that takes longer than the timeout is not sent to its end: the rest is handed back.
#[tokio::test]
async fn a_long_lane_is_handed_back_in_part() {
    let nats = Nats::start().await;
    let context = make(&nats, stream(STREAM, "orders")).await;
    let sink = sink(options(&nats).timeout(Duration::from_millis(250)));
    deliver_a_long_lane_in_parts(&sink).await;
    assert_eq!(stored(&context, STREAM).await, 1_000);
    let arrived = until_arrived(&Consumer::nats(&nats.url(), STREAM, &[]).await, 1_000).await;
    assert_lanes_in_order(&arrived);
}

#[tokio::test]
async fn a_look_finds_what_is_weak() {
    let nats = Nats::start().await;
    let context = context(&nats).await;
    let plain = options(&nats);
    let findings = sink(plain.clone()).check().await;
    assert!(has(&findings, Level::Broken, "no stream that we may see"), "{findings:?}");
    assert!(has(&findings, Level::Weak, "choose any destination"), "{findings:?}");
    let fixed = plain.clone().subject(template("orders"));
    let findings = sink(fixed.clone()).check().await;
    assert!(has(&findings, Level::Broken, "no stream takes the subject orders"), "{findings:?}");
    let named = plain.clone().stream(Some(STREAM.to_owned()));
    let findings = sink(named.clone()).check().await;
    assert!(has(&findings, Level::Broken, "there is no stream ORDERS"), "{findings:?}");
    let weak = Config {
        storage: StorageType::Memory,
        max_messages: 10,
        max_age: Duration::from_mins(1),
        duplicate_window: Duration::from_secs(30),
        ..stream(STREAM, "orders")
    };
    context.create_stream(weak).await.expect("a stream");
    for options in [plain, fixed, named] {
        let findings = sink(options).check().await;
        for words in ["in memory", "one replica", "for 30s only", "oldest messages", "after 60s"] {
            assert!(has(&findings, Level::Weak, words), "{words}: {findings:?}");
        }
        assert!(findings.iter().all(|finding| (finding.level == Level::Works) == finding.fix.is_none()));
    }
    let mute = Config { no_ack: true, ..stream("MUTE", "mute") };
    context.create_stream(mute).await.expect("a stream");
    let findings = sink(options(&nats).subject(template("mute"))).check().await;
    assert!(has(&findings, Level::Broken, "does not acknowledge"), "{findings:?}");
    nats.kill();
    let findings = sink(options(&nats)).check().await;
    assert!(has(&findings, Level::Broken, "NATS at"), "{findings:?}");
}

#[tokio::test]
async fn options_that_cannot_work_are_refused() {
    for (wrong, reason) in [
        ("\"servers\": \"\"", "there is none"),
        ("\"servers\": []", "there is none"),
        ("\"servers\": [\"nats://a\", \"http://relay:hunter2@b\"]", "nats://host:4222"),
        ("\"servers\": \"ws://a\"", "WebSockets"),
        ("\"servers\": \"a\", \"user\": \"relay\"", "`user` with `password`"),
        ("\"servers\": \"a\", \"token\": \"x\", \"nkey\": \"hunter2\"", "set one of"),
        ("\"servers\": \"a\", \"credentials\": \"hunter2\"", "credentials cannot be read"),
        ("\"servers\": \"nats://a:hunter2@b\", \"token\": \"x\"", "a user in the URL"),
        ("\"servers\": \"a\", \"client_cert\": \"/x\"", "go together"),
        ("\"servers\": \"a\", \"ca\": \"/no/such/file\"", "/no/such/file"),
        ("\"servers\": \"a\", \"timeout\": \"0s\"", "timeout"),
    ] {
        let options: NatsOptions = serde_json::from_str(&format!("{{ {wrong} }}")).expect("options");
        let error = NatsSink::new(options).err().expect("refused").to_string();
        assert!(error.contains(reason) && !error.contains("hunter2"), "{error}");
    }
    assert!(serde_json::from_str::<NatsOptions>("{ \"servers\": \"a\", \"subjct\": \"b\" }").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let nats = Nats::start().await;
    let context = make(&nats, Config { storage: StorageType::Memory, ..stream(STREAM, "orders") }).await;
    let bare = async |batch: &[Arc<Claimed>]| {
        let mut acknowledgements = Vec::with_capacity(batch.len());
        for message in batch {
            let payload = message.content.as_bytes().to_vec().into();
            let sent = context.publish_with_headers("orders", headers(message), payload).await;
            acknowledgements.push(std::future::IntoFuture::into_future(sent.expect("sent")));
        }
        try_join_all(acknowledgements).await.expect("confirmed");
    };
    beside_a_bare_loop("NATS", &sink(options(&nats)), bare).await;
}

/// The same headers.
fn headers(message: &Claimed) -> async_nats::HeaderMap {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("content-type", "application/octet-stream");
    headers.insert("Nats-Msg-Id", format!("{}/default", message.message_id));
    headers.insert("postrider-message-id", message.message_id.to_string());
    headers.insert("postrider-namespace", message.namespace.as_str());
    headers.insert("postrider-topic", message.topic.as_str());
    if let Some((lane, sequence)) = message.lane.as_ref().zip(message.sequence_id) {
        headers.insert("postrider-lane", lane.as_str());
        headers.insert("postrider-sequence-id", sequence.to_string());
    }
    headers.insert("postrider-occurred-at", "2026-11-16T00:00:00.000000Z");
    headers
}
