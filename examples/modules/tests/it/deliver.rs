//! The relay's side: who holds an event, what a crash and a failure cost, and that billing counts a turn once whatever happens.

use std::time::Duration;

use example_modules::billing::record;
use example_modules::retry;
use postrider::lifecycle::{Claim, LeaseToken};
use postrider::{ErrorKind, Queue as _};
use postrider_relay::{RelayBuilder, RelayOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::script::{PATIENCE, somebody_waits};
use crate::support::{Site, TENANT, site, turn};

const BILLED: &str = "select count(*) || ' ' || coalesce(sum(tokens), 0) from billing.usage";
const ATTEMPTS: &str = "select coalesce(string_agg(state || ' ' || n, ', ' order by state), '') \
                        from (select state::text, count(*) n from outbox.attempts group by state) a";
/// As if every lease had ended an hour ago.
const END_LEASES: &str = "update outbox.delivery set claimed_at = claimed_at - interval '1 hour', \
                          lease_expires_at = lease_expires_at - interval '1 hour' where lease_token is not null";

fn start(relay: RelayBuilder, shutdown: &CancellationToken) -> JoinHandle<postrider_relay::Counts> {
    let running = relay.build().unwrap().run(shutdown.clone());
    tokio::spawn(async { running.await.unwrap() })
}

async fn until(site: &Site, what: &'static str) {
    let look = async {
        while site.ask(what).await != "true" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("in vain: {what}"));
}

/// Claims as another worker, under a lease of a minute.
async fn claim(site: &Site, worker: &str) -> Vec<postrider::lifecycle::Claimed> {
    let claim = Claim::new(worker).sink("chat".to_owned()).lease(Duration::from_mins(1));
    site.store.claim(&claim).await.unwrap()
}

/// Proves M5, M9: replicas share the events, and each is processed once; a relay runs beside the application and ends with its
/// token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_process_each_event_once() {
    let site = site().await;
    let shutdown = CancellationToken::new();
    let replicas = [(); 3].map(|()| start(site.relay(), &shutdown));
    site.finish(60).await;
    until(&site, "select not exists (select from outbox.deliveries)").await;
    shutdown.cancel();
    let mut delivered = 0;
    for replica in replicas {
        delivered += tokio::time::timeout(PATIENCE, replica).await.unwrap().unwrap().delivered;
    }
    assert_eq!((delivered, site.ask(ATTEMPTS).await.as_str()), (60, "DISPATCHED 60"));
    assert_eq!(site.ask(BILLED).await, "60 600");
    assert_eq!(site.ask("select spent from billing.account").await, "600", "counted where it is added up, too");
}

/// Proves M5: what a crashed replica held comes to another when the lease ends, and the crash counts as an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_replicas_events_are_reclaimed() {
    let site = site().await;
    site.finish(5).await;
    let mut lock = site.pool.begin().await.unwrap();
    sqlx::query("lock table billing.usage").execute(&mut *lock).await.unwrap();
    let crashes = start(site.relay(), &CancellationToken::new());
    until(&site, "select count(*) = 5 from outbox.in_flight").await;
    somebody_waits(&site.database).await;
    crashes.abort();
    assert!(crashes.await.unwrap_err().is_cancelled());
    lock.rollback().await.unwrap();
    assert_eq!(site.drain().await.delivered, 0, "others wait for the end of the lease");
    site.run(END_LEASES).await;
    assert_eq!(site.drain().await.delivered, 5);
    assert_eq!(site.ask(ATTEMPTS).await, "DISPATCHED 5, ZOMBIE_REQUEUE 5");
    assert_eq!(site.ask(BILLED).await, "5 50", "once, whatever the crashed one had done");
}

/// Proves M7, M8: each failure is recorded and the event waits longer, within the bounds of the backoff; after the last attempt it
/// is dead, can be seen, and is not tried again by itself.
#[tokio::test]
async fn failures_wait_longer_each_time_and_end_dead() {
    let site = site().await;
    site.finish(1).await;
    site.run("alter table billing.usage rename to away").await;
    let (backoff, most) = (retry().backoff, retry().max_attempts);
    let mut attempt = 0;
    while attempt + 1 < most {
        assert!(site.drain().await.retried > 0);
        let waits = "select round(1000 * extract(epoch from d.due_at - a.completed_at)) from outbox.deliveries d \
                     join outbox.attempts a using (message_id) order by a.attempt_no desc limit 1";
        let waits = Duration::from_millis(site.ask(waits).await.parse().unwrap());
        // A slow drain may make two.
        attempt = site.ask("select count(*) from outbox.attempts").await.parse().unwrap();
        let whole = backoff.ceiling(attempt);
        assert!(whole / 2 <= waits && waits <= whole, "after attempt {attempt}: {waits:?}, of {whole:?}");
        let said = "select error_message from outbox.attempts order by attempt_no desc limit 1";
        assert!(site.ask(said).await.contains("relation \"billing.usage\" does not exist"));
        site.run("update outbox.delivery set due_at = now()").await;
    }
    assert_eq!(site.drain().await.dead, 1);
    let dead = "select reason || ' ' || attempt_count || ' ' || (last_error_message like '%does not exist%') from outbox.dead_letters";
    assert_eq!(site.ask(dead).await, format!("ATTEMPTS_EXHAUSTED {most} true"));
    assert_eq!(site.ask("select dead from outbox.status where sink = 'chat'").await, "1", "for monitoring");
    site.run("alter table billing.away rename to usage").await;
    assert_eq!(site.drain().await.claimed, 0, "a person decides");
}

