//! Messages that were handed to a producer together, and the reports that come back for them, each for itself and in any
//! order. librdkafka's own thread writes the reports; the delivery that sent them waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::sync::Notify;

/// What became of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Report {
    /// It is kept there. The offset is less than 0 if the broker did not say: it knew the record already.
    Delivered { partition: i32, offset: i64 },
    /// Not taken, or not known.
    Refused(Code),
}

/// Reports as they come in.
#[derive(Debug, Default)]
pub(super) struct DeliveryReports {
    reports: Mutex<Reports>,
    all_in: Notify,
}

#[derive(Debug, Default)]
struct Reports {
    by_place: Vec<Option<Report>>,
    missing: usize,
}

/// Goes with a message through librdkafka and comes back with its report.
pub(super) struct PendingReport {
    all: Arc<DeliveryReports>,
    place: usize,
}

impl DeliveryReports {
    /// For one more message.
    pub(super) fn pending_report(self: &Arc<Self>) -> PendingReport {
        let mut reports = self.lock();
        reports.by_place.push(None);
        reports.missing += 1;
        PendingReport { all: Arc::clone(self), place: reports.by_place.len() - 1 }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.lock().missing == 0
    }

    pub(super) async fn complete(&self) {
        loop {
            let all_in = self.all_in.notified();
            if self.is_complete() {
                return;
            }
            all_in.await;
        }
    }

    /// In the order in which they were asked for. What has no report was taken back without one.
    pub(super) fn reports(&self) -> Vec<Report> {
        let unknown = Report::Refused(Code::PurgeInflight);
        self.lock().by_place.iter().map(|report| report.unwrap_or(unknown)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingReport {
    /// The message was not taken: nothing will come back for it. Only for the one asked for last.
    pub(super) fn take_back(self) {
        let mut reports = self.all.lock();
        reports.by_place.truncate(self.place);
        reports.missing -= 1;
    }

    pub(super) fn report(self, report: Report) {
        let mut reports = self.all.lock();
        let place = &mut reports.by_place[self.place];
        if place.replace(report).is_none() {
            reports.missing -= 1;
        }
        if reports.missing == 0 {
            self.all.all_in.notify_one();
        }
    }
}
