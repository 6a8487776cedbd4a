//! What the relay says in its log: each death, each failed attempt, and why a breaker opened. Nothing of what a message
//! holds.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::Queue as _;
use postrider_relay::{BreakerOptions, SinkFailure, SinkOptions, handler};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{message, patiently, quick, retry, site, start};

/// Every line that is logged on this thread, with its level in front.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn count(&self, words: &str) -> usize {
        self.with(words).len()
    }

    /// Lines with these words that stand in a log of the usual level.
    pub(crate) fn told(&self, words: &str) -> usize {
        self.with(words).iter().filter(|line| !line.starts_with("DEBUG")).count()
    }

    pub(crate) fn with(&self, words: &str) -> Vec<String> {
        self.lines().into_iter().filter(|line| line.contains(words)).collect()
    }

    pub(crate) async fn until(&self, words: &str) {
        patiently(words, async {
            while self.count(words) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO || metadata.target().starts_with("postrider_relay")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut words = Words(format!("{} ", event.metadata().level()));
        event.record(&mut words);
        self.0.lock().expect("no panic").push(words.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn two_tries(breaker: BreakerOptions) -> SinkOptions {
    SinkOptions::default().retry(retry(1, 2, 2)).breaker(breaker)
}

fn never() -> BreakerOptions {
    BreakerOptions::default().failures(0)
}

/// Each death is one line in every log, each failed attempt one for whoever looks for it; the words of an error, which may
/// repeat the message, stand in none.
#[tokio::test]
async fn a_death_is_one_line_and_so_is_a_failed_attempt() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.clone());
    let site = site().await;
    let enqueued = site.store.enqueue(&["refused", "tired", "fine"].map(message)).await.expect("enqueue");
    let sink = handler(|message| async move {
        match message.topic.as_str() {
            "refused" => Err(SinkFailure::terminal("NO_CUSTOMER", "hunter2 has no customer")),
            "tired" => Err(SinkFailure::retryable("BUSY", "hunter2 is busy")),
            _ => Ok(()),
        }
    });
    let running = start(site.relay().options(quick()).sink_with("default", sink, two_tries(never())));
    site.until("select count(*) = 2 from outbox.dead_letter").await;
    site.until("select count(*) = 0 from outbox.delivery").await;
    running.stop().await;
    let dead = log.with("is dead");
    assert_eq!(dead.len(), 2, "{:?}", log.lines());
    for (place, topic, code, attempt_no) in [(0, "refused", "NO_CUSTOMER", 1), (1, "tired", "BUSY", 2)] {
        let line =
            dead.iter().find(|line| line.contains(&enqueued[place].message_id.to_string())).expect("a line for each");
        assert!(line.starts_with("WARN"), "{line}");
        let (topic, code) = (format!("topic={topic:?}"), format!("error_code={code:?}"));
        for fact in [topic.as_str(), &code, "sink=\"default\"", &format!("attempt_no={attempt_no}")] {
            assert!(line.contains(fact), "{fact}: {line}");
        }
    }
    let failed = log.with("attempt failed");
    assert_eq!(failed.len(), 3, "{failed:?}");
    assert!(failed.iter().all(|line| line.starts_with("DEBUG")), "{failed:?}");
    assert_eq!(log.count("hunter2"), 0, "{:?}", log.lines());
}

/// Why a breaker opened stands in its line, as far as the words are the sink's own.
#[tokio::test]
async fn a_breaker_says_the_last_error() {
    let site = site().await;
    for (failure, told, kept) in [
        (SinkFailure::retryable(SinkFailure::UNREACHABLE, "partner:443 refused"), "\"partner:443 refused\"", false),
        (SinkFailure::retryable(SinkFailure::ERROR, "hunter2 is no number"), "error_code=\"ERROR\"", true),
    ] {
        site.enqueue(&[message("t")]).await;
        let log = Log::default();
        let _logging = tracing::subscriber::set_default(log.clone());
        let sink = handler(move |_| {
            let failure = failure.clone();
            async move { Err::<(), _>(failure) }
        });
        let options = SinkOptions::default().breaker(BreakerOptions::default().failures(1));
        let running = start(site.relay().options(quick()).sink_with("default", sink, options));
        log.until("breaker opened").await;
        running.stop().await;
        let opened = log.with("breaker opened");
        assert_eq!(opened.len(), 1, "{opened:?}");
        assert!(opened[0].starts_with("WARN") && opened[0].contains(told), "{opened:?}");
        assert!(!kept || log.count("hunter2") == 0, "{:?}", log.lines());
    }
}
