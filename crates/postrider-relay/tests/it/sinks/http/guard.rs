//! Requests stay away from what is not public, however an address is spelled and whatever a name resolves to. A listener on
//! this machine counts connections: none may come.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use postrider_relay::sink::Level;
use postrider_relay::sink::http::{HttpOptions, HttpSink, Resolver};
use postrider_relay::{FailureClass, Sink as _, SinkFailure};
use postrider_testkit::sink_contract::claimed;

use super::receiver::{Receiver, Reply};
use super::{delivered, failed};

/// Answers one list of addresses after the other, then the last for ever.
struct Scripted(Mutex<VecDeque<Vec<IpAddr>>>);

impl Scripted {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let parse =
            |addresses: &&[&str]| addresses.iter().map(|address| address.parse().expect("an address")).collect();
        Arc::new(Self(Mutex::new(answers.iter().map(parse).collect())))
    }
}

#[async_trait]
impl Resolver for Scripted {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().expect("lock");
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Ok(answer.unwrap_or_default())
    }
}

fn guarded(url: &str) -> HttpOptions {
    let url = url.replace('{', "{{").replace('}', "}}").parse().expect("a template");
    HttpOptions::new(url).guard(Some(true)).connect_timeout(Duration::from_secs(2))
}

/// Hosts that are addresses which are not public, in spellings that some parser takes.
fn literals() -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    // Loopback, the unspecified address, private networks, link-local with the clouds' metadata, shared space, others.
    let addresses = "127.0.0.1 127.1.2.3 0.0.0.0 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 \
                     198.18.0.1 192.0.2.1 224.0.0.1 255.255.255.255 168.63.129.16 100.100.100.200 192.0.0.192";
    for address in addresses.split_whitespace() {
        let address: [u8; 4] = address.parse::<std::net::Ipv4Addr>().expect("an address").octets();
        let [a, b, c, d] = address;
        let number = u32::from_be_bytes(address);
        let last = u32::from_be_bytes([0, b, c, d]);
        let plain = format!("{a}.{b}.{c}.{d}");
        hosts.extend([
            format!("{plain}."),
            format!("{number}"),
            format!("{number}."),
            format!("0x{number:x}"),
            format!("0X{number:08X}"),
            format!("0{number:o}"),
            format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
            format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
            format!("{a}.{last}"),
            format!("0x{a:x}.{b}.{}", u16::from_be_bytes([c, d])),
            format!("%{:02x}{}", plain.as_bytes()[0], &plain[1..]),
            format!("{a}。{b}。{c}。{d}"),
            full_width(&plain),
            format!("[::ffff:{plain}]"),
            format!("[::{plain}]"),
            format!("[64:ff9b::{plain}]"),
            format!("[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1]"),
            plain,
        ]);
    }
    let fixed = "[::1] [::] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::FFFF:7F00:1] [::ffff:7f00:0001] \
                 [FE80::1] [fe80::1] [fec0::1] [fc00::1] [FD12:3456::1] [ff02::1] [100::1] [2001:db8::1] [2001:0:7f00:1::] \
                 [64:ff9b:1::7f00:1] [3fff::1] [::127.0.0.1] 127.1 127.0.1 0 0.0 0x7f.1 017700000001 0x7f000001 2130706433 \
                 00000177.0.0.1 127.0.0.0x1";
    hosts.extend(fixed.split_whitespace().map(str::to_owned));
    hosts
}

fn full_width(host: &str) -> String {
    host.chars()
        .map(|letter| {
            if letter.is_ascii_digit() { char::from_u32(u32::from(letter) + 0xfee0).expect("a digit") } else { letter }
        })
        .collect()
}

/// More than 200 spellings: each is refused, when the sink is made or before it connects, and nothing is connected to.
#[tokio::test]
async fn no_spelling_of_a_forbidden_address_is_connected_to() {
    let receiver = Receiver::accepting().await;
    let port = receiver.port();
    let hosts = literals();
    assert!(hosts.len() >= 200, "{}", hosts.len());
    for (number, host) in hosts.iter().enumerate() {
        // A sink with TLS reads the system's certificates when it is made, which is slow.
        let scheme = if number % 10 == 0 { "HTTPS" } else { "http" };
        let url = format!("{scheme}://{host}:{port}/");
        match HttpSink::new(guarded(&url)) {
            Ok(http) => {
                let SinkFailure { code, class, message, .. } = failed(&http, &claimed("t", "1")).await;
                assert_eq!((code.as_str(), class), ("FORBIDDEN_ADDRESS", FailureClass::Retryable), "{url}: {message}");
            }
            Err(error) => assert!(error.to_string().contains("cannot be read"), "{url}: {error}"),
        }
    }
    assert_eq!(receiver.connections(), 0);
}

