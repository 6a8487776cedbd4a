//! Delivers a message alone that may be what kills its workers, so that its death costs no other message its lease
//! (decision 0006). Claims share the process; a message that goes alone waits until nothing else is held, and others are
//! asked to hand back what they have not sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::lease::LeasedMessage;

#[derive(Default)]
pub(crate) struct Isolation {
    /// Read while a claim's messages are held, written to deliver one message alone.
    process: Arc<RwLock<()>>,
    /// One at a time in the whole process: a second, leased and waiting, would die with the first.
    turn: Arc<Mutex<()>>,
    requested: AtomicBool,
}

/// Held by messages that may be delivered beside others.
pub(crate) type SharedGuard = Arc<OwnedRwLockReadGuard<()>>;

/// The right to deliver a message alone, once [`Exclusive::wait`] has returned.
pub(crate) struct Exclusive {
    isolation: Arc<Isolation>,
    _turn: OwnedMutexGuard<()>,
}

impl Isolation {
    pub(crate) async fn share(&self) -> SharedGuard {
        Arc::new(Arc::clone(&self.process).read_owned().await)
    }

    /// Asks the others to make way. `None` if another message is being delivered alone.
    pub(crate) fn request(self: &Arc<Self>) -> Option<Exclusive> {
        let turn = Arc::clone(&self.turn).try_lock_owned().ok()?;
        self.requested.store(true, Ordering::Release);
        Some(Exclusive { isolation: Arc::clone(self), _turn: turn })
    }

    /// Nothing more may be sent beside others.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }
}

impl Exclusive {
    /// Waits until nothing else is held.
    pub(crate) async fn wait(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.isolation.process).write_owned().await
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.isolation.requested.store(false, Ordering::Release);
    }
}

/// What a claim brought, sorted by [`split_suspects`].
pub(crate) struct Suspects {
    /// May be delivered beside others.
    pub(crate) normal: Vec<LeasedMessage>,
    /// The one to deliver alone.
    pub(crate) alone: Option<LeasedMessage>,
    /// Handed back: the other suspects, and what follows a suspect in its lane.
    pub(crate) release: Vec<LeasedMessage>,
    /// There may be more suspects: claim one message at a time.
    pub(crate) more: bool,
}

/// A message is suspect if so many of its last attempts lost their lease. The batch is in delivery order with each lane's
/// messages together.
pub(crate) fn split_suspects(batch: Vec<LeasedMessage>, lost_leases: i32) -> Suspects {
    let mut split = Suspects { normal: Vec::new(), alone: None, release: Vec::new(), more: false };
    if batch.iter().all(|one| one.message.lost_leases < lost_leases) {
        split.normal = batch;
        return split;
    }
    let (mut normal_lane, mut suspect_lane) = (None, None);
    for message in batch {
        let lane = message.message.lane.clone();
        let suspect = message.message.lost_leases >= lost_leases;
        let behind = lane.is_some() && lane == suspect_lane;
        if !suspect && !behind {
            normal_lane = lane;
            split.normal.push(message);
            continue;
        }
        let first_of_lane = lane.is_none() || (!behind && lane != normal_lane);
        suspect_lane = lane;
        split.more |= suspect;
        if suspect && split.alone.is_none() && first_of_lane {
            split.alone = Some(message);
        } else {
            split.release.push(message);
        }
    }
    split
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::fixtures::Fixture;

    #[tokio::test]
    async fn one_goes_alone_when_the_others_have_ended() {
        let isolation = Arc::new(Isolation::default());
        let shared = isolation.share().await;
        let exclusive = isolation.request().expect("nobody else asked");
        assert!(isolation.is_requested() && isolation.request().is_none(), "one at a time");
        assert!(exclusive.wait().now_or_never().is_none(), "another is held");
        drop(shared);
        let alone = exclusive.wait().now_or_never().expect("nothing else is held");
        assert!(isolation.share().now_or_never().is_none(), "and nothing is claimed meanwhile");
        drop((alone, exclusive));
        assert!(!isolation.is_requested() && isolation.share().now_or_never().is_some());
    }

    #[test]
    fn one_suspect_is_kept_and_the_lane_behind_it_is_released() {
        let fixture = Fixture::new();
        let message = |topic: &str, lane: Option<&str>, lost_leases| {
            fixture.message(|message| {
                message.topic = topic.to_owned();
                message.lane = lane.map(str::to_owned);
                message.lost_leases = lost_leases;
            })
        };
        let split = split_suspects(
            vec![
                message("free", None, 0),
                message("killer", Some("a"), 2),
                message("behind", Some("a"), 0),
                message("other", Some("b"), 1),
                message("second", Some("b"), 2),
            ],
            2,
        );
        let topics = |of: &[LeasedMessage]| of.iter().map(|one| one.message.topic.clone()).collect::<Vec<_>>();
        assert_eq!(topics(&split.normal), ["free", "other"]);
        assert_eq!(split.alone.as_ref().map(|one| one.message.topic.as_str()), Some("killer"));
        assert_eq!(topics(&split.release), ["behind", "second"]);
        assert!(split.more);
    }
}
