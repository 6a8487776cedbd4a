//! Maintains the store: makes partitions ahead of time and drops history past its retention. Every relay asks; a lock of
//! the store sees to it that one at a time does the work.

use std::sync::Arc;
use std::time::Duration;

use postrider::Queue;
use tracing::info;

use crate::clock::Clock;
use crate::store_client::StoreClient;

pub(crate) async fn run(store: Arc<StoreClient>, clock: Arc<dyn Clock>, every: Duration) {
    loop {
        maintain(&store).await;
        clock.sleep_until(clock.now() + every).await;
    }
}

async fn maintain(store: &StoreClient) {
    if let Ok(made) = store.ask("make partitions", Queue::make_partitions).await
        && made > 0
    {
        info!(partitions = made, "made partitions ahead of time");
    }
    if let Ok(pruned) = store.ask("prune", Queue::prune).await
        && pruned != postrider::operate::Pruned::default()
    {
        info!(
            partitions = pruned.partitions_dropped,
            rows = pruned.rest_deleted,
            dedupe_keys = pruned.dedupe_deleted,
            "dropped history past its retention"
        );
    }
    if let Ok(events) = store.ask("prune the inbox", |store| store.prune_inbox(None)).await
        && events > 0
    {
        info!(events, "dropped received events past their retention");
    }
}
