//! Every endpoint in one table: what it demands of whoever calls, and what it says to each kind of caller.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use super::server::{OPERATE, READ, Reply, Server, kill, message, send, store, tokens};
use crate::support::{Outbox, command, finish, outboxes};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    Nothing,
    Look,
    AdminLook,
    Operate,
}

struct Endpoint {
    method: Method,
    path: &'static str,
    demand: Demand,
    body: Option<Value>,
    /// Another path or body that cannot be used, and what the answer's message has in it.
    wrong: Option<(&'static str, Option<Value>, &'static str)>,
}

fn get(path: &'static str, demand: Demand, wrong: &'static str, said: &'static str) -> Endpoint {
    let wrong = (!wrong.is_empty()).then_some((wrong, None, said));
    Endpoint { method: Method::GET, path, demand, body: None, wrong }
}

fn post(path: &'static str, body: Value, wrong: Value, said: &'static str) -> Endpoint {
    let wrong = Some((path, Some(wrong), said));
    Endpoint { method: Method::POST, path, demand: Demand::Operate, body: Some(body), wrong }
}

const NOBODY: &str = "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";

fn endpoints(id: &str) -> Vec<Endpoint> {
    use Demand::{AdminLook, Look, Nothing, Operate};
    let span = json!({"sink": "default", "from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"});
    let backwards = json!({"sink": "default", "from": "2020-01-02T00:00:00Z", "to": "2020-01-01T00:00:00Z"});
    let skip = json!({"sink": "default", "lane": "a"});
    let (show, explain) = (format!("/api/v1/messages/{id}"), format!("/api/v1/messages/{id}/explain"));
    vec![
        // Before anything is redriven.
        post("/api/v1/lanes/skip", skip, json!({"sink": "default"}), "lane"),
        get(show.leak(), Look, "/api/v1/messages/seven", "not a UUID"),
        get(explain.leak(), Look, "/api/v1/messages/seven/explain", "not a UUID"),
        get("/api/health", Nothing, "", ""),
        get("/api/ready", Nothing, "", ""),
        get("/metrics", Look, "", ""),
        get("/api/openapi.json", Nothing, "", ""),
        get("/", Nothing, "", ""),
        get("/api/v1/sync/state", Look, "/api/v1/sync/state?sink=x", "unknown field `sink`"),
        get("/api/v1/sync/outbox", Look, "/api/v1/sync/outbox?status=lost", "unknown variant `lost`"),
        get("/api/v1/overview", Look, "/api/v1/overview?x=1", "unknown field `x`"),
        get("/api/v1/samples", Look, "/api/v1/samples?within_seconds=0", "within_seconds must be"),
        get("/api/v1/messages", Look, "/api/v1/messages?limit=1001", "from 1 to 1000"),
        get("/api/v1/messages?from=2020-01-01T00:00:00Z", Look, "/api/v1/messages?from=monday", "an RFC 3339 time"),
        get("/api/v1/lanes", Look, "/api/v1/lanes?state=stuck", "unknown variant `stuck`"),
        get("/api/v1/sinks", Look, "/api/v1/sinks?limit=1", "unknown field `limit`"),
        get("/api/v1/relays", Look, "/api/v1/relays?limit=1", "unknown field `limit`"),
        get("/api/v1/routes", Look, "/api/v1/routes?limit=1", "unknown field `limit`"),
        get("/api/v1/dead-letters", Look, "/api/v1/dead-letters?after=nonsense", "after is not the `next`"),
        get("/api/v1/dead-letters/groups", Look, "/api/v1/dead-letters/groups?died_from=monday", "an RFC 3339 time"),
        get("/api/v1/audit", Look, "/api/v1/audit?after=first", "after"),
        Endpoint {
            method: Method::POST,
            path: "/api/v1/sync/trigger",
            demand: Look,
            body: None,
            wrong: Some(("/api/v1/sync/trigger?now=1", None, "unknown field `now`")),
        },
        get("/api/v1/sync/dlq", AdminLook, "/api/v1/sync/dlq?limit=0", "from 1 to 1000"),
        post("/api/v1/sync/redrive", json!({"ids": [NOBODY]}), json!({}), "allDlq"),
        post("/api/v1/sync/redrive", json!({"allDlq": true}), json!({"ids": ["x"]}), "ids"),
        post("/api/v1/sync/unclaim-stuck", json!({"olderThanSeconds": 300}), json!({}), "olderThanSeconds"),
        post("/api/v1/retry-now", json!({"filter": {"sink": "default"}}), json!({"filter": {"sinks": "x"}}), "sinks"),
        post("/api/v1/routes/apply", json!({}), json!({"filter": {}}), "unknown field `filter`"),
        post("/api/v1/cancel", json!({"filter": {"sink": "nobody"}}), json!({}), "filter"),
        post("/api/v1/dead-letters/redrive", json!({"filter": {}}), json!({"filter": {"sinks": 1}}), "sinks"),
        post("/api/v1/dead-letters/discard", json!({"filter": {}, "dry_run": true}), json!({}), "filter"),
        Endpoint {
            method: Method::POST,
            path: "/api/v1/sinks/default/pause",
            demand: Operate,
            body: None,
            wrong: Some(("/api/v1/sinks/default/pause?for=1h", None, "unknown field `for`")),
        },
        Endpoint {
            method: Method::POST,
            path: "/api/v1/sinks/default/resume",
            demand: Operate,
            body: None,
            wrong: Some(("/api/v1/sinks/default/resume?for=1h", None, "unknown field `for`")),
        },
        post("/api/v1/replay", span, backwards, "from must be before to"),
        post("/api/v1/messages", json!({"topic": "t", "payload": null}), json!({"topic": "t"}), "payload"),
    ]
}

