//! A store's clock that was ahead for a moment, or was set back: leases, due times, samples and reports are from the
//! future then. The tests move the rows' times instead of the clock, in both stores.

use std::sync::Arc;
use std::time::Duration;

use postrider::doctor::{self, Level, Limits};
use postrider::inspect::{DeliveryFilter, FutureTimes, RelayReport};
use postrider::lifecycle::Claim;
use postrider::operate::Action;
use postrider::{Message, Store};

use crate::inbox::Site;

impl Site {
    async fn each() -> [(Self, Arc<dyn Store>); 2] {
        [Self::on_postgres().await, Self::on_sqlite()].map(|site| {
            let store = Arc::clone(&site.store);
            (site, store)
        })
    }

    /// All times of these columns become an hour later, as if the clock had been set back.
    async fn an_hour_later(&self, table: &str, columns: &[&str]) {
        let moved = columns.iter().map(|name| format!("{name} = {name} + {}", self.hours(1))).collect::<Vec<_>>();
        self.execute(&format!("update outbox.{table} set {}", moved.join(", "))).await;
    }
}

fn message(topic: &str) -> Message {
    Message::json(topic, &1).unwrap()
}

/// Leases from the future: the reaper knows nothing of them, an unclaim that takes live ones frees them, lanes go on.
#[tokio::test]
async fn leases_from_the_future_can_be_freed() {
    for (site, store) in Site::each().await {
        store.enqueue(&[message("t").lane("a"), message("t").lane("a"), message("t")]).await.unwrap();
        let claim = Claim::new("w").batch_size(2);
        let held = store.claim(&claim).await.unwrap();
        assert_eq!(held.len(), 2);
        let unclaim = Action::UnclaimStuck { older_than: Duration::from_hours(24), live: true };
        let patient = async || store.operate("ann", &unclaim).await.unwrap().affected;
        assert_eq!(patient().await, 0, "a lease of now is left alone");
        site.an_hour_later("delivery", &["claimed_at", "lease_expires_at"]).await;
        assert_eq!(store.repair_expired_leases(100).await.unwrap(), 0, "a worker may hold them");
        assert_eq!(patient().await, 2, "nobody can have taken them yet");

        let held = store.claim(&claim).await.unwrap();
        assert_eq!((held.len(), held[0].attempt_no), (2, 2));
        site.an_hour_later("delivery", &["claimed_at", "lease_expires_at"]).await;
        for (live, freed) in [(false, 0), (true, 2)] {
            let order = Action::UnclaimStuck { older_than: Duration::ZERO, live };
            assert_eq!(store.operate("ann", &order).await.unwrap().affected, freed, "live: {live}");
        }
        assert_eq!(store.claim(&claim.batch_size(10)).await.unwrap().len(), 3, "the lane goes on");
    }
}

/// Due times from the future, of an enqueue or a retry while the clock was ahead.
#[tokio::test]
async fn what_is_due_in_the_future_can_be_made_due() {
    for (site, store) in Site::each().await {
        store.enqueue(&[message("t"), message("t").lane("a")]).await.unwrap();
        site.an_hour_later("delivery", &["due_at"]).await;
        let claim = Claim::new("w").batch_size(10);
        assert_eq!(store.claim(&claim).await.unwrap().len(), 0);
        let order = Action::RetryNow { which: DeliveryFilter::default(), at_most: 10 };
        assert_eq!(store.operate("ann", &order).await.unwrap().affected, 2);
        assert_eq!(store.claim(&claim).await.unwrap().len(), 2);
    }
}

/// Measuring goes on at once, and what stands in the way of the figures is gone.
#[tokio::test]
async fn a_sample_from_the_future_does_not_stop_measuring() {
    for (site, store) in Site::each().await {
        store.enqueue(&[message("t")]).await.unwrap();
        assert!(store.measure().await.unwrap());
        assert!(!store.measure().await.unwrap(), "it is too early");
        site.an_hour_later("sample", &["at"]).await;
        assert!(store.measure().await.unwrap());
        assert!(!store.measure().await.unwrap(), "it is too early again");
        let samples = store.samples(Duration::from_hours(1)).await.unwrap();
        assert_eq!(samples.len(), 1, "{samples:?}");
        assert!(samples[0].at <= store.now().await.unwrap() && samples[0].seconds > 0.0, "{samples:?}");
    }
}

/// The doctor sees each kind of time from the future, and says what to do.
#[tokio::test]
async fn the_doctor_sees_times_from_the_future() {
    for (site, store) in Site::each().await {
        let look = async || {
            let found = doctor::backlog(&*store, &Limits::default()).await;
            found.into_iter().find(|finding| finding.check == "future_times").unwrap()
        };
        store.enqueue(&[message("t")]).await.unwrap();
        let longest = Claim::new("w").lease(Duration::from_hours(24));
        assert_eq!(store.claim(&longest).await.unwrap().len(), 1);
        assert!(store.measure().await.unwrap());
        let every = Duration::from_secs(10);
        let report = RelayReport { worker_id: "w".to_owned(), version: "1".to_owned(), every, sinks: Vec::new() };
        store.report(&report).await.unwrap();
        assert_eq!((look().await.level, look().await.seen.contains("no lease")), (Level::Ok, true));

        site.an_hour_later("sample", &["at"]).await;
        assert_eq!((look().await.level, look().await.seen.ends_with(": 1 sample")), (Level::Warning, true));
        site.an_hour_later("relay", &["reported_at"]).await;
        assert!(look().await.seen.ends_with(": 1 relay report, 1 sample"));
        site.an_hour_later("delivery", &["lease_expires_at"]).await;
        let found = look().await;
        assert_eq!(found.level, Level::Bad, "a lease that ends in 25 hours");
        assert!(found.fix.unwrap().contains("keep the clock steady"));
        site.an_hour_later("delivery", &["claimed_at"]).await;
        let all = store.future_times(Duration::ZERO).await.unwrap();
        assert_eq!(all, FutureTimes { leases: 1, reports: 1, samples: 1 });
    }
}
