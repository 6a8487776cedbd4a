//! What a sender can make the server spend: memory for a batch that is small while it is packed, and bytes of an answer
//! that repeats what was sent.

use std::fmt::Write as _;

use reqwest::Response;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Receiver, client, events, gzip, refused, statuses};
use crate::support::outboxes;

/// What one request may add to the memory of the process: the body of 32 MiB, twice while it is put together, its
/// payloads, and the first 10,000 events.
const MEMORY_BYTES: u64 = 192 * 1024 * 1024;

/// Within `--max-body`, each two bytes long.
const MANY_ELEMENTS: usize = 16_700_000;

/// Each with a name of its own, which packs worse.
const MANY_NAMES: usize = 200_000;

impl Receiver {
    /// The most memory that the process has had.
    fn peak_memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    async fn send_packed(&self, packed: Vec<u8>) -> Response {
        self.post().header("content-encoding", "gzip").body(packed).send().await.unwrap()
    }
}

fn many_names(value: &str) -> String {
    let mut names = String::new();
    for n in 0..MANY_NAMES {
        write!(names, "\"{n}\":{value},").unwrap();
    }
    names
}

/// A batch of few kilobytes cannot take the memory of the server away: the count is looked at while it is read.
#[tokio::test]
async fn a_packed_batch_of_millions_takes_little_memory() {
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start(&outbox, &[]);
    assert_eq!(receiver.send(&events(1)).await, ["accepted"]);
    let before = receiver.peak_memory_bytes();

    let elements = gzip(format!("{{\"events\":[{}1]}}", "1,".repeat(MANY_ELEMENTS)).as_bytes());
    assert!(elements.len() < 64 * 1024);
    assert_eq!(refused(receiver.send_packed(elements).await, 413).await, "too_many_events");

    let event = |field: &str| {
        let id = Uuid::now_v7();
        format!("{{\"events\":[{{{field}\"event_id\":\"{id}\",\"event_type\":\"t\",\"payload\":1}},7]}}")
    };
    let fields = gzip(event(&many_names("1")).as_bytes());
    assert_eq!(
        statuses(receiver.send_packed(fields).await).await,
        ["rejected invalid_event", "rejected invalid_event"]
    );
    let headers = gzip(event(&format!("\"headers\":{{{}\"a\":\"\"}},", many_names("\"\""))).as_bytes());
    assert_eq!(
        statuses(receiver.send_packed(headers).await).await,
        ["rejected invalid_headers", "rejected invalid_event"]
    );

    let added = receiver.peak_memory_bytes() - before;
    assert!(added < MEMORY_BYTES, "{} MiB more", added >> 20);
    let health = client().get(format!("{}/healthz", receiver.url)).send().await.unwrap();
    assert_eq!(health.status(), 200);
    assert_eq!(receiver.send(&events(2)).await, ["accepted", "accepted"]);
}

/// Whoever sends megabytes of nonsense does not get them back.
#[tokio::test]
async fn an_answer_repeats_little_of_what_was_sent() {
    const ANSWER_BYTES: usize = 1024;
    let long = "x".repeat(1_000_000);
    for outbox in outboxes().await {
        let receiver = Receiver::start(&outbox, &[]);
        let batches = [
            json!({ "events": long }),
            json!({"events": [{"event_id": long, "event_type": "t", "payload": 1}]}),
            json!({"events": [{"event_id": Uuid::now_v7(), "event_type": long, "payload": 1}]}),
            json!({"events": [{"event_id": Uuid::now_v7(), "event_type": "t", "occurred_at": long, "payload": 1}]}),
        ];
        for batch in batches {
            let answer = receiver.post().body(batch.to_string()).send().await.unwrap();
            let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
            assert!([400, 207].contains(&status), "{status}");
            assert!(text.len() <= ANSWER_BYTES, "{status}: {} bytes", text.len());
            let document: Value = serde_json::from_str(&text).unwrap();
            assert!(document["error"]["code"] == "invalid_json" || document["results"][0]["status"] == "rejected");
        }
        // Something that only the store refuses, and may speak of.
        let deep = format!("{}\"{long}\"{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = json!({"events": [{"event_id": Uuid::now_v7(), "event_type": "t", "payload": "DEEP"}]}).to_string();
        let answer = receiver.post().body(body.replace("\"DEEP\"", &deep)).send().await.unwrap();
        let text = answer.text().await.unwrap();
        assert!(text.contains("\"refused\"") && text.len() <= ANSWER_BYTES, "{} bytes", text.len());
    }
}
