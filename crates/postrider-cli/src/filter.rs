//! The options that say which deliveries and dead letters are meant, and which page of a list, the same for every command. They
//! become the library's filters, by the store's clock; nothing is asked here.

use std::time::SystemTime;

use postrider::inspect::{Cursor, DeadFilter, DeadReason, DeliveryFilter, PageRequest};

use crate::format::{Moment, parse_moment};
use crate::options::words;

const HEADING: &str = "Which";

/// Most lines of one page: more belongs into a query of one's own.
const MAX_ROWS: i64 = 10_000;

/// Which page of a list.
#[derive(Debug, clap::Args)]
pub(crate) struct PageOptions {
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    pub(crate) limit: u32,
    /// The next page: the cursor that the previous page printed
    #[arg(long, value_name = "CURSOR")]
    after: Option<Cursor>,
}

impl PageOptions {
    pub(crate) fn request(self) -> PageRequest {
        PageRequest { after: self.after, limit: self.limit }
    }
}

/// Which deliveries; everything that is given must hold.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct DeliveryOptions {
    /// Of this sink
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    sink: Option<String>,
    /// Of this namespace
    #[arg(long, value_name = "NAME", help_heading = HEADING)]
    namespace: Option<String>,
    /// Of this topic
    #[arg(long, value_name = "TOPIC", help_heading = HEADING)]
    topic: Option<String>,
    /// Of this tenant
    #[arg(long, value_name = "TENANT", help_heading = HEADING)]
    tenant: Option<String>,
    /// In this lane
    #[arg(long, value_name = "LANE", help_heading = HEADING)]
    lane: Option<String>,
}

/// Which dead letters; everything that is given must hold.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct DeadOptions {
    #[command(flatten)]
    delivery: DeliveryOptions,
    /// Failed for good, or out of attempts
    #[arg(long, help_heading = HEADING, ignore_case = true)]
    #[arg(value_parser = words(DeadReason::ALL, DeadReason::as_str))]
    reason: Option<DeadReason>,
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

impl DeliveryOptions {
    pub(crate) fn filter(self) -> DeliveryFilter {
        let Self { sink, namespace, topic, tenant: tenant_id, lane } = self;
        DeliveryFilter { message_ids: None, sink, namespace, topic, tenant_id, lane }
    }
}

impl DeadOptions {
    /// Whether nothing was said.
    pub(crate) fn is_empty(&self) -> bool {
        self.clone().filter(SystemTime::UNIX_EPOCH) == DeadFilter::default()
    }

    pub(crate) fn filter(self, now: SystemTime) -> DeadFilter {
        let DeliveryFilter { message_ids, sink, namespace, topic, tenant_id, lane } = self.delivery.filter();
        DeadFilter {
            message_ids,
            sink,
            namespace,
            topic,
            tenant_id,
            lane,
            reason: self.reason,
            error_code: self.error_code,
            died_from: self.from.map(|from| from.resolve(now)),
            died_to: self.to.map(|to| to.resolve(now)),
        }
    }
}
