//! Bounds what is in memory, by messages and by bytes. A claimer reserves places and bytes before it claims, and the store
//! hands out no more than that; each claimed message keeps its part until its outcome is recorded. Only a message that is
//! larger than a whole claim's share goes past it, and alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What a message weighs besides headers and content: names, bookkeeping. A round figure, on the large side.
const MESSAGE_OVERHEAD_BYTES: usize = 1024;
/// A claim waits until this part of its share is free: many tiny claims would cost more than they bring.
const LEAST_SHARE: usize = 4;

pub(crate) struct Room {
    messages: Arc<Semaphore>,
    bytes: Arc<Bytes>,
    /// Most places of one claim: so many that every sink can have one claim on its way and one ahead.
    max_claim: u32,
    /// Most bytes of one claim, for the same reason.
    max_claim_bytes: usize,
}

struct Bytes {
    /// Held by messages, and reserved for claims.
    used: AtomicUsize,
    max: usize,
    freed: Notify,
    /// Messages that are here.
    held: AtomicUsize,
}

/// Places and bytes for messages that are not claimed yet.
pub(crate) struct Places {
    permits: OwnedSemaphorePermit,
    reserved: usize,
    bytes: Arc<Bytes>,
}

/// The place of one message.
pub(crate) struct Place {
    _permit: Option<OwnedSemaphorePermit>,
    weight: usize,
    bytes: Arc<Bytes>,
}

impl Room {
    pub(crate) fn new(max_messages: u32, max_bytes: usize, sinks: usize) -> Self {
        let bytes =
            Bytes { used: AtomicUsize::new(0), max: max_bytes, freed: Notify::new(), held: AtomicUsize::new(0) };
        let claims = (2 * sinks).max(1);
        Self {
            messages: Arc::new(Semaphore::new(max_messages as usize)),
            bytes: Arc::new(bytes),
            max_claim: (max_messages / u32::try_from(claims).unwrap_or(u32::MAX)).max(1),
            max_claim_bytes: (max_bytes / claims).max(1),
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

    /// Waits for up to `wanted` places, at least one, with bytes for them.
    pub(crate) async fn places(&self, wanted: u32) -> Places {
        let reserved = loop {
            let freed = self.bytes.freed.notified();
            if let Some(reserved) = self.bytes.reserve(self.max_claim_bytes) {
                break reserved;
            }
            freed.await;
        };
        // From here on a claimer that stops waiting gives the bytes back.
        let reserved = Reserved { bytes: Arc::clone(&self.bytes), count: reserved };
        // At most half of the bytes is for bookkeeping.
        let fit = u32::try_from(reserved.count / (2 * MESSAGE_OVERHEAD_BYTES)).unwrap_or(u32::MAX);
        let wanted = wanted.min(self.max_claim).min(fit).max(1);
        match Arc::clone(&self.messages).acquire_many_owned(wanted).await {
            Ok(permits) => Places { permits, reserved: reserved.keep(), bytes: Arc::clone(&self.bytes) },
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }

    /// Gives a claimed message one of the places.
    pub(crate) fn take(&self, places: &mut Places, size: usize) -> Place {
        let weight = size + MESSAGE_OVERHEAD_BYTES;
        let reserved = weight.min(places.reserved);
        places.reserved -= reserved;
        self.bytes.used.fetch_add(weight - reserved, Ordering::AcqRel);
        self.bytes.held.fetch_add(1, Ordering::AcqRel);
        Place { _permit: places.permits.split(1), weight, bytes: Arc::clone(&self.bytes) }
    }
}

impl Bytes {
    fn reserve(&self, most: usize) -> Option<usize> {
        let mut reserved = 0;
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            reserved = self.max.saturating_sub(used).min(most);
            (reserved > 0 && reserved >= most / LEAST_SHARE).then_some(used + reserved)
        });
        taken.is_ok().then_some(reserved)
    }

    fn free(&self, count: usize) {
        if count > 0 {
            self.used.fetch_sub(count, Ordering::AcqRel);
            self.freed.notify_waiters();
        }
    }
}

/// Bytes that go back unless they are kept.
struct Reserved {
    bytes: Arc<Bytes>,
    count: usize,
}

impl Reserved {
    fn keep(mut self) -> usize {
        std::mem::take(&mut self.count)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.bytes.free(self.count);
    }
}

impl Places {
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.permits.num_permits()).unwrap_or(u32::MAX)
    }

    /// Bytes that the claim may bring, with its bookkeeping left out.
    pub(crate) fn bytes(&self) -> u64 {
        let bookkeeping = self.permits.num_permits().saturating_mul(MESSAGE_OVERHEAD_BYTES);
        // A usize always fits; at least one, for a claim must ask for something.
        u64::try_from(self.reserved.saturating_sub(bookkeeping)).unwrap_or(u64::MAX).max(1)
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        self.bytes.free(self.reserved);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.bytes.held.fetch_sub(1, Ordering::AcqRel);
        self.bytes.free(self.weight);
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
        drop(places);
        let mut places = room.places(10).await;
        kept.extend((0..3).map(|_| room.take(&mut places, 10)));
        drop(places);
        assert!(room.places(1).now_or_never().is_none());
        drop(kept);
        assert_eq!(room.places(1).await.count(), 1);
    }

    #[tokio::test]
    async fn a_claim_asks_for_no_more_bytes_than_are_free() {
        let room = Room::new(1_000, 1_000_000, 1);
        let mut places = room.places(500).await;
        assert!(places.bytes() <= 500_000, "half of what there is: the other half is for the next claim");
        let first = room.take(&mut places, 400_000);
        drop(places);
        let mut places = room.places(500).await;
        assert!(places.bytes() <= 500_000);
        // Larger than its share: it goes alone.
        let second = room.take(&mut places, 900_000);
        drop(places);
        assert!(room.places(1).now_or_never().is_none(), "past the limit nothing more is claimed");
        drop((first, second));
        assert_eq!(room.bytes.used.load(Ordering::Acquire), 0, "everything is given back");
        assert!(room.places(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn claims_at_once_share_the_bytes() {
        let room = Room::new(1_000, 1_000_000, 2);
        let places: Vec<Places> = futures_util::future::join_all((0..4).map(|_| room.places(100))).await;
        assert!(places.iter().map(Places::bytes).sum::<u64>() <= 1_000_000);
        assert!(room.places(1).now_or_never().is_none());
        drop(places);
        assert!(room.places(1).now_or_never().is_some());
    }
}
