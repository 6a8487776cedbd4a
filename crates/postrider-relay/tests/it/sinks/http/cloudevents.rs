//! `CloudEvents` in the three modes of HTTP, read by the official SDK in another language.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::sink::http::HttpBody;
use postrider_testkit::python;
use postrider_testkit::sink_contract::claimed;
use serde_json::{Value, json};
use uuid::Uuid;

use super::receiver::{Received, Receiver};
use super::{deliver, delivered, options, sink};

/// The events of a request as the SDK reads them: attributes, and the data in base64.
async fn read(received: &Received) -> Vec<Value> {
    const PROGRAM: &str = r"
import base64, json, sys
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.formats.json import JSONFormat

request = json.load(sys.stdin)
headers, body = request['headers'], base64.b64decode(request['body'])
form = JSONFormat()
if headers['content-type'].startswith('application/cloudevents-batch'):
    events = [form.read(None, json.dumps(event)) for event in json.loads(body)]
else:
    events = [from_http_event(HTTPMessage(headers=headers, body=body), form)]
for event in events:
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    data = event.get_data()
    if not isinstance(data, (bytes, bytearray)):
        data = data.encode() if isinstance(data, str) else json.dumps(data).encode()
    print(json.dumps({'attributes': attributes, 'data': base64.b64encode(data).decode()}))
";
    let headers: serde_json::Map<String, Value> = received
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), json!(String::from_utf8_lossy(value.as_bytes()))))
        .collect();
    let request = json!({ "headers": headers, "body": STANDARD.encode(&received.body) });
    let output = python(PROGRAM, &[], request.to_string().as_bytes()).await;
    assert!(output.status.success(), "{}", output.stderr);
    output.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn order() -> Claimed {
    let mut message = claimed("order.placed", "{\"a\": \"ü\"}");
    "my shop".clone_into(&mut message.namespace);
    message.tenant_id = Some("tenant-1".to_owned());
    message.lane = Some("konto \"ü\" 100%".to_owned());
    message.sequence_id = Some(42);
    message.dedupe_key = Some("bestellung ü/7".to_owned());
    message
        .headers
        .insert("Traceparent".to_owned(), "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    message.headers.insert("ce-id".to_owned(), "forged".to_owned());
    message.headers.insert("content-language".to_owned(), "de".to_owned());
    message
}

fn image() -> Claimed {
    let mut message = order();
    message.message_id = Uuid::now_v7();
    message.content = Content::Bytes((0..=255).collect());
    message.content_type = Some("image/png".to_owned());
    message
}

fn assert_read(event: &Value, message: &Claimed) {
    let attributes = &event["attributes"];
    for (name, value) in [
        ("specversion", "1.0"),
        ("id", &message.message_id.to_string()),
        ("source", "/postrider/my%20shop"),
        ("type", "order.placed"),
        ("tenantid", "tenant-1"),
        ("partitionkey", "konto \"ü\" 100%"),
        ("sequence", "0000000000000000042"),
        ("dedupekey", "bestellung ü/7"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("datacontenttype", message.content_type.as_deref().unwrap_or("application/json")),
    ] {
        assert_eq!(attributes[name], json!(value), "{name} of {event}");
    }
    assert!(attributes["time"].as_str().is_some_and(|time| time.starts_with("20")), "{event}");
    let data = STANDARD.decode(event["data"].as_str().expect("text")).expect("base64");
    match &message.content {
        Content::Json(json) => {
            let (sent, read): (Value, Value) =
                (serde_json::from_str(json.get()).expect("JSON"), serde_json::from_slice(&data).expect("JSON"));
            assert_eq!(sent, read);
        }
        Content::Bytes(bytes) => assert_eq!(&data, bytes),
    }
}

#[tokio::test]
async fn the_official_sdk_reads_one_event_in_json() {
    let receiver = Receiver::accepting().await;
    let http = sink(&options(&receiver).body(HttpBody::CloudeventsStructured));
    for message in [order(), image()] {
        delivered(&http, &message).await;
        let request = receiver.received().pop().expect("a request");
        assert_eq!(request.header("content-type"), Some("application/cloudevents+json"));
        assert_eq!(request.header("content-language"), None, "that is about the content, not about this");
        assert_read(&read(&request).await[0], &message);
    }
}

#[tokio::test]
async fn the_official_sdk_reads_one_event_in_headers() {
    let receiver = Receiver::accepting().await;
    let http = sink(&options(&receiver).body(HttpBody::CloudeventsBinary));
    for message in [order(), image()] {
        delivered(&http, &message).await;
        let request = receiver.received().pop().expect("a request");
        assert_eq!(request.body, message.content.as_bytes(), "the content as it is");
        assert_eq!(request.header("ce-partitionkey"), Some("konto%20%22%C3%BC%22%20100%25"));
        assert_eq!(request.headers.get_all("ce-id").iter().count(), 1);
        assert_read(&read(&request).await[0], &message);
    }
}

#[tokio::test]
async fn the_official_sdk_reads_a_batch_of_events() {
    let receiver = Receiver::accepting().await;
    let source = Some("https://shop.example/{topic}".parse().expect("a template"));
    let http = sink(&options(&receiver).body(HttpBody::CloudeventsBatch));
    let messages = [order(), image()];
    deliver(&http, &messages).await;
    let request = receiver.only();
    assert_eq!(request.header("content-type"), Some("application/cloudevents-batch+json"));
    let events = read(&request).await;
    assert_eq!(events.len(), 2);
    for (event, message) in events.iter().zip(&messages) {
        assert_read(event, message);
    }
    let sourced = sink(&options(&receiver).body(HttpBody::CloudeventsBatch).source(source));
    deliver(&sourced, &messages[..1]).await;
    let events = read(&receiver.received()[1]).await;
    assert_eq!(events[0]["attributes"]["source"], "https://shop.example/order.placed");
}
