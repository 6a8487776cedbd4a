//! What the edge forwarder's document asks for is made to fit the rules of this relay: its cycle of a minute is longer than
//! a third of its lease, and it has no word for a deadline. Only values of the document, or defaults beside them, are ever
//! changed, and that is said; what was asked for in our own words is refused where it does not fit.

use std::time::Duration;

use super::environment::{EDGE_DEFAULT, LEASE_SECONDS, SYNC_INTERVAL};
use super::friendly;
use super::layers::{DEFAULT, Layers};
use super::sections::RelayConfig;
use crate::failure::Result;
use crate::format;

const DEADLINE: [&str; 2] = ["sink_defaults", "deadline"];

/// The interval of the document holds as it stands, and its lease is at least three times that. If only the lease was asked
/// for, the interval is the default that gives way.
pub(super) fn poll(layers: &mut Layers) -> Result<()> {
    let [interval, held] = [layers.source_at(&["relay", "poll"])?, layers.source_at(&["relay", "lease"])?];
    let Some(RelayConfig { lease, poll, .. }) = relay(layers) else { return Ok(()) };
    let of_document = [SYNC_INTERVAL, EDGE_DEFAULT].contains(&interval.as_str());
    if !of_document || poll <= lease / 3 {
        return Ok(());
    }
    let asked_for = interval == SYNC_INTERVAL;
    if [EDGE_DEFAULT, DEFAULT].contains(&held.as_str()) || (asked_for && held == LEASE_SECONDS) {
        layers.put(format!("{held}, raised to three times the interval"), &["relay", "lease"], friendly(poll * 3));
        layers.notes.push(format!(
            "ended leases must be found within a third of the lease, and SYNC_INTERVAL_MS is {}: the lease is {}, not {}",
            format::span(poll),
            format::span(poll * 3),
            format::span(lease)
        ));
    } else if !asked_for {
        let most = whole_ms(lease / 3);
        layers.put(format!("{interval}, but at most a third of the lease"), &["relay", "poll"], friendly(most));
        layers.notes.push(format!(
            "ended leases must be found within a third of the lease, which is {}: SYNC_INTERVAL_MS is {}, not {}",
            format::span(lease),
            format::span(most),
            format::span(poll)
        ));
    }
    Ok(())
}

/// A default deadline ends before the lease of the document does.
pub(super) fn deadline(layers: &mut Layers) -> Result<()> {
    let of_document = layers.source_at(&["relay", "lease"])?.starts_with(LEASE_SECONDS);
    if !of_document || layers.source_at(&DEADLINE)? != DEFAULT {
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
