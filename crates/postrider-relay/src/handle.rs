//! What others may ask of a relay and tell it while it runs: the admin interface of the command line, or an application
//! that embeds it. A handle never starts or stops anything.

use std::sync::Arc;

use postrider::{RelayReport, SinkReport};

use crate::outlet::Outlet;
use crate::relay::Shared;
use crate::stats::Stats;

/// A relay as seen from outside: see [`crate::Relay::handle`]. Cheap to clone, and of use for as long as the relay runs;
/// after that it wakes nobody.
#[derive(Clone)]
pub struct RelayHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outlets: Arc<[Arc<Outlet>]>,
}

impl RelayHandle {
    /// Has it claim at once for every sink, as a notification would. A sink that its breaker leaves alone, or that is
    /// paused, stays so.
    pub fn wake(&self) {
        self.shared.wake.tell();
    }

    /// How its sinks are, in the order in which they were added.
    #[must_use]
    pub fn sinks(&self) -> Vec<SinkReport> {
        let now = self.shared.clock.now();
        self.outlets.iter().map(|outlet| outlet.report(now)).collect()
    }

    /// What it has done until now.
    #[must_use]
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.shared.stats)
    }

    pub(crate) fn report(&self) -> RelayReport {
        RelayReport {
            worker_id: self.shared.options.worker_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            every: self.shared.options.report_every,
            sinks: self.sinks(),
        }
    }
}
