//! Waits until a batch may be sent: within the sink's concurrency and rate and the concurrency of the process. Gives up
//! when the batch should not be sent now.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::isolation::Isolation;
use crate::lease::LeasedMessage;
use crate::sink_runtime::SinkRuntime;

#[derive(Clone)]
pub(crate) struct Slots {
    pub(crate) process: Arc<Semaphore>,
    pub(crate) isolation: Arc<Isolation>,
    pub(crate) stopping: CancellationToken,
}

pub(crate) type Slot<'a> = (SemaphorePermit<'a>, SemaphorePermit<'a>);

impl Slots {
    /// `None`: the relay stops, the breaker is open, or a message of another sink goes alone.
    pub(crate) async fn wait<'a>(&'a self, sink: &'a SinkRuntime, batch: &[LeasedMessage]) -> Option<Slot<'a>> {
        let permits = async {
            let of_sink = sink.concurrency.acquire().await.ok()?;
            if let Some(rate) = &sink.rate {
                for _ in batch {
                    rate.until_ready().await;
                }
            }
            Some((of_sink, self.process.acquire().await.ok()?))
        };
        let slot = self.stopping.run_until_cancelled(permits).await??;
        let make_way = self.isolation.is_requested() && batch.iter().any(|message| message.shared.is_some());
        let not_now = self.stopping.is_cancelled() || sink.breaker().is_open() || make_way;
        (!not_now).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn a_batch_waits_for_the_process_and_gives_up_when_it_must_not_go() {
        let fixture = Fixture::new();
        let slots = Slots {
            process: Arc::new(Semaphore::new(1)),
            isolation: Arc::default(),
            stopping: CancellationToken::new(),
        };
        let mut batch = [fixture.message(|_| {})];
        let slot = slots.wait(&fixture.sink, &batch).await.expect("free");
        assert!(slots.wait(&fixture.sink, &batch).now_or_never().is_none(), "the process has one slot");
        drop(slot);
        let alone = slots.isolation.request().expect("nobody else asked");
        batch[0].shared = Some(slots.isolation.share().await);
        assert!(slots.wait(&fixture.sink, &batch).await.is_none(), "another goes alone");
        batch[0].shared = None;
        assert!(slots.wait(&fixture.sink, &batch).await.is_some(), "it is the one");
        drop(alone);
        slots.stopping.cancel();
        assert!(slots.wait(&fixture.sink, &batch).await.is_none());
    }
}
