//! What is refused before anybody is asked for a token: another's name, another site's page, a body that is no JSON or too
//! large, one request too many. And what every answer says to browsers.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};

use reqwest::Method;
use serde_json::json;

use super::server::{OPERATE, READ, Server, send, tokens, until};
use crate::support::{command, outboxes};

/// DNS rebinding: a page's own name that suddenly leads here.
#[tokio::test]
async fn another_name_in_the_host_header_is_refused() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let port = server.url.rsplit_once(':').unwrap().1.to_owned();
    for (host, status) in [
        ("evil.example".to_owned(), 421),
        (format!("evil.example:{port}"), 421),
        (format!("127.0.0.1.evil.example:{port}"), 421),
        (format!("localhost:{port}"), 200),
        (format!("[::1]:{port}"), 200),
        ("outbox.example".to_owned(), 200),
        (format!("OUTBOX.example.:{port}"), 200),
        ("outbox.example..".to_owned(), 421),
    ] {
        for path in ["/api/v1/sync/state", "/api/health", "/"] {
            let reply = send(server.request(Method::GET, path).header("host", &host).bearer_auth(OPERATE)).await;
            assert_eq!(reply.status, status, "{host} {path}: {}", reply.text);
        }
    }
    // Without any, and with an address in the request line that is not the header's.
    for head in [
        "GET /api/health HTTP/1.0\r\n\r\n",
        "GET http://evil.example/api/health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
        "GET http://localhost/api/health HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
        "GET /api/health HTTP/1.1\r\nhost: localhost\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
    ] {
        let answer = raw(&server, head);
        assert!(answer.starts_with("HTTP/1.1 421") || answer.starts_with("HTTP/1.0 421"), "{answer}");
    }
}

/// What a proxy on the same machine may send: nothing that gives it away, or one of these.
const BY_A_PROXY: [&str; 9] = [
    "GET {path} HTTP/1.1\r\nhost: outbox.example\r\n",
    "GET {path} HTTP/1.1\r\nhost: OUTBOX.example:443\r\n",
    "GET {path} HTTP/1.1\r\nhost: outbox.example.\r\n",
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nforwarded: for=192.0.2.7\r\n",
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-forwarded-for: 192.0.2.7\r\n",
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-forwarded-host: outbox.example\r\n",
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nvia: 1.1 proxy\r\n",
    "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nx-real-ip: 192.0.2.7\r\n",
    "GET http://127.0.0.1{path} HTTP/1.1\r\nhost: 127.0.0.1\r\n",
];

/// A proxy that rewrites the host and says nothing of itself looks like any program on this machine.
const PLAIN: &str = "GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n";

const LOOKING: [&str; 3] = ["/api/v1/messages", "/api/v1/sync/state", "/metrics"];

/// The status of a request of which this is the beginning.
fn status(server: &Server, head: &str, path: &str, token: Option<&str>) -> u16 {
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let answer = raw(server, &format!("{}{token}connection: close\r\n\r\n", head.replace("{path}", path)));
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{head}: {answer}"))
}

/// A proxy on the same machine calls from a loopback address, too. Whatever it sends, where there is a token it needs one.
#[tokio::test]
async fn where_there_is_a_token_looking_needs_one() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    for head in BY_A_PROXY.into_iter().chain([PLAIN]) {
        for path in LOOKING {
            assert_eq!(status(&server, head, path, None), 401, "{head} {path}");
            assert_eq!(status(&server, head, path, Some(READ)), 200, "{head} {path}");
        }
        for path in ["/api/health", "/api/ready", "/", "/api/openapi.json"] {
            assert_eq!(status(&server, head, path, None), 200, "{head} {path}");
        }
    }
}

/// Where it was configured, programs on this machine look without a token; what may come from a proxy does not.
#[tokio::test]
async fn this_machine_may_look_without_a_token_where_that_was_configured() {
    let [_, outbox] = outboxes().await;
    let config = tokens().replace("[admin]\n", "[admin]\nloopback_reads_without_token = true\n");
    let mut by_variable = command(&["serve", "--listen", "127.0.0.1:0"]);
    by_variable.env("DATABASE_URL", &outbox.url).env("POSTRIDER__ADMIN__LOOPBACK_READS_WITHOUT_TOKEN", "true");
    let by_file = Server::start(&outbox, &["serve", "--listen", "127.0.0.1:0"], &config);
    for server in [by_file, Server::spawn(by_variable, &tokens())] {
        for path in LOOKING {
            assert_eq!(status(&server, PLAIN, path, None), 200, "{path}");
            let there = PLAIN.replace("127.0.0.1", "192.0.2.7");
            assert_eq!(status(&server, &there, path, None), 401, "an address that is not this machine's: {path}");
            for head in BY_A_PROXY {
                assert_eq!(status(&server, head, path, None), 401, "{head} {path}");
                assert_eq!(status(&server, head, path, Some(READ)), 200, "{head} {path}");
            }
        }
        assert_eq!(server.stranger("/api/v1/overview").await.ok()["admin"]["role"], "none");
        let trigger = send(server.request(Method::POST, "/api/v1/sync/trigger")).await;
        assert_eq!(trigger.status, 200, "{}", trigger.text);
        assert_eq!(send(server.request(Method::POST, "/api/v1/sinks/default/pause")).await.status, 401);
    }
    // Where other machines can call it opens nothing.
    let abroad = Server::start(&outbox, &["serve", "--listen", "0.0.0.0:0"], &config);
    assert_eq!(status(&abroad, PLAIN, "/api/v1/messages", None), 401);
}

