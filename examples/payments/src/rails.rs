//! Two fake rails over HTTP, `instant` and `wire`, that can be made to fail: an outage, a rail that hangs, a limit, a closed
//! account. `main.rs` serves them for `run` and relays deliver to them. A rail settles each payment once, by its
//! idempotency key, and tells what it settled and how many it had at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What a settlement takes: long enough that payments at a time can be counted.
const SETTLE_TIME: Duration = Duration::from_millis(20);
/// Longer than a relay waits.
const HANG_TIME: Duration = Duration::from_secs(30);

/// How a rail behaves.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    Up,
    Down,
    Hang,
    Full,
}

#[derive(Debug, Default)]
struct Rail {
    mode: Mode,
    closed_accounts: BTreeSet<String>,
    /// The reference of each settled payment, by idempotency key.
    references: BTreeMap<String, String>,
    settled: Vec<Settled>,
    in_flight: u32,
    most_in_flight: u32,
}

#[derive(Clone, Debug, Serialize)]
struct Settled {
    instruction_id: String,
    participant_id: String,
    sequence_id: u64,
    reference: String,
}

type Rails = Arc<Mutex<BTreeMap<String, Rail>>>;

/// The rails, each under its name.
pub fn rails() -> Router {
    Router::new()
        .route("/{rail}", get(look))
        .route("/{rail}/payments", post(pay))
        .route("/{rail}/mode", put(set_mode))
        .route("/{rail}/closed/{account}", put(close).delete(open))
        .with_state(Rails::default())
}

fn lock(rails: &Rails) -> MutexGuard<'_, BTreeMap<String, Rail>> {
    rails.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A payment that is being handled. It ends when the client hangs up, too.
struct InFlight {
    rails: Rails,
    rail: String,
}

impl InFlight {
    fn begin(rails: &Rails, name: &str) -> (Self, Mode) {
        let mut locked = lock(rails);
        let rail = locked.entry(name.to_owned()).or_default();
        rail.in_flight += 1;
        rail.most_in_flight = rail.most_in_flight.max(rail.in_flight);
        (Self { rails: Arc::clone(rails), rail: name.to_owned() }, rail.mode)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(rail) = lock(&self.rails).get_mut(&self.rail) {
            rail.in_flight -= 1;
        }
    }
}

async fn pay(
    State(rails): State<Rails>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(payment): Json<Value>,
) -> Response {
    let (_in_flight, mode) = InFlight::begin(&rails, &name);
    match mode {
        Mode::Up => tokio::time::sleep(SETTLE_TIME).await,
        Mode::Down => return refuse(StatusCode::SERVICE_UNAVAILABLE, "RAIL_DOWN"),
        Mode::Hang => tokio::time::sleep(HANG_TIME).await,
        Mode::Full => return refuse(StatusCode::UNPROCESSABLE_ENTITY, "LIMIT_EXCEEDED"),
    }
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let mut rails = lock(&rails);
    let rail = rails.entry(name.clone()).or_default();
    if rail.closed_accounts.contains(payment["destination"].as_str().unwrap_or_default()) {
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, "ACCOUNT_CLOSED");
    }
    let next = format!("{name}-{:04}", rail.references.len() + 1);
    let key = text("idempotency-key");
    let known = rail.references.get(&key).cloned();
    let reference = known.clone().unwrap_or(next);
    if known.is_none() {
        rail.references.insert(key, reference.clone());
        rail.settled.push(Settled {
            instruction_id: text("instruction-id"),
            participant_id: text("postrider-lane"),
            sequence_id: text("postrider-sequence-id").parse().unwrap_or_default(),
            reference: reference.clone(),
        });
    }
    ([("rail-reference", reference.clone())], Json(json!({ "reference": reference }))).into_response()
}

fn refuse(status: StatusCode, code: &str) -> Response {
    (status, Json(json!({ "error": { "code": code } }))).into_response()
}

async fn look(State(rails): State<Rails>, Path(name): Path<String>) -> Json<Value> {
    let mut rails = lock(&rails);
    let rail = rails.entry(name).or_default();
    Json(json!({ "mode": rail.mode, "most_in_flight": rail.most_in_flight, "settled": rail.settled }))
}

async fn set_mode(State(rails): State<Rails>, Path(name): Path<String>, Json(mode): Json<Mode>) {
    lock(&rails).entry(name).or_default().mode = mode;
}

async fn close(State(rails): State<Rails>, Path((name, account)): Path<(String, String)>) {
    lock(&rails).entry(name).or_default().closed_accounts.insert(account);
}

async fn open(State(rails): State<Rails>, Path((name, account)): Path<(String, String)>) {
    lock(&rails).entry(name).or_default().closed_accounts.remove(&account);
}