/// Proves M6: only the holder acks and nacks. A relay that lost its lease while it was with a callback logs that, does not turn it
/// into a failure, and leaves the event to whoever has it now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_holder_acks() {
    let site = site().await;
    site.finish(1).await;
    let mut lock = site.pool.begin().await.unwrap();
    sqlx::query("lock table billing.usage").execute(&mut *lock).await.unwrap();
    let shutdown = CancellationToken::new();
    let slow = start(site.relay(), &shutdown);
    somebody_waits(&site.database).await;
    // It claims no more, and waits for what is with the callback.
    shutdown.cancel();
    site.run(END_LEASES).await;
    let held = claim(&site, "another").await.remove(0);
    assert_eq!((held.attempt_no, held.attempt_count), (2, 2), "the first one counts");
    lock.rollback().await.unwrap();
    let counts = tokio::time::timeout(PATIENCE, slow).await.unwrap().unwrap();
    assert_eq!((counts.lost, counts.delivered, counts.retried, counts.dead), (1, 0, 0, 0));

    let mut stolen = held.clone();
    stolen.lease_token = LeaseToken::random();
    for (worker, claimed) in [("another", &stolen), ("a stranger", &held)] {
        let refused = site.store.ack(worker, claimed).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost, "{worker}");
        let failure = postrider::lifecycle::Failure::default();
        let refused = site.store.nack(worker, claimed, Duration::ZERO, failure).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::LeaseLost, "{worker}");
    }
    assert_eq!(site.ask(ATTEMPTS).await, "ZOMBIE_REQUEUE 1", "none of this was recorded");
    site.store.ack("another", &held).await.unwrap();
    assert_eq!(site.ask(ATTEMPTS).await, "DISPATCHED 1, ZOMBIE_REQUEUE 1");
    assert_eq!(site.store.ack("another", &held).await.unwrap_err().kind(), ErrorKind::LeaseLost, "once");
}

/// Delivery is at least once. An event whose outcome was lost comes again, and billing, which knows turns by what is in their
/// keys, counts it once.
#[tokio::test]
async fn billing_counts_a_turn_once() {
    let site = site().await;
    site.finish(3).await;
    for event in claim(&site, "a relay that dies before it records").await {
        record(&site.pool, &event.json().unwrap()).await.unwrap();
    }
    assert_eq!(site.ask(BILLED).await, "3 30");
    site.run(END_LEASES).await;
    assert_eq!(site.drain().await.delivered, 3);
    assert_eq!(site.ask(BILLED).await, "3 30");
    assert_eq!(site.ask("select spent from billing.account").await, "30");
}

/// The modules speak both ways: billing's event is written with what it counted, once, and closes the tenant.
#[tokio::test]
async fn a_tenant_without_tokens_is_closed() {
    let site = site().await;
    site.run(format!("insert into billing.account (tenant_id, quota) values ('{TENANT}', 25)")).await;
    site.finish(5).await;
    let delivered = site.drain().await.delivered + site.drain().await.delivered;
    assert_eq!(delivered, 5 + 1, "two turns for which there were tokens, three beyond, one notice");
    assert_eq!(site.ask("select count(*) from outbox.messages where topic = 'quota-used-up'").await, "1");
    assert_eq!(site.ask("select tenant_id from chat.closed_tenant").await, TENANT.to_string());
    for driver in crate::support::DRIVERS {
        site.drivers.finish(driver, &turn(6)).await.unwrap_err();
    }
    assert_eq!(site.counts().await, "5 5");
}

/// Proves M10: a poll of more than a third of the lease is refused before anything starts.
#[tokio::test]
async fn a_slow_poll_is_refused() {
    let site = site().await;
    let lease = Duration::from_mins(5);
    let relay = |poll| site.relay().options(RelayOptions::default().lease(lease).poll(poll)).build();
    assert!(relay(lease / 3).is_ok());
    let refused = relay(lease / 3 + Duration::from_millis(1)).err().unwrap();
    assert_eq!(refused.kind(), postrider_relay::ErrorKind::Options, "{refused}");
}

/// Proves M11: the oldest first, then by id.
#[tokio::test]
async fn claims_are_in_order() {
    let site = site().await;
    site.finish(20).await;
    site.run(
        "update outbox.delivery set due_at = case when message_id = (select message_id from outbox.delivery order by 1 desc limit 1) \
              then now() - interval '1 hour' else now() - interval '1 minute' end",
    )
    .await;
    let order: Vec<u128> = claim(&site, "w")
        .await
        .iter()
        .map(|event| event.json::<example_modules::chat::Turn>().unwrap().turn_id.as_u128())
        .collect();
    assert_eq!(order, std::iter::once(20).chain(1..=19).collect::<Vec<_>>());
}
