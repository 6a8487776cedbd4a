//! Ends leases that ran out, and wakes the claimers. Claims take over the expired leases they meet; this finds those of sinks
//! and lanes that nobody claims from, and of a relay that claims rarely. Every relay does it, at random intervals.

use std::sync::Arc;

use rand::Rng as _;
use tracing::info;

use crate::clock::Clock;
use crate::jitter::Jitter;
use crate::options::RelayOptions;
use crate::store_client::StoreClient;
use crate::telemetry::Telemetry;
use crate::wake::Wake;

/// Leases ended by one statement.
const BATCH_SIZE: u32 = 1_000;

pub(crate) async fn run(
    store: Arc<StoreClient>,
    clock: Arc<dyn Clock>,
    jitter: Arc<Jitter>,
    telemetry: Telemetry,
    wake: Arc<Wake>,
    options: Arc<RelayOptions>,
) {
    loop {
        // Never later than was asked for, and not all relays at once.
        let (longest, part) = options.reap_every.map_or((options.lease, 0.33..0.67), |every| (every, 0.67..1.0));
        let pause = longest.mul_f64(jitter.rng().random_range(part));
        clock.sleep_until(clock.now() + pause).await;
        reap(&store, &telemetry, &wake).await;
    }
}

async fn reap(store: &StoreClient, telemetry: &Telemetry, wake: &Wake) {
    while let Ok(ended) = store.ask("end expired leases", |store| store.repair_expired_leases(BATCH_SIZE)).await {
        if ended > 0 {
            telemetry.reaped(ended);
            wake.leases_ended(ended);
            info!(leases = ended, "ended leases that ran out");
        }
        if ended < u64::from(BATCH_SIZE) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use postrider::Inspect as _;

    use super::*;
    use crate::fixtures::Fixture;

    /// Proves P13: who sleeps until the next poll is told of what a dead worker held.
    #[tokio::test]
    async fn a_lease_that_ran_out_is_ended_and_claimers_wake() {
        let fixture = Fixture::new();
        let wake = Wake::new(Arc::clone(&fixture.store), Arc::new(crate::clock::TokioClock), Arc::default());
        let news = wake.subscribe();
        fixture.claim_for(1, Duration::from_millis(1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        reap(&fixture.store, &Telemetry::new("test"), &wake).await;
        assert!(news.has_changed().unwrap());
        let status = fixture.raw_store.status().await.unwrap();
        assert_eq!((status[0].pending, status[0].leased), (1, 0));
    }
}
