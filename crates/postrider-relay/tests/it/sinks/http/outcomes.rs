//! What an answer, or none, comes to: the table of statuses through a real relay, the receiver's own code, `Retry-After`, and
//! a deadline that holds whatever the receiver does.

use std::time::{Duration, Instant, SystemTime};

use postrider::Message;
use postrider_relay::secret::Secret;
use postrider_relay::sink::http::{HttpOptions, HttpSink};
use postrider_relay::{BreakerOptions, CodeTable, FailureClass, SinkFailure, SinkOptions};
use postrider_testkit::sink_contract::claimed;
use serde_json::json;
use tokio::net::TcpListener;

use super::receiver::{Receiver, Reply, Rest};
use super::{delivered, failed, options, sink};
use crate::support::{quick, retry, site, site_with, start};

/// Answers with the status that the path ends with.
async fn as_asked() -> Receiver {
    Receiver::start(|received| {
        let status = received.path.rsplit('/').next().and_then(|status| status.parse().ok()).expect("a status");
        Reply::status(status)
    })
    .await
}

fn by_topic(receiver: &Receiver) -> HttpOptions {
    HttpOptions::new(receiver.url("/{topic}").parse().expect("a template"))
}

/// Proves P11: a status becomes a code, the code a class; the lists of the configuration come before the table.
#[tokio::test]
async fn a_status_becomes_a_code_and_a_class() {
    let receiver = as_asked().await;
    let terminal_too = by_topic(&receiver).terminal_statuses(vec![404]).retry_statuses(vec![422]);
    let (plain, changed) = (sink(&by_topic(&receiver)), sink(&terminal_too));
    for (status, class, otherwise) in [
        ("400", FailureClass::Terminal, FailureClass::Terminal),
        ("404", FailureClass::Retryable, FailureClass::Terminal),
        ("409", FailureClass::Retryable, FailureClass::Retryable),
        ("422", FailureClass::Terminal, FailureClass::Retryable),
        ("302", FailureClass::Retryable, FailureClass::Retryable),
        ("500", FailureClass::Retryable, FailureClass::Retryable),
    ] {
        let message = claimed(status, "1");
        let failure = failed(&plain, &message).await;
        assert_eq!((failure.code, failure.class), (format!("HTTP_{status}"), class));
        assert!(!failure.pause);
        assert_eq!(failed(&changed, &message).await.class, otherwise, "{status}");
    }
    assert_eq!(delivered(&plain, &claimed("201", "1")).await.code.as_deref(), Some("201"));
}

/// Proves P11: in a real relay, the receiver's own code decides by the sink's table of codes, before the status does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_receivers_own_code_decides() {
    let receiver = Receiver::start(|received| {
        let code = received.path.rsplit('/').next().expect("a path");
        Reply::json(if code == "ACCOUNT_CLOSED" { 503 } else { 422 }, &json!({ "error": { "code": code } }))
    })
    .await;
    let site = site_with(&["ACCOUNT_CLOSED", "ACCOUNT_LOCKED", "UNHEARD_OF"].map(message)).await;
    let http = sink(&by_topic(&receiver).reply_code(Some("/error/code".to_owned())));
    let codes = CodeTable::default()
        .with("ACCOUNT_CLOSED", FailureClass::Terminal)
        .with("ACCOUNT_LOCKED", FailureClass::Retryable);
    let running = start(site.relay().options(quick()).sink_with("default", http, patient(2).codes(codes)));
    site.until("select count(*) = 3 from outbox.dead_letter").await;
    running.stop().await;
    let attempts = "select count(*) from outbox.attempts a join outbox.messages m using (message_id) where m.topic = ";
    assert_eq!(site.number(&format!("{attempts} 'ACCOUNT_CLOSED'")).await, 1, "terminal, in spite of its 503");
    assert_eq!(site.number(&format!("{attempts} 'ACCOUNT_LOCKED'")).await, 2, "tried again, in spite of its 422");
    assert_eq!(site.number(&format!("{attempts} 'UNHEARD_OF'")).await, 1, "the status decides");
}

fn message(topic: &str) -> Message {
    Message::json(topic, &1).expect("JSON")
}

