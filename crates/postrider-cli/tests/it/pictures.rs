//! Makes the pictures of the documentation: a private PostgreSQL, a real relay, receivers that fail in several ways, and
//! messages that really were enqueued and tried. No figure on them is made up. Run by `scripts/screenshots`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::post;
use postrider::inspect::{DeliveryState, ListFilter, PageRequest};
use postrider::operate::Action;
use postrider::{Inspect as _, Message, Operate as _, PostgresStore, Queue as _, Route, Schema};
use postrider_testkit::{database, story};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::command;

const TOKEN: &str = "a-token-for-pictures-only";
/// Between two groups of messages.
const BEAT: Duration = Duration::from_millis(500);
const LISTEN: &str = "127.0.0.1:7499";

/// One receiver with a path for each sort of destination.
async fn receivers() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    async fn nap(most_ms: u64) -> u64 {
        // As uneven as a network is, and the same in every run.
        let turn = COUNT.fetch_add(1, Ordering::Relaxed) as u64;
        tokio::time::sleep(Duration::from_millis(turn * 7_919 % most_ms)).await;
        turn
    }
    let ok = || async {
        nap(40).await;
        StatusCode::OK
    };
    let flaky = || async {
        if nap(120).await % 9 == 0 {
            (StatusCode::BAD_GATEWAY, "upstream connect error").into_response()
        } else {
            StatusCode::ACCEPTED.into_response()
        }
    };
    let strict = |body: String| async move {
        nap(60).await;
        if body.contains("\"XX\"") {
            (StatusCode::UNPROCESSABLE_ENTITY, "{\"error\": \"unknown country XX\"}").into_response()
        } else {
            StatusCode::OK.into_response()
        }
    };
    let down = || async { (StatusCode::SERVICE_UNAVAILABLE, "maintenance until 06:00") };
    let router = Router::new()
        .route("/orders", post(ok))
        .route("/search", post(flaky))
        .route("/shipping", post(strict))
        .route("/invoices", post(down));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn configuration(receivers: &str) -> String {
    ["orders", "search", "shipping", "invoices"]
        .into_iter()
        .fold("[relay]\nworker_id = \"relay-1\"\n".to_owned(), |config, sink| {
            format!("{config}[sinks.{sink}.http]\nurl = \"{receivers}/{sink}\"\n")
        })
}

/// Killed with this value.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// What a shop writes in half a second.
fn orders(turn: usize) -> Vec<Message> {
    (0..12)
        .map(|n| {
            let number = turn * 12 + n;
            let (customer, topic) = (number % 40, ["order.placed", "order.paid", "order.shipped"][number % 3]);
            let country = if number % 211 == 77 { "XX" } else { "DE" };
            let payload = json!({"order": number, "customer": customer, "country": country, "total": "49.90"});
            Message::json(topic, &payload)
                .unwrap()
                .lane(format!("customer-{customer}"))
                .dedupe_key(format!("{topic}/{number}"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: scripts/screenshots runs it to make the pictures of the documentation"]
async fn the_pictures_are_taken() {
    let directory = PathBuf::from(std::env::var("POSTRIDER_PICTURES").expect("POSTRIDER_PICTURES names a directory"));
    let minutes: u64 = std::env::var("POSTRIDER_PICTURE_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (database, receivers) = (database().await, receivers().await);
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    for (topic, sink) in [
        ("order.*", "orders"),
        ("order.*", "search"),
        ("order.shipped", "shipping"),
        ("order.paid", "invoices"),
        ("order.placed", "crm"),
    ] {
        store.operate("ann", &Action::AddRoute { route: Route::new(topic, sink) }).await.unwrap();
    }
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("postrider.toml");
    std::fs::write(&config, configuration(&receivers)).unwrap();
    let mut relay = command(&["run", "--listen", LISTEN, "--config", config.to_str().unwrap()]);
    relay.env("DATABASE_URL", database.url()).env("POSTRIDER_ADMIN_TOKEN", TOKEN);
    let _relay = Relay(relay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());

    let (begun, mut turn, mut paused) = (Instant::now(), 0, false);
    while begun.elapsed() < Duration::from_secs(minutes * 60) {
        // More at some times than at others.
        if turn % 60 < 45 {
            store.enqueue(&orders(turn)).await.unwrap();
        }
        if !paused && begun.elapsed() > Duration::from_secs(minutes * 40) {
            store.operate("ines@desk", &Action::Pause { sink: "search".to_owned() }).await.unwrap();
            paused = true;
        }
        turn += 1;
        tokio::time::sleep(BEAT).await;
    }
    // The message that was tried most often.
    let waiting =
        ListFilter { state: Some(DeliveryState::Pending), sink: Some("invoices".to_owned()), ..ListFilter::default() };
    let page = store.list(&waiting, &PageRequest::first(10_000)).await.unwrap();
    let tried = page.items.iter().max_by_key(|line| line.attempt_no).expect("something waits for invoices");
    let variables = [
        ("PAGE", format!("http://{LISTEN}")),
        ("TOKEN", TOKEN.to_owned()),
        ("DIRECTORY", directory.display().to_string()),
        ("MESSAGE", tried.message_id.to_string()),
    ];
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let told = story(&[&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser/pictures.mjs")], &variables).await;
    assert!(told.status.success(), "{}{}", told.stdout, told.stderr);
}
