//! The real relay, with a sink that does nothing: as many as are asked for, each with connections of its own, in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::Store;
use postrider::lifecycle::Claimed;
use postrider_relay::{Counts, Relay, RelayOptions, SinkFailure, SinkOptions, Stats, handler};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::deliver;
use super::latency::Meter;
use super::place::Place;
use super::run::{Run, Watch};
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// How often it is looked whether a relay is through.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A relay that delivers nothing for so long never will.
const PATIENCE: Duration = Duration::from_mins(1);

type Ended = std::result::Result<Counts, postrider_relay::Error>;

/// Relays that deliver until they are dropped.
pub(super) struct Relays {
    stats: Vec<Arc<Stats>>,
    tasks: JoinSet<Ended>,
    stop: CancellationToken,
}

impl Relays {
    pub(super) fn start(
        stores: impl IntoIterator<Item = Arc<dyn Store>>,
        batch: u32,
        meter: Option<&Arc<Meter>>,
    ) -> Result<Self> {
        let mut relays = Self { stats: Vec::new(), tasks: JoinSet::new(), stop: CancellationToken::new() };
        for store in stores {
            let meter = meter.map(Arc::clone);
            let sink = handler(move |message: Arc<Claimed>| {
                if let Some(meter) = &meter {
                    meter.delivered(&[message.message_id]);
                }
                async { Ok::<(), SinkFailure>(()) }
            });
            let relay = Relay::builder(store)
                .sink_with("default", sink, SinkOptions::default().batch_size(batch))
                .options(RelayOptions::default())
                .build()
                .map_err(deliver::explain)?;
            relays.stats.push(relay.stats());
            relays.tasks.spawn(relay.run(relays.stop.clone()));
        }
        Ok(relays)
    }

    /// How many messages are recorded as delivered, by all.
    pub(super) fn delivered(&self) -> impl Fn() -> u64 + Send + 'static {
        let stats = self.stats.clone();
        move || stats.iter().map(|stats| stats.counts().delivered).sum()
    }

    /// Waits until so many are.
    pub(super) async fn until(&mut self, total: u64) -> Result<u64> {
        let delivered = self.delivered();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let (mut last, mut moved_at) = (0, Instant::now());
        loop {
            let count = delivered();
            if count >= total {
                return Ok(count);
            }
            if count > last {
                (last, moved_at) = (count, Instant::now());
            } else if moved_at.elapsed() > PATIENCE {
                let words = format!("the relay stands still at {count} of {total} messages");
                return Err(Failure::new(ExitCode::Failure, words).hint("postrider doctor may tell why"));
            }
            tokio::select! {
                _ = look.tick() => {}
                Some(ended) = self.tasks.join_next() => return Err(early(ended)),
            }
        }
    }

    /// Lets them finish what they hold.
    pub(super) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Ok(ended) => ended.map_err(deliver::explain).map(drop)?,
                Err(error) => return Err(early(Err(error))),
            }
        }
        Ok(())
    }
}

/// The rate counts from the first batch that is through: a start is not part of it.
pub(super) async fn drain(
    place: &impl Place,
    stores: impl IntoIterator<Item = Arc<dyn Store>>,
    batch: u32,
    messages: u32,
) -> Result<Run> {
    let mut relays = Relays::start(stores, batch, None)?;
    let mut watch = Watch::start(place, relays.delivered()).await?;
    let first = relays.until(1).await?;
    if first < u64::from(messages) {
        watch.restart_clock(first);
    }
    relays.until(u64::from(messages)).await?;
    let run = watch.finish(place, u64::from(messages)).await?;
    relays.stop().await?;
    Ok(run)
}

fn early(ended: std::result::Result<Ended, tokio::task::JoinError>) -> Failure {
    match ended {
        Ok(Err(error)) => deliver::explain(error),
        Ok(Ok(_)) => Failure::new(ExitCode::Failure, "a relay ended too early"),
        Err(error) => Failure::new(ExitCode::Failure, format!("a relay failed: {error}")),
    }
}