pub(super) fn patient(max_attempts: u32) -> SinkOptions {
    SinkOptions::default().retry(retry(10, 50, max_attempts)).breaker(BreakerOptions::default().failures(0))
}

#[tokio::test]
async fn the_receivers_code_and_reference_are_kept() {
    let receiver = Receiver::start(|received| Reply {
        headers: vec![("x-request-id", "req-7".to_owned())],
        ..Reply::json(if received.path == "/bad" { 400 } else { 200 }, &json!({ "code": 17 }))
    })
    .await;
    let http = sink(&by_topic(&receiver).reply_code(Some("/code".to_owned())));
    assert_eq!(failed(&http, &claimed("bad", "1")).await.reply_code.as_deref(), Some("17"));
    let receipt = delivered(&http, &claimed("good", "1")).await;
    assert_eq!((receipt.reference.as_deref(), receipt.code.as_deref()), (Some("req-7"), Some("200")));
}

#[tokio::test]
async fn a_receiver_may_ask_to_be_left_alone() {
    let in_an_hour = jiff::Timestamp::try_from(SystemTime::now() + Duration::from_hours(1)).expect("a time");
    let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&in_an_hour).expect("a date");
    let receiver = Receiver::start(move |received| {
        let retry_after = if received.path == "/seconds" { "120".to_owned() } else { date.clone() };
        Reply { headers: vec![("retry-after", retry_after)], ..Reply::status(429) }
    })
    .await;
    let http = sink(&by_topic(&receiver));
    assert_eq!(failed(&http, &claimed("seconds", "1")).await.retry_after, Some(Duration::from_mins(2)));
    let until = failed(&http, &claimed("date", "1")).await.retry_after.expect("a wait");
    assert!((Duration::from_mins(58)..=Duration::from_hours(1)).contains(&until), "{until:?}");
}

/// Through a real relay: what the receiver answered stands beside the failed attempt, and beside no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_a_failed_attempt_is_kept() {
    let said = r#"{"error":{"code":"BAD_ORDER","message":"order has no customer"}}"#;
    let receiver = Receiver::start(move |received| {
        let status = if received.path == "/bad" { 422 } else { 200 };
        Reply { body: said.as_bytes().to_vec(), ..Reply::status(status) }
    })
    .await;
    let site = site_with(&["bad", "good"].map(message)).await;
    let http = sink(&by_topic(&receiver));
    let running = start(site.relay().options(quick()).sink_with("default", http, patient(2)));
    site.until("select count(*) = 2 from outbox.attempts").await;
    running.stop().await;
    let kept = format!("select count(*) from outbox.attempts where state = 'FAILED' and answer = '{said}'");
    assert_eq!(site.number(&kept).await, 1);
    assert_eq!(
        site.number("select count(*) from outbox.attempts where state = 'DISPATCHED' and answer is null").await,
        1
    );
}

/// Bounded, as valid text, without what the sink itself sent in secret; not at all where it is not wanted.
#[tokio::test]
async fn what_is_kept_of_an_answer_is_harmless() {
    let receiver = Receiver::start(|received| {
        let echo = received.header("authorization").unwrap_or_default();
        let body = format!("you sent {echo}\0\u{1b}[2J {}", "ü".repeat(5_000));
        Reply { body: body.into_bytes(), ..Reply::status(500) }
    })
    .await;
    let bearer = Some(Secret::from("of-the-operator"));
    let failure = failed(&sink(&options(&receiver).bearer(bearer)), &claimed("t", "1")).await;
    let answer = failure.answer.expect("an answer");
    assert!(answer.starts_with("you sent [redacted]\u{fffd}\u{fffd}[2J ü") && answer.ends_with("ü…"), "{answer}");
    assert!((2_040..=2_048).contains(&answer.len()), "{}", answer.len());
    let short = options(&receiver).keep_answer_bytes(12);
    assert_eq!(failed(&sink(&short), &claimed("t", "1")).await.answer.as_deref(), Some("you sent …"));
    let off = options(&receiver).keep_answer_bytes(0);
    assert_eq!(failed(&sink(&off), &claimed("t", "1")).await.answer, None);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Receiver::accepting().await;
    let location = elsewhere.url("/");
    let receiver =
        Receiver::start(move |_| Reply { headers: vec![("location", location.clone())], ..Reply::status(307) }).await;
    let failure = failed(&sink(&options(&receiver)), &claimed("t", "1")).await;
    assert_eq!((failure.code.as_str(), failure.class), ("HTTP_307", FailureClass::Retryable));
    assert!(failure.message.contains("not followed"), "{}", failure.message);
    assert_eq!(elsewhere.connections(), 0);
}