fn ask(server: &Server, endpoint: &Endpoint, token: Option<&str>) -> reqwest::RequestBuilder {
    let request = server.request(endpoint.method.clone(), endpoint.path);
    let request = endpoint.body.iter().fold(request, reqwest::RequestBuilder::json);
    token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth)
}

/// A dead letter in a lane that waits for it, and every endpoint, with those that need it.
async fn filled(outbox: &Outbox) -> Vec<Endpoint> {
    let store = store(outbox);
    let ids = kill(&*store, &[message("order.placed", 1).lane("a")], "REFUSED").await;
    endpoints(&ids[0])
}

async fn said(request: reqwest::RequestBuilder, status: u16, about: &str) -> Reply {
    let reply = send(request).await;
    assert_eq!(reply.status, status, "{about}: {}", reply.text);
    if status >= 400 {
        assert!(reply.json()["error"]["message"].is_string(), "{about}: {}", reply.text);
    }
    reply
}

/// Proves E5: what changes something is only there when it is enabled, and only with a token that may.
#[tokio::test]
async fn every_endpoint_asks_who_calls() {
    let [_, outbox] = outboxes().await;
    let endpoints = filled(&outbox).await;
    let here = Server::serve(&outbox);
    let abroad = Server::start(&outbox, &["serve", "--listen", "0.0.0.0:0"], &tokens());
    let off = Server::open(&outbox);
    for endpoint in &endpoints {
        let about = format!("{} {}", endpoint.method, endpoint.path);
        let wrong = if endpoint.demand == Demand::Nothing { 200 } else { 401 };
        for server in [&here, &abroad] {
            let reply = said(ask(server, endpoint, None), wrong, &about).await;
            assert_eq!(reply.header("www-authenticate"), if wrong == 200 { "" } else { "Bearer" }, "{about}");
            for token in ["nonsense", &OPERATE[1..], ""] {
                said(ask(server, endpoint, Some(token)), wrong, &about).await;
            }
            let basic = ask(server, endpoint, None).basic_auth("ops", Some(OPERATE));
            said(basic, wrong, &about).await;
        }
        let read = if endpoint.demand == Demand::Operate { 403 } else { 200 };
        said(ask(&abroad, endpoint, Some(READ)), read, &about).await;

        let gone = matches!(endpoint.demand, Demand::AdminLook | Demand::Operate);
        said(ask(&off, endpoint, None), if gone { 404 } else { 200 }, &about).await;
        if gone {
            said(ask(&off, endpoint, Some(OPERATE)), 404, &about).await;
        }
    }
}

