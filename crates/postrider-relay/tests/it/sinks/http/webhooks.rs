//! Signed webhooks, verified by the reference library of Standard Webhooks in another language, on the bytes that came.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::lifecycle::Content;
use postrider_relay::FailureClass;
use postrider_relay::secret::Secret;
use postrider_relay::sink::http::{HttpBody, HttpOptions, HttpSink, WebhookOptions};
use postrider_testkit::python;
use postrider_testkit::sink_contract::claimed;
use serde_json::json;

use super::receiver::{Received, Receiver, Reply};
use super::{delivered, failed, options, sink};
use crate::support::{message, quick, site_with, start};

const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const OTHER: &str = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn webhook(receiver: &Receiver, secrets: &[&str]) -> HttpOptions {
    let webhook = WebhookOptions::new(secrets.iter().copied().map(Secret::from).collect());
    // The receiver of a test is on this machine.
    options(receiver).webhook(Some(webhook)).allow(vec!["127.0.0.1/32".parse().expect("a network")])
}

/// Which of the requests the reference library takes with this secret.
async fn verified(secret: &str, received: &[Received]) -> Vec<bool> {
    const PROGRAM: &str = r#"
import base64, hashlib, hmac, json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

def by_hand(secret, body, headers):
    key = base64.b64decode(secret.removeprefix('whsec_'))
    signed = f'{headers["webhook-id"]}.{headers["webhook-timestamp"]}.'.encode() + body
    signature = 'v1,' + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return signature in headers['webhook-signature'].split(' ')

for request in json.load(sys.stdin):
    body, headers = base64.b64decode(request['body']), request['headers']
    try:
        Webhook(sys.argv[1]).verify(body, headers, json_parse=False)
        print('true')
    except WebhookVerificationError:
        print('false')
    except UnicodeDecodeError:  # the library takes text only
        print('true' if by_hand(sys.argv[1], body, headers) else 'false')
"#;
    let requests: Vec<_> = received
        .iter()
        .map(|request| {
            let headers: serde_json::Map<String, serde_json::Value> = ["id", "timestamp", "signature"]
                .map(|name| format!("webhook-{name}"))
                .into_iter()
                .map(|name| (name.clone(), json!(request.header(&name).expect("a header"))))
                .collect();
            json!({ "headers": headers, "body": STANDARD.encode(&request.body) })
        })
        .collect();
    let output = python(PROGRAM, &[secret], json!(requests).to_string().as_bytes()).await;
    assert!(output.status.success(), "{}", output.stderr);
    output.stdout.lines().map(|line| line == "true").collect()
}

#[tokio::test]
async fn the_reference_library_verifies_each_secret() {
    let receiver = Receiver::accepting().await;
    let http = sink(&webhook(&receiver, &[NEW, OLD]));
    let mut bytes = claimed("t", "1");
    bytes.content = Content::Bytes("no JSON, but ü".into());
    let mut no_text = claimed("t", "1");
    no_text.content = Content::Bytes((0..=255).collect());
    let structured = webhook(&receiver, &[NEW, OLD]).body(HttpBody::CloudeventsStructured);
    delivered(&http, &claimed("order.placed", "{ \"a\" : \"ü\" }")).await;
    delivered(&http, &bytes).await;
    delivered(&http, &no_text).await;
    delivered(&sink(&structured), &claimed("order.placed", "{}")).await;
    let mut requests = receiver.received();
    for (secret, expected) in [(NEW, true), (OLD, true), (OTHER, false)] {
        assert_eq!(verified(secret, &requests).await, vec![expected; 4], "{secret}");
    }
    for request in &mut requests {
        request.body = [&request.body[..], b" "].concat().into();
    }
    assert_eq!(verified(NEW, &requests).await, vec![false; 4], "a changed body is noticed");
}

#[tokio::test]
async fn the_id_is_the_messages_over_all_retries_and_a_producer_cannot_forge() {
    let receiver =
        Receiver::start(|received| Reply::status(if received.header("x-try") == Some("1") { 500 } else { 200 })).await;
    let http = sink(&webhook(&receiver, &[NEW]));
    let mut message = claimed("t", "1");
    for name in ["webhook-id", "Webhook-Timestamp", "webhook-signature"] {
        message.headers.insert(name.to_owned(), "forged".to_owned());
    }
    message.headers.insert("x-try".to_owned(), "1".to_owned());
    failed(&http, &message).await;
    message.headers.insert("x-try".to_owned(), "2".to_owned());
    delivered(&http, &message).await;
    let requests = receiver.received();
    for request in &requests {
        assert_eq!(request.header("webhook-id"), Some(message.message_id.to_string().as_str()));
        assert_eq!(request.headers.get_all("webhook-signature").iter().count(), 1);
    }
    assert_eq!(verified(NEW, &requests).await, vec![true, true]);
}

/// A receiver that says 410 wants no more: the sink is paused until a person resumes it, and no message dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_gone_pauses_the_sink() {
    let receiver = Receiver::start(|_| Reply::status(410)).await;
    let failure = failed(&sink(&webhook(&receiver, &[NEW])), &claimed("t", "1")).await;
    assert_eq!((failure.code.as_str(), failure.class, failure.pause), ("HTTP_410", FailureClass::Retryable, true));
    assert!(!failed(&sink(&options(&receiver)), &claimed("t", "1")).await.pause, "that is a rule of webhooks");
    let base = webhook(&receiver, &[NEW]);
    let url = format!("{}?topic={{topic}}", base.url).parse().expect("a template");
    let several = base.url(url);
    assert!(!failed(&sink(&several), &claimed("t", "1")).await.pause, "one receiver does not stop the others");
    let site = site_with(&[message("t"), message("t")]).await;
    let http = sink(&webhook(&receiver, &[NEW]));
    let running = start(site.relay().options(quick()).sink_with("default", http, super::outcomes::patient(3)));
    site.until("select exists (select from outbox.sink where paused)").await;
    running.stop().await;
    assert_eq!(site.number("select count(*) from outbox.dead_letter").await, 0);
    assert_eq!(site.number("select count(*) from outbox.delivery").await, 2, "they wait");
}

#[tokio::test]
async fn webhooks_are_guarded_unless_said_otherwise() {
    let receiver = Receiver::accepting().await;
    let guarded = webhook(&receiver, &[NEW]).allow(Vec::new());
    assert_eq!(failed(&sink(&guarded), &claimed("t", "1")).await.code, "FORBIDDEN_ADDRESS");
    assert_eq!(receiver.connections(), 0);
    delivered(&sink(&guarded.guard(Some(false))), &claimed("t", "1")).await;
}

#[tokio::test]
async fn what_cannot_be_signed_is_refused_at_the_start() {
    let receiver = Receiver::accepting().await;
    for options in [
        webhook(&receiver, &[NEW]).gzip(true),
        webhook(&receiver, &[NEW]).body(HttpBody::Batch),
        webhook(&receiver, &[]),
        webhook(&receiver, &["hunter2"]),
    ] {
        let error = HttpSink::new(options).expect_err("it cannot be signed").to_string();
        assert!(error.contains("webhook") && !error.contains("hunter2"), "{error}");
    }
}
