//! Tells the store that this relay is alive and how its sinks are, and has the store measure itself, for the admin API, the
//! page and the gauges. Two tasks beside the deliveries, three round trips at each interval. A failure here stops no
//! delivery.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::handle::RelayHandle;
use crate::store_client::{StoreClient, TIMEOUT_MAX, TIMEOUT_MIN};
use crate::telemetry::Telemetry;

/// Between two reports, however often a breaker opens and closes.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// How old a sample may be that a gauge is set to.
const SAMPLE_AGE: Duration = Duration::from_mins(1);

/// Reports at the start, at each interval, and when a breaker opens or closes. Signs off when everything has ended.
pub(crate) async fn report(
    relay: RelayHandle,
    store: Arc<StoreClient>,
    telemetry: Telemetry,
    breakers_changed: Arc<Notify>,
    all_ended: CancellationToken,
) {
    let (clock, options) = (&relay.clock, &relay.options);
    let mut reporting = Optional::new("report");
    while !all_ended.is_cancelled() {
        let report = relay.report();
        telemetry.relay(&report);
        reporting.ask(&store, |store| store.report(&report)).await;
        let now = clock.now();
        let changed = async {
            breakers_changed.notified().await;
            clock.sleep_until(now + REPORT_PAUSE).await;
        };
        tokio::select! {
            () = all_ended.cancelled() => {}
            () = clock.sleep_until(now + options.report_every) => {}
            () = changed => {}
        }
    }
    drop(store.ask_quietly(TIMEOUT_MIN, |store| store.sign_off(&options.worker_id)).await);
}

/// Has the store measured, unless another relay has just done so, and sets the gauges.
pub(crate) async fn measure(store: Arc<StoreClient>, clock: Arc<dyn Clock>, telemetry: Telemetry, every: Duration) {
    let (mut measuring, mut reading) = (Optional::new("measure"), Optional::new("read what was measured"));
    loop {
        measuring.ask(&store, postrider::Queue::measure).await;
        if let Some(samples) = reading.ask(&store, |store| store.samples(SAMPLE_AGE)).await {
            telemetry.samples(&samples);
        }
        clock.sleep_until(clock.now() + every).await;
    }
}

/// A call that deliveries do not depend on.
struct Optional {
    what: &'static str,
    refused: bool,
}

impl Optional {
    fn new(what: &'static str) -> Self {
        Self { what, refused: false }
    }

    /// Logs a refusal once. If the store is away, the claimers log that.
    async fn ask<'a, T, F>(&mut self, store: &'a StoreClient, call: impl FnOnce(&'a dyn Store) -> F) -> Option<T>
    where
        F: Future<Output = Result<T, postrider::Error>>,
    {
        let what = self.what;
        match store.ask_quietly(TIMEOUT_MAX, call).await {
            Ok(answer) => {
                if std::mem::take(&mut self.refused) {
                    info!(what, "the store takes it again");
                }
                return Some(answer);
            }
            Err(error) if error.is_refusal() => {
                if !std::mem::replace(&mut self.refused, true) {
                    warn!(what, error = error.words(), "the store refuses this; deliveries go on without it");
                }
            }
            Err(error) => debug!(what, error = error.words(), "the store cannot be asked"),
        }
        None
    }
}
