//! What a claimer does after a claim that failed. The next claim is half as large, down to one message. If one message
//! alone cannot be claimed, it is claimed without its content, which is then read by itself: whatever a row holds, it
//! stops no other. A claim without an answer is abandoned before the next one, so that what it leased is free again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claimed, LeaseToken};
use tracing::{info, warn};
use uuid::Uuid;

use crate::clock::Clock;
use crate::store_client::{StoreClient, StoreError, TIMEOUT_MAX};

/// Between two claims while the store is away; doubles.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Claims of one size that succeed before the next is twice as large: what made them small may be the next message.
const GROW_AFTER: u32 = 3;
/// Reads of one message that fail in a row before it counts as unreadable.
const READS_MAX: u32 = 3;

pub(crate) struct ClaimRecovery {
    store: Arc<StoreClient>,
    clock: Arc<dyn Clock>,
    sink: String,
    lease: Duration,
    limit: Option<Limit>,
    /// The message whose content could not be read last, and how often in a row.
    unread: Option<(Uuid, u32)>,
    unanswered: Vec<Unanswered>,
    backoff: Duration,
}

/// How small claims are after some have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Messages {
        count: u32,
        succeeded: u32,
    },
    /// One message without its content.
    WithoutContent,
}

/// A claim that may have leased something.
#[derive(Debug, Clone, Copy)]
struct Unanswered {
    token: LeaseToken,
    /// Its leases, if there are any, have ended then.
    over_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClaimSize {
    pub(crate) messages: u32,
    pub(crate) bytes: u64,
    pub(crate) with_content: bool,
}

/// The content of a message that was claimed without it.
#[derive(Debug)]
pub(crate) enum ContentRead {
    Done,
    LeaseEnded,
    /// The message is the cause.
    Unreadable(StoreError),
    /// The store is the cause. The claim will be abandoned.
    StoreAway(StoreError),
}

impl ClaimRecovery {
    pub(crate) fn new(store: Arc<StoreClient>, clock: Arc<dyn Clock>, sink: String, lease: Duration) -> Self {
        let (limit, unread, unanswered) = (None, None, Vec::new());
        Self { store, clock, sink, lease, limit, unread, unanswered, backoff: BACKOFF_MIN }
    }

    /// How much to claim of what the memory budget allows.
    pub(crate) fn size(&self, max_messages: u32, max_bytes: u64) -> ClaimSize {
        let messages = match self.limit {
            None => max_messages,
            Some(Limit::Messages { count, .. }) => count.min(max_messages),
            Some(Limit::WithoutContent) => 1,
        };
        // Fewer bytes, too: they may be what took too long.
        let bytes = (max_bytes / u64::from(max_messages) * u64::from(messages)).max(1);
        ClaimSize { messages, bytes, with_content: self.limit != Some(Limit::WithoutContent) }
    }

    pub(crate) fn succeeded(&mut self, max_messages: u32) {
        self.backoff = BACKOFF_MIN;
        self.limit = match self.limit {
            Some(Limit::Messages { count, .. }) if count >= max_messages => None,
            Some(Limit::Messages { count, succeeded }) if succeeded < GROW_AFTER => {
                Some(Limit::Messages { count, succeeded: succeeded + 1 })
            }
            Some(Limit::Messages { count, .. }) => Some(Limit::Messages { count: count * 2, succeeded: 0 }),
            other => other,
        };
    }

    /// Makes the next claim smaller. True: it need not wait, because the store is there.
    pub(crate) fn failed(&mut self, size: ClaimSize, token: LeaseToken, error: &StoreError) -> bool {
        if error.may_have_happened() {
            self.remember(token);
        }
        if !error.may_depend_on_size() {
            return false;
        }
        let before = self.limit;
        self.limit = Some(match size.messages {
            0 | 1 => Limit::WithoutContent,
            more => Limit::Messages { count: more / 2, succeeded: 0 },
        });
        self.limit != before && error.is_refusal()
    }

    /// How long to wait for a store that is away, and whether it has been away for some seconds.
    pub(crate) fn backoff(&mut self) -> (Duration, bool) {
        let (pause, longest) = (self.backoff, self.backoff >= BACKOFF_MAX);
        self.backoff = (pause * 2).min(BACKOFF_MAX);
        (pause, longest)
    }

    /// Reads what the last claim left out.
    pub(crate) async fn read_content(&mut self, claimed: &mut [Claimed]) -> ContentRead {
        let (Some(Limit::WithoutContent), Some(message)) = (self.limit, claimed.first_mut()) else {
            return ContentRead::Done;
        };
        let (token, message_id) = (message.lease_token, message.message_id);
        match self.store.ask("read a message", |store| store.content(token, message_id)).await {
            Ok(Some(parcel)) => {
                self.limit = Some(Limit::Messages { count: 1, succeeded: 0 });
                (message.headers, message.content) = (parcel.headers, parcel.content);
                ContentRead::Done
            }
            Ok(None) => ContentRead::LeaseEnded,
            Err(error) if self.is_unreadable(message_id, &error) => {
                self.limit = Some(Limit::Messages { count: 1, succeeded: 0 });
                ContentRead::Unreadable(error)
            }
            Err(error) => {
                self.remember(token);
                ContentRead::StoreAway(error)
            }
        }
    }

