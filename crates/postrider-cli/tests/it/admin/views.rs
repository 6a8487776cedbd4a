//! What can be looked at, on both stores: messages and their stories, dead letters in pages and groups, sinks, relays,
//! routes, samples, several databases side by side, and the document that describes it all.

use postrider::Route;
use serde_json::{Value, json};

use super::server::{Server, kill, message, store, tokens, until};
use crate::support::{command, outboxes};

fn items(document: &Value) -> &Vec<Value> {
    document["items"].as_array().unwrap()
}

/// Enqueued by hand, found by each of its marks, shown with its payload as it was written.
#[tokio::test]
async fn a_message_is_enqueued_found_and_shown() {
    for outbox in outboxes().await {
        let server = Server::serve(&outbox);
        let tenant = "tenant-1";
        let body = r#"{"topic": "order.placed", "payload": {"n": 12345678901234567890, "x": 1.10}, "namespace": "shop",
            "tenant_id": "tenant-1", "lane": "order-7", "dedupe_key": "tenant-1/7", "priority": 5,
            "headers": {"trace": "abc"}, "due_at": "2099-01-31T08:00:00Z"}"#;
        let request = || {
            server
                .request(reqwest::Method::POST, "/api/v1/messages")
                .bearer_auth(super::server::OPERATE)
                .header("content-type", "application/json")
                .body(body)
        };
        let first = super::server::send(request()).await;
        assert_eq!(first.status, 201, "{}", first.text);
        let first = first.json();
        assert_eq!((&first["created"], &first["sequence_id"]), (&json!(true), &json!(1)));
        let again = super::server::send(request()).await.ok();
        assert_eq!((&again["created"], &again["message_id"]), (&json!(false), &first["message_id"]));
        let id = first["message_id"].as_str().unwrap();
        let audit = server.look("/api/v1/audit").await.ok();
        let entry = &items(&audit)[1];
        assert_eq!((&entry["action"], &entry["affected"]), (&json!("enqueue"), &json!(1)), "{audit}");
        assert_eq!(
            (&entry["detail"]["message_id"], &entry["detail"]["payload"]),
            (&json!(id), &Value::Null),
            "{audit}"
        );

        for (query, found) in [
            (String::new(), 1),
            ("?state=pending&namespace=shop&topic=order.placed&lane=order-7&sink=default".to_owned(), 1),
            (format!("?tenant_id={tenant}&from=2020-01-01T00:00:00Z&to=2099-01-01T00:00:00Z"), 1),
            ("?state=delivered".to_owned(), 0),
            ("?namespace=other".to_owned(), 0),
            ("?to=2020-01-01T00:00:00Z".to_owned(), 0),
        ] {
            let document = server.get(&format!("/api/v1/messages{query}")).await.ok();
            assert_eq!(items(&document).len(), found, "{query}: {document}");
        }
        let shown = server.get(&format!("/api/v1/messages/{id}")).await;
        assert!(shown.text.contains("12345678901234567890") && shown.text.contains("1.10"), "{}", shown.text);
        let shown = shown.ok();
        for (field, value) in [
            ("lane", json!("order-7")),
            ("priority", json!(5)),
            ("headers", json!({"trace": "abc"})),
            ("body", Value::Null),
            ("tenant_id", json!(tenant)),
        ] {
            assert_eq!(shown[field], value, "{shown}");
        }
        assert_eq!(shown["deliveries"][0]["state"], "pending");
        let explained = server.get(&format!("/api/v1/messages/{id}/explain")).await.ok();
        assert_eq!(explained["message_id"], id);
        assert!(explained["deliveries"][0]["why"].is_string(), "{explained}");
        for path in ["", "/explain"] {
            let nobody = format!("/api/v1/messages/019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41{path}");
            assert_eq!(server.get(&nobody).await.refused(404), "NOT_FOUND");
        }
    }
}

#[tokio::test]
async fn messages_and_dead_letters_go_page_by_page() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        let messages: Vec<_> = (0..5).map(|n| message("a", n)).collect();
        let mut dead = kill(&*store, &messages, "HTTP_400").await;
        dead.extend(kill(&*store, &[message("b", 9)], "TIMEOUT").await);
        for path in ["/api/v1/messages?limit=2", "/api/v1/dead-letters?limit=2"] {
            let (mut seen, mut next) = (Vec::new(), Value::Null);
            loop {
                let more = next.as_str().map(|next| format!("&after={next}")).unwrap_or_default();
                let page = server.get(&format!("{path}{more}")).await.ok();
                seen.extend(items(&page).iter().map(|item| item["message_id"].as_str().unwrap().to_owned()));
                next = page["next"].clone();
                if next.is_null() {
                    break;
                }
            }
            let mut expected = dead.clone();
            expected.sort();
            let mut sorted = seen.clone();
            sorted.sort();
            assert_eq!(sorted, expected, "{path}: each once");
        }
        let groups = server.get("/api/v1/dead-letters/groups").await.ok();
        let told: Vec<_> = items(&groups)
            .iter()
            .map(|group| (group["topic"].as_str(), group["error_code"].as_str(), group["count"].as_i64()))
            .collect();
        assert_eq!(told, [(Some("a"), Some("HTTP_400"), Some(5)), (Some("b"), Some("TIMEOUT"), Some(1))]);
        let one = server.get("/api/v1/dead-letters?topic=b&reason=FAILED&error_code=TIMEOUT&sink=default").await.ok();
        assert_eq!(items(&one)[0]["message_id"], json!(dead[5]));
        let none = server.get("/api/v1/dead-letters/groups?died_from=2099-01-01T00:00:00Z").await.ok();
        assert!(items(&none).is_empty());
    }
}

