//! Bounds the messages and bytes in memory. A claimer reserves both before it claims, and the store hands out no more than
//! that. Each claimed message keeps its part until its outcome is recorded. Only a message that is larger than a whole
//! claim's share exceeds the budget, and then alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// What a message takes besides headers and content. A round figure, on the large side.
const MESSAGE_OVERHEAD_BYTES: usize = 1024;
/// Claims of one sink in memory: one is delivered, the outcomes of the one before are recorded, and the next is ready.
pub(crate) const CLAIMS: usize = 3;
/// A claim waits until a quarter of its share is free: many tiny claims would cost more than they bring.
const MIN_PART: usize = 4;

pub(crate) struct MemoryBudget {
    messages: Arc<Semaphore>,
    bytes: Arc<Bytes>,
    /// Most messages of one claim: every sink can have [`CLAIMS`] of them.
    max_claim: u32,
    /// Most bytes of one claim, for the same reason.
    max_claim_bytes: usize,
}

struct Bytes {
    /// Held by messages, and reserved for claims.
    used: AtomicUsize,
    max: usize,
    freed: Notify,
    /// Messages in memory.
    held: AtomicUsize,
}

/// For messages that are not claimed yet.
pub(crate) struct Reservation {
    permits: OwnedSemaphorePermit,
    reserved: ReservedBytes,
}

/// The part of one message.
pub(crate) struct Allocation {
    _permit: Option<OwnedSemaphorePermit>,
    weight: usize,
    bytes: Arc<Bytes>,
}

impl MemoryBudget {
    pub(crate) fn new(max_messages: u32, max_bytes: usize, sinks: usize) -> Self {
        let bytes =
            Bytes { used: AtomicUsize::new(0), max: max_bytes, freed: Notify::new(), held: AtomicUsize::new(0) };
        let claims = (CLAIMS * sinks).max(1);
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

    /// Messages in memory whose outcome is not recorded.
    pub(crate) fn held(&self) -> usize {
        self.bytes.held.load(Ordering::Acquire)
    }

    /// Waits for up to `wanted` messages, at least one, with bytes for them.
    pub(crate) async fn reserve(&self, wanted: u32) -> Reservation {
        let reserved = loop {
            let freed = self.bytes.freed.notified();
            if let Some(reserved) = self.bytes.reserve(self.max_claim_bytes) {
                break reserved;
            }
            freed.await;
        };
        // A claimer that stops waiting gives the bytes back.
        let reserved = ReservedBytes { bytes: Arc::clone(&self.bytes), count: reserved };
        // At most half of the bytes is for bookkeeping.
        let fit = u32::try_from(reserved.count / (2 * MESSAGE_OVERHEAD_BYTES)).unwrap_or(u32::MAX);
        let wanted = wanted.min(self.max_claim).min(fit).max(1);
        match Arc::clone(&self.messages).acquire_many_owned(wanted).await {
            Ok(permits) => Reservation { permits, reserved },
            Err(_) => unreachable!("the semaphore is never closed"),
        }
    }
}

impl Bytes {
    fn reserve(&self, most: usize) -> Option<usize> {
        let mut reserved = 0;
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, |used| {
            reserved = self.max.saturating_sub(used).min(most);
            (reserved > 0 && reserved >= most / MIN_PART).then_some(used + reserved)
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

/// Given back on drop.
struct ReservedBytes {
    bytes: Arc<Bytes>,
    count: usize,
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.bytes.free(self.count);
    }
}

impl Reservation {
    pub(crate) fn messages(&self) -> u32 {
        u32::try_from(self.permits.num_permits()).unwrap_or(u32::MAX)
    }

    /// Gives a claimed message its part.
    pub(crate) fn allocate(&mut self, size: usize) -> Allocation {
        let bytes = Arc::clone(&self.reserved.bytes);
        let weight = size + MESSAGE_OVERHEAD_BYTES;
        let reserved = weight.min(self.reserved.count);
        self.reserved.count -= reserved;
        bytes.used.fetch_add(weight - reserved, Ordering::AcqRel);
        bytes.held.fetch_add(1, Ordering::AcqRel);
        Allocation { _permit: self.permits.split(1), weight, bytes }
    }

    /// Bytes that the claim may bring, without.
    pub(crate) fn bytes(&self) -> u64 {
        let bookkeeping = self.permits.num_permits().saturating_mul(MESSAGE_OVERHEAD_BYTES);
        // A usize always fits; at least one, for a claim must ask for something.
        u64::try_from(self.reserved.count.saturating_sub(bookkeeping)).unwrap_or(u64::MAX).max(1)
    }
}

impl Drop for Allocation {
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
        let budget = MemoryBudget::new(6, usize::MAX, 1);
        let mut reservation = budget.reserve(10).await;
        assert_eq!(reservation.messages(), 2, "a third of what there is: the rest is for the next claims");
        let mut kept: Vec<Allocation> = (0..2).map(|_| reservation.allocate(10)).collect();
        for _ in 1..CLAIMS {
            drop(reservation);
            reservation = budget.reserve(10).await;
            kept.extend((0..2).map(|_| reservation.allocate(10)));
        }
        drop(reservation);
        assert!(budget.reserve(1).now_or_never().is_none());
        drop(kept);
        assert_eq!(budget.reserve(1).await.messages(), 1);
    }

    #[tokio::test]
    async fn a_claim_asks_for_no_more_bytes_than_are_free() {
        let budget = MemoryBudget::new(1_000, 1_500_000, 1);
        let mut reservation = budget.reserve(500).await;
        assert!(reservation.bytes() <= 500_000, "a third of what there is: the rest is for the next claims");
        let first = reservation.allocate(400_000);
        drop(reservation);
        let mut reservation = budget.reserve(500).await;
        assert!(reservation.bytes() <= 500_000);
        // Larger than its share: it goes alone.
        let second = reservation.allocate(1_050_000);
        drop(reservation);
        assert!(budget.reserve(1).now_or_never().is_none(), "past the limit nothing more is claimed");
        drop((first, second));
        assert_eq!(budget.bytes.used.load(Ordering::Acquire), 0, "everything is given back");
        assert!(budget.reserve(1).now_or_never().is_some());
    }

    #[tokio::test]
    async fn claims_at_once_share_the_bytes() {
        let budget = MemoryBudget::new(1_000, 1_000_000, 2);
        let reservation: Vec<Reservation> =
            futures_util::future::join_all((0..2 * CLAIMS).map(|_| budget.reserve(100))).await;
        assert!(reservation.iter().map(Reservation::bytes).sum::<u64>() <= 1_000_000);
        assert!(budget.reserve(1).now_or_never().is_none());
        drop(reservation);
        assert!(budget.reserve(1).now_or_never().is_some());
    }
}
