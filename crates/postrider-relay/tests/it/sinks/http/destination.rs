//! The sink contract, kept with one message a request, with batches, and with batches that hold a whole lane.

use std::collections::{BTreeMap, HashSet};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::sink::http::{HttpBody, HttpOptions, HttpSink};
use postrider_relay::{FailureClass, Sink, SinkFailure};
use postrider_testkit::sink_contract::{Arrived, Destination, Refusal, claimed};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::receiver::{Received, Receiver, Reply};
use crate::support::PATIENCE;

/// Bodies that are longer are answered with 413.
const TOO_LARGE_BYTES: usize = 1_000_000;
/// The header that makes the receiver refuse a message with the status or the word that it holds.
const REFUSE: &str = "x-refuse";

mod content {
    use super::{OneByOne, Place};

    postrider_testkit::sink_contract!(Place<OneByOne>);
}

mod batch {
    use super::{Batch, Place};

    postrider_testkit::sink_contract!(Place<Batch>);
}

mod ordered_batch {
    use super::{OrderedBatch, Place};

    postrider_testkit::sink_contract!(Place<OrderedBatch>);
}

/// A way of sending, and what the receiver makes of it.
pub(super) trait Way: Send + Sync + 'static {
    const BODY: HttpBody;
    const LANES_IN_ORDER: bool = false;
    fn take(received: &Received) -> (Reply, Vec<Arrived>);
    fn refusals() -> [(&'static str, &'static str, FailureClass); 2];
}

/// What has been taken until now.
#[derive(Default)]
struct Taken {
    arrived: Vec<Arrived>,
    ids: HashSet<String>,
}

/// A server, and what it has taken.
pub(super) struct Place<W> {
    receiver: Receiver,
    taken: Arc<Mutex<Taken>>,
    different: Arc<watch::Sender<usize>>,
    way: PhantomData<W>,
}

impl<W: Way> Place<W> {
    fn options(&self) -> HttpOptions {
        let url = self.receiver.url("/in/{topic}").parse().expect("a template");
        let fixed = self.receiver.url("/in").parse().expect("a template");
        let url = if W::BODY == HttpBody::Batch { fixed } else { url };
        HttpOptions::new(url).body(W::BODY).lanes_in_order(W::LANES_IN_ORDER)
    }
}

#[async_trait]
impl<W: Way> Destination for Place<W> {
    async fn start() -> Self {
        let taken: Arc<Mutex<Taken>> = Arc::default();
        let different = Arc::new(watch::Sender::new(0));
        let (keep, count) = (Arc::clone(&taken), Arc::clone(&different));
        let receiver = Receiver::start(move |received| {
            if received.body.len() > TOO_LARGE_BYTES {
                return Reply::status(413);
            }
            let (reply, arrived) = W::take(received);
            let mut taken = keep.lock().expect("lock");
            taken.ids.extend(arrived.iter().map(|message| message.message_id.clone()));
            taken.arrived.extend(arrived);
            count.send_replace(taken.ids.len());
            reply
        })
        .await;
        Self { receiver, taken, different, way: PhantomData }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(HttpSink::new(self.options()).expect("a sink"))
    }

    async fn kill(&mut self) {
        self.receiver.kill().await;
    }

    async fn restart(&mut self) {
        self.receiver.serve().await;
    }

    fn stall(&self) {
        self.receiver.stall(true);
    }

    fn resume(&self) {
        self.receiver.stall(false);
    }

    async fn arrived(&self, different: usize) -> Vec<Arrived> {
        let mut counting = self.different.subscribe();
        let enough = counting.wait_for(|count| *count >= different);
        let in_time = tokio::time::timeout(3 * PATIENCE, enough).await.is_ok();
        let taken = self.taken.lock().expect("lock");
        assert!(in_time, "{} of {different} arrived", taken.ids.len());
        taken.arrived.clone()
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let sink = self.sink().await;
        let refusal = |why, code, class, change: &dyn Fn(&mut Claimed)| {
            let mut message = claimed("orders", "1");
            change(&mut message);
            Refusal { why, sink: Arc::clone(&sink), message, code, class }
        };
        let mut refusals = vec![refusal("it is too large", "HTTP_413", FailureClass::Terminal, &|message| {
            message.content = Content::Bytes(vec![7; TOO_LARGE_BYTES + 1]);
        })];
        for (word, code, class) in W::refusals() {
            refusals.push(refusal(word, code, class, &|message| {
                message.headers.insert(REFUSE.to_owned(), word.to_owned());
            }));
        }
        if W::BODY == HttpBody::Content {
            let invalid = SinkFailure::INVALID_HEADER;
            refusals.push(refusal("a line's end in a header", invalid, FailureClass::Terminal, &|message| {
                message.headers.insert("x-note".to_owned(), "a\r\nx-forged: b".to_owned());
            }));
        }
        refusals
    }

