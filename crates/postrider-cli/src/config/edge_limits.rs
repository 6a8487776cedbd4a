//! What the edge forwarder's document asks for is made to fit the rules of this relay: its cycle of a minute is longer than
//! a third of its lease, and it has no word for a deadline. Only values of the document, or defaults beside them, are ever
//! changed; what was asked for in our own words is refused where it does not fit.

use std::time::Duration;

use super::environment::{EDGE_DEFAULT, LEASE_SECONDS, SYNC_INTERVAL};
use super::friendly;
use super::layers::{DEFAULT, Layers};
use super::sections::RelayConfig;
use crate::failure::Result;
use crate::format;

const DEADLINE: [&str; 2] = ["sink_defaults", "deadline"];

/// A poll of the document is at most a third of the lease.
pub(super) fn poll(layers: &mut Layers) -> Result<()> {
    let source = layers.source_at(&["relay", "poll"])?;
    let Some(RelayConfig { lease, poll, .. }) = relay(layers) else { return Ok(()) };
    let most = whole_ms(lease / 3);
    if ![SYNC_INTERVAL, EDGE_DEFAULT].contains(&source.as_str()) || poll <= most {
        return Ok(());
    }
    layers.put(format!("{source}, but at most a third of the lease"), &["relay", "poll"], friendly(most));
    if source == SYNC_INTERVAL {
        layers.notes.push(format!(
            "SYNC_INTERVAL_MS is {}, and ended leases must be found within a third of the lease: looking every {}",
            format::span(poll),
            format::span(most)
        ));
    }
    Ok(())
}

/// A default deadline ends before the lease of the document does.
pub(super) fn deadline(layers: &mut Layers) -> Result<()> {
    if layers.source_at(&["relay", "lease"])? != LEASE_SECONDS || layers.source_at(&DEADLINE)? != DEFAULT {
        return Ok(());
    }
    let Some(RelayConfig { lease, .. }) = relay(layers) else { return Ok(()) };
    let most = whole_ms(lease * 3 / 4);
    if most < postrider_relay::SinkOptions::default().deadline {
        layers.put(format!("{DEFAULT}, but at most three quarters of the lease"), &DEADLINE, friendly(most));
    }
    Ok(())
}

/// Downwards, and so that it can be read.
fn whole_ms(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs()) + Duration::from_millis(u64::from(duration.subsec_millis()))
}

/// If it cannot be read, that is told when everything is.
fn relay(layers: &Layers) -> Option<RelayConfig> {
    layers.figment.extract_inner_lossy("relay").ok()
}
