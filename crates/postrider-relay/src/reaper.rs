//! Ends leases that ran out. Claims take over the expired leases they meet; this finds those of sinks and lanes that
//! nobody claims from. Every relay does it, at random intervals.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tracing::info;

use crate::clock::Clock;
use crate::jitter::Jitter;
use crate::store_client::StoreClient;
use crate::telemetry::Telemetry;

/// Leases ended by one statement.
const BATCH_SIZE: u32 = 1_000;

pub(crate) async fn run(
    store: Arc<StoreClient>,
    clock: Arc<dyn Clock>,
    jitter: Arc<Jitter>,
    telemetry: Telemetry,
    lease: Duration,
) {
    loop {
        let pause = lease.mul_f64(jitter.rng().random_range(0.33..0.67));
        clock.sleep_until(clock.now() + pause).await;
        reap(&store, &telemetry).await;
    }
}

async fn reap(store: &StoreClient, telemetry: &Telemetry) {
    while let Ok(ended) = store.ask("end expired leases", |store| store.repair_expired_leases(BATCH_SIZE)).await {
        if ended > 0 {
            telemetry.reaped(ended);
            info!(leases = ended, "ended leases that ran out");
        }
        if ended < u64::from(BATCH_SIZE) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use postrider::Inspect as _;

    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn a_lease_that_ran_out_is_ended() {
        let fixture = Fixture::new();
        fixture.claim_for(1, Duration::from_millis(1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        reap(&fixture.store, &Telemetry::new("test")).await;
        let status = fixture.raw_store.status().await.unwrap();
        assert_eq!((status[0].pending, status[0].leased), (1, 0));
    }
}
