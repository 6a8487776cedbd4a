//! Tells the store that this relay is alive and how its sinks are, and has the store measure itself: what the admin
//! interface, the web page and the gauges show. Two tasks beside the deliveries, three round trips a beat in all. Nothing
//! here may stop a delivery: what the store refuses is said once, and what it does not hear is left out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::handle::RelayHandle;
use crate::relay::{ANSWER_LEAST, ANSWER_MOST, Shared};

/// Between two reports, however often a breaker opens and closes.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// How old a sample may be that a gauge is set to. Whoever measures does so every few seconds.
const SAMPLE_AGE: Duration = Duration::from_mins(1);

/// Reports at the start, on every beat, and when a breaker opens or closes. When everything has ended it signs off, so
/// that nobody looks for this relay.
pub(crate) async fn report(relay: RelayHandle, all_ended: CancellationToken) {
    let (shared, every) = (&relay.shared, relay.shared.options.report_every);
    let mut reporting = Aside::new("report");
    while !all_ended.is_cancelled() {
        let report = relay.report();
        shared.telemetry.relay(&report);
        reporting.ask(shared.store.report(&report)).await;
        let now = shared.clock.now();
        let changed = async {
            shared.breakers_changed.notified().await;
            shared.clock.sleep_until(now + REPORT_PAUSE).await;
        };
        tokio::select! {
            () = all_ended.cancelled() => {}
            () = shared.clock.sleep_until(now + every) => {}
            () = changed => {}
        }
    }
    drop(tokio::time::timeout(ANSWER_LEAST, shared.store.sign_off(&shared.options.worker_id)).await);
}

/// Has the store measured, unless another relay has just done so, and sets the gauges to what was measured.
pub(crate) async fn measure(shared: Arc<Shared>) {
    let (mut measuring, mut reading) = (Aside::new("measure"), Aside::new("read what was measured"));
    loop {
        measuring.ask(shared.store.measure()).await;
        if let Some(samples) = reading.ask(shared.store.samples(SAMPLE_AGE)).await {
            shared.telemetry.samples(&samples);
        }
        shared.clock.sleep_until(shared.clock.now() + shared.options.report_every).await;
    }
}

/// A question that deliveries do not depend on.
struct Aside {
    what: &'static str,
    refused: bool,
}

impl Aside {
    fn new(what: &'static str) -> Self {
        Self { what, refused: false }
    }

    /// Said once if the store says no. If it is away, the claimers say so.
    async fn ask<T>(&mut self, call: impl Future<Output = Result<T, postrider::Error>>) -> Option<T> {
        let what = self.what;
        match tokio::time::timeout(ANSWER_MOST, call).await {
            Ok(Ok(answer)) => {
                if std::mem::take(&mut self.refused) {
                    info!(what, "the store takes it again");
                }
                return Some(answer);
            }
            Ok(Err(error)) if error.is_an_answer() => {
                if !std::mem::replace(&mut self.refused, true) {
                    warn!(what, error = error.in_short(), "the store refuses this; deliveries go on without it");
                }
            }
            Ok(Err(error)) => debug!(what, error = error.in_short(), "the store cannot be asked"),
            Err(_) => debug!(what, "the store does not answer"),
        }
        None
    }
}
