//! A real session of a world: makes the calls of its story on a connection of its own, in a transaction that stays open, and
//! remembers what it was told that it holds. Called by `scheduler`.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::place::Place;
use super::real::{Lease, rows, try_rows};
use super::state::{Call, Ending, SLOTS, Which};

/// An id that no message has.
const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

pub(super) type Answer = Result<Vec<Vec<String>>, tokio_postgres::Error>;

/// What it does just now.
pub(super) enum Doing {
    /// Nothing; no transaction is open.
    Rests,
    /// It waits for the answer.
    Calls(JoinHandle<Answer>),
    /// The answer was so much.
    Answered(u8),
}

pub(super) struct Session {
    pub(super) client: Arc<Client>,
    pub(super) pid: String,
    pub(super) doing: Doing,
    pub(super) stopped: bool,
    /// Its open transaction may keep everybody from reading messages.
    pub(super) prunes: bool,
    call: Option<Call>,
    asked: Vec<usize>,
    pub(super) told: BTreeMap<usize, Lease>,
    will: Option<BTreeMap<usize, Lease>>,
    number: usize,
}

impl Session {
    pub(super) async fn new(number: usize, client: Client) -> Self {
        let pid = rows(&client, "select pg_backend_pid()").await[0][0].clone();
        Self {
            client: Arc::new(client),
            pid,
            doing: Doing::Rests,
            stopped: false,
            prunes: false,
            call: None,
            asked: Vec::new(),
            told: BTreeMap::new(),
            will: None,
            number,
        }
    }

    /// Makes a call, in its transaction.
    pub(super) fn start(&mut self, call: Call, stop: Option<Place>, ids: &[Option<String>; SLOTS]) {
        let begin = if matches!(self.doing, Doing::Rests) { "begin;" } else { "" };
        let place = stop.map_or_else(String::new, |place| format!("{place:?}"));
        let sql = format!("{begin} set world.place = '{place}'; {}", self.sql(call, ids));
        self.call = Some(call);
        self.prunes |= call == Call::Prune;
        if matches!(call, Call::Claim(_)) {
            self.told.clear();
        }
        let client = Arc::clone(&self.client);
        self.doing = Doing::Calls(tokio::spawn(async move { try_rows(&client, &sql).await }));
    }

    fn sql(&mut self, call: Call, ids: &[Option<String>; SLOTS]) -> String {
        let worker = format!("w{}", self.number + 1);
        let id = |slot: usize| ids[slot].as_deref().unwrap_or(NOBODY);
        let named = |set: u8| {
            let named: Vec<String> = super::state::each(set).map(|slot| format!("'{}'", id(slot))).collect();
            format!("array[{}]::uuid[]", named.join(","))
        };
        self.asked = match call {
            Call::Complete(_, which) | Call::Renew(which) | Call::Release(which) => self.part(which),
            _ => Vec::new(),
        };
        let asked: Vec<String> = self.asked.iter().map(|slot| format!("'{}'", id(*slot))).collect();
        let asked = format!("array[{}]::uuid[]", asked.join(","));
        let token = self.told.values().next().map_or_else(|| NOBODY.to_owned(), |lease| lease.token.clone());
        let count = self.asked.len();
        match call {
            Call::Enqueue(true) => {
                "select coalesce(sequence_id, 4) from outbox.enqueue('t', '1', lane => 'a')".to_owned()
            }
            Call::Enqueue(false) => "select coalesce(sequence_id, 4) from outbox.enqueue('t', '1')".to_owned(),
            Call::Claim(run) => format!(
                "select coalesce(sequence_id, 4), lease_token from outbox.claim('{worker}', 10, 2, max_attempts => 2, \
                 lane_run => {run})"
            ),
            Call::Complete(ending, _) => {
                let state = match ending {
                    Ending::Dispatched => "DISPATCHED",
                    Ending::Retryable => "RETRYABLE",
                    _ => "FAILED",
                };
                format!(
                    "select message_id from outbox.complete_many({asked}, array_fill('{token}'::uuid, array[{count}]), \
                     array_fill('{state}'::text, array[{count}]), \
                     retry_after_seconds => array_fill(1::numeric, array[{count}]))"
                )
            }
            Call::Renew(_) => format!("select message_id from outbox.renew('{token}', {asked}, 2)"),
            Call::Release(_) => format!("select r from outbox.release('{token}', {asked}) r"),
            Call::Repair => "select outbox.repair_expired_leases()".to_owned(),
            Call::Redrive(set) => format!("select outbox.redrive({})", named(set)),
            Call::Discard(set) => format!("select outbox.discard({})", named(set)),
            Call::Replay(slot) => format!("select outbox.replay({})", named(1 << slot)),
            Call::Skip => "select outbox.skip('default', 'a')".to_owned(),
            Call::Prune => "select partitions_dropped + rest_deleted + dedupe_deleted from outbox.prune(0)".to_owned(),
        }
    }

    fn part(&self, which: Which) -> Vec<usize> {
        let held: Vec<usize> = self.told.keys().copied().collect();
        match which {
            Which::All => held,
            Which::First => held.first().copied().into_iter().collect(),
            Which::Last => held.last().copied().into_iter().collect(),
        }
    }

    /// Takes in what the call has answered.
    pub(super) fn answered(&mut self, rows: &[Vec<String>], ids: &[Option<String>; SLOTS]) {
        self.stopped = false;
        let number = |text: &String| text.parse::<u8>().unwrap_or(0);
        let mut base = self.will.take().unwrap_or_else(|| self.told.clone());
        let answer = match self.call {
            Some(Call::Claim(_)) => {
                base = rows
                    .iter()
                    .map(|row| (usize::from(number(&row[0])) - 1, Lease { token: row[1].clone() }))
                    .collect();
                u8::try_from(rows.len()).unwrap_or(u8::MAX)
            }
            Some(call @ (Call::Complete(..) | Call::Renew(_) | Call::Release(_))) => {
                let changed = |slot: usize| rows.iter().any(|row| ids[slot].as_deref() == Some(&row[0]));
                for &slot in &self.asked {
                    if !changed(slot) {
                        self.told.remove(&slot);
                        base.remove(&slot);
                    } else if !matches!(call, Call::Renew(_)) {
                        base.remove(&slot);
                    }
                }
                u8::try_from(rows.len()).unwrap_or(u8::MAX)
            }
            _ => rows.first().map_or(0, |row| number(&row[0])),
        };
        self.will = Some(base);
        self.doing = Doing::Answered(answer);
    }

    /// Whether its call waits for locks. A prune gives up in a moment.
    pub(super) fn may_wait(&self) -> bool {
        self.call != Some(Call::Prune)
    }

    /// Ends its transaction.
    pub(super) async fn end(&mut self, commit: bool) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(if commit { "commit" } else { "rollback" }).await?;
        if let (true, Some(will)) = (commit, self.will.take()) {
            self.told = will;
        }
        self.will = None;
        self.prunes = false;
        self.doing = Doing::Rests;
        Ok(())
    }
}
