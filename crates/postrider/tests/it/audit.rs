//! The audit of what operators do by SQL: each function writes its own entry, with the login that really did it, whatever
//! name the caller gives. Nobody can write an entry without the change. What each action does is in the store's contract.

use postrider_testkit::Database;
use tokio_postgres::Client;

use crate::support::{claim, complete, enqueue, login, login_name, texts, try_sql, with_roles};

/// What the audit knows, oldest first: `action actor db_user affected`.
const ENTRIES: &str = "select concat_ws(' ', action, actor, db_user, affected) from outbox.audit_log order by id";

/// A login in `group`, and its name.
async fn logged_in(database: &Database, admin: &Client, group: &str) -> (Client, String) {
    (login(database, admin, group).await, login_name(database, group))
}

/// SQL by hand is audited, too: every function that changes something for an operator writes its entry itself, with the
/// login. A call that names nobody and changes nothing leaves none.
#[tokio::test]
async fn sql_by_hand_is_audited_with_its_login() {
    let (database, admin) = with_roles().await;
    let (operator, name) = logged_in(&database, &admin, "outbox_operator").await;
    for _ in 0..3 {
        enqueue(&admin, "t", "").await;
    }
    enqueue(&admin, "t", ", delay_seconds => 3600").await;
    enqueue(&admin, "t", ", lane => 'a'").await;
    let held = claim(&admin, "w", 4).await;
    complete(&admin, "w", &held[0], "FAILED").await.unwrap();
    complete(&admin, "w", &held[1], "DISPATCHED").await.unwrap();
    let parked = held.iter().find(|one| one.lane.is_some()).unwrap();
    complete(&admin, "w", parked, "FAILED").await.unwrap();
    let delivered = held[1].id;
    for (call, action) in [
        ("configure_sink('default', paused => true)".to_owned(), "pause"),
        ("configure_sink('default', paused => false)".to_owned(), "resume"),
        ("configure_sink('default', on_dead => 'skip')".to_owned(), "configure_sink"),
        ("add_route('s', 'x.*')".to_owned(), "add_route"),
        ("remove_route('s', 'x.*')".to_owned(), "remove_route"),
        ("skip('default', 'a')".to_owned(), "skip"),
        ("redrive_matching(at_most => 1)".to_owned(), "redrive"),
        ("redrive(all_dead => true)".to_owned(), "redrive"),
        (format!("replay(array['{delivered}'::uuid])"), "replay"),
        ("retry_now()".to_owned(), "retry_now"),
        ("unclaim_stuck(0, live => true)".to_owned(), "unclaim_stuck"),
        ("cancel(at_most => 1)".to_owned(), "cancel"),
    ] {
        assert_eq!(try_sql(&operator, &format!("select outbox.{call}")).await, "00000", "{call}");
        let last = texts(&admin, ENTRIES).await.pop().unwrap_or_default();
        assert_eq!(last, format!("{action} {name} {name} 1"), "{call}");
    }
    let entries = texts(&admin, ENTRIES).await.len();
    let nothing = "select outbox.configure_sink('default', paused => false); select outbox.redrive(all_dead => true); \
                   select outbox.retry_now(); select outbox.remove_route('s'); select from outbox.prune()";
    assert_eq!(try_sql(&operator, nothing).await, "00000");
    assert_eq!(texts(&admin, ENTRIES).await.len(), entries, "nobody was named, and nothing was changed");
}

/// Who names somebody is written down beside that name, if nothing was changed, too; and nobody writes an entry of his own.
#[tokio::test]
async fn a_named_actor_stands_beside_the_login() {
    let (database, admin) = with_roles().await;
    let (operator, name) = logged_in(&database, &admin, "outbox_operator").await;
    let (relay, relay_name) = logged_in(&database, &admin, "outbox_relay").await;
    let pause = "select outbox.configure_sink('default', paused => true, actor => 'alice@example.org')";
    assert_eq!(try_sql(&operator, pause).await, "00000");
    assert_eq!(try_sql(&operator, pause).await, "00000");
    assert_eq!(try_sql(&relay, "select outbox.add_route('s')").await, "00000");
    assert_eq!(try_sql(&relay, "select outbox.add_route('s')").await, "00000", "it is there");
    let become_owner = format!("set role outbox_operator; {pause}");
    assert_eq!(try_sql(&operator, &become_owner).await, "00000");
    let expected = [
        format!("pause alice@example.org {name} 1"),
        format!("pause alice@example.org {name} 0"),
        format!("add_route {relay_name} {relay_name} 1"),
        format!("pause alice@example.org {name} 0"),
    ];
    assert_eq!(texts(&admin, ENTRIES).await, expected);
    for client in [&operator, &relay] {
        let own = "select outbox.write_audit('alice', 'redrive', '{}', 1)";
        assert_eq!(try_sql(client, own).await, "42501", "nobody writes the audit");
    }
    for wrong in ["''", "repeat('a', 256)"] {
        let call = format!("select outbox.configure_sink('default', paused => false, actor => {wrong})");
        assert_eq!(try_sql(&operator, &call).await, "22023", "{wrong}");
    }
    assert_eq!(texts(&admin, ENTRIES).await.len(), expected.len());
}

/// An operator's message is written with its entry, by one function.
#[tokio::test]
async fn an_operators_enqueue_audits_itself() {
    let (database, admin) = with_roles().await;
    let (operator, name) = logged_in(&database, &admin, "outbox_operator").await;
    let producer = login(&database, &admin, "outbox_producer").await;
    let call = "select from outbox.enqueue_as('ann', 'order.placed', '{\"card\": 4711}', lane => 'a')";
    assert_eq!(try_sql(&operator, call).await, "00000");
    assert_eq!(try_sql(&producer, call).await, "42501");
    assert_eq!(texts(&admin, ENTRIES).await, [format!("enqueue ann {name} 1")]);
    let detail = "select detail ->> 'topic' || ' ' || (detail ->> 'lane') || ' ' || (detail::text like '%4711%') from outbox.audit_log";
    assert_eq!(texts(&admin, detail).await, ["order.placed a false"]);
}
