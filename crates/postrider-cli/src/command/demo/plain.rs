//! The demo where there is no terminal: a line every second, and a line for each event. Called instead of the screen.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::view::{Viewer, stopwatch};
use crate::failure::Result;
use crate::output::Output;

/// Between two lines.
const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn show(mut viewer: Viewer, end: &CancellationToken, output: &mut Output) -> Result<()> {
    output.line(format!("a shop, a relay and a receiver with bad days, in {}", viewer.file.display()))?;
    output.line(format!("seed {}", viewer.world.seed))?;
    output.flush()?;
    let mut tick = tokio::time::interval(EVERY);
    tick.tick().await;
    let mut next_event = 0;
    loop {
        tokio::select! {
            () = end.cancelled() => return Ok(()),
            _ = tick.tick() => {}
        }
        for event in viewer.world.events_from(next_event) {
            output.line(format!("{:>5}    {}", stopwatch(event.at), event.words))?;
            next_event = event.number + 1;
        }
        let now = viewer.look().await;
        output.line(format!(
            "{:>5}  enqueued {}, delivered {}, pending {}, in flight {}, retried {}, dead {}",
            stopwatch(now.elapsed),
            now.enqueued,
            now.delivered,
            now.pending,
            now.in_flight,
            now.retried,
            now.dead
        ))?;
        output.flush()?;
    }
}