/// Each does what it should for whoever may, and says what is wrong with what cannot be.
#[tokio::test]
async fn every_endpoint_answers_and_refuses() {
    for outbox in outboxes().await {
        let endpoints = filled(&outbox).await;
        let server = Server::serve(&outbox);
        for endpoint in &endpoints {
            let about = format!("{} {} of {}", endpoint.method, endpoint.path, outbox.url);
            let created = endpoint.path == "/api/v1/messages" && endpoint.method == Method::POST;
            let reply = said(ask(&server, endpoint, Some(OPERATE)), if created { 201 } else { 200 }, &about).await;
            let page = endpoint.path == "/";
            assert_eq!(reply.header("cache-control"), if page { "no-cache" } else { "no-store" }, "{about}");
            if endpoint.path.starts_with("/api/") {
                assert_eq!(reply.header("content-type"), "application/json", "{about}");
            }
            if let Some((path, body, words)) = &endpoint.wrong {
                let wrong =
                    Endpoint { path, body: body.clone(), wrong: None, method: endpoint.method.clone(), ..*endpoint };
                let refused = said(ask(&server, &wrong, Some(OPERATE)), 400, &about).await;
                let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
                assert!(message.contains(words), "{about}: {message}");
            }
            if endpoint.method == Method::GET {
                let head = send(server.request(Method::HEAD, endpoint.path).bearer_auth(OPERATE)).await;
                assert_eq!((head.status, head.text.as_str()), (200, ""), "{about}");
            }
            let delete = send(server.request(Method::DELETE, endpoint.path).bearer_auth(OPERATE)).await;
            assert!(delete.header("allow").contains(endpoint.method.as_str()), "{about}: {:?}", delete.headers);
            assert_eq!(delete.refused(405), "METHOD_NOT_ALLOWED", "{about}");
            if endpoint.path.starts_with("/api/v1/") {
                let mark = if endpoint.path.contains('?') { '&' } else { '?' };
                let path = format!("{}{mark}database=elsewhere", endpoint.path);
                let elsewhere = Endpoint {
                    path: path.leak(),
                    body: endpoint.body.clone(),
                    wrong: None,
                    method: endpoint.method.clone(),
                    ..*endpoint
                };
                let reply = said(ask(&server, &elsewhere, Some(OPERATE)), 404, &about).await;
                assert!(reply.text.contains("there are: default"), "{about}: {}", reply.text);
            }
        }
    }
}

/// What the table has is what the document has.
#[tokio::test]
async fn no_endpoint_is_left_out_of_the_table() {
    let [_, outbox] = outboxes().await;
    let server = Server::open(&outbox);
    let document = server.get("/api/openapi.json").await.ok();
    let mut told: Vec<String> = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        told.extend(item.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
    }
    let endpoints = endpoints("{id}");
    let mut tested: Vec<String> = endpoints
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method, endpoint.path.split('?').next().unwrap()))
        .map(|name| name.replace("/sinks/default/", "/sinks/{sink}/"))
        .filter(|name| name != "GET /" && name != "GET /api/openapi.json")
        .collect();
    told.sort();
    tested.sort();
    tested.dedup();
    assert_eq!(told, tested);
}

/// Enabled without a token: it is there, and says how to come in.
#[tokio::test]
async fn enabled_without_a_token_says_how_to_set_one() {
    let [_, outbox] = outboxes().await;
    let mut enabled = command(&["serve", "--listen", "127.0.0.1:0"]);
    enabled.env("DATABASE_URL", &outbox.url).env("INTERNAL_ADMIN_ENABLED", "true");
    let server = Server::spawn(enabled, "");
    let reply = server.get("/api/v1/sync/dlq").await;
    assert!(reply.text.contains("POSTRIDER_ADMIN_TOKEN"), "{}", reply.text);
    assert_eq!(reply.refused(401), "UNAUTHORIZED");

    let mut disabled = command(&["serve", "--listen", "127.0.0.1:0"]);
    disabled
        .env("DATABASE_URL", &outbox.url)
        .env("INTERNAL_ADMIN_ENABLED", "false")
        .env("POSTRIDER_ADMIN_TOKEN", OPERATE);
    let server = Server::spawn(disabled, "");
    let request = server.request(Method::GET, "/api/v1/sync/dlq").bearer_auth(OPERATE);
    assert_eq!(send(request).await.refused(404), "NOT_FOUND");
}

#[tokio::test]
async fn other_machines_need_a_token() {
    let [_, outbox] = outboxes().await;
    for verb in ["serve", "run"] {
        for address in ["0.0.0.0:0", "[::]:0"] {
            let mut open = command(&[verb, "--listen", address]);
            open.env("DATABASE_URL", &outbox.url);
            let ran = finish(open, b"");
            assert_eq!(ran.code, 2, "{}", ran.stderr);
            assert!(
                ran.stderr.contains("has no token") && ran.stderr.contains("POSTRIDER_ADMIN_TOKEN"),
                "{}",
                ran.stderr
            );
        }
    }
}

/// Whatever is asked, rightly or wrongly: no token in an answer or in the log. Other secrets: `secrets.rs`.
#[tokio::test]
async fn secrets_are_in_no_answer_and_in_no_log() {
    for outbox in outboxes().await {
        let endpoints = filled(&outbox).await;
        let server = Server::start(&outbox, &["serve", "--listen", "127.0.0.1:0", "--log", "trace"], &tokens());
        let mut answers = String::new();
        for endpoint in &endpoints {
            for token in [OPERATE, READ, "hunter4-is-wrong"] {
                let reply = send(ask(&server, endpoint, Some(token))).await;
                write!(answers, "{:?} {}", reply.headers, reply.text).unwrap();
            }
        }
        let log = server.stop();
        assert!(!answers.contains("hunter"), "{answers}");
        assert!(!log.contains("hunter"), "{log}");
    }
}
