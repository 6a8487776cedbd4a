//! Producers that keep writing whatever breaks. Each has lanes of its own, so it knows the number that every message of
//! it must get. An answer that was lost is asked for again with the same dedupe keys: nothing is enqueued twice.

use std::ops::Range;
use std::time::Duration;

use postrider::{Message, PostgresStore, Queue as _};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;

/// Messages of one statement.
const BATCH: usize = 100;
const PRODUCERS: usize = 4;
/// Before a statement is sent again.
const TRY_AGAIN_MS: Range<u64> = 20..200;

/// What all producers together write.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) lanes: usize,
    /// In lanes; as many again have none.
    pub(super) in_lanes: usize,
}

/// What became of their statements.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) created: usize,
    /// Known already: the statement before was committed and its answer lost.
    pub(super) known: usize,
    pub(super) failed_statements: usize,
}

impl Work {
    /// These messages of one producer: every other one is in a lane, round and round its own lanes.
    fn messages(self, producer: usize, range: Range<usize>) -> Vec<Message> {
        let own_lanes = self.lanes / PRODUCERS;
        let message = |n: usize| {
            let (turn, in_lane) = (n / 2, n.is_multiple_of(2));
            let number = if in_lane { turn / own_lanes + 1 } else { 0 };
            let message = Message::json("t", &json!({ "producer": producer, "n": n, "number": number })).expect("json");
            let message = message.dedupe_key(format!("{producer}-{n}"));
            if in_lane { message.lane(format!("lane-{producer}-{:03}", turn % own_lanes)) } else { message }
        };
        range.map(message).collect()
    }

    fn of_each_producer(self) -> usize {
        2 * self.in_lanes / PRODUCERS
    }

    /// Writes a part of everything, given in tenths, evenly over `time`.
    pub(super) fn write(
        self,
        store: &PostgresStore,
        tenths: Range<usize>,
        time: Duration,
        seed: u64,
    ) -> JoinSet<Written> {
        let part = |tenth: usize| self.of_each_producer() * tenth / 10;
        let range = part(tenths.start)..part(tenths.end);
        let batches = u32::try_from(range.len().div_ceil(BATCH)).expect("few");
        let pace = (time / batches).max(Duration::from_micros(1));
        let mut producers = JoinSet::new();
        for producer in 0..PRODUCERS {
            let rng = StdRng::seed_from_u64(seed.wrapping_add(producer as u64));
            producers.spawn(self.write_one(store.clone(), producer, range.clone(), pace, rng));
        }
        producers
    }

    async fn write_one(
        self,
        store: PostgresStore,
        producer: usize,
        range: Range<usize>,
        pace: Duration,
        mut rng: StdRng,
    ) -> Written {
        let mut written = Written::default();
        let mut pace = tokio::time::interval(pace);
        for begin in range.clone().step_by(BATCH) {
            pace.tick().await;
            let messages = self.messages(producer, begin..range.end.min(begin + BATCH));
            let enqueued = loop {
                if let Ok(enqueued) = store.enqueue(&messages).await {
                    break enqueued;
                }
                written.failed_statements += 1;
                tokio::time::sleep(Duration::from_millis(rng.random_range(TRY_AGAIN_MS))).await;
            };
            let created = enqueued.iter().filter(|one| one.created).count();
            assert!(created == 0 || created == messages.len(), "a statement is written as a whole");
            written.created += created;
            written.known += messages.len() - created;
        }
        written
    }
}

impl Written {
    pub(super) fn add(&mut self, other: Self) {
        self.created += other.created;
        self.known += other.known;
        self.failed_statements += other.failed_statements;
    }
}

/// Waits for all of them.
pub(super) async fn all(producers: JoinSet<Written>) -> Written {
    let mut all = Written::default();
    for written in producers.join_all().await {
        all.add(written);
    }
    all
}