fn raw(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn a_page_of_another_site_changes_nothing() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let ours = server.url.clone();
    for (name, value, status) in [
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://127.0.0.1:1", 403),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("origin", ours.as_str(), 200),
        ("origin", "https://OUTBOX.example.:8443", 200),
        ("origin", "https://outbox.example", 200),
        ("sec-fetch-site", "same-origin", 200),
    ] {
        for path in ["/api/v1/sync/trigger", "/api/v1/sinks/default/pause"] {
            let request = server.request(Method::POST, path).bearer_auth(OPERATE).header(name, value);
            let reply = send(request).await;
            assert_eq!(reply.status, status, "{name}: {value} {path}: {}", reply.text);
            if status == 403 {
                assert_eq!(reply.refused(403), "CROSS_SITE");
            }
        }
    }
    // And a browser lets no other site's page read an answer.
    let read =
        server.request(Method::GET, "/api/v1/sync/state").bearer_auth(READ).header("origin", "http://evil.example");
    let read = send(read).await;
    assert_eq!((read.status, read.header("access-control-allow-origin")), (200, ""));
}

#[tokio::test]
async fn a_body_is_json_and_not_too_large() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let post = |kind: Option<&str>, body: String| {
        let request = server.request(Method::POST, "/api/v1/messages").bearer_auth(OPERATE).body(body);
        kind.into_iter().fold(request, |request, kind| request.header("content-type", kind))
    };
    let good = json!({"topic": "t", "payload": 1}).to_string();
    for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")] {
        assert_eq!(send(post(kind, good.clone())).await.refused(415), "UNSUPPORTED_MEDIA_TYPE", "{kind:?}");
    }
    let packed = post(Some("application/json"), good.clone()).header("content-encoding", "gzip");
    assert_eq!(send(packed).await.refused(415), "UNSUPPORTED_MEDIA_TYPE");
    assert_eq!(send(post(Some("Application/JSON; charset=utf-8"), good)).await.status, 201);

    let large = |bytes: usize| json!({"topic": "t", "payload": "x".repeat(bytes)}).to_string();
    assert_eq!(send(post(Some("application/json"), large(1024 * 1024))).await.refused(413), "TOO_LARGE");
    assert_eq!(send(post(Some("application/json"), large(1024 * 1024 - 64))).await.status, 201);
    for (body, code) in
        [("", "INVALID_INPUT"), ("{", "INVALID_JSON"), ("[]", "INVALID_INPUT"), ("\u{0}", "INVALID_JSON")]
    {
        assert_eq!(send(post(Some("application/json"), body.to_owned())).await.refused(400), code, "{body:?}");
    }
}

/// Requests that do not end hold their places; one more is asked to come again, and liveness is answered all the same.
#[tokio::test]
async fn there_is_room_for_so_many_requests() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    let head = format!(
        "POST /api/v1/messages HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {OPERATE}\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
    );
    let hold = || {
        let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        // It says that it waits for the body: the request has its place.
        let mut begun = [0; 25];
        stream.read_exact(&mut begun).unwrap();
        assert_eq!(&begun, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    };
    let waiting: Vec<TcpStream> = (0..64).map(|_| hold()).collect();
    // The next from this address has no connection of its own; one from elsewhere has, and there is no room.
    let elsewhere = reqwest::Client::builder().local_address(IpAddr::from([127, 0, 0, 2])).build().unwrap();
    let elsewhere = elsewhere.get(format!("{}/api/v1/sync/state", server.url)).bearer_auth(READ);
    for (reply, code) in
        [(server.get("/api/v1/sync/state").await, "TOO_MANY_CONNECTIONS"), (send(elsewhere).await, "TOO_MANY_REQUESTS")]
    {
        assert_eq!(reply.header("retry-after"), "5");
        assert_eq!(reply.refused(429), code);
    }
    assert_eq!(server.stranger("/api/health").await.status, 200);
    drop(waiting);
    until("there is room again", async || server.get("/api/v1/sync/state").await.status == 200).await;
}

#[tokio::test]
async fn every_answer_tells_browsers_to_do_little_with_it() {
    let [_, outbox] = outboxes().await;
    let server = Server::serve(&outbox);
    for (path, status) in
        [("/", 200), ("/api/health", 200), ("/api/v1/sync/state", 200), ("/api/v1/sync/dlq", 200), ("/nothing", 404)]
    {
        let reply = server.get(path).await;
        assert_eq!(reply.status, status, "{path}");
        let policy = reply.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.split("; ").any(|one| one == part), "{path}: {part} is not in {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), value, "{path}");
        }
    }
    let nothing = server.get("/api/v1/nothing").await;
    assert_eq!(nothing.refused(404), "NOT_FOUND");
}

/// The page is asked for again each time, and sent only when it changed.
#[tokio::test]
async fn the_page_is_sent_once() {
    let [_, outbox] = outboxes().await;
    let server = Server::open(&outbox);
    let page = server.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let tag = page.header("etag").to_owned();
    assert!(tag.starts_with('"') && page.text.contains("<html"), "{tag}");
    let again = send(server.request(Method::GET, "/").header("if-none-match", format!("\"other\", W/{tag}"))).await;
    assert_eq!((again.status, again.text.as_str(), again.header("etag")), (304, "", tag.as_str()));
    let other = send(server.request(Method::GET, "/").header("if-none-match", "\"other\"")).await;
    assert_eq!(other.status, 200);
    for path in ["/assets/../Cargo.toml", "/assets/%2e%2e/index.html", "/assets/none.js", "/index.html"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
}