    fn spoil(&self, message: &mut Claimed) {
        message.headers.insert(REFUSE.to_owned(), W::refusals()[0].0.to_owned());
    }
}

/// One message a request, as it is.
pub(super) struct OneByOne;

impl Way for OneByOne {
    const BODY: HttpBody = HttpBody::Content;

    fn take(received: &Received) -> (Reply, Vec<Arrived>) {
        if let Some(status) = received.header(REFUSE) {
            return (Reply::status(status.parse().expect("a status")), Vec::new());
        }
        assert_eq!(received.path, "/in/orders");
        let headers = received.headers.iter().map(|(name, value)| {
            let value = value.as_bytes();
            let ours = name.as_str().starts_with("postrider-");
            (name.to_string(), if ours { percent_decode(value).collect() } else { value.to_vec() })
        });
        (Reply::status(204), vec![Arrived::new(headers.collect(), received.body.to_vec())])
    }

    fn refusals() -> [(&'static str, &'static str, FailureClass); 2] {
        [("422", "HTTP_422", FailureClass::Terminal), ("503", "HTTP_503", FailureClass::Retryable)]
    }
}

/// Many messages a request, one of each lane.
pub(super) struct Batch;

impl Way for Batch {
    const BODY: HttpBody = HttpBody::Batch;

    fn take(received: &Received) -> (Reply, Vec<Arrived>) {
        let Events { events } = serde_json::from_slice(&received.body).expect("a batch");
        let mut results = Vec::new();
        let mut taken = Vec::new();
        let mut held: HashSet<String> = HashSet::new();
        for event in events {
            let lane = event.lane.clone().unwrap_or_else(|| event.event_id.clone());
            let status = match event.headers.get(REFUSE) {
                _ if held.contains(&lane) => "retry",
                Some(refusal) => refusal.as_str(),
                None => "accepted",
            };
            results.push(json!({ "event_id": event.event_id, "status": status }));
            if status == "accepted" {
                taken.push(event.arrived());
            } else {
                held.insert(lane);
            }
        }
        (Reply::json(200, &json!({ "results": results })), taken)
    }

    fn refusals() -> [(&'static str, &'static str, FailureClass); 2] {
        [("rejected", "REJECTED", FailureClass::Terminal), ("retry", "RETRY", FailureClass::Retryable)]
    }
}

/// Many messages a request, several of a lane.
pub(super) struct OrderedBatch;

impl Way for OrderedBatch {
    const BODY: HttpBody = HttpBody::Batch;
    const LANES_IN_ORDER: bool = true;

    fn take(received: &Received) -> (Reply, Vec<Arrived>) {
        Batch::take(received)
    }

    fn refusals() -> [(&'static str, &'static str, FailureClass); 2] {
        Batch::refusals()
    }
}

/// A batch as a receiver reads it.
#[derive(Deserialize)]
struct Events {
    events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "these are the names of the contract")]
struct Event {
    event_id: String,
    tenant_id: Option<String>,
    event_type: String,
    occurred_at: String,
    namespace: String,
    lane: Option<String>,
    sequence_id: Option<i64>,
    dedupe_key: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    content_type: String,
    #[serde(default, deserialize_with = "there")]
    payload: Option<Box<RawValue>>,
    body: Option<String>,
}

/// `null` is a payload too.
fn there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl Event {
    /// As it would have come in a request of its own.
    fn arrived(self) -> Arrived {
        let said = self.headers.into_iter().map(|(name, value)| (name, Some(value)));
        let ours = [
            ("postrider-message-id", Some(self.event_id)),
            ("postrider-tenant-id", self.tenant_id),
            ("postrider-topic", Some(self.event_type)),
            ("postrider-occurred-at", Some(self.occurred_at)),
            ("postrider-namespace", Some(self.namespace)),
            ("postrider-lane", self.lane),
            ("postrider-sequence-id", self.sequence_id.map(|number| number.to_string())),
            ("postrider-dedupe-key", self.dedupe_key),
            ("content-type", Some(self.content_type)),
        ];
        let all = said.chain(ours.map(|(name, value)| (name.to_owned(), value)));
        let headers = all.filter_map(|(name, value)| Some((name, value?.into_bytes()))).collect();
        let body = match (self.payload, self.body) {
            (Some(payload), None) => payload.get().as_bytes().to_vec(),
            (None, Some(body)) => STANDARD.decode(body).expect("base64"),
            other => panic!("payload or body: {other:?}"),
        };
        Arrived::new(headers, body)
    }
}
