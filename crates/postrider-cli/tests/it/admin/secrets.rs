//! A secret in every field of the configuration is in nothing that is served: no endpoint, no metric, no part of the page,
//! no entry of the audit, and not in the log of the process that serves it.

use std::net::TcpListener;
use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use super::server::{Server, message, send, store, until};
use crate::secrets::{SECRET, SINKS, planted, silent};
use crate::support::{command, outboxes};

/// Every file of the page, as it is served.
async fn page(server: &Server) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
    let (mut fetched, mut folders) = (Vec::new(), vec![root.join("assets")]);
    fetched.push(("/".to_owned(), server.get("/").await.text));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
                continue;
            }
            let path = format!("/{}", entry.strip_prefix(&root).unwrap().display());
            // Licences lie beside the scripts and are not served.
            let reply = server.get(&path).await;
            if reply.status == 200 {
                fetched.push((path, reply.text));
            }
        }
    }
    fetched
}

#[tokio::test]
async fn nothing_that_is_served_shows_a_secret() {
    let [postgres, sqlite] = outboxes().await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let file = sqlite.url.strip_prefix("sqlite:").unwrap();
    // This server asks for no password, and is given one.
    let cloud = format!("{}?application_name={SECRET}", postgres.url.replace('@', &format!(":{SECRET}@")));
    let args = ["run", "--listen", "127.0.0.1:0", "--log", "trace", "--max-attempts", "1"];
    let server = Server::spawn(command(&args), &planted(port, file, &cloud));
    let token = format!("{SECRET}-b");
    let look = async |path: &str| send(server.request(Method::GET, path).bearer_auth(&token)).await;
    let mut ids = Vec::new();
    for (database, outbox) in [("cloud", &postgres), ("here", &sqlite)] {
        let routes = format!("/api/v1/routes?database={database}");
        until("the routes are there", async || {
            look(&routes).await.ok()["items"].as_array().unwrap().len() == SINKS.len()
        })
        .await;
        ids.push((database, store(outbox).enqueue(&[message("t", 1)]).await.unwrap()[0].message_id));
        let state = format!("/api/v1/sync/state?database={database}");
        until("every sink was tried", async || look(&state).await.ok()["dlq_count"] == SINKS.len()).await;
    }
    for order in ["pause", "resume"] {
        let path = format!("/api/v1/sinks/bearer/{order}");
        send(server.request(Method::POST, &path).bearer_auth(&token)).await.ok();
    }
    let wrong = send(server.request(Method::GET, "/api/v1/sync/dlq").bearer_auth(SECRET)).await;
    silent(&[&wrong.text], "the answer to a wrong token");
    assert_eq!(wrong.refused(401), "UNAUTHORIZED");

    let document = server.get("/api/openapi.json").await.ok();
    let mut asked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        if methods.get("get").is_none() {
            continue;
        }
        for (database, id) in &ids {
            let path = path.replace("{id}", &id.to_string());
            let path = if path.contains("/v1/") { format!("{path}?database={database}") } else { path };
            let reply = look(&path).await;
            assert_eq!(reply.status, 200, "{path}: {}", reply.text);
            silent(&[&reply.text, &format!("{:?}", reply.headers)], &path);
            asked += 1;
        }
    }
    assert!(asked > 30, "only {asked} endpoints were asked");
    let audit: Value = look("/api/v1/audit").await.ok();
    assert_eq!(audit["items"][0]["actor"], json!("ops@127.0.0.1"));
    until("the figures are there", async || {
        let metrics = look("/metrics").await.text;
        silent(&[&metrics], "/metrics");
        metrics.contains("outbox_dlq_depth{database=\"here\",sink=\"rabbitmq\"} 1")
    })
    .await;
    let page = page(&server).await;
    assert!(page.len() > 10, "only {} files of the page were found", page.len());
    for (path, text) in &page {
        silent(&[text], path);
    }
    let said = server.stop();
    assert!(said.contains("bearer"), "{said}");
    silent(&[&said], "the log");
}
