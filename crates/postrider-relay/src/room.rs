//! Bounds what is in memory, by messages and by bytes. A claimer takes places before it claims; each claimed message
//! keeps one until its outcome is recorded. How large messages are is known only when they are here, so bytes are
//! bounded by stopping at the limit and by claiming fewer when messages have been large.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What a message weighs besides its content: headers, names, bookkeeping. A round figure, on the large side.
const MESSAGE_OVERHEAD_BYTES: usize = 1024;

pub(crate) struct Room {
    messages: Arc<Semaphore>,
    bytes: Arc<Bytes>,
    /// Most places of one claim: so many that every sink can have one claim on its way and one ahead.
    max_claim: u32,
}

struct Bytes {
    used: AtomicUsize,
    max: usize,
    freed: Notify,
    /// Messages that are here.
    held: AtomicUsize,
    /// What messages weighed lately, on average.
    usual: AtomicUsize,
}

/// Places for messages that are not claimed yet.
pub(crate) struct Places(OwnedSemaphorePermit);

/// The place of one message.
pub(crate) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    weight: usize,
    bytes: Arc<Bytes>,
}

impl Room {
    pub(crate) fn new(max_messages: u32, max_bytes: usize, sinks: usize) -> Self {
        let bytes = Bytes {
            used: AtomicUsize::new(0),
            max: max_bytes,
            freed: Notify::new(),
            held: AtomicUsize::new(0),
            usual: AtomicUsize::new(MESSAGE_OVERHEAD_BYTES),
        };
        let claims = u32::try_from(2 * sinks).unwrap_or(u32::MAX).max(1);
        Self {
            messages: Arc::new(Semaphore::new(max_messages as usize)),
            bytes: Arc::new(bytes),
            max_claim: (max_messages / claims).max(1),
        }
    }

    /// Most messages of one claim.
    pub(crate) fn max_claim(&self) -> u32 {
        self.max_claim
    }

    /// Messages that are here and whose outcome is not recorded.
    pub(crate) fn held(&self) -> usize {
        self.bytes.held.load(Ordering::Acquire)
    }

    /// Waits for up to `wanted` places; at least one.
    pub(crate) async fn places(&self, wanted: u32) -> Places {
        let room = loop {
            let freed = self.bytes.freed.notified();
            let free = self.bytes.max.saturating_sub(self.bytes.used.load(Ordering::Acquire));
            if free > 0 {
                break free / self.bytes.usual.load(Ordering::Relaxed).max(1);
            }
            freed.await;
        };
        let wanted = wanted.min(self.max_claim).min(u32::try_from(room).unwrap_or(u32::MAX)).max(1);
        match Arc::clone(&self.messages).acquire_many_owned(wanted).await {
            Ok(permits) => Places(permits),
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }

    /// Gives a claimed message one of the places.
    pub(crate) fn take(&self, places: &mut Places, content_bytes: usize) -> Place {
        let weight = content_bytes + MESSAGE_OVERHEAD_BYTES;
        let usual = self.bytes.usual.load(Ordering::Relaxed);
        // Quick to rise, slow to fall: claiming too few costs less than claiming too much.
        let usual = if weight > usual { usual.midpoint(weight) } else { (usual * 15 + weight) / 16 };
        self.bytes.usual.store(usual, Ordering::Relaxed);
        self.bytes.used.fetch_add(weight, Ordering::AcqRel);
        self.bytes.held.fetch_add(1, Ordering::AcqRel);
        Place { _permit: places.0.split(1), weight, bytes: Arc::clone(&self.bytes) }
    }
}

impl Places {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.0.num_permits()).unwrap_or(u32::MAX)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bytes.held.fetch_sub(1, Ordering::AcqRel);
        let used = self.bytes.used.fetch_sub(self.weight, Ordering::AcqRel);
        if used >= self.bytes.max {
            self.bytes.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn messages_are_bounded() {
        let room = Room::new(6, usize::MAX, 1);
        let mut places = room.places(10).await;
        assert_eq!(places.count(), 3, "half of what there is: the other half is for the next claim");
        let mut kept: Vec<Place> = (0..3).map(|_| room.take(&mut places, 10)).collect();
        let mut places = room.places(10).await;
        kept.extend((0..3).map(|_| room.take(&mut places, 10)));
        assert!(room.places(1).now_or_never().is_none());
        drop(kept);
        assert_eq!(room.places(1).await.count(), 1);
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_large_messages_make_small_claims() {
        let room = Room::new(1_000, 1_000_000, 1);
        let mut places = room.places(500).await;
        let first = room.take(&mut places, 900_000);
        drop(places);
        assert!(room.places(500).await.count() < 5, "about a tenth of the room is left, and messages are large");
        let mut places = room.places(1).await;
        let second = room.take(&mut places, 900_000);
        assert!(room.places(1).now_or_never().is_none(), "past the limit nothing more is claimed");
        drop((first, second));
        assert!(room.places(1).now_or_never().is_some());
    }
}