    /// The store says so, or it gave no answer several times.
    fn is_unreadable(&mut self, message_id: Uuid, error: &StoreError) -> bool {
        if error.is_about_content() {
            return true;
        }
        // A missing right, for instance, or the store was not reached.
        if error.is_refusal() || !error.may_depend_on_size() {
            return false;
        }
        let times = self.unread.filter(|(unread, _)| *unread == message_id).map_or(1, |(_, times)| times + 1);
        self.unread = Some((message_id, times));
        times >= READS_MAX
    }

    fn remember(&mut self, token: LeaseToken) {
        self.unanswered.push(Unanswered { token, over_at: self.clock.now() + self.lease + TIMEOUT_MAX });
    }

    /// Takes back what claims without an answer may have leased. Gives up when the store refuses, or when the leases have
    /// ended by themselves.
    pub(crate) async fn abandon(&mut self) -> Result<(), StoreError> {
        while let Some(Unanswered { token, over_at }) = self.unanswered.last().copied() {
            match self.store.ask("abandon a claim", |store| store.abandon(token)).await {
                Ok(0) => {}
                Ok(messages) => info!(sink = self.sink, messages, "took back what an unanswered claim had leased"),
                Err(error) if error.is_refusal() || self.clock.now() > over_at => {
                    let error = error.words();
                    warn!(sink = self.sink, error, "what an unanswered claim leased returns when its lease ends");
                }
                Err(error) => return Err(error),
            }
            self.unanswered.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use postrider::Inspect as _;

    use super::*;
    use crate::fixtures::Fixture;

    fn recovery(fixture: &Fixture) -> ClaimRecovery {
        let clock = Arc::new(crate::clock::TokioClock);
        ClaimRecovery::new(Arc::clone(&fixture.store), clock, "default".to_owned(), Duration::from_secs(20))
    }

    fn refused() -> StoreError {
        StoreError::Failed(postrider::Error::new(postrider::ErrorKind::Refused, "no"))
    }

    #[test]
    fn claims_get_smaller_and_grow_again() {
        let mut recovery = recovery(&Fixture::new());
        for messages in [8, 4, 2, 1] {
            let size = recovery.size(8, 800);
            assert_eq!(size, ClaimSize { messages, bytes: u64::from(messages) * 100, with_content: true });
            assert!(recovery.failed(size, LeaseToken::random(), &refused()), "the store is there: no wait");
        }
        let size = recovery.size(8, 800);
        assert_eq!(size, ClaimSize { messages: 1, bytes: 100, with_content: false });
        assert!(!recovery.failed(size, LeaseToken::random(), &refused()), "it cannot be smaller");
        assert!(recovery.unanswered.is_empty(), "a refusal leased nothing");

        recovery.limit = Some(Limit::Messages { count: 1, succeeded: 0 });
        let sizes: Vec<u32> = (0..14)
            .map(|_| {
                recovery.succeeded(8);
                recovery.size(8, 800).messages
            })
            .collect();
        assert_eq!(sizes, [1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 8]);
    }

    #[tokio::test]
    async fn the_third_read_without_an_answer_is_the_message_s_own_failure() {
        let mut recovery = recovery(&Fixture::new());
        let (message, other) = (Uuid::now_v7(), Uuid::now_v7());
        assert!(recovery.is_unreadable(other, &refused()), "the store says so");
        let mut read = |message| recovery.is_unreadable(message, &StoreError::TimedOut);
        assert_eq!([read(message), read(message), read(other)], [false, false, false], "another begins anew");
        assert_eq!([read(message), read(message), read(message)], [false, false, true]);
        let away = postrider::Error::new(postrider::ErrorKind::Connect, "away");
        assert!(!recovery.is_unreadable(message, &StoreError::Failed(away)), "nobody was asked");
    }

    #[tokio::test]
    async fn a_claim_without_an_answer_is_abandoned_once() {
        let fixture = Fixture::new();
        let claimed = fixture.claim(2).await;
        let mut recovery = recovery(&fixture);
        let size = recovery.size(2, 1_000);
        assert!(!recovery.failed(size, claimed[0].lease_token, &StoreError::TimedOut), "the next claim waits");
        recovery.abandon().await.unwrap();
        assert!(recovery.unanswered.is_empty());
        let status = fixture.raw_store.status().await.unwrap();
        assert_eq!((status[0].pending, status[0].leased), (2, 0));
    }

    #[tokio::test]
    async fn an_abandon_is_tried_until_the_leases_have_ended() {
        let fixture = Fixture::new();
        let mut recovery = recovery(&fixture);
        recovery.remember(LeaseToken::random());
        std::fs::remove_file(fixture.directory.path().join("outbox.db")).unwrap();
        assert!(recovery.abandon().await.is_err(), "the store is away");
        recovery.unanswered[0].over_at = Instant::now();
        assert!(recovery.abandon().await.is_ok() && recovery.unanswered.is_empty());
    }
}
