// The front page is the README.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
mod backoff;
mod batches;
mod breaker;
mod claim_recovery;
mod claimer;
pub mod clock;
mod completer;
mod dispatcher;
mod error;
#[cfg(test)]
mod fixtures;
mod handle;
mod isolation;
mod jitter;
mod keeper;
mod lease;
mod memory_budget;
mod options;
pub mod outage;
mod policy;
mod reaper;
mod relay;
mod reporter;
mod results;
mod scan_plan;
pub mod secret;
pub mod sink;
mod sink_runtime;
mod slots;
mod stats;
mod store_client;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(any(feature = "nats", feature = "redis"))]
mod tls;
pub mod trace;
mod wake;

pub use crate::backoff::Backoff;
pub use crate::breaker::BreakerOptions;
pub use crate::error::{Error, ErrorKind};
pub use crate::handle::RelayHandle;
pub use crate::options::{RelayOptions, RetryOptions, SinkOptions};
pub use crate::policy::{CodeTable, FailureClass};
pub use crate::relay::{Relay, RelayBuilder};
pub use crate::sink::handler::{handler, json_handler};
pub use crate::sink::{Batching, Receipt, Sink, SinkFailure, Verdict};
pub use crate::stats::{Counts, Stats};
