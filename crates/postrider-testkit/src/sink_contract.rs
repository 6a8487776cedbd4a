//! The sink contract: what every sink promises, whatever it speaks. Each case is a function over a [`Destination`], which
//! starts the real server privately and reads what arrived there with a client that is not ours; `sink_contract!` makes a
//! test of each. Cases that need retries run a real relay on an embedded store.

#![expect(clippy::missing_panics_doc, reason = "a case is a test: it panics when a promise is broken")]

mod arrivals;
mod hand;
pub mod outage;
mod outbox;
pub mod refusal;
pub mod transfer;

use std::sync::Arc;

use async_trait::async_trait;
use postrider::Claimed;
use postrider_relay::{FailureClass, Sink};

pub use arrivals::{Arrived, assert_lanes_in_order, distinct, until_arrived};
pub use hand::{claimed, deliver};

/// A server of the kind a sink sends to, and a consumer of another make that reads there from the start.
#[async_trait]
pub trait Destination: Sized + Send + Sync + 'static {
    /// A running server, empty, with whatever its users make before they send: a topic, a stream, a queue.
    async fn start() -> Self;

    /// A sink as its users make it. It may be made while the server is away.
    async fn sink(&self) -> Arc<dyn Sink>;

    /// Ends the server at once.
    async fn kill(&mut self);

    /// Starts it again, in the same place and with what it had kept.
    async fn restart(&mut self);

    /// Makes it stand still, connections and all.
    fn stall(&self);

    /// Lets it go on.
    fn resume(&self);

    /// Everything that has arrived, in its order, once there are so many different messages.
    async fn arrived(&self, different: usize) -> Vec<Arrived>;

    /// What this destination refuses: at least one message for good, one for now where it knows how to be busy, and one
    /// that is too large.
    async fn refusals(&self) -> Vec<Refusal>;

    /// Makes a message one that fails here while its neighbours in a batch arrive.
    fn spoil(&self, message: &mut Claimed);
}

/// A message that is not taken.
pub struct Refusal {
    /// In words, for the reader of a failed test.
    pub why: &'static str,
    /// The sink that is to send it.
    pub sink: Arc<dyn Sink>,
    /// The message.
    pub message: Claimed,
    /// The code it fails with.
    pub code: &'static str,
    /// Whether trying again can help.
    pub class: FailureClass,
}

/// Makes one test of each case of the contract, for a type that implements [`Destination`].
#[macro_export]
macro_rules! sink_contract {
    ($destination:ty) => {
        $crate::sink_contract_cases! { $destination, transfer,
            bytes_and_headers_arrive_exactly
            a_batch_keeps_its_order
            one_sink_serves_many_tasks
        }
        $crate::sink_contract_cases! { $destination, refusal,
            what_is_refused_is_classified
            a_partial_failure_keeps_the_prefix_of_its_lane
            only_what_failed_is_tried_again
        }
        $crate::sink_contract_cases! { $destination, outage,
            a_server_that_is_down_at_the_start
            a_server_that_stands_still_is_left_at_the_deadline
            a_cancelled_delivery_leaves_nothing_behind
            heavy_killed_in_the_middle_and_started_again
        }
    };
}

/// One module of tests; called by [`sink_contract!`].
#[doc(hidden)]
#[macro_export]
macro_rules! sink_contract_cases {
    ($destination:ty, $part:ident, $($case:ident)*) => {
        mod $part {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    $crate::sink_contract::$part::$case::<$destination>().await;
                }
            )*
        }
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_case_is_listed() {
        crate::contract::assert_every_case_is_listed("sink_contract");
    }
}
