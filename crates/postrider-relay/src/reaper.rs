//! Ends leases that ran out, so that a message whose lane or sink nobody claims from is still accounted for. Claims take
//! over what they meet; this finds the rest. Every relay does it, out of step with the others.

use std::sync::Arc;

use rand::Rng as _;
use tracing::info;

use crate::relay::Shared;

/// Ended leases of one statement.
const BATCH_SIZE: u32 = 1_000;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        // Between a third and two thirds of the lease.
        let pause = shared.options.lease.mul_f64(shared.dice().random_range(0.33..0.67));
        shared.clock.sleep_until(shared.clock.now() + pause).await;
        loop {
            let Ok(ended) = shared.ask("end leases that ran out", shared.store.repair_expired_leases(BATCH_SIZE)).await
            else {
                break;
            };
            if ended > 0 {
                shared.telemetry.reaped(ended);
                info!(leases = ended, "ended leases that ran out");
            }
            if ended < u64::from(BATCH_SIZE) {
                break;
            }
        }
    }
}
