//! `postrider receive`: real servers, a real HTTP client, both stores. An event is accepted once, whatever is sent again,
//! by whom, and whoever is killed in between; what is wrong is said, and harms nobody else. What a sender can make the server
//! spend is in `receive/bounds.rs`, what it can do to others in `receive/senders.rs`.

mod bounds;
mod guard;
mod senders;

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Outbox, command, finish, outboxes, run_at};

pub(crate) struct Receiver {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    pub(crate) url: String,
}

impl Receiver {
    pub(crate) fn start(outbox: &Outbox, args: &[&str]) -> Self {
        Self::start_with(outbox, args, None)
    }

    /// Started, and listening on a port of its own.
    fn start_with(outbox: &Outbox, args: &[&str], token: Option<&str>) -> Self {
        let listen: &[&str] = if args.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let mut command = command(&[&["receive"], listen, args].concat());
        command.env("DATABASE_URL", &outbox.url).env_remove("POSTRIDER_RECEIVE_TOKEN").stderr(Stdio::piped());
        if let Some(token) = token {
            command.env("POSTRIDER_RECEIVE_TOKEN", token);
        }
        let mut child = command.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = stderr.next().unwrap().unwrap();
        let (_, rest) = first.split_once("address=").unwrap_or_else(|| panic!("{first}"));
        let url = format!("http://{}", rest.split_whitespace().next().unwrap());
        Self { child, stderr, url }
    }

    fn post(&self) -> RequestBuilder {
        client().post(format!("{}/api/v1/edge/batch", self.url)).header("content-type", "application/json")
    }

