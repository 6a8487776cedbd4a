//! What a sender can do to others: a token speaks for its own sources and tenants, an id from the future makes nothing
//! vanish, and headers that nobody asked for stay outside.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Response;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use uuid::Uuid;

use super::{Receiver, drained, event, events, ids, refused, sent_ids, statuses};
use crate::admin::server::store;
use crate::support::{Outbox, command, finish, outboxes};

const TENANT: &str = "tenant-1";
const OTHER_TENANT: &str = "6f1c8b0e-0000-4000-8000-000000000002";

const SITE_7: &str = "seven-4f0a97cf1c5b6f1d2e";
const SITE_8: &str = "eight-9be1a2c0d8f3447a61";
const HUB: &str = "hub-0d0c3a7be2f94d5c88";

fn config(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

/// Two sites with a tenant each, and a hub that forwards for several sites of any tenant, and for none.
fn two_sites_and_a_hub() -> NamedTempFile {
    config(&format!(
        "[[receive.tokens]]\nname = \"site-7\"\ntoken = \"{SITE_7}\"\nsources = [\"site-7\"]\ntenants = [\"{TENANT}\"]\n\
         [[receive.tokens]]\nname = \"site-8\"\ntoken = \"{SITE_8}\"\nsources = [\"site-8\"]\ntenants = [\"{OTHER_TENANT}\"]\n\
         [[receive.tokens]]\nname = \"hub\"\ntoken = \"{HUB}\"\nsources = [\"hub/*\"]\ntenants = [\"*\", \"\"]\n"
    ))
}

impl Receiver {
    fn start_configured(outbox: &Outbox, config: &NamedTempFile) -> Self {
        Self::start(outbox, &["--config", config.path().to_str().unwrap()])
    }

    async fn send_as(&self, token: &str, events: &[Value]) -> Response {
        self.post().bearer_auth(token).body(json!({"events": events}).to_string()).send().await.unwrap()
    }
}

/// Number n of site-7's lane.
fn from(source: Option<&str>, tenant: Option<&str>, n: usize) -> Value {
    let mut event = event(n);
    event["source"] = json!(source);
    event["tenant_id"] = json!(tenant);
    event
}

async fn prune(outbox: &Outbox) {
    let store = store(outbox);
    // What was received in this very millisecond is not yet in the past.
    let mut pruned = 0;
    while pruned == 0 {
        pruned = store.prune_inbox(Some(Duration::ZERO)).await.unwrap();
    }
}

/// Each event that a token may not send is rejected by itself, and nothing of it is kept.
#[tokio::test]
async fn a_token_speaks_for_its_sources_and_tenants() {
    for outbox in outboxes().await {
        let receiver = Receiver::start_configured(&outbox, &two_sites_and_a_hub());
        let batch = [
            from(Some("site-8"), Some(OTHER_TENANT), 1),
            from(Some("site-7"), Some(OTHER_TENANT), 2),
            from(Some("site-8"), Some(TENANT), 3),
            from(Some("site-8"), None, 4),
            from(Some("site-80"), Some(OTHER_TENANT), 5),
            from(None, Some(OTHER_TENANT), 6),
            from(None, Some("tenant-10"), 7),
        ];
        let answer = receiver.send_as(SITE_8, &batch).await;
        let document: Value = answer.json().await.unwrap();
        let told = |n: usize| {
            let result = &document["results"][n];
            (result["status"].as_str().unwrap().to_owned(), result["code"].as_str().unwrap_or_default().to_owned())
        };
        let pair = |status: &str, code: &str| (status.to_owned(), code.to_owned());
        assert_eq!(told(0), pair("accepted", ""));
        assert_eq!(told(1), pair("rejected", "source_not_allowed"));
        assert_eq!(told(2), pair("rejected", "tenant_not_allowed"));
        assert_eq!(told(3), pair("rejected", "tenant_not_allowed"));
        assert_eq!(told(4), pair("rejected", "source_not_allowed"));
        assert_eq!(told(5), pair("accepted", ""), "it names no source, so it claims none");
        assert_eq!(told(6), pair("rejected", "tenant_not_allowed"));
        let words = document["results"][1]["message"].as_str().unwrap();
        assert!(words.contains("site-8") && words.contains("site-7") && !words.contains(SITE_8), "{words}");

        let hub =
            [from(Some("hub/12"), Some(TENANT), 1), from(Some("hub/12"), None, 2), from(Some("hub"), Some(TENANT), 3)];
        let answers = statuses(receiver.send_as(HUB, &hub).await).await;
        assert_eq!(answers, ["accepted", "accepted", "rejected source_not_allowed"]);
        assert_eq!(refused(receiver.send_as("site-7", &hub).await, 401).await, "unauthorized");
        assert_eq!(drained(&outbox).len(), 4);
        // What was rejected left no trace: the genuine ones are first.
        let genuine = [from(Some("site-7"), Some(TENANT), 2), from(Some("site-7"), Some(TENANT), 3)];
        assert_eq!(statuses(receiver.send_as(SITE_7, &genuine).await).await, ["accepted", "accepted"]);
        assert!(!receiver.stop().contains(SITE_7));
    }
}

/// What is wrong with a sender is told before anything is started.
#[tokio::test]
async fn a_sender_that_cannot_be_used_is_told_of() {
    let [_, outbox] = outboxes().await;
    for (text, said) in [
        ("[receive]\ntoken = \"two words\"\n", "the token \"sender\" of senders cannot be used"),
        ("[receive]\nheaders = [\"*-id\"]\n", "receive.headers"),
        ("[[receive.tokens]]\nname = \"a\"\ntoken = \"b\"\nsources = []\n", "tenants: is missing"),
    ] {
        let file = config(text);
        for verb in [&["config", "check"][..], &["receive", "--listen", "127.0.0.1:0"]] {
            let mut command = command(&[verb, &["--config", file.path().to_str().unwrap()]].concat());
            command.env("DATABASE_URL", &outbox.url);
            let ran = finish(command, b"");
            assert_eq!(ran.code, 2, "{}", ran.stderr);
            assert!(ran.stderr.contains(said), "{verb:?} {text}: {}", ran.stderr);
        }
    }
}

/// Another sender takes the site's name, its lane and its numbers, with ids of the year 2100, and waits for a prune.
#[tokio::test]
async fn a_forger_makes_nothing_vanish() {
    let year_2100 = |n: u128| Uuid::from_u128(0x03bb_2cc3_d800_7000_8000_0000_0000_0000 | n);
    for outbox in outboxes().await {
        let genuine = events(3);
        let mut forged = events(3);
        for (event, n) in forged.iter_mut().zip(1..) {
            event["event_id"] = json!(year_2100(n));
        }
        // Even where every sender is trusted with every name.
        let receiver = Receiver::start(&outbox, &[]);
        assert_eq!(receiver.send(&forged).await, vec!["accepted"; 3]);
        prune(&outbox).await;
        assert_eq!(receiver.send(&genuine).await, vec!["accepted"; 3], "new, whatever was forged before");
        receiver.stop();

        // And where they are not, ids of today do not help either.
        let receiver = Receiver::start_configured(&outbox, &two_sites_and_a_hub());
        let mut more = events(6);
        let (genuine, forged) = more.split_at_mut(3);
        for (event, n) in genuine.iter_mut().chain(forged.iter_mut()).zip([11, 12, 13].into_iter().cycle()) {
            event["sequence_id"] = json!(n);
        }
        assert_eq!(statuses(receiver.send_as(SITE_8, forged).await).await, vec!["rejected source_not_allowed"; 3]);
        assert_eq!(statuses(receiver.send_as(SITE_8, &[from(None, Some(OTHER_TENANT), 1)]).await).await, ["accepted"]);
        prune(&outbox).await;
        assert_eq!(statuses(receiver.send_as(SITE_7, genuine).await).await, vec!["accepted"; 3]);
        let arrived = ids(&drained(&outbox));
        assert!(sent_ids(genuine).iter().all(|id| arrived.contains(id)));
    }
}

/// A sender that begins requests and does not end them cannot keep the others out.
#[tokio::test]
async fn a_sender_cannot_take_every_place() {
    const OF_ONE_SENDER: usize = 8;
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start_configured(&outbox, &two_sites_and_a_hub());
    let slow = |_| {
        let mut stream = TcpStream::connect(receiver.url.strip_prefix("http://").unwrap()).unwrap();
        write!(
            stream,
            "POST /api/v1/edge/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer {SITE_8}\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n"
        )
        .unwrap();
        let mut begun = [0; 12];
        stream.read_exact(&mut begun).unwrap();
        (String::from_utf8(begun.to_vec()).unwrap(), stream)
    };
    let (answers, streams): (Vec<String>, Vec<TcpStream>) = (0..=OF_ONE_SENDER).map(slow).unzip();
    assert_eq!(answers[..OF_ONE_SENDER], vec!["HTTP/1.1 100"; OF_ONE_SENDER]);
    assert_eq!(answers[OF_ONE_SENDER], "HTTP/1.1 503");
    let others = receiver.send_as(SITE_7, &[from(Some("site-7"), Some(TENANT), 1)]).await;
    assert_eq!(statuses(others).await, ["accepted"]);
    drop(streams);
}

/// What a remote sender puts into its headers reaches services that trust what comes from inside.
#[tokio::test]
async fn only_listed_headers_pass() {
    let [_, outbox] = outboxes().await;
    let sent = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "TraceState": "a=1",
        "authorization": "Bearer forged", "Cookie": "session=forged", "x-forwarded-user": "root", "x-request-id": "7",
        "x-site-room": "12", "origin-source": "site-1", "Origin-Event-Id": "forged", "origin-sequence-id": "9",
        "postrider-message-id": "forged", "postrider-dedupe-key": "forged", "content-encoding": "br",
    });
    let mut batch = [event(1)];
    batch[0]["headers"] = sent.clone();
    batch[0]["dedupe_key"] = json!("forged");
    for field in ["source", "sequence_id"] {
        batch[0].as_object_mut().unwrap().remove(field);
    }
    let all: Vec<&String> = sent.as_object().unwrap().keys().collect();
    let ours = |name: &str| name.to_lowercase().starts_with("origin-") || name.starts_with("postrider-");
    let cases: [(&str, Vec<&str>); 4] = [
        ("", vec!["traceparent", "TraceState"]),
        ("[receive]\nheaders = [\"X-Site-*\", \"x-request-id\"]\n", vec!["x-request-id", "x-site-room"]),
        ("[receive]\nheaders = []\n", vec![]),
        ("[receive]\nheaders = [\"*\"]\n", all.iter().map(|name| name.as_str()).filter(|name| !ours(name)).collect()),
    ];
    for (text, mut passed) in cases {
        let file = config(text);
        let receiver = Receiver::start_configured(&outbox, &file);
        batch[0]["event_id"] = json!(Uuid::now_v7());
        assert_eq!(receiver.send(&batch).await, ["accepted"], "an event is not lost for a header");
        let messages = drained(&outbox);
        let mut names: Vec<&str> = messages[0]["headers"].as_object().unwrap().keys().map(String::as_str).collect();
        passed.push("origin-event-id");
        passed.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, passed, "{text}");
        assert_eq!(ids(&messages), sent_ids(&batch));
        assert_eq!(messages[0]["dedupe_key"], json!(null), "a sender's key means nothing here");
        receiver.stop();
    }
}
