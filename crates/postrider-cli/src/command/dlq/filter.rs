//! The options that say which dead letters are meant, the same for looking and for changing. Turned into the library's
//! filter by the store's clock; nothing is asked here.

use std::time::SystemTime;

use clap::ValueEnum;
use postrider::DeadFilter;
use uuid::Uuid;

use crate::humane::{Moment, parse_moment};

const HEADING: &str = "Which";

/// Which dead letters; everything that is given must hold.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Which {
    /// Of this sink
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    pub(super) sink: Option<String>,
    /// Of this namespace
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    namespace: Option<String>,
    /// Of this topic
    #[arg(long, value_name = "TOPIC", help_heading = HEADING)]
    topic: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "UUID", help_heading = HEADING)]
    tenant: Option<Uuid>,
    /// In this lane
    #[arg(long, value_name = "LANE", help_heading = HEADING)]
    lane: Option<String>,
    /// Failed for good, or out of attempts
    #[arg(long, value_enum, help_heading = HEADING)]
    reason: Option<Reason>,
    /// With this code, such as `HTTP_503`; empty: without a code
    #[arg(long, value_name = "CODE", help_heading = HEADING)]
    error_code: Option<String>,
    /// Died at this time or later: RFC 3339, or "2h ago"
    #[arg(long, value_name = "TIME", value_parser = parse_moment, help_heading = HEADING)]
    from: Option<Moment>,
    /// Died before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment, help_heading = HEADING)]
    to: Option<Moment>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Reason {
    // Without words for each: clap would then spread the whole help over twice as many lines.
    Failed,
    AttemptsExhausted,
}

impl Which {
    /// Whether nothing was said.
    pub(super) fn is_empty(&self) -> bool {
        self.sink.is_none()
            && self.namespace.is_none()
            && self.topic.is_none()
            && self.tenant.is_none()
            && self.lane.is_none()
            && self.reason.is_none()
            && self.error_code.is_none()
            && self.from.is_none()
            && self.to.is_none()
    }

    pub(super) fn filter(&self, now: SystemTime) -> DeadFilter {
        let reason = self.reason.map(|reason| match reason {
            Reason::Failed => "FAILED",
            Reason::AttemptsExhausted => "ATTEMPTS_EXHAUSTED",
        });
        DeadFilter {
            message_ids: None,
            sink: self.sink.clone(),
            namespace: self.namespace.clone(),
            topic: self.topic.clone(),
            tenant_id: self.tenant,
            lane: self.lane.clone(),
            reason: reason.map(str::to_owned),
            error_code: self.error_code.clone(),
            died_from: self.from.map(|from| from.resolve(now)),
            died_to: self.to.map(|to| to.resolve(now)),
        }
    }
}