/// A relay that runs is seen with its sinks; what it measures becomes samples.
#[tokio::test]
async fn the_overview_has_sinks_relays_and_samples() {
    for outbox in outboxes().await {
        let config = format!("{}[sinks.default.stdout]\n[sinks.audit.stdout]\n[sinks.audit]\nrate = 9\n", tokens());
        let server = Server::start(&outbox, &["run", "--listen", "127.0.0.1:0", "--worker-id", "w-1"], &config);
        let store = store(&outbox);
        store
            .operate("ann", &postrider::operate::Action::AddRoute { route: Route::new("order.*", "audit") })
            .await
            .unwrap();
        store.enqueue(&[message("order.placed", 1), message("other", 2)]).await.unwrap();
        until("the relay reports", async || !items(&server.get("/api/v1/relays").await.ok()).is_empty()).await;
        let overview = server.look("/api/v1/overview").await.ok();
        assert_eq!((&overview["database"], &overview["databases"]), (&json!("default"), &json!(["default"])));
        assert_eq!(overview["admin"], json!({"enabled": true, "role": "read"}));
        let place = overview["store"].as_str().unwrap();
        assert!(place.starts_with("postgres://") || place.starts_with("sqlite:"), "{place}");
        assert!(!place.contains('@'), "{place}");
        let relay = &overview["relays"][0];
        assert_eq!((&relay["worker_id"], &relay["silent"]), (&json!("w-1"), &json!(false)));
        let sinks = overview["sinks"].as_array().unwrap();
        let audit = sinks.iter().find(|sink| sink["sink"] == "audit").unwrap_or_else(|| panic!("{overview}"));
        for (field, value) in
            [("kind", json!("stdout")), ("breaker", json!("closed")), ("rate", json!(9)), ("on_dead", json!("park"))]
        {
            assert_eq!(audit[field], value, "{audit}");
        }
        let listed = server.get("/api/v1/sinks").await.ok();
        assert_eq!(items(&listed).len(), sinks.len());
        let routes = server.get("/api/v1/routes").await.ok();
        assert_eq!(items(&routes), &vec![json!({"namespace": "*", "topic": "order.*", "sink": "audit"})]);
        until("something is measured", async || {
            let samples = server.get("/api/v1/samples?within_seconds=600").await.ok();
            samples["items"].as_array().unwrap().iter().any(|sample| sample["attempts"]["dispatched"].is_i64())
        })
        .await;
        let metrics = server.get("/metrics").await;
        assert!(metrics.header("content-type").starts_with("text/plain"), "{:?}", metrics.headers);
        assert!(metrics.text.contains("# TYPE outbox_"), "{}", metrics.text);
    }
}

/// Sinks of one name in two databases are two series, in gauges and in counters.
#[tokio::test]
async fn metrics_tell_the_databases_apart() {
    let [postgres, sqlite] = outboxes().await;
    store(&postgres).enqueue(&[message("t", 1)]).await.unwrap();
    store(&sqlite).enqueue(&[message("t", 1), message("t", 2)]).await.unwrap();
    let config = format!(
        "[databases.east]\nurl = \"{}\"\n[databases.west]\nurl = \"{}\"\n[sinks.default.stdout]\n",
        postgres.url, sqlite.url
    );
    let server = Server::spawn(command(&["run", "--listen", "127.0.0.1:0"]), &config);
    for (name, east, west) in [
        ("outbox_attempts_total", 1, 2),
        ("outbox_claimed_messages_total", 1, 2),
        ("outbox_pending_depth", 0, 0),
        ("outbox_relay_info", 1, 1),
    ] {
        let has = |text: &str, database: &str, value: i32| {
            let series = format!("{name}{{database=\"{database}\",");
            text.lines().any(|line| line.starts_with(&series) && line.ends_with(&format!(" {value}")))
        };
        until(name, async || {
            let text = server.get("/metrics").await.text;
            has(&text, "east", east) && has(&text, "west", west)
        })
        .await;
    }
}

/// Each database under its name; the first if none is named.
#[tokio::test]
async fn several_databases_are_served_side_by_side() {
    let [postgres, sqlite] = outboxes().await;
    store(&sqlite).enqueue(&[message("t", 1)]).await.unwrap();
    let config = format!(
        "{}[databases.east]\nurl = \"{}\"\n[databases.west]\nurl = \"{}\"\n",
        tokens(),
        postgres.url,
        sqlite.url
    );
    let server = Server::spawn(command(&["serve", "--listen", "127.0.0.1:0"]), &config);
    let overview = server.get("/api/v1/overview?database=west").await.ok();
    assert_eq!((&overview["database"], &overview["databases"]), (&json!("west"), &json!(["east", "west"])));
    assert_eq!(server.get("/api/v1/sync/state?database=west").await.ok()["pending_count"], 1);
    assert_eq!(server.get("/api/v1/sync/state").await.ok()["pending_count"], 0);
    assert_eq!(server.get("/api/ready").await.status, 200);
}

/// The document says of each endpoint what it takes, what it answers, and that it wants a token.
#[tokio::test]
async fn the_document_describes_every_answer() {
    let [_, outbox] = outboxes().await;
    let server = Server::open(&outbox);
    let document = server.get("/api/openapi.json").await.ok();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."), "{}", document["openapi"]);
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("200") || responses.contains_key("201"), "{method} {path}");
            assert!(operation["summary"].is_string(), "{method} {path}");
            if path.starts_with("/api/v1/") {
                assert!(responses.contains_key("401") && operation["security"].is_array(), "{method} {path}");
            }
            if operation.get("requestBody").is_some() {
                assert!(responses.contains_key("413") && responses.contains_key("415"), "{method} {path}");
            }
        }
    }
}