/// Proves P10: whatever the receiver does, a delivery is over when its time is: no answer, half an answer, no end.
#[tokio::test]
async fn a_delivery_ends_at_its_deadline() {
    let receiver = Receiver::start(|received| {
        let rest = if received.path == "/stuck" { Rest::Silence } else { Rest::Endless };
        Reply { rest, body: vec![b'x'; 1_000], ..Reply::status(200) }
    })
    .await;
    let short = by_topic(&receiver).timeout(Duration::from_secs(1));
    let http = sink(&short);
    let started = Instant::now();
    let failure = failed(&http, &claimed("stuck", "1")).await;
    assert_eq!((failure.code.as_str(), failure.class), (SinkFailure::TIMEOUT, FailureClass::Retryable));
    assert!(started.elapsed() >= Duration::from_secs(1));
    // More than is read: the status has been said, and the rest is left alone.
    assert_eq!(delivered(&http, &claimed("endless", "1")).await.code.as_deref(), Some("200"));
    let unread = sink(&short.max_response_bytes(usize::MAX));
    let endless = claimed("endless", "1");
    assert_eq!(failed(&unread, &endless).await.code, SinkFailure::TIMEOUT, "an endless answer has no end");
    receiver.stall(true);
    assert_eq!(failed(&http, &claimed("stalled", "1")).await.code, SinkFailure::TIMEOUT);
}

/// A delivery that is dropped is cut off: the receiver sees the connection closed, or the stream reset.
#[tokio::test]
async fn a_delivery_that_is_dropped_hangs_up() {
    for http2_prior_knowledge in [false, true] {
        let receiver = Receiver::accepting().await;
        let http = sink(&options(&receiver).http2_prior_knowledge(http2_prior_knowledge));
        delivered(&http, &claimed("t", "1")).await;
        receiver.stall(true);
        let message = claimed("t", "1");
        let cut_off = tokio::time::timeout(Duration::from_millis(300), failed(&http, &message)).await;
        assert!(cut_off.is_err(), "{cut_off:?}");
        receiver.until_hung_up(1).await;
        receiver.stall(false);
        delivered(&http, &message).await;
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_unreachable() {
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address");
    let garbage = Garbage::start().await;
    for url in [
        format!("http://{gone}/"),
        format!("https://{}/", garbage.0),
        format!("http://{}/", garbage.0),
        "http://there-is-no-such-host.invalid/".to_owned(),
    ] {
        let http = sink(&HttpOptions::new(url.parse().expect("a template")));
        let failure = failed(&http, &claimed("t", "1")).await;
        assert_eq!(
            (failure.code.as_str(), failure.class),
            (SinkFailure::UNREACHABLE, FailureClass::Retryable),
            "{url}"
        );
        assert!(!failure.message.contains("http"), "the URL may hold a secret: {}", failure.message);
    }
}

/// A server that says something that is neither TLS nor HTTP, and hangs up.
struct Garbage(std::net::SocketAddr);

impl Garbage {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                drop(stream.readable().await);
                drop(stream.try_write(b"SSH-2.0-OpenSSH_9.2\r\n"));
            }
        });
        Self(address)
    }
}

/// Proves P10: with a relay whose deadline is the shorter one, the relay's holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_relays_deadline_holds_as_well() {
    let receiver = Receiver::start(|_| Reply { rest: Rest::Silence, ..Reply::status(200) }).await;
    let site = site_with(&[message("t")]).await;
    let http = sink(&options(&receiver));
    let deadline = Duration::from_millis(500);
    let relay = quick().lease(Duration::from_secs(20));
    let running = start(site.relay().options(relay).sink_with("default", http, patient(1).deadline(deadline)));
    site.until("select count(*) = 1 from outbox.dead_letter").await;
    running.stop().await;
    let code = "select count(*) from outbox.attempts where error_code = 'TIMEOUT'";
    assert_eq!(site.number(code).await, 1);
}

