//! The producer's side: an event commits with its turn or not at all, is written once for its key, and belongs to its tenant;
//! by whichever driver.

use example_modules::chat::{NAMESPACE, Turn, Unfinished};
use postrider::{ErrorKind, Message, Outbox};
use uuid::Uuid;

use crate::script::somebody_waits;
use crate::support::{DRIVERS, TENANT, site, turn};

/// Proves M1: a turn that cannot be written has no event, an event that cannot be written has no turn, and a commit that fails
/// leaves neither.
#[tokio::test]
async fn a_turn_and_its_event_commit_together() {
    let site = site().await;
    let at_commit = "create function chat.no() returns trigger language plpgsql as $$ begin raise 'not today'; end $$; \
                     create constraint trigger no after insert on chat.turn deferrable initially deferred \
                     for each row execute function chat.no()";
    for (broken, mended) in [
        ("alter table chat.turn rename to gone", "alter table chat.gone rename to turn"),
        ("alter function outbox.enqueue rename to gone", "alter function outbox.gone rename to enqueue"),
        (at_commit, "drop function chat.no cascade"),
    ] {
        site.run(broken).await;
        for driver in DRIVERS {
            site.drivers.finish(driver, &turn(1)).await.unwrap_err();
        }
        site.run(mended).await;
        assert_eq!(site.counts().await, "0 0", "{broken}");
    }
    site.finish(8).await;
    assert_eq!(site.counts().await, "8 8", "each of the drivers twice");
}

/// Proves M1: what is refused by a rule of the module leaves neither a turn nor an event.
#[tokio::test]
async fn a_refused_turn_has_no_event() {
    let site = site().await;
    site.run(format!("insert into chat.closed_tenant values ('{TENANT}')")).await;
    for driver in DRIVERS {
        let refused = site.drivers.finish(driver, &turn(1)).await.unwrap_err();
        assert!(matches!(refused, Unfinished::TenantIsClosed), "{driver:?}: {refused:?}");
    }
    assert_eq!(site.counts().await, "0 0");
}

/// Proves M3: a turn that is finished again, by whichever driver, is told the id of the first event; after it was delivered, too.
#[tokio::test]
async fn a_repeated_turn_is_already_enqueued() {
    let site = site().await;
    let first = site.drivers.finish(DRIVERS[0], &turn(1)).await.unwrap();
    assert!(first.created);
    for drained in [0, 1] {
        if drained == 1 {
            assert_eq!(site.drain().await.delivered, 1);
        }
        for driver in DRIVERS {
            let again = site.drivers.finish(driver, &turn(1)).await.unwrap();
            assert_eq!((again.message_id, again.created), (first.message_id, false), "{driver:?}");
        }
    }
    assert_eq!(site.counts().await, "1 1");
}

/// Proves M3: the loser of a race waits for the winner, and is told that the event is there; if the winner gives up, the loser
/// has written it.
#[tokio::test]
async fn a_lost_race_is_already_enqueued() {
    for (nth, commit) in [(1, true), (2, false)] {
        let site = site().await;
        let mut winner = site.pool.begin().await.unwrap();
        let first = Outbox::default().enqueue(&mut winner, &turn(nth).event().unwrap()).await.unwrap();
        let race = async {
            somebody_waits(&site.database).await;
            if commit { winner.commit().await } else { winner.rollback().await }.unwrap();
        };
        let turn = turn(nth);
        let ((), second) = tokio::join!(race, site.drivers.finish(DRIVERS[3], &turn));
        let second = second.unwrap();
        assert_eq!((second.message_id == first.message_id, second.created), (commit, !commit));
        assert_eq!(site.counts().await, "1 1");
    }
}

/// Proves M2, M4: with a tenant, the key begins with the tenant and "/"; anything else is an error, and no row. An event of
/// the system has no tenant. A key is unique in its namespace and topic.
#[tokio::test]
async fn a_key_belongs_to_its_tenant() {
    let site = site().await;
    let event = |namespace: &str, topic: &str| Message::json(topic, &1).unwrap().namespace(namespace);
    let (ours, theirs) = (TENANT, Uuid::from_u128(0x2000));
    let mut tx = site.pool.begin().await.unwrap();
    for key in [format!("{theirs}/t/r"), format!("{ours}"), format!("t/{ours}/r")] {
        let refused = Outbox::default()
            .enqueue(&mut tx, &event(NAMESPACE, "usage").tenant(ours).dedupe_key(&key))
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidMessage, "{key}");
    }
    let key = format!("{ours}/t/r");
    for (namespace, topic) in [(NAMESPACE, "usage"), (NAMESPACE, "summary"), ("billing", "usage")] {
        let event = event(namespace, topic).tenant(ours).dedupe_key(&key);
        assert!(Outbox::default().enqueue(&mut tx, &event).await.unwrap().created, "{namespace} {topic}");
    }
    let system = event(NAMESPACE, "started").dedupe_key("t/r");
    assert!(Outbox::default().enqueue(&mut tx, &system).await.unwrap().created);
    tx.commit().await.unwrap();
    assert_eq!(site.ask("select count(*) from outbox.messages").await, "4");
}

/// The event says what the turn is: enough for whoever hears it, and the same as its key.
#[test]
fn an_event_names_its_turn() {
    let turn: Turn = turn(7);
    let key = format!("{}/{}/{}", turn.tenant_id, turn.turn_id, turn.request_id);
    let event = Message::json("usage", &turn).unwrap().namespace(NAMESPACE).tenant(TENANT).dedupe_key(key);
    assert_eq!(turn.event().unwrap(), event);
}
