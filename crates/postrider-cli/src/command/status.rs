//! `postrider status`: how each sink stands, from the view `outbox.status` and what relays report. Nothing is changed.

use std::time::{Duration, SystemTime};

use postrider::{ErrorKind, RelayRecord, SinkService, SinkState, SinkStatus};
use serde::Serialize;

use super::sinks::state_words;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::humane;
use crate::options::Global;
use crate::output::{Column, Output, Paint, Text};
use crate::store::{Address, Missing, Opened};

const AFTER_HELP: &str = "\
PENDING waits, DUE of these is due now; LEASED is held by a relay, EXPIRED of
these under a lease that ran out; DEAD and PARKED lanes wait for a person.
STATE is as in `postrider sinks`; a standby does not know it.

Examples:
  postrider status
  postrider status --json | jq '.sinks[] | select(.dead > 0)'";

/// Show each sink: pending, leased, dead
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

pub(crate) struct Prepared {
    address: Address,
}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is prepared from its arguments; this one has none yet")]
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()? })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, .. } = self.address.open(Missing::Refuse).await?;
        let sinks = store.status().await?;
        // What relays report is in an unlogged table, which a standby does not have.
        let relays = match store.relays().await {
            Err(error) if error.kind() == ErrorKind::ReadOnly => None,
            relays => Some(relays?),
        };
        let relays = relays.as_deref();
        if output.json {
            let sinks = sinks.iter().map(|sink| SinkDocument::new(sink, relays)).collect();
            output.json(&Document { sinks })?;
        } else {
            let now = store.now().await?;
            output.table("", &QUEUE, sinks.iter().map(|sink| queue_row(sink, relays)).collect())?;
            let window = sinks.first().map_or(Duration::ZERO, |sink| seconds(sink.recent_seconds));
            output.heading(&format!("attempts of the last {}", humane::window(window)))?;
            output.table("", &ATTEMPTS, sinks.iter().map(|sink| attempts_row(sink, now)).collect())?;
        }
        Ok(ExitCode::Ok)
    }
}

const QUEUE: [Column; 9] = [
    Column::Left("SINK"),
    Column::Right("PENDING"),
    Column::Right("DUE"),
    Column::Right("LEASED"),
    Column::Right("EXPIRED"),
    Column::Right("DEAD"),
    Column::Right("PARKED"),
    Column::Right("OLDEST DUE"),
    Column::Whole("STATE"),
];

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn queue_row(sink: &SinkStatus, relays: Option<&[RelayRecord]>) -> Vec<Text> {
    let state = relays.map(|relays| state_words(sink, &SinkService::of(&sink.sink, relays)));
    let (state, paint) = state.unwrap_or_else(|| ("unknown".to_owned(), Paint::Quiet));
    vec![
        Text::from(&sink.sink),
        Text::count(sink.pending, Paint::Plain),
        Text::count(sink.due, Paint::Plain),
        Text::count(sink.leased, Paint::Plain),
        Text::count(sink.expired, Paint::Warning),
        Text::count(sink.dead, Paint::Bad),
        Text::count(sink.parked_lanes, Paint::Bad),
        if sink.due == 0 {
            Text::new("-", Paint::Quiet)
        } else {
            Text::from(humane::span(seconds(sink.oldest_due_age_seconds)))
        },
        Text::new(state, paint),
    ]
}

const ATTEMPTS: [Column; 7] = [
    Column::Left("SINK"),
    Column::Right("DISPATCHED"),
    Column::Right("RETRYABLE"),
    Column::Right("FAILED"),
    Column::Right("ZOMBIE"),
    Column::Right("LAST SUCCESS"),
    Column::Right("LAST ERROR"),
];

fn attempts_row(sink: &SinkStatus, now: SystemTime) -> Vec<Text> {
    let [dispatched, retryable, failed, zombies] = sink.recent;
    let last = |time: Option<SystemTime>| match time {
        Some(time) => Text::from(humane::ago(now, time)),
        None => Text::new("-", Paint::Quiet),
    };
    vec![
        Text::from(&sink.sink),
        Text::count(dispatched, Paint::Good),
        Text::count(retryable, Paint::Warning),
        Text::count(failed, Paint::Bad),
        Text::count(zombies, Paint::Warning),
        last(sink.last_success_at),
        last(sink.last_error_at),
    ]
}

#[derive(Serialize)]
struct Document<'a> {
    sinks: Vec<SinkDocument<'a>>,
}

#[derive(Serialize)]
struct SinkDocument<'a> {
    sink: &'a str,
    state: Option<SinkState>,
    paused: bool,
    pending: i64,
    due: i64,
    leased: i64,
    expired: i64,
    dead: i64,
    parked_lanes: i64,
    oldest_due_age_seconds: f64,
    recent_seconds: f64,
    recent: Recent,
    last_success_at: Option<String>,
    last_error_at: Option<String>,
}

#[derive(Serialize)]
struct Recent {
    dispatched: i64,
    retryable: i64,
    failed: i64,
    zombie_requeue: i64,
}

impl<'a> SinkDocument<'a> {
    fn new(sink: &'a SinkStatus, relays: Option<&[RelayRecord]>) -> Self {
        let [dispatched, retryable, failed, zombie_requeue] = sink.recent;
        Self {
            sink: &sink.sink,
            state: relays.map(|relays| SinkState::of(sink, &SinkService::of(&sink.sink, relays))),
            paused: sink.paused,
            pending: sink.pending,
            due: sink.due,
            leased: sink.leased,
            expired: sink.expired,
            dead: sink.dead,
            parked_lanes: sink.parked_lanes,
            oldest_due_age_seconds: sink.oldest_due_age_seconds,
            recent_seconds: sink.recent_seconds,
            recent: Recent { dispatched, retryable, failed, zombie_requeue },
            last_success_at: sink.last_success_at.map(humane::rfc3339),
            last_error_at: sink.last_error_at.map(humane::rfc3339),
        }
    }
}