#[tokio::test]
async fn a_message_without_what_the_url_asks_for_has_no_address() {
    let receiver = Receiver::accepting().await;
    let http = sink(&HttpOptions::new(receiver.url("/l/{lane}/x?t={topic}").parse().expect("a template")));
    let mut message = claimed("a&b=c d/ü", "1");
    assert_eq!(failed(&http, &message).await.code, SinkFailure::NO_ADDRESS);
    message.lane = Some("a/b?x#y..".to_owned());
    delivered(&http, &message).await;
    assert_eq!(receiver.only().path, "/l/a%2Fb%3Fx%23y../x?t=a%26b%3Dc%20d%2F%C3%BC");
}

/// A receiver may decode a path before it walks it, and some decode it twice.
#[tokio::test]
async fn a_value_that_climbs_once_it_is_decoded_has_no_address() {
    let receiver = Receiver::accepting().await;
    let http = sink(&HttpOptions::new(receiver.url("/l/{lane}/x").parse().expect("a template")));
    let mut message = claimed("t", "1");
    let climbing =
        ["..", ".", "../../etc", "a/../b", "a\\..\\b", "..\\", "%2e%2E", "..%2f..", "..%252f", "%5c..", "..;a/b"];
    for climbing in climbing {
        message.lane = Some(climbing.to_owned());
        let failure = failed(&http, &message).await;
        assert_eq!(
            (failure.code.as_str(), failure.class),
            (SinkFailure::NO_ADDRESS, FailureClass::Terminal),
            "{climbing}"
        );
    }
    assert_eq!(receiver.connections(), 0);
    for harmless in ["a/b", "v1..2", "...", "100%", "a\\b"] {
        message.lane = Some(harmless.to_owned());
        delivered(&http, &message).await;
    }
}

/// What a message makes of the URL must be in the sink's list.
#[tokio::test]
async fn a_url_that_is_not_listed_is_not_asked() {
    let receiver = Receiver::accepting().await;
    let allowed = [receiver.url("/orders*")].into_iter().collect();
    let http = sink(&by_topic(&receiver).destinations(allowed));
    delivered(&http, &claimed("orders.placed", "1")).await;
    let failure = failed(&http, &claimed("users", "1")).await;
    assert_eq!((failure.code.as_str(), failure.class), (SinkFailure::FORBIDDEN_DESTINATION, FailureClass::Terminal));
    assert!(!failure.message.contains("127.0.0.1"), "a URL may hold a secret: {}", failure.message);
    assert_eq!(receiver.only().path, "/orders.placed");
    let fixed = options(&receiver).destinations(["http://*"].into_iter().collect());
    assert!(HttpSink::new(fixed).is_err(), "a list that decides nothing");
}

/// PostgreSQL keeps a payload as `jsonb`, in a spelling of its own, and a body byte for byte: what `docs/sinks/http.md` says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_arrives_as_it_was_written_and_a_payload_as_jsonb_spells_it() {
    const WRITTEN: &str = r#"{"b":1.00, "a":1e2, "a":2}"#;
    let receiver = Receiver::accepting().await;
    let site = site().await;
    let enqueue = "select outbox.enqueue(topic => 'payload', payload => $1::text::jsonb), \
                   outbox.enqueue(topic => 'body', body => convert_to($1, 'UTF8'))";
    site.client.execute(enqueue, &[&WRITTEN]).await.expect("enqueue");
    let running = start(site.relay().options(quick()).sink("default", sink(&by_topic(&receiver))));
    receiver.until_received(2).await;
    running.stop().await;
    for (path, came) in [("/payload", r#"{"a": 2, "b": 1.00}"#), ("/body", WRITTEN)] {
        let request = receiver.received().into_iter().find(|request| request.path == path).expect("it came");
        assert_eq!(request.body, came, "{path}");
    }
}
