//! How every sink stands, read once for all who look. Counting a long queue costs the database a moment of one core, and
//! pages, scripts and probes ask for the same figures again and again: what was read of a long queue answers for a second.
//! A short one is read for each, so that whoever wrote a message sees it counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use postrider::Error;
use postrider::inspect::SinkStatus;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long one reading of a long queue answers.
const FRESH: Duration = Duration::from_secs(1);
/// From how many deliveries and dead letters a queue is long. Counting fewer takes the database a few milliseconds.
const LONG: i64 = 10_000;

/// The last reading of one database.
#[derive(Default)]
pub(super) struct Reading {
    /// Held while the store is asked: who comes meanwhile shares the answer, if the queue is long.
    last: Mutex<Option<Last>>,
    /// Orders carried out so far: what was read before one shows nobody what it did.
    actions: AtomicU64,
}

struct Last {
    /// Who asked before this is answered by it.
    answers_until: Instant,
    actions: u64,
    sinks: Vec<SinkStatus>,
}

impl Reading {
    /// How every sink stands: by the last reading if that will do, or else by this one.
    pub(super) async fn sinks(
        &self,
        read: impl Future<Output = Result<Vec<SinkStatus>, Error>>,
    ) -> Result<Vec<SinkStatus>, Error> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        let actions = self.actions.load(Ordering::Acquire);
        if let Some(last) = last.as_ref()
            && last.actions == actions
            && asked < last.answers_until
        {
            return Ok(last.sinks.clone());
        }
        *last = None;
        let begun = Instant::now();
        let sinks = read.await?;
        if sinks.iter().map(|sink| sink.pending + sink.leased + sink.dead).sum::<i64>() >= LONG {
            let answers_until = Instant::now().max(begun + FRESH);
            *last = Some(Last { answers_until, actions, sinks: sinks.clone() });
        }
        Ok(sinks)
    }

    /// An action was carried out: the next who asks sees what it did.
    pub(super) fn outdated(&self) {
        self.actions.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A store with a queue of this length, which takes this long to read and counts how often it is.
    struct Queue {
        length: i64,
        takes: Duration,
        reads: Cell<i64>,
    }

    impl Queue {
        fn of(length: i64) -> Self {
            Self { length, takes: Duration::from_millis(100), reads: Cell::new(0) }
        }

        async fn read(&self) -> Result<Vec<SinkStatus>, Error> {
            tokio::time::sleep(self.takes).await;
            self.reads.set(self.reads.get() + 1);
            let mut status = SinkStatus::default();
            (status.pending, status.due) = (self.length, self.length);
            Ok(vec![status])
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_queue_is_read_once_a_second() {
        let (reading, queue) = (Reading::default(), Queue::of(LONG));
        let together = tokio::join!(reading.sinks(queue.read()), reading.sinks(queue.read()));
        assert_eq!(together.0.unwrap(), together.1.unwrap());
        tokio::time::sleep(Duration::from_millis(899)).await;
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 1, "who comes meanwhile and who comes soon share it");
        tokio::time::sleep(Duration::from_millis(1)).await;
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 2, "it is a second old");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_slow_reading_shares_it() {
        let (reading, mut queue) = (Reading::default(), Queue::of(LONG));
        queue.takes = FRESH * 3;
        let late = async {
            tokio::time::sleep(FRESH * 2).await;
            reading.sinks(queue.read()).await
        };
        let (first, late) = tokio::join!(reading.sinks(queue.read()), late);
        assert_eq!(first.unwrap(), late.unwrap());
        assert_eq!(queue.reads.get(), 1);
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 2, "it was old when it came");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_queue_is_read_for_each() {
        let (reading, queue) = (Reading::default(), Queue::of(LONG - 1));
        reading.sinks(queue.read()).await.unwrap();
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn an_order_is_seen_at_once() {
        let (reading, queue) = (Reading::default(), Queue::of(LONG));
        reading.sinks(queue.read()).await.unwrap();
        reading.outdated();
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 2);
        // Given while somebody reads: they may not have seen it.
        let action = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            reading.outdated();
        };
        tokio::time::sleep(FRESH).await;
        let (read, ()) = tokio::join!(reading.sinks(queue.read()), action);
        read.unwrap();
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_told_and_not_kept() {
        let (reading, queue) = (Reading::default(), Queue::of(LONG));
        let failed = reading.sinks(async { Err(Error::new(postrider::ErrorKind::Connect, "it is away")) }).await;
        assert!(failed.is_err());
        reading.sinks(queue.read()).await.unwrap();
        assert_eq!(queue.reads.get(), 1);
    }
}
