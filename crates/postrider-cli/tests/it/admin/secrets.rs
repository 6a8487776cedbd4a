//! A secret in every field of the configuration is in nothing that is served: no endpoint, no metric, no part of the page,
//! no entry of the audit, and not in the log of the process that serves it.

use std::net::TcpListener;
use std::path::Path;

use postrider::{SqliteStore, Store as _};
use reqwest::Method;
use serde_json::{Value, json};

use super::server::{Server, message, send, until};
use crate::secrets::{SECRET, planted, silent};
use crate::support::command;

/// Every sink of the planted configuration, of which each fails.
const SINKS: usize = 11;

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
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let outbox = directory.path().join("outbox.db");
    let args = ["run", "--database", "here", "--listen", "127.0.0.1:0", "--log", "trace", "--max-attempts", "1"];
    let server = Server::spawn(command(&args), &planted(port, outbox.to_str().unwrap()));
    let store = SqliteStore::open(&outbox).unwrap();
    until("the routes are there", async || {
        server.get("/api/v1/routes").await.ok()["items"].as_array().unwrap().len() == SINKS
    })
    .await;
    let enqueued = store.enqueue(&[message("t", 1)]).await.unwrap();
    until("every sink was tried", async || server.get("/api/v1/sync/state").await.ok()["dlq_count"] == SINKS).await;
    let token = format!("{SECRET}-b");
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
        let path = path.replace("{id}", &enqueued[0].message_id.to_string());
        let reply = send(server.request(Method::GET, &path).bearer_auth(&token)).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        silent(&[&reply.text, &format!("{:?}", reply.headers)], &path);
        asked += 1;
    }
    assert!(asked > 15, "only {asked} endpoints were asked");
    let audit: Value = server.get("/api/v1/audit").await.ok();
    assert_eq!(audit["items"][0]["actor"], json!("ops@127.0.0.1"));
    until("the figures are there", async || {
        let metrics = server.get("/metrics").await.text;
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