    /// Sends a batch; the status of each of its events, with the code if there is one.
    async fn send(&self, events: &[Value]) -> Vec<String> {
        let response = self.post().body(json!({"events": events}).to_string()).send().await.unwrap();
        statuses(response).await
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it in good order; its last words.
    pub(crate) fn stop(mut self) -> String {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        self.stderr.by_ref().map(Result::unwrap).last().unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // Already ended, or a test that failed: nothing is left behind.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn client() -> Client {
    // The second time it is there already.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder().build().unwrap()
}

async fn statuses(response: Response) -> Vec<String> {
    let code = response.status().as_u16();
    let answer: Value = response.json().await.unwrap();
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{code}: {answer}"));
    let words: Vec<String> = results
        .iter()
        .map(|one| match one["code"].as_str() {
            Some(code) => format!("{} {code}", one["status"].as_str().unwrap()),
            None => one["status"].as_str().unwrap().to_owned(),
        })
        .collect();
    let well = words.iter().all(|word| word == "accepted" || word == "duplicate");
    assert_eq!(code, if well { 200 } else { 207 });
    words
}

/// The error document of a request that was refused as a whole.
async fn refused(response: Response, status: u16) -> String {
    assert_eq!(response.status().as_u16(), status);
    let document: Value = response.json().await.unwrap();
    assert!(document["error"]["message"].is_string(), "{document}");
    document["error"]["code"].as_str().unwrap().to_owned()
}

fn event(n: usize) -> Value {
    json!({
        "event_id": Uuid::now_v7(), "tenant_id": "tenant-1", "event_type": "meter.read",
        "occurred_at": "2026-01-31T08:00:00Z", "payload": {"n": n}, "lane": "site-7/meter", "sequence_id": n,
        "source": "site-7", "headers": {"traceparent": "abc"},
    })
}

fn events(count: usize) -> Vec<Value> {
    (1..=count).map(event).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What went on from here, in order.
pub(crate) fn drained(outbox: &Outbox) -> Vec<Value> {
    let ran = run_at(&outbox.url, &["drain"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn ids(messages: &[Value]) -> Vec<String> {
    messages.iter().map(|one| one["headers"]["origin-event-id"].as_str().unwrap().to_owned()).collect()
}

fn sent_ids(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()).collect()
}

/// Proves E1: the receiving half. Each event is accepted once and goes on from this database; all of it sent again, plain
/// or packed, is duplicates, and nothing goes on twice.
#[tokio::test]
async fn a_batch_is_accepted_once() {
    for outbox in outboxes().await {
        let receiver = Receiver::start(&outbox, &[]);
        let batch = events(50);
        assert_eq!(receiver.send(&batch).await, vec!["accepted"; 50]);
        assert_eq!(receiver.send(&batch).await, vec!["duplicate"; 50]);
        let packed = gzip(json!({"events": batch}).to_string().as_bytes());
        let again = receiver.post().header("content-encoding", "gzip").body(packed).send().await.unwrap();
        assert_eq!(statuses(again).await, vec!["duplicate"; 50]);
        assert_eq!(receiver.send(&[]).await, Vec::<String>::new());

        let messages = drained(&outbox);
        assert_eq!(ids(&messages), sent_ids(&batch), "in order, each once");
        let first = &messages[0];
        for (field, value) in [
            ("topic", json!("meter.read")),
            ("tenant_id", json!("tenant-1")),
            ("lane", json!("site-7/meter")),
            ("payload", json!({"n": 1})),
        ] {
            assert_eq!(first[field], value, "{first}");
        }
        assert!(first["occurred_at"].as_str().unwrap().starts_with("2026-01-31T08:00:00"), "{first}");
        let headers = &first["headers"];
        assert_eq!((&headers["traceparent"], &headers["origin-source"]), (&json!("abc"), &json!("site-7")));
        assert_eq!(headers["origin-sequence-id"], "1");
        assert!(receiver.stop().contains("stopped: accepted 50, duplicates 100, rejected 0"));
    }
}

/// Two sites may use the same name for a lane. Without a source nobody can tell them apart, so only the id decides.
#[tokio::test]
async fn a_lane_without_a_source_is_not_remembered() {
    for outbox in outboxes().await {
        let receiver = Receiver::start(&outbox, &[]);
        let (mut late, mut early) = (event(9), event(1));
        for event in [&mut late, &mut early] {
            event.as_object_mut().unwrap().remove("source");
        }
        assert_eq!(receiver.send(&[late.clone()]).await, ["accepted"]);
        assert_eq!(receiver.send(&[early]).await, ["accepted"], "a lower number of another site");
        assert_eq!(receiver.send(&[late]).await, ["duplicate"]);
        assert_eq!(drained(&outbox).len(), 2);
        receiver.stop();
    }
}

#[tokio::test]
async fn a_bad_event_harms_no_neighbour() {
    for outbox in outboxes().await {
        let receiver = Receiver::start(&outbox, &[]);
        let mut batch = events(5);
        batch[1]["event_id"] = json!("seven");
        batch[3] = json!("not an event");
        assert_eq!(
            receiver.send(&batch).await,
            ["accepted", "rejected invalid_event_id", "accepted", "rejected invalid_event", "accepted"]
        );
        // Only the store knows: JSON that is nested too deeply for it. Twice in one batch, at the end and in between.
        let mut more = events(20);
        for bad in [7, 19] {
            more[bad]["payload"] = json!("DEEP");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let body = json!({"events": more}).to_string().replace("\"DEEP\"", &deep);
        let answers = statuses(receiver.post().body(body).send().await.unwrap()).await;
        for (nth, answer) in answers.iter().enumerate() {
            assert_eq!(answer, if [7, 19].contains(&nth) { "rejected refused" } else { "accepted" }, "{nth}");
        }
        let messages = drained(&outbox);
        let mut expected = sent_ids(&[&batch[..1], &batch[2..3], &batch[4..]].concat());
        more.remove(19);
        more.remove(7);
        expected.extend(sent_ids(&more));
        assert_eq!(ids(&messages), expected, "in order");
    }
}

/// A few numbers that have millions of digits when PostgreSQL sends them: such a message could not be handed out.
#[tokio::test]
async fn what_is_too_large_when_it_is_sent_is_rejected() {
    let [outbox, _] = outboxes().await;
    let receiver = Receiver::start(&outbox, &[]);
    let mut batch = events(3);
    batch[1]["payload"] = json!("NUMBERS");
    let numbers = format!("[{}1]", "1e131071,".repeat(200));
    let body = json!({"events": batch}).to_string().replace("\"NUMBERS\"", &numbers);
    let answers = statuses(receiver.post().body(body).send().await.unwrap()).await;
    assert_eq!(answers, ["accepted", "rejected refused", "accepted"]);
    batch.remove(1);
    assert_eq!(ids(&drained(&outbox)), sent_ids(&batch));
}

/// Two servers on one database, the same batch at once: each event is accepted by exactly one of them.
#[tokio::test]
async fn two_servers_accept_each_event_once() {
    for outbox in outboxes().await {
        let (one, other) = (Receiver::start(&outbox, &[]), Receiver::start(&outbox, &[]));
        for _ in 0..5 {
            let batch = events(200);
            let mut reversed = batch.clone();
            reversed.reverse();
            let (here, mut there) = tokio::join!(one.send(&batch), other.send(&reversed));
            there.reverse();
            for (here, there) in here.iter().zip(&there) {
                let mut both = [here.as_str(), there.as_str()];
                both.sort_unstable();
                assert_eq!(both, ["accepted", "duplicate"]);
            }
        }
        assert_eq!(drained(&outbox).len(), 1_000);
    }
}

/// Killed while batches come in; the sender sends again what was not answered, as a forwarder does.
#[tokio::test]
async fn a_killed_server_loses_and_doubles_nothing() {
    for outbox in outboxes().await {
        let batches: Vec<Vec<Value>> = (0..30).map(|_| events(100)).collect();
        let mut receiver = Receiver::start(&outbox, &[]);
        for (nth, batch) in batches.iter().enumerate() {
            let body = json!({"events": batch}).to_string();
            let request = tokio::spawn(receiver.post().body(body.clone()).send());
            if nth % 3 == 1 {
                // Wherever it is just now: before, in or after the transaction.
                for _ in 0..nth * 50 {
                    tokio::task::yield_now().await;
                }
                receiver.signal("-KILL");
                receiver.child.wait().unwrap();
                receiver = Receiver::start(&outbox, &[]);
            }
            if request.await.unwrap().is_ok_and(|response| response.status() == 200) {
                continue;
            }
            let again = receiver.send(batch).await;
            assert!(again.iter().all(|status| *status == again[0]), "a batch is stored as a whole: {again:?}");
        }
        let mut sent: Vec<String> = batches.iter().flat_map(|batch| sent_ids(batch)).collect();
        let mut arrived = ids(&drained(&outbox));
        sent.sort();
        arrived.sort();
        assert_eq!(arrived.len(), sent.len());
        assert_eq!(arrived, sent);
    }
}

#[tokio::test]
async fn what_is_no_batch_is_refused() {
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start(&outbox, &["--max-body", "64KiB"]);
    let post = |body: Vec<u8>| receiver.post().body(body).send();
    assert_eq!(refused(post(b"{\"events\": [".to_vec()).await.unwrap(), 400).await, "invalid_json");
    assert_eq!(refused(post(b"[]".to_vec()).await.unwrap(), 400).await, "invalid_json");
    let large = json!({"events": [], "filler": "x".repeat(70_000)}).to_string();
    assert_eq!(refused(post(large.into_bytes()).await.unwrap(), 413).await, "too_large");

    // A gzip bomb: a hundred megabytes in a hundred kilobytes, and one that fits the limit while it is packed.
    for megabytes in [100, 1] {
        let bomb = gzip(&vec![b' '; megabytes * 1024 * 1024]);
        let response = receiver.post().header("content-encoding", "gzip").body(bomb).send().await.unwrap();
        assert_eq!(refused(response, 413).await, "too_large");
    }
    let packed = gzip(b"{\"events\": []}");
    for broken in [b"no gzip at all".to_vec(), packed[..packed.len() - 9].to_vec()] {
        let response = receiver.post().header("content-encoding", "gzip").body(broken).send().await.unwrap();
        assert_eq!(refused(response, 400).await, "unreadable_body");
    }
    for encoding in ["br", "gzip, gzip"] {
        let response = receiver.post().header("content-encoding", encoding).body("{}").send().await.unwrap();
        assert_eq!(refused(response, 415).await, "unsupported_media_type");
    }
    let many = format!("{{\"events\": [{}]}}", vec!["1"; 10_001].join(","));
    assert_eq!(refused(post(many.into_bytes()).await.unwrap(), 413).await, "too_many_events");

    let plain = client().post(format!("{}/api/v1/edge/batch", receiver.url)).body("{}").send().await.unwrap();
    assert_eq!(refused(plain, 415).await, "unsupported_media_type");
    let get = client().get(format!("{}/api/v1/edge/batch", receiver.url)).send().await.unwrap();
    assert_eq!(refused(get, 405).await, "method_not_allowed");
    let elsewhere = client().post(format!("{}/other", receiver.url)).send().await.unwrap();
    assert_eq!(refused(elsewhere, 404).await, "not_found");
    let health = client().get(format!("{}/healthz", receiver.url)).send().await.unwrap();
    assert_eq!(health.status(), 200);
    assert_eq!(drained(&outbox).len(), 0);
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start_with(&outbox, &[], Some("hunter2-and-more"));
    let body = json!({"events": events(1)}).to_string();
    for given in [None, Some("Bearer hunter2-and-mor"), Some("Bearer hunter2-and-morf"), Some("Basic hunter2-and-more")]
    {
        let request = receiver.post().body(body.clone());
        let request = given.into_iter().fold(request, |request, given| request.header("authorization", given));
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["www-authenticate"], "Bearer");
        assert_eq!(refused(response, 401).await, "unauthorized", "{given:?}");
    }
    let right = receiver.post().body(body).bearer_auth("hunter2-and-more").send().await.unwrap();
    assert_eq!(statuses(right).await, ["accepted"]);
    assert!(!receiver.stop().contains("hunter2"));
}

#[tokio::test]
async fn other_machines_need_a_token() {
    let [_, outbox] = outboxes().await;
    for (token, words) in [(None, "no token is set"), (Some(""), "it is empty"), (Some("a b"), "no HTTP header can")] {
        let mut open = command(&["receive", "--listen", "0.0.0.0:0"]);
        open.env("DATABASE_URL", &outbox.url).env_remove("POSTRIDER_RECEIVE_TOKEN");
        if let Some(token) = token {
            open.env("POSTRIDER_RECEIVE_TOKEN", token);
        }
        let ran = finish(open, b"");
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
}

/// The server goes away under it: the sender is told when to come again, and nothing is half done.
#[tokio::test]
async fn a_database_that_is_away_is_waited_for() {
    let cluster = postrider_testkit::Cluster::start().await;
    let database = cluster.database().await;
    let outbox = Outbox::of(database);
    let receiver = Receiver::start(&outbox, &[]);
    let batch = events(3);
    assert_eq!(receiver.send(&batch[..1]).await, ["accepted"]);
    cluster.kill9();
    let response = receiver.post().body(json!({"events": batch}).to_string()).send().await.unwrap();
    assert_eq!(response.headers()["retry-after"], "5");
    assert_eq!(refused(response, 503).await, "unavailable");
    let health = client().get(format!("{}/healthz", receiver.url)).send().await.unwrap();
    assert_eq!(refused(health, 503).await, "unavailable");
    cluster.restart().await;
    assert_eq!(receiver.send(&batch).await, ["duplicate", "accepted", "accepted"]);
    assert_eq!(ids(&drained(&outbox)), sent_ids(&batch));
}

/// A request that is on its way when the signal comes is answered, and what it was told is so.
#[tokio::test]
async fn a_signal_lets_requests_finish() {
    for outbox in outboxes().await {
        for signal in ["-INT", "-TERM"] {
            let mut receiver = Receiver::start(&outbox, &[]);
            let body = json!({"events": events(2)}).to_string();
            let (early, late) = body.split_at(body.len() / 2);
            let mut stream = TcpStream::connect(receiver.url.strip_prefix("http://").unwrap()).unwrap();
            let head = "POST /api/v1/edge/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nexpect: 100-continue";
            write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n", body.len()).unwrap();
            // It says that it waits for the body: the request is in its hands.
            let mut begun = [0; 25];
            stream.read_exact(&mut begun).unwrap();
            assert_eq!(&begun, b"HTTP/1.1 100 Continue\r\n\r\n");
            stream.write_all(early.as_bytes()).unwrap();
            receiver.signal(signal);
            let stopping = receiver.stderr.next().unwrap().unwrap();
            assert!(stopping.contains("stopping in good order"), "{stopping}");
            stream.write_all(late.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            assert_eq!(receiver.child.wait().unwrap().code(), Some(0));
            let said: Vec<String> = receiver.stderr.by_ref().map(Result::unwrap).collect();
            assert!(said.last().unwrap().contains("stopped: accepted 2, duplicates 0, rejected 0"), "{said:#?}");
            assert_eq!(drained(&outbox).len(), 2);
        }
    }
}
