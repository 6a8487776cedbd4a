//! The sink contract: what every sink promises, whatever it speaks. Each case is a function over a [`Destination`], which
//! starts the real server privately and reads what arrived there with a client that is not ours; `sink_contract!` makes a
//! test of each. Cases that need retries run a real relay on an embedded store.

mod arrivals;
mod hand;
pub mod outage;
mod outbox;
pub mod refusal;
pub mod transfer;

use std::sync::Arc;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use postrider_relay::{FailureClass, Sink};

use crate::consumer::Consumer;
use crate::server::Server;

pub use arrivals::{Arrived, assert_lanes_in_order, distinct, until_arrived};
pub use hand::{claimed, deliver};

/// A server of the kind a sink sends to, and a consumer of another make that reads there from the start.
#[async_trait]
pub trait Destination: Sized + Send + Sync + 'static {
    /// A running server, empty, with whatever its users make before they send: a topic, a stream, a queue.
    async fn start() -> Self;

    /// A sink as its users make it. It may be made while the server is away.
    async fn sink(&self) -> Arc<dyn Sink>;

    /// The private server, if it is one: what is done to it then needs no words of its own.
    fn server(&self) -> &Server {
        panic!("it is no private server")
    }

    /// Who reads there, if it is a consumer in another language.
    fn consumer(&self) -> &Consumer {
        panic!("it has no consumer")
    }

    /// Ends the server at once.
    async fn kill(&mut self) {
        self.server().kill();
    }

    /// Starts it again, in the same place and with what it had kept.
    async fn restart(&mut self) {
        self.server().restart().await;
    }

    /// Makes it stand still, connections and all.
    fn stall(&self) {
        self.server().stall();
    }

    /// Lets it go on.
    fn resume(&self) {
        self.server().resume();
    }

    /// Everything that has arrived, in its order, once there are so many different messages.
    async fn arrived(&self, different: usize) -> Vec<Arrived> {
        until_arrived(self.consumer(), different).await
    }

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

impl Refusal {
    /// One that no further try can cure.
    pub fn terminal(why: &'static str, sink: impl Sink + 'static, message: Claimed, code: &'static str) -> Self {
        Self { why, sink: Arc::new(sink), message, code, class: FailureClass::Terminal }
    }

    /// One that may be tried again.
    pub fn retryable(why: &'static str, sink: impl Sink + 'static, message: Claimed, code: &'static str) -> Self {
        Self { class: FailureClass::Retryable, ..Self::terminal(why, sink, message, code) }
    }
}

/// Makes one test of each case of the contract, for a type that implements [`Destination`].
#[macro_export]
macro_rules! sink_contract {
    ($destination:ty) => {
        $crate::contract_cases! { <$destination as $crate::sink_contract::Destination>::start(), sink_contract transfer,
            bytes_and_headers_arrive_exactly
            the_dedupe_key_arrives
            a_batch_keeps_its_order
            one_sink_serves_many_tasks
        }
        $crate::contract_cases! { <$destination as $crate::sink_contract::Destination>::start(), sink_contract refusal,
            what_is_refused_is_classified
            a_partial_failure_keeps_the_prefix_of_its_lane
            only_what_failed_is_tried_again
        }
        $crate::contract_cases! { <$destination as $crate::sink_contract::Destination>::start(), sink_contract outage,
            a_server_that_is_down_at_the_start
            a_server_that_stands_still_is_left_at_the_deadline
            a_cancelled_delivery_leaves_nothing_behind
            heavy_killed_in_the_middle_and_started_again
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
