//! Alive and ready: what supervisors ask, while the database is there, away, and while the process ends; and the address
//! that is taken at the start.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::json;

use super::server::{PATIENCE, READ, Server, message, store, until};
use crate::support::{Outbox, command, finish, outboxes, run_at};

/// Proves E4: liveness asks nobody, readiness asks the database.
#[tokio::test]
async fn readiness_asks_the_database_and_liveness_does_not() {
    let cluster = postrider_testkit::Cluster::start().await;
    let outbox = Outbox::of(cluster.database().await);
    let server = Server::run(&outbox, &[]);
    assert_eq!(server.get("/api/health").await.ok(), json!({"status": "ok"}));
    assert_eq!(server.get("/api/ready").await.ok(), json!({"status": "ready"}));
    cluster.kill9();
    let away = server.get("/api/ready").await;
    assert_eq!(away.status, 503);
    let document = away.json();
    assert_eq!(document["status"], "not_ready");
    assert!(document["reason"].as_str().unwrap().starts_with("database \"default\": "), "{document}");
    assert_eq!(server.get("/api/health").await.ok(), json!({"status": "ok"}));
    let state = server.get("/api/v1/sync/state").await;
    assert_eq!(state.header("retry-after"), "5");
    assert_eq!(state.refused(503), "UNAVAILABLE");
    cluster.restart().await;
    until("it is ready again", async || server.get("/api/ready").await.status == 200).await;
}

/// The reason names the database, and errors of a server name its login: only for those who may look.
#[tokio::test]
async fn strangers_are_told_only_that_it_is_not_ready() {
    let cluster = postrider_testkit::Cluster::start().await;
    let outbox = Outbox::of(cluster.database().await);
    let [server, open] = [Server::serve(&outbox), Server::open(&outbox)];
    assert_eq!(server.stranger("/api/ready").await.ok(), json!({"status": "ready"}));
    cluster.kill9();
    let told = json!({"status": "not_ready", "code": "DATABASE_UNAVAILABLE"});
    let stranger = server.stranger("/api/ready").await;
    assert_eq!((stranger.status, stranger.json()), (503, told.clone()));
    let wrong = super::server::send(server.request(reqwest::Method::GET, "/api/ready").bearer_auth("nonsense")).await;
    assert_eq!((wrong.status, wrong.json()), (503, told));
    for reply in [server.get("/api/ready").await, open.get("/api/ready").await] {
        let document = reply.json();
        assert_eq!((reply.status, &document["code"]), (503, &json!("DATABASE_UNAVAILABLE")));
        assert!(document["reason"].as_str().unwrap().starts_with("database \"default\": "), "{document}");
    }
}

/// An SQLite file that is deleted under a relay: the relay says so, and is not ready.
#[tokio::test]
async fn a_file_that_was_deleted_is_not_ready() {
    let [_, outbox] = outboxes().await;
    let server = Server::run(&outbox, &[]);
    assert_eq!(server.get("/api/ready").await.ok(), json!({"status": "ready"}));
    std::fs::remove_file(outbox.url.strip_prefix("sqlite:").unwrap()).unwrap();
    let gone = server.get("/api/ready").await;
    assert_eq!(gone.status, 503);
    assert!(gone.text.contains("was deleted, or another file is in its place"), "{}", gone.text);
    server.hear("was deleted, or another file is in its place");
}

/// A relay whose address leads to a standby is not ready and says why; when the address moves to the primary it goes on by
/// itself, and delivers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_not_ready_and_is_left() {
    let standby = postrider_testkit::Cluster::start().await;
    let database = standby.database().await;
    let primary = standby.duplicate().await;
    let proxy = postrider_testkit::FaultProxy::start(standby.port()).await;
    let mut outbox = Outbox::of(database.clone());
    outbox.url = proxy.url(&database);
    let server = Server::run(&outbox, &[]);
    until("it is ready", async || server.get("/api/ready").await.status == 200).await;
    standby.demote().await;
    until("it sees the standby", async || server.get("/api/ready").await.text.contains("takes no writes")).await;
    let away = server.get("/api/ready").await;
    assert_eq!(away.status, 503);
    assert!(away.text.contains("it is in recovery"), "{}", away.text);

    proxy.retarget(primary.port());
    until("it is ready again", async || server.get("/api/ready").await.status == 200).await;
    outbox.url = database.on(&primary).url();
    store(&outbox).enqueue(&[message("t", 1)]).await.unwrap();
    let client = database.on(&primary).connect().await;
    until("it is delivered", async || {
        client.query_one("select count(*) = 0 from outbox.deliveries", &[]).await.unwrap().get(0)
    })
    .await;
}

