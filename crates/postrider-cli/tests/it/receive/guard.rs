//! Who may send: a page of another site may not, by whatever name it came here, and nobody under another's name.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::{Receiver, drained, events};
use crate::support::{command, finish, outboxes};

/// The status of a batch that is sent with these headers.
fn status(receiver: &Receiver, headers: &[&str]) -> String {
    let mut stream = TcpStream::connect(receiver.url.strip_prefix("http://").unwrap()).unwrap();
    let body = json!({"events": events(1)}).to_string();
    let headers = headers.join("\r\n");
    write!(
        stream,
        "POST /api/v1/edge/batch HTTP/1.1\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// DNS rebinding: a page's own name that suddenly leads here.
#[tokio::test]
async fn another_name_in_the_host_header_is_refused() {
    let [_, outbox] = outboxes().await;
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&config, "[receive]\nhosts = [\"inbox.example\"]\n").unwrap();
    let plain = Receiver::start(&outbox, &[]);
    let named = Receiver::start(&outbox, &["--config", config.path().to_str().unwrap()]);
    for (host, without, with) in [
        ("evil.example", "421", "421"),
        ("127.0.0.1.evil.example:7434", "421", "421"),
        ("inbox.example", "421", "200"),
        ("INBOX.example.:443", "421", "200"),
        ("127.0.0.1", "200", "200"),
        ("localhost:7434", "200", "200"),
        ("[::1]:7434", "200", "200"),
    ] {
        let header = format!("host: {host}");
        assert_eq!(status(&plain, &[&header]), without, "{host}");
        assert_eq!(status(&named, &[&header]), with, "{host}");
    }
    assert_eq!(status(&plain, &["host: localhost", "host: 127.0.0.1"]), "421");
    assert_eq!(drained(&outbox).len(), 8);
}

#[tokio::test]
async fn a_page_of_another_site_sends_nothing() {
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start(&outbox, &[]);
    for (header, expected) in [
        ("origin: http://evil.example", "403"),
        ("origin: null", "403"),
        ("origin: http://127.0.0.1:1", "403"),
        ("sec-fetch-site: cross-site", "403"),
        ("sec-fetch-site: same-site", "403"),
        ("origin: http://127.0.0.1", "200"),
        ("accept: */*", "200"),
    ] {
        assert_eq!(status(&receiver, &["host: 127.0.0.1", header]), expected, "{header}");
    }
    assert_eq!(drained(&outbox).len(), 2);
}

#[tokio::test]
async fn a_name_that_cannot_be_a_host_is_refused() {
    let [_, outbox] = outboxes().await;
    for section in ["receive", "admin"] {
        for name in ["https://inbox.example", "inbox.example:443", "inbox.example/x", "*.example", ""] {
            let mut check = command(&["config", "check"]);
            check.env("DATABASE_URL", &outbox.url);
            check.env(format!("POSTRIDER__{}__HOSTS", section.to_uppercase()), format!("[{name:?}]"));
            let ran = finish(check, b"");
            assert_eq!(ran.code, 2, "{name}: {}", ran.stderr);
            assert!(ran.stderr.contains(&format!("{section}.hosts")), "{name}: {}", ran.stderr);
        }
    }
}
