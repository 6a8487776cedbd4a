//! What the edge forwarder's document asks for holds as it stands, by the rules of this relay: its cycle of a minute is longer
//! than a third of its lease, and it has no word for a deadline. So what it does not speak of is set to fit; what was asked for
//! in our own words is refused where it does not fit.

use std::time::Duration;

use super::environment::{EDGE_DEFAULT, LEASE_SECONDS, SYNC_INTERVAL};
use super::friendly;
use super::layers::{DEFAULT, Layers};
use super::sections::RelayConfig;
use crate::failure::Result;

const DEADLINE: [&str; 2] = ["sink_defaults", "deadline"];

/// Lease and interval of the document hold as they stand: ended leases are looked for in between.
pub(super) fn poll(layers: &mut Layers) -> Result<()> {
    let interval = layers.source_at(&["relay", "poll"])?;
    let Some(RelayConfig { lease, poll, reap_every, .. }) = relay(layers) else { return Ok(()) };
    let of_document = [SYNC_INTERVAL, EDGE_DEFAULT].contains(&interval.as_str());
    if of_document && poll > lease / 3 && reap_every.is_none() {
        let source = format!("{interval}, which is longer than a third of the lease");
        layers.put(source, &["relay", "reap_every"], friendly(whole_ms(lease / 3)));
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
