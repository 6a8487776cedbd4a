//! Random operations against the database and against a model that fits in the head, compared after each one: the
//! state of every delivery, its counters, its dead letter, its attempts. A failing case is shrunk and printed; keep it
//! as a plain test.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{Held, claim_with, complete, number, sqlstate};

const MAX_ATTEMPTS: i32 = 3;

#[derive(Debug, Clone)]
enum Op {
    Enqueue {
        lane: Option<u8>,
        priority: i32,
        key: Option<u8>,
    },
    Claim {
        worker: u8,
        batch: i32,
        run: i32,
    },
    /// `nth` counts through the leases, live or ended; the token is the real one unless `forged`.
    Complete {
        nth: usize,
        outcome: Finish,
        forged: bool,
    },
    Repair,
    /// Something with the `nth` message that it can be done with.
    On {
        nth: usize,
        what: What,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Release,
    /// The lease of the message ends by the clock.
    Expire,
    Redrive,
    Discard,
    Replay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Dispatched,
    Retryable,
    Failed,
}

impl Finish {
    fn word(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Retryable => "RETRYABLE",
            Self::Failed => "FAILED",
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let finish = prop_oneof![4 => Just(Finish::Dispatched), 3 => Just(Finish::Retryable), 1 => Just(Finish::Failed)];
    let what = prop_oneof![
        1 => Just(What::Release),
        2 => Just(What::Expire),
        2 => Just(What::Redrive),
        1 => Just(What::Discard),
        1 => Just(What::Replay),
    ];
    prop_oneof![
        6 => (prop::option::weighted(0.6, 0..3_u8), -1..2_i32, prop::option::weighted(0.2, 0..3_u8))
            .prop_map(|(lane, priority, key)| Op::Enqueue { lane, priority, key }),
        6 => (0..2_u8, 1..6_i32, 1..4_i32).prop_map(|(worker, batch, run)| Op::Claim { worker, batch, run }),
        6 => (any::<usize>(), finish, prop::bool::weighted(0.1))
            .prop_map(|(nth, outcome, forged)| Op::Complete { nth, outcome, forged }),
        1 => Just(Op::Repair),
        7 => (any::<usize>(), what).prop_map(|(nth, what)| Op::On { nth, what }),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    Leased,
    Delivered,
    Dead,
    Discarded,
}

/// One message as the model sees it. `due` is the number of the operation that made it due: later is younger.
#[derive(Debug, Clone)]
struct Message {
    id: Uuid,
    lane: Option<u8>,
    sequence: Option<i64>,
    priority: i32,
    due: usize,
    state: State,
    lease: Option<Held>,
    worker: u8,
    expired: bool,
    /// Numbers handed out with this one: the lane is busy while one of them is leased and alive.
    tail: i64,
    attempt_no: i32,
    attempt_count: i32,
    attempts: Vec<String>,
}

impl Message {
    fn claimable(&self) -> bool {
        self.state == State::Pending || (self.state == State::Leased && self.expired)
    }

    fn record(&mut self, state: &str) {
        self.attempts.push(format!("{} {state}", self.attempt_no));
        self.lease = None;
        self.expired = false;
    }

    fn end_lease(&mut self) {
        self.record("ZOMBIE_REQUEUE");
        self.state = if self.attempt_count >= MAX_ATTEMPTS { State::Dead } else { State::Pending };
    }
}

#[derive(Debug, Default)]
struct Model {
    messages: Vec<Message>,
    keys: BTreeMap<u8, usize>,
    sequences: BTreeMap<u8, i64>,
    step: usize,
}

impl Model {
    /// Indexes of the messages for which `wanted` holds; the `nth`, counted around.
    fn pick(&self, nth: usize, wanted: impl Fn(&Message) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.messages.len()).filter(|&n| wanted(&self.messages[n])).collect();
        if all.is_empty() { None } else { Some(all[nth % all.len()]) }
    }

    /// What is still in the way in a lane, lowest number first. A dead head stays: it parks the lane.
    fn waiting(&self, lane: u8) -> Vec<usize> {
        let mut waiting: Vec<usize> = (0..self.messages.len())
            .filter(|&n| {
                let message = &self.messages[n];
                message.lane == Some(lane) && matches!(message.state, State::Pending | State::Leased | State::Dead)
            })
            .collect();
        waiting.sort_by_key(|&n| self.messages[n].sequence);
        waiting
    }

    /// The run that a claim may take from a lane, before its limits: empty if the lane is not free.
    fn free_run(&self, lane: u8) -> Vec<usize> {
        let waiting = self.waiting(lane);
        let Some(&head) = waiting.first() else { return Vec::new() };
        let busy = waiting.iter().any(|&n| {
            let message = &self.messages[n];
            message.state == State::Leased && !message.expired && message.sequence <= Some(self.messages[head].tail)
        });
        if busy { Vec::new() } else { waiting.into_iter().take_while(|&n| self.messages[n].claimable()).collect() }
    }

    /// Checks what a claim handed out and takes it over. What the claim buried on its way is read from the database.
    fn claimed(&mut self, held: &[Held], worker: u8, batch: usize, run: usize, dead: &[Uuid]) {
        for message in &mut self.messages {
            if dead.contains(&message.id) && message.state == State::Leased {
                assert!(message.expired && message.attempt_count >= MAX_ATTEMPTS, "buried for no reason: {message:?}");
                message.end_lease();
            }
        }
        let index = |id: Uuid| self.messages.iter().position(|message| message.id == id).expect("a known message");
        let taken: Vec<usize> = held.iter().map(|held| index(held.id)).collect();
        assert!(taken.len() <= batch, "more than asked for");

        let mut best: Vec<usize> = (0..self.messages.len())
            .filter(|&n| self.messages[n].lane.is_none() && self.messages[n].claimable())
            .collect();
        best.sort_by_key(|&n| (-self.messages[n].priority, self.messages[n].due, n));
        let plain: Vec<usize> = taken.iter().copied().filter(|&n| self.messages[n].lane.is_none()).collect();
        assert_eq!(plain, best[..plain.len()], "without a lane: priority, then due time, then id");

        let mut left_in_lanes = 0;
        for lane in 0..3 {
            let free = self.free_run(lane);
            let run_taken: Vec<usize> =
                taken.iter().copied().filter(|&n| self.messages[n].lane == Some(lane)).collect();
            assert!(run_taken.len() <= run, "a run longer than asked for");
            assert_eq!(
                run_taken,
                free[..run_taken.len().min(free.len())],
                "a lane is handed out from its lowest number"
            );
            if run_taken.is_empty() {
                left_in_lanes += free.len();
            }
        }
        // The dead that a claim meets take up room in it, so only a claim without them must be full.
        if taken.len() < batch && dead.is_empty() {
            assert_eq!((best.len(), left_in_lanes), (plain.len(), 0), "room was left while something was free");
        }
        for (n, held) in taken.iter().copied().zip(held) {
            let tail = taken
                .iter()
                .filter(|&&other| self.messages[other].lane == self.messages[n].lane)
                .filter_map(|&other| self.messages[other].sequence)
                .max();
            let message = &mut self.messages[n];
            if message.state == State::Leased {
                message.end_lease();
            }
            message.state = State::Leased;
            message.attempt_no += 1;
            message.attempt_count += 1;
            message.tail = message.tail.max(tail.unwrap_or(0));
            message.worker = worker;
            message.lease = Some(held.clone());
            assert_eq!((held.attempt_no, held.attempt_count), (message.attempt_no, message.attempt_count));
        }
    }

    fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .messages
            .iter()
            .map(|message| {
                let state = match message.state {
                    State::Pending => "pending",
                    State::Leased => "leased",
                    State::Dead => "dead",
                    State::Delivered | State::Discarded => "gone",
                };
                let counters = match message.state {
                    State::Delivered | State::Discarded => String::new(),
                    _ => format!("{}/{}", message.attempt_no, message.attempt_count),
                };
                format!("{} {state} {counters} {}", message.id, message.attempts.join(", "))
            })
            .collect();
        lines.sort();
        lines
    }
}

async fn describe(client: &Client) -> Vec<String> {
    let sql = "select m.message_id || ' ' || coalesce(d.state, 'gone') || ' ' \
               || coalesce(d.attempt_no || '/' || d.attempt_count, '') || ' ' \
               || coalesce((select string_agg(a.attempt_no || ' ' || a.state, ', ' order by a.attempt_no) \
                            from outbox.attempts a where a.message_id = m.message_id), '') \
               from outbox.messages m left join outbox.deliveries d on d.message_id = m.message_id order by 1";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn apply(client: &Client, model: &mut Model, op: &Op) {
    model.step += 1;
    let step = model.step;
    match *op {
        Op::Enqueue { lane, priority, key } => enqueue(client, model, lane, priority, key).await,
        Op::Claim { worker, batch, run } => {
            let dead_before = dead(client).await;
            let more = format!(", max_attempts => {MAX_ATTEMPTS}, lane_run => {run}");
            let held = claim_with(client, &format!("w{worker}"), batch, &more).await;
            let buried: Vec<Uuid> = dead(client).await.into_iter().filter(|id| !dead_before.contains(id)).collect();
            let size = |n: i32| usize::try_from(n).unwrap();
            model.claimed(&held, worker, size(batch), size(run), &buried);
        }
        Op::Complete { nth, outcome, forged } => {
            let Some(n) = model.pick(nth, |message| message.lease.is_some()) else { return };
            let message = &mut model.messages[n];
            let mut lease = message.lease.clone().unwrap();
            if forged {
                lease.token = Uuid::new_v4();
            }
            let result = complete(client, &format!("w{}", message.worker), &lease, outcome.word()).await;
            if forged || message.expired {
                assert_eq!(sqlstate(&result.unwrap_err()), "P7002");
                return;
            }
            assert_eq!(result.unwrap(), message.attempt_no);
            message.record(outcome.word());
            message.due = step;
            message.state = match outcome {
                Finish::Dispatched => State::Delivered,
                Finish::Retryable if message.attempt_count < MAX_ATTEMPTS => State::Pending,
                Finish::Retryable | Finish::Failed => State::Dead,
            };
        }
        Op::Repair => {
            let ended = model.messages.iter_mut().filter(|message| message.expired).map(Message::end_lease).count();
            let repaired = number(client, "select outbox.repair_expired_leases()").await;
            assert_eq!(repaired, i64::try_from(ended).unwrap());
        }
        Op::On { nth, what } => {
            let wanted = |message: &Message| match what {
                What::Release | What::Expire => message.lease.is_some(),
                What::Redrive | What::Discard => message.state == State::Dead,
                What::Replay => message.state == State::Delivered,
            };
            if let Some(n) = model.pick(nth, wanted) {
                act(client, model, n, what).await;
            }
        }
    }
}

async fn act(client: &Client, model: &mut Model, n: usize, what: What) {
    let step = model.step;
    let reach = model.messages[n]
        .lane
        .and_then(|lane| model.waiting(lane).into_iter().filter_map(|other| model.messages[other].sequence).max());
    let message = &mut model.messages[n];
    let call = |function: &str| format!("select outbox.{function}(array['{}'::uuid])", message.id);
    match what {
        What::Release => {
            let token = message.lease.as_ref().unwrap().token;
            let sql = format!("select count(*) from outbox.release('{token}', array['{}'::uuid])", message.id);
            assert_eq!(number(client, &sql).await, i64::from(!message.expired));
            if !message.expired {
                message.state = State::Pending;
                message.lease = None;
                message.attempt_no -= 1;
                message.attempt_count -= 1;
            }
        }
        What::Expire => {
            message.expired = true;
            let sql = "update outbox.delivery set lease_expires_at = claimed_at where message_id = $1";
            client.execute(sql, &[&message.id]).await.unwrap();
        }
        What::Redrive => {
            assert_eq!(number(client, &call("redrive")).await, 1);
            (message.state, message.attempt_count, message.due) = (State::Pending, 0, step);
        }
        What::Discard => {
            assert_eq!(number(client, &call("discard")).await, 1);
            message.state = State::Discarded;
        }
        What::Replay => {
            assert_eq!(number(client, &call("replay")).await, 1);
            (message.state, message.attempt_count, message.due) = (State::Pending, 0, step);
            message.tail = reach.unwrap_or(0);
        }
    }
}

async fn enqueue(client: &Client, model: &mut Model, lane: Option<u8>, priority: i32, key: Option<u8>) {
    let text = |value: Option<u8>| value.map_or("null".to_owned(), |value| format!("'{value}'"));
    let sql = format!(
        "select message_id, sequence_id, created from outbox.enqueue('t', '1', priority => {priority}, lane => {}, dedupe_key => {})",
        text(lane),
        text(key)
    );
    let row = client.query_one(&sql, &[]).await.unwrap();
    let (id, sequence, created): (Uuid, Option<i64>, bool) = (row.get(0), row.get(1), row.get(2));
    if let Some(&first) = key.and_then(|key| model.keys.get(&key)) {
        assert_eq!((id, sequence, created), (model.messages[first].id, model.messages[first].sequence, false));
        return;
    }
    assert!(created);
    let expected = lane.map(|lane| {
        let last = model.sequences.entry(lane).or_default();
        *last += 1;
        *last
    });
    assert_eq!(sequence, expected, "gapless");
    if let Some(key) = key {
        model.keys.insert(key, model.messages.len());
    }
    model.messages.push(Message {
        id,
        lane,
        sequence,
        priority,
        due: model.step,
        state: State::Pending,
        lease: None,
        worker: 0,
        expired: false,
        tail: 0,
        attempt_no: 0,
        attempt_count: 0,
        attempts: Vec::new(),
    });
}

async fn dead(client: &Client) -> Vec<Uuid> {
    client
        .query("select message_id from outbox.dead_letters", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

/// Proves L4, M3, M5, M8, P1, P2, E6: the database does what the model says, whatever the order of operations.
#[test]
fn the_database_follows_the_model() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner =
        TestRunner::new(Config { cases: 25, max_shrink_iters: 200, failure_persistence: None, ..Config::default() });
    let histories = prop::collection::vec(op(), 1..80);
    let result = runner.run(&histories, |history| {
        runtime.block_on(async {
            let database = postrider_testkit::database().await;
            let client = database.connect().await;
            let mut model = Model::default();
            for (n, op) in history.iter().enumerate() {
                apply(&client, &mut model, op).await;
                assert_eq!(describe(&client).await, model.describe(), "after operation {n}: {op:?}");
            }
        });
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
