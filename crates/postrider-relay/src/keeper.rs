//! Keeps the store in shape: makes partitions ahead of time, drops history past its retention, and reads the gauges. One
//! relay at a time does the work; the store's own lock sees to that.

use std::sync::Arc;
use std::time::Instant;

use tracing::info;

use crate::relay::Shared;
use crate::telemetry;

pub(crate) async fn run(shared: Arc<Shared>) {
    let mut keep_at = shared.clock.now();
    let mut measure_at = shared.options.measure_every.map(|_| shared.clock.now());
    loop {
        let next = measure_at.map_or(keep_at, |measure_at| measure_at.min(keep_at));
        shared.clock.sleep_until(next).await;
        let now: Instant = shared.clock.now();
        if now >= keep_at {
            keep(&shared).await;
            keep_at = now + shared.options.keep_every;
        }
        if let (Some(due), Some(every)) = (measure_at, shared.options.measure_every)
            && now >= due
        {
            if let Ok(sinks) = shared.ask("read the gauges", shared.store.status()).await {
                telemetry::status(&sinks);
            }
            measure_at = Some(now + every);
        }
    }
}

async fn keep(shared: &Shared) {
    if let Ok(made) = shared.ask("make partitions", shared.store.make_partitions()).await
        && made > 0
    {
        info!(partitions = made, "made partitions ahead of time");
    }
    if let Ok(pruned) = shared.ask("prune", shared.store.prune(None)).await
        && pruned != postrider::Pruned::default()
    {
        info!(
            partitions = pruned.partitions_dropped,
            messages = pruned.rest_deleted,
            dedupe_keys = pruned.dedupe_deleted,
            "dropped history past its retention"
        );
    }
    if let Ok(events) = shared.ask("prune the inbox", shared.store.prune_inbox(None)).await
        && events > 0
    {
        info!(events, "dropped received events past their retention");
    }
}
