//! What the admin API, or an application that embeds the relay, can ask of it and tell it while it runs. A handle never
//! starts or stops anything.

use std::sync::Arc;

use postrider::inspect::{RelayReport, SinkReport};

use crate::clock::Clock;
use crate::options::RelayOptions;
use crate::sink_runtime::SinkRuntime;
use crate::stats::Stats;
use crate::wake::Wake;

/// A running relay, as others see it: see [`crate::Relay::handle`]. Cheap to clone. After the relay has ended, it wakes
/// nobody.
#[derive(Clone)]
pub struct RelayHandle {
    pub(crate) sinks: Arc<[Arc<SinkRuntime>]>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Arc<RelayOptions>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) stats: Arc<Stats>,
}

impl RelayHandle {
    /// Makes it claim at once for every sink, as a notification would. Sinks that are paused, or whose breaker is open, stay
    /// so.
    pub fn wake(&self) {
        self.wake.wake_claimers();
    }

    /// The state of its sinks, in the order in which they were added.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkReport> {
        let now = self.clock.now();
        self.sinks.iter().map(|sink| sink.report(now)).collect()
    }

    /// What it has done until now.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    pub(crate) fn report(&self) -> RelayReport {
        RelayReport {
            worker_id: self.options.worker_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            every: self.options.report_every,
            sinks: self.sinks(),
        }
    }
}
