//! What a request holds beside its content: what is always sent, what a producer may say, and what it may not.

use std::collections::BTreeMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use postrider::lifecycle::Content;
use postrider_relay::secret::Secret;
use postrider_relay::sink::http::{BasicAuth, HttpBody};
use postrider_relay::{FailureClass, SinkFailure};
use postrider_testkit::sink_contract::claimed;

use super::receiver::Receiver;
use super::{delivered, failed, options, sink};

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn every_request_says_what_it_is() {
    let receiver = Receiver::accepting().await;
    let mut message = claimed("order.placed", "{ \"a\": 1 }");
    message.lane = Some("konto \"ü\" 100%".to_owned());
    message.sequence_id = Some(7);
    message.tenant_id = Some("tenant ü".to_owned());
    message.dedupe_key = Some("order 7\r\nx-forged: ü".to_owned());
    message.attempt_no = 3;
    message.headers.insert("traceparent".to_owned(), TRACEPARENT.to_owned());
    message.headers.insert("X-Note".to_owned(), "naïve 🐎".to_owned());
    delivered(&sink(&options(&receiver)), &message).await;
    let request = receiver.only();
    let id = message.message_id.to_string();
    for (name, value) in [
        ("idempotency-key", id.as_str()),
        ("postrider-message-id", &id),
        ("postrider-topic", "order.placed"),
        ("postrider-namespace", "default"),
        ("postrider-lane", "konto%20%22%C3%BC%22%20100%25"),
        ("postrider-sequence-id", "7"),
        ("postrider-dedupe-key", "order%207%0D%0Ax-forged:%20%C3%BC"),
        ("postrider-attempt-no", "3"),
        ("postrider-tenant-id", "tenant%20%C3%BC"),
        ("content-type", "application/json"),
        ("traceparent", TRACEPARENT),
        ("x-note", "naïve 🐎"),
        ("user-agent", concat!("postrider/", env!("CARGO_PKG_VERSION"))),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert_eq!(request.method, "POST");
    assert_eq!(request.body, "{ \"a\": 1 }");
}

#[tokio::test]
async fn what_belongs_to_the_connection_is_not_a_producers_to_say() {
    let receiver = Receiver::accepting().await;
    let mut message = claimed("t", "12345");
    for (name, value) in [
        ("Host", "evil.example"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close, x-secret"),
        ("Keep-Alive", "timeout=1"),
        ("Upgrade", "websocket"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Expect", "100-continue"),
        ("Proxy-Authorization", "Basic x"),
        ("Proxy-Connection", "close"),
        ("Idempotency-Key", "forged"),
        ("Postrider-Message-Id", "forged"),
        ("Authorization", "Bearer of-the-producer"),
    ] {
        message.headers.insert(name.to_owned(), value.to_owned());
    }
    let options = options(&receiver).bearer(Some(Secret::from("of-the-operator")));
    delivered(&sink(&options), &message).await;
    let request = receiver.only();
    assert_eq!(request.header("host"), Some(format!("127.0.0.1:{}", receiver.port()).as_str()));
    assert_eq!(request.header("content-length"), Some("5"));
    assert_eq!(request.header("idempotency-key"), Some(message.message_id.to_string().as_str()));
    assert_eq!(request.headers.get_all("authorization").iter().count(), 1);
    assert_eq!(request.header("authorization"), Some("Bearer of-the-operator"));
    for name in
        ["transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer", "expect", "proxy-authorization"]
    {
        assert_eq!(request.header(name), None, "{name}");
    }
}

/// Receivers believe these: whom a request is from and what it is for. The message itself is delivered.
#[tokio::test]
async fn whom_a_receiver_believes_is_not_a_producers_to_say() {
    let receiver = Receiver::accepting().await;
    let forged = "Authorization Cookie Set-Cookie Forwarded X-Forwarded-For X-Forwarded-Host X-Forwarded-Proto \
                  X-Forwarded-Client-Cert X-Forwarded X-Real-IP X-Client-IP True-Client-IP Via X-Original-URL \
                  X-Original-Host X-Rewrite-URL X-HTTP-Method-Override X-Remote-User X-SSL-Client-Verify Proxy X-Api-Key \
                  X-Auth-Token X-Amzn-Oidc-Identity";
    let forged: Vec<&str> = forged.split_whitespace().collect();
    let mut message = claimed("t", "1");
    for name in &forged {
        // Servers that make variables of headers take the one spelling for the other.
        message.headers.insert((*name).to_owned(), "forged".to_owned());
        message.headers.insert(name.replace('-', "_"), "forged".to_owned());
    }
    for name in ["idempotency_key", "postrider_message_id", "user_agent", "content_length"] {
        message.headers.insert(name.to_owned(), "forged".to_owned());
    }
    message.headers.insert("X-Note".to_owned(), "kept".to_owned());
    message.headers.insert("traceparent".to_owned(), TRACEPARENT.to_owned());
    for options in [
        options(&receiver),
        options(&receiver).body(HttpBody::CloudeventsStructured),
        options(&receiver).body(HttpBody::CloudeventsBinary),
    ] {
        delivered(&sink(&options), &message).await;
        let request = receiver.received().pop().expect("a request");
        let said = |value: &hyper::header::HeaderValue| value.as_bytes() == b"forged";
        let believed: Vec<_> = request.headers.iter().filter(|(_, value)| said(value)).map(|(name, _)| name).collect();
        assert!(believed.is_empty(), "{:?}: {believed:?}", options.body);
        assert_eq!((request.header("x-note"), request.header("traceparent")), (Some("kept"), Some(TRACEPARENT)));
    }
    let bearer = Some(Secret::from("of-the-operator"));
    delivered(&sink(&options(&receiver).bearer(bearer)), &message).await;
    let request = receiver.received().pop().expect("a request");
    assert_eq!(request.header("authorization"), Some("Bearer of-the-operator"));
}

#[tokio::test]
async fn a_header_that_http_cannot_carry_is_refused_before_it_is_sent() {
    let receiver = Receiver::accepting().await;
    let http = sink(&options(&receiver));
    for (name, value) in [
        ("x-a", "b\r\nx-forged: c"),
        ("x-a", "b\nc"),
        ("x-a", "b\0c"),
        ("x-a", "\u{7f}"),
        ("x a", "b"),
        ("x-a:", "b"),
        ("", "b"),
        ("x-ü", "b"),
        ("x\r\n", "b"),
    ] {
        let mut message = claimed("t", "1");
        message.headers.insert(name.to_owned(), value.to_owned());
        let failure = failed(&http, &message).await;
        assert_eq!((failure.code.as_str(), failure.class), (SinkFailure::INVALID_HEADER, FailureClass::Terminal));
        assert!(!failure.message.contains("forged"), "{}", failure.message);
    }
    let mut message = claimed("t", "1");
    message.content_type = Some("text/plain\r\nx-forged: c".to_owned());
    assert_eq!(failed(&http, &message).await.code, SinkFailure::INVALID_HEADER);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn what_the_operator_sets_is_sent_and_not_printed() {
    let receiver = Receiver::accepting().await;
    let options = options(&receiver)
        .method("PUT".to_owned())
        .headers(BTreeMap::from([("x-api-key".to_owned(), Secret::from("hunter2"))]))
        .basic(Some(BasicAuth::new("post".to_owned(), Secret::from("rider"))));
    assert!(!format!("{options:?}").contains("hunter2") && !format!("{options:?}").contains("rider\""), "{options:?}");
    let mut message = claimed("t", "1");
    message.headers.insert("X-Api-Key".to_owned(), "of the producer".to_owned());
    delivered(&sink(&options), &message).await;
    let request = receiver.only();
    assert_eq!(request.header("x-api-key"), Some("hunter2"));
    assert_eq!(request.headers.get_all("x-api-key").iter().count(), 1);
    assert_eq!(request.header("authorization"), Some("Basic cG9zdDpyaWRlcg=="));
    assert_eq!(request.method, "PUT");
}

#[tokio::test]
async fn what_is_sent_can_be_compressed() {
    let receiver = Receiver::accepting().await;
    let http = sink(&options(&receiver).gzip(true));
    delivered(&http, &claimed("t", &format!("\"{}\"", "x".repeat(10_000)))).await;
    let mut already = claimed("t", "1");
    already.content = Content::Bytes(vec![1, 2, 3]);
    already.headers.insert("Content-Encoding".to_owned(), "br".to_owned());
    delivered(&http, &already).await;
    let requests = receiver.received();
    let mut text = String::new();
    GzDecoder::new(&*requests[0].body).read_to_string(&mut text).expect("gzip");
    assert_eq!((requests[0].header("content-encoding"), text.len()), (Some("gzip"), 10_002));
    assert!(requests[0].body.len() < 1_000);
    assert_eq!((requests[1].header("content-encoding"), &*requests[1].body), (Some("br"), &[1, 2, 3][..]));
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let receiver = Receiver::accepting().await;
    let http = sink(&options(&receiver));
    for _ in 0..50 {
        delivered(&http, &claimed("t", "1")).await;
    }
    assert_eq!((receiver.received().len(), receiver.connections()), (50, 1));
}
