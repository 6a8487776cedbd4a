//! Sees what the relay itself tells while the demo runs: its log lines become events on the screen, and its metrics say
//! whether the breaker is open. An embedding application would use a log and an exporter of its own instead.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postrider_relay::telemetry;
use tracing::field::{Field, Visit};
use tracing::{Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;

use super::world::{Tone, World};

/// From now on; once in a process.
pub(super) fn start(world: &Arc<World>) {
    // An error means that somebody watches already; then there is less to see.
    drop(tracing::subscriber::set_global_default(registry().with(Log(Arc::clone(world)))));
    drop(metrics::set_global_recorder(Meters(Arc::clone(world))));
}

struct Log(Arc<World>);

impl<S: Subscriber> Layer<S> for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("postrider") && *metadata.level() <= Level::INFO
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        let tone = match *event.metadata().level() {
            Level::ERROR => Tone::Bad,
            Level::WARN => Tone::Warning,
            _ => Tone::Plain,
        };
        self.0.say(tone, words.0);
    }
}

/// The message of a log line, without its fields.
struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("relay: {value:?}");
        }
    }
}

struct Meters(Arc<World>);

impl Recorder for Meters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        if key.name() == telemetry::BREAKER_OPEN {
            Gauge::from_arc(Arc::new(Breaker(Arc::clone(&self.0))))
        } else {
            Gauge::noop()
        }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

struct Breaker(Arc<World>);

impl GaugeFn for Breaker {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        self.0.breaker_open.store(value > 0.0, Ordering::Relaxed);
    }
}