/// A store that hangs is not waited for: its answer comes within the bound, and says so.
#[tokio::test]
async fn readiness_does_not_hang() {
    let cluster = postrider_testkit::Cluster::start().await;
    let outbox = Outbox::of(cluster.database().await);
    let server = Server::serve(&outbox);
    cluster.pause();
    let away = server.get("/api/ready").await;
    assert_eq!(away.status, 503);
    assert!(away.text.contains("no answer in 2s"), "{}", away.text);
    cluster.resume();
    until("it is ready again", async || server.get("/api/ready").await.status == 200).await;
}

/// While a delivery is on its way after a signal, it says that it is stopping; then it ends, and a request that was on its
/// way is answered.
#[tokio::test]
async fn while_it_stops_it_is_not_ready() {
    let [_, outbox] = outboxes().await;
    // Takes a connection and says nothing, until this test lets go.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = format!(
        "{}[sinks.default.http]\nurl = \"http://{}/\"\n",
        super::server::tokens(),
        listener.local_addr().unwrap()
    );
    let server = Server::start(&outbox, &["run", "--listen", "127.0.0.1:0", "--grace", "60s"], &config);
    store(&outbox).enqueue(&[message("t", 1)]).await.unwrap();
    let (mut held, _) = listener.accept().unwrap();
    server.signal("-TERM");
    // It says so a moment before it does.
    until("it is no longer ready", async || server.get("/api/ready").await.status == 503).await;
    let stopping = server.get("/api/ready").await;
    let told = json!({"status": "not_ready", "code": "STOPPING", "reason": "stopping"});
    assert_eq!((stopping.status, stopping.json()), (503, told));
    let told = json!({"status": "not_ready", "code": "STOPPING"});
    assert_eq!(server.stranger("/api/ready").await.json(), told);
    assert_eq!(server.get("/api/health").await.status, 200);
    let trigger = server.request(reqwest::Method::POST, "/api/v1/sync/trigger").bearer_auth(READ);
    let trigger = super::server::send(trigger).await;
    assert_eq!(trigger.ok(), json!({"triggered": false, "reason": "stopping"}));

    let mut late = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let mut request = [0; 1024];
    let _ = held.read(&mut request).unwrap();
    held.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    late.write_all(b"GET /api/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    server.hear("stopped: delivered 1");
}

#[tokio::test]
async fn a_taken_address_matters_only_if_it_was_asked_for() {
    let [_, outbox] = outboxes().await;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for verb in ["serve", "run"] {
        let mut asked = command(&[verb, "--listen", &address]);
        asked.env("DATABASE_URL", &outbox.url);
        let ran = finish(asked, b"");
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(&format!("cannot listen on {address}")), "{}", ran.stderr);
    }
    // The default, which somebody may have: it delivers with the API or without it.
    let _other = TcpListener::bind("127.0.0.1:7433");
    let mut run = command(&["run"]);
    run.env("DATABASE_URL", &outbox.url).env_remove("POSTRIDER__ADMIN__LISTEN");
    let mut child = run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    store(&outbox).enqueue(&[message("t", 1)]).await.unwrap();
    let mut delivered = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut delivered).unwrap();
    assert_eq!(&delivered, b"{");
    // Whoever reads stdout has gone: it stops.
    let ended = tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()));
    let output = ended.await.unwrap().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no admin API: cannot listen on 127.0.0.1:7433"), "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");

    let none = run_at(&outbox.url, &["serve", "--listen", "none"]);
    assert_eq!(none.code, 2, "{}", none.stderr);
}

/// `--listen none`: it delivers, and nothing listens.
#[tokio::test]
async fn it_listens_nowhere_if_that_was_asked_for() {
    let [_, outbox] = outboxes().await;
    let mut run = command(&["run", "--listen", "none"]);
    run.env("DATABASE_URL", &outbox.url);
    let mut child = run.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    store(&outbox).enqueue(&[message("t", 1)]).await.unwrap();
    let mut delivered = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut delivered).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("http://") && !said.contains("admin API"), "{said}");
}
