//! The command line's `--json` and the admin API answer with the same documents: both are asked about one outbox, and what they
//! say is compared record by record.

use serde_json::{Value, json};

use crate::admin::server::{Server, kill, message, store};
use crate::support::{outboxes, run_at};

/// The same without what changes from one moment to the next.
fn steady(mut document: Value) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("oldest_pending_age_seconds");
                members.remove("oldest_due_age_seconds");
                members.remove("died_to");
                members.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            _ => {}
        }
    }
    clean(&mut document);
    document
}

/// Proves that a record has one shape: what a script reads of one it reads of the other.
#[tokio::test]
async fn the_command_line_and_the_api_answer_with_the_same_documents() {
    for outbox in outboxes().await {
        let store = store(&outbox);
        let dead = kill(&*store, &[message("a", 1).lane("l"), message("b", 2)], "HTTP_400").await;
        store.enqueue(&[message("a", 3).lane("l"), message("c", 4)]).await.unwrap();
        let server = Server::serve(&outbox);
        let url = outbox.url.as_str();
        run_at(url, &["routes", "add", "order.*", "orders", "audit"]).ok();
        run_at(url, &["sinks", "pause", "default"]).ok();
        let id = dead[0].as_str();
        let (show, explain) = (format!("/api/v1/messages/{id}"), format!("/api/v1/messages/{id}/explain"));
        for (command, path) in [
            (&["status"][..], "/api/v1/sinks"),
            (&["sinks"], "/api/v1/sinks"),
            (&["relays"], "/api/v1/relays"),
            (&["routes"], "/api/v1/routes"),
            (&["list", "--limit", "100"], "/api/v1/messages"),
            (&["list", "--limit", "2"], "/api/v1/messages?limit=2"),
            (&["list", "--state", "dead", "--topic", "a"], "/api/v1/messages?state=dead&topic=a"),
            (&["show", id], &show),
            (&["explain", id], &explain),
            (&["lanes"], "/api/v1/lanes"),
            (&["dlq", "list", "--limit", "1"], "/api/v1/dead-letters?limit=1"),
            (&["dlq", "list", "--reason", "failed"], "/api/v1/dead-letters?reason=FAILED"),
            (&["dlq", "groups"], "/api/v1/dead-letters/groups"),
            (&["audit", "--limit", "2"], "/api/v1/audit?limit=2"),
        ] {
            let told = run_at(url, &[command, &["--json"]].concat()).json();
            let answered = server.look(path).await.ok();
            assert_eq!(steady(told), steady(answered), "{command:?} and {path}");
        }
        // A cursor of one leads on in the other.
        let page = run_at(url, &["dlq", "list", "--limit", "1", "--json"]).json();
        let after = page["next"].as_str().unwrap();
        let told = run_at(url, &["dlq", "list", "--after", after, "--json"]).json();
        let answered = server.look(&format!("/api/v1/dead-letters?after={after}")).await.ok();
        assert_eq!((told["items"].as_array().map(Vec::len), &told), (Some(1), &answered));
        let span = ["--sink", "default", "--from", "2020-01-01T00:00:00Z", "--to", "2099-01-01T00:00:00Z"];
        for (command, path, body) in [
            (&["dlq", "redrive", "--topic", "a"][..], "dead-letters/redrive", json!({"filter": {"topic": "a"}})),
            (&["dlq", "discard", id], "dead-letters/discard", json!({"filter": {"message_ids": [id]}})),
            (&["cancel", "--sink", "default"], "cancel", json!({"filter": {"sink": "default"}})),
            (&["retry-now", "--all"], "retry-now", json!({"filter": {}})),
            (&["routes", "apply"], "routes/apply", json!({})),
            (
                &[&["replay"][..], &span].concat(),
                "replay",
                json!({"sink": "default", "from": "2020-01-01T00:00:00Z", "to": "2099-01-01T00:00:00Z"}),
            ),
        ] {
            let told = run_at(url, &[command, &["--dry-run", "--json"]].concat()).json();
            let mut body = body;
            body["dry_run"] = true.into();
            let answered = server.post(&format!("/api/v1/{path}"), body).await.ok();
            assert_eq!(steady(told), steady(answered), "{command:?} and {path}");
        }
        let told = run_at(url, &["sinks", "resume", "default", "--json"]).json();
        let answered = server.post("/api/v1/sinks/default/pause", json!({})).await.ok();
        assert_eq!(told, answered);
    }
}
