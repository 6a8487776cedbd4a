//! Keeps the store in shape: makes partitions ahead of time and drops history past its retention. One relay at a time
//! does the work; the store's own lock sees to that.

use std::sync::Arc;

use tracing::info;

use crate::relay::Shared;

pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        keep(&shared).await;
        shared.clock.sleep_until(shared.clock.now() + shared.options.keep_every).await;
    }
}

async fn keep(shared: &Shared) {
    if let Ok(made) = shared.ask("make partitions", shared.store.make_partitions()).await
        && made > 0
    {
        info!(partitions = made, "made partitions ahead of time");
    }
    if let Ok(pruned) = shared.ask("prune", shared.store.prune()).await
        && pruned != postrider::Pruned::default()
    {
        info!(
            partitions = pruned.partitions_dropped,
            rows = pruned.rest_deleted,
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