/// A URL that tries to look like another one.
#[tokio::test]
async fn no_trick_with_a_url_gets_past_the_guard() {
    let receiver = Receiver::accepting().await;
    let port = receiver.port();
    for url in [
        format!("http://example.org@127.0.0.1:{port}/"),
        format!("http://example.org:80@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}@example.org/"),
        format!("http://user:secret@localhost:{port}/"),
        format!("http://example.org\\@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}\\@example.org/"),
        format!("http://127.0.0.1\t:{port}/"),
        format!("http://127.0.0.1 :{port}/"),
        format!("http://127.0.0.1%0d%0a:{port}/"),
        format!("http://127.0.0.1%00:{port}/"),
        format!("http://127.0.0.1%2f:{port}/"),
        format!("http:127.0.0.1:{port}/"),
        format!("http:/127.0.0.1:{port}/"),
        format!("http:\\\\127.0.0.1:{port}/"),
        format!("//127.0.0.1:{port}/"),
        format!("file://127.0.0.1:{port}/etc/passwd"),
        format!("gopher://127.0.0.1:{port}/_"),
        format!("ftp://127.0.0.1:{port}/"),
        format!("unix://127.0.0.1:{port}/"),
        format!("data://127.0.0.1:{port}/"),
    ] {
        let error = HttpSink::new(guarded(&url)).expect_err("no such URL").to_string();
        assert!(error.contains("the url of an HTTP sink") && !error.contains("secret"), "{url}: {error}");
    }
    for url in
        ["http://localhost", "http://LOCALHOST", "http://localhost.", "http://%6cocalhost", "http://ＬＯＣＡＬＨＯＳＴ"]
    {
        let options = guarded(&format!("{url}:{port}/"));
        let http = HttpSink::with_resolver(options, Scripted::new(&[&["127.0.0.1"]])).expect("a sink");
        assert_eq!(failed(&http, &claimed("t", "1")).await.code, "FORBIDDEN_ADDRESS", "{url}");
    }
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn a_name_that_leads_to_a_forbidden_address_is_not_followed() {
    let receiver = Receiver::accepting().await;
    for addresses in [
        &["127.0.0.1"][..],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["10.0.0.1", "127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["2002:7f00:1::"],
        &["169.254.169.254"],
        &["0.0.0.0"],
        &["fe80::1"],
        &["100.127.255.254"],
    ] {
        let url = format!("http://rebound.example:{}/", receiver.port());
        let http = HttpSink::with_resolver(guarded(&url), Scripted::new(&[addresses])).expect("a sink");
        let failure = failed(&http, &claimed("t", "1")).await;
        assert_eq!(failure.code, "FORBIDDEN_ADDRESS", "{addresses:?}: {failure:?}");
        let [finding] = http.check().await.try_into().expect("one finding");
        assert_eq!(finding.level, Level::Broken, "{finding:?}");
    }
    assert_eq!(receiver.connections(), 0);
}

/// A name that has a good address when it is looked at and a bad one afterwards: each connection is checked anew.
#[tokio::test]
async fn a_name_that_changes_its_mind_is_checked_each_time() {
    let receiver =
        Receiver::start(|_| Reply { headers: vec![("connection", "close".to_owned())], ..Reply::status(200) }).await;
    let options = guarded(&format!("http://rebound.example:{}/", receiver.port()))
        .allow(vec!["127.0.0.1/32".parse().expect("a network")]);
    // 127.0.0.2 would reach the same listener if it were on every address; what counts is that it is not tried.
    let answers: [&[&str]; 3] = [&["127.0.0.1"], &["127.0.0.2"], &["127.0.0.2", "127.0.0.1"]];
    let http = HttpSink::with_resolver(options, Scripted::new(&answers)).expect("a sink");
    delivered(&http, &claimed("t", "1")).await;
    let failure = failed(&http, &claimed("t", "1")).await;
    assert_eq!(failure.code, "FORBIDDEN_ADDRESS", "{failure:?}");
    assert_eq!(receiver.connections(), 1);
    // Of several addresses, only those are used that may be.
    delivered(&http, &claimed("t", "1")).await;
}

#[tokio::test]
async fn what_is_allowed_or_unguarded_is_reached() {
    let receiver = Receiver::accepting().await;
    let url = receiver.url("/");
    let allowed = guarded(&url).allow(vec!["127.0.0.0/8".parse().expect("a network")]);
    delivered(&HttpSink::new(allowed).expect("a sink"), &claimed("t", "1")).await;
    let unguarded = guarded(&url).guard(None);
    delivered(&HttpSink::new(unguarded).expect("a sink"), &claimed("t", "1")).await;
}

/// With the guard on, a message may choose the host, and still not an internal one.
#[tokio::test]
async fn a_host_out_of_a_message_is_guarded() {
    let receiver = Receiver::accepting().await;
    let url = format!("http://{{topic}}:{}/", receiver.port());
    let options = HttpOptions::new(url.parse().expect("a template")).guard(Some(true));
    let http = HttpSink::new(options).expect("a sink");
    for (topic, code) in [
        ("127.0.0.1", "FORBIDDEN_ADDRESS"),
        ("2130706433", "FORBIDDEN_ADDRESS"),
        ("localhost", "FORBIDDEN_ADDRESS"),
        ("[::1]", SinkFailure::NO_ADDRESS),
        ("example.org@127.0.0.1", SinkFailure::NO_ADDRESS),
        ("a/b", SinkFailure::NO_ADDRESS),
    ] {
        let failure = failed(&http, &claimed(topic, "1")).await;
        assert_eq!(failure.code, code, "{topic}: {failure:?}");
    }
    assert_eq!(receiver.connections(), 0);
}
