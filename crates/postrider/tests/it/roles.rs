//! Who may do what, asked of a real server with real login roles: first the catalogue, function by function and table
//! by table, then the calls themselves. Also what holds for everybody, the superuser included: attempts are
//! append-only, nothing is truncated, and no function picks up what somebody planted in `public` or `pg_temp`.

use std::collections::BTreeSet;

use postrider::inspect::{DeadFilter, PageRequest};
use postrider::operate::Action;
use postrider::{ErrorKind, Inspect as _, Operate as _, PostgresStore, Queue as _, Schema, migrate};
use tokio_postgres::Client;

use crate::support::{
    attempts, claim, complete, contents, enqueue, fresh, login, login_name, mark_delivered, number, run, texts,
    try_sql, with_roles,
};

/// What each role may execute.
const PRODUCER: &str = "enqueue enqueue_many schema_version";
const RECEIVER: &str = "prune_inbox_at_retention receive receive_many schema_version";
const RELAY: &str = "abandon add_route claim complete complete_many configure_sink content has_due make_partitions mark_delivered measure \
                     prune_at_retention prune_inbox_at_retention queues recent_attempts release renew repair_expired_leases report schema_version \
                     sign_off sleep woke";
const OPERATOR: &str = "add_route apply_routes as_json begin_import cancel check_rows configure_sink discard discard_matching enqueue \
                       enqueue_as enqueue_many find_ids find_keys find_messages forward_rows import_rows make_partitions message_id_time prunable prune \
                       prune_at_retention prune_inbox prune_inbox_at_retention queues recent_attempts redrive \
                       redrive_matching remove_route repair_expired_leases replay replay_batch retry_now \
                       schema_version sink_is_known skip topic_like unclaim_stuck";
const READER: &str = "find_ids find_keys find_messages message_id_time prunable queues recent_attempts schema_version \
                      sink_is_known topic_like";
const AUDITOR: &str =
    "find_ids find_keys find_messages message_id_time queues recent_attempts schema_version sink_is_known topic_like";

const TABLES: &str = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'outbox'::regnamespace \
                      and c.relkind in ('r', 'p', 'v', 'm', 'f') order by 1";

async fn executable(client: &Client) -> String {
    let sql = "select distinct p.proname::text from pg_proc p where p.pronamespace = 'outbox'::regnamespace \
               and has_function_privilege(p.oid, 'execute') order by 1";
    texts(client, sql).await.join(" ")
}

/// Every right on a table, view or column, as `RIGHT table`.
async fn table_rights(client: &Client) -> BTreeSet<String> {
    let sql = "select distinct p || ' ' || c.relname from pg_class c, \
               unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p \
               where c.relnamespace = 'outbox'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S') \
               and (has_table_privilege(c.oid, p) or (p not in ('DELETE', 'TRUNCATE', 'TRIGGER') \
                    and has_any_column_privilege(c.oid, p)))";
    texts(client, sql).await.into_iter().collect()
}

async fn assert_denied(client: &Client, statements: &str) {
    for sql in statements.split("; ") {
        assert_eq!(try_sql(client, sql).await, "42501", "{sql}");
    }
}

async fn assert_tables_denied(admin: &Client, client: &Client, readable: impl Fn(&str) -> bool) {
    for table in texts(admin, TABLES).await {
        let read = if readable(&table) { "00000" } else { "42501" };
        assert_eq!(try_sql(client, &format!("select from {table} limit 1")).await, read, "select from {table}");
        let relkind =
            texts(admin, &format!("select relkind::text from pg_class where oid = '{table}'::regclass")).await;
        if relkind != ["v"] {
            let writes = format!("insert into {table} default values; delete from {table}; truncate {table}");
            assert_denied(client, &writes).await;
        }
    }
}

/// Proves P7, P17: a producer may enqueue and nothing else.
#[tokio::test]
async fn a_producer_may_enqueue_and_nothing_else() {
    let (database, admin) = with_roles().await;
    let producer = login(&database, &admin, "outbox_producer").await;
    assert_eq!(executable(&producer).await, PRODUCER);
    assert_eq!(table_rights(&producer).await, BTreeSet::new());

    enqueue(&producer, "t", ", lane => 'a', dedupe_key => 'k'").await;
    let many = "select from outbox.enqueue_many(topic => array['a', 'b'], payload => array['1', '2']::jsonb[])";
    assert_eq!(try_sql(&producer, many).await, "00000");
    assert_eq!(number(&admin, "select count(*) from outbox.delivery").await, 3);
    migrate::check(&producer, &Schema::default()).await.unwrap();

    let before = contents(&admin, "outbox").await;
    assert_tables_denied(&admin, &producer, |_| false).await;
    let denied = "select outbox.next_sequence('a'); select from outbox.claim('w', 1, 1); select \
        outbox.complete(gen_random_uuid(), gen_random_uuid(), 'w', 'DISPATCHED'); select \
        outbox.mark_delivered(gen_random_uuid(), '{}'); select outbox.redrive(all_dead => true); select from \
        outbox.prune(); select outbox.notify_sleepers(); update outbox.delivery set due_at = now(); update \
        outbox.attempt set attempt_no = 2; create table outbox.mine (a int); create function outbox.mine() \
        returns int language sql as 'select 1'";
    assert_denied(&producer, denied).await;
    assert_eq!(contents(&admin, "outbox").await, before);
}

/// Proves P7: a receiver may note what it received, and nothing else.
#[tokio::test]
async fn a_receiver_may_receive_and_nothing_else() {
    let (database, admin) = with_roles().await;
    let receiver = login(&database, &admin, "outbox_receiver").await;
    assert_eq!(executable(&receiver).await, RECEIVER);
    assert_eq!(table_rights(&receiver).await, BTreeSet::new());
    for call in ["receive(gen_random_uuid())", "receive_many(array[gen_random_uuid()])", "prune_inbox_at_retention()"] {
        assert_eq!(try_sql(&receiver, &format!("select outbox.{call}")).await, "00000", "{call}");
    }
    assert_eq!(number(&admin, "select count(*) from outbox.inbox").await, 2);
    let before = contents(&admin, "outbox").await;
    assert_tables_denied(&admin, &receiver, |_| false).await;
    assert_denied(&receiver, "select outbox.enqueue('t', '1'); select from outbox.claim('w', 1, 1)").await;
    assert_eq!(contents(&admin, "outbox").await, before);
}

/// Proves P7, P17: a relay may claim, complete and keep house, and rewrites nothing.
#[tokio::test]
async fn a_relay_may_claim_and_complete_but_not_rewrite() {
    let (database, admin) = with_roles().await;
    let relay = login(&database, &admin, "outbox_relay").await;
    assert_eq!(executable(&relay).await, RELAY);
    let views = ["in_flight", "lanes", "relays", "route", "samples", "status"].map(|view| format!("SELECT {view}"));
    assert_eq!(table_rights(&relay).await, BTreeSet::from(views));

    for _ in 0..6 {
        enqueue(&admin, "t", "").await;
    }
    let held = claim(&relay, "w", 5).await;
    let [one, two, three, four, five] = held.as_slice() else { panic!("five of six were asked for") };
    complete(&relay, "w", one, "DISPATCHED").await.unwrap();
    complete(&relay, "w", two, "FAILED").await.unwrap();
    assert_eq!(mark_delivered(&relay, std::slice::from_ref(three)).await, 1);
    for (verb, done) in [("renew", four), ("release", five)] {
        let more = if verb == "renew" { ", 60" } else { "" };
        let sql = format!("select count(*) from outbox.{verb}('{}', array['{}']::uuid[]{more})", done.token, done.id);
        assert_eq!(number(&relay, &sql).await, 1, "{verb}");
    }
    let many = format!(
        "select count(*) from outbox.complete_many(array['{}']::uuid[], array['{}']::uuid[], array['RETRYABLE'])",
        four.id, four.token
    );
    assert_eq!(number(&relay, &many).await, 1);
    let house = "select outbox.repair_expired_leases(); select outbox.make_partitions(30); \
                 select from outbox.prune_at_retention(); select outbox.prune_inbox_at_retention(); \
                 select outbox.sleep('w', 1); select outbox.woke('w'); \
                 select outbox.report('w', '1', 10, '[]'); select outbox.sign_off('w'); select outbox.measure()";
    assert_eq!(try_sql(&relay, house).await, "00000");

    let before = contents(&admin, "outbox").await;
    let views =
        ["outbox.status", "outbox.in_flight", "outbox.lanes", "outbox.relays", "outbox.route", "outbox.samples"];
    assert_tables_denied(&admin, &relay, |table| views.contains(&table)).await;
    let denied = "update outbox.attempt set state = 'DISPATCHED'; delete from outbox.attempt; update outbox.delivery \
        set due_at = now(); select from outbox.enqueue('t', '1'); select outbox.redrive(all_dead => true); \
        select outbox.discard('{}'); select outbox.unclaim_stuck(0); select outbox.notify_sleepers(); \
        select outbox.parks('default'); select outbox.redrive_matching(); select outbox.discard_matching(); \
        select outbox.skip('s', 'a'); select outbox.replay_batch('{}'); select outbox.apply_routes(); \
        select outbox.write_audit('ann', 'redrive', '{}', 1); select from outbox.audit_log; \
        select outbox.try_lock('measure'); select outbox.hold_lane_fronts('{default}')";
    assert_denied(&relay, denied).await;
    assert_eq!(contents(&admin, "outbox").await, before);
}

/// Proves P7, H8: history is kept for the configured retention, whatever a relay or a receiver asks for.
#[tokio::test]
async fn only_an_operator_prunes_below_the_retention() {
    let (database, admin) = with_roles().await;
    run(&admin, "select outbox.receive(gen_random_uuid())").await;
    for group in ["outbox_relay", "outbox_receiver"] {
        let login = login(&database, &admin, group).await;
        assert_denied(&login, "select from outbox.prune(0); select outbox.prune_inbox(0)").await;
        assert_denied(&login, "select from outbox.prune(); update outbox.setting set retention = '1 second'").await;
        assert_eq!(number(&login, "select outbox.prune_inbox_at_retention()").await, 0, "{group}");
    }
    assert_eq!(number(&admin, "select count(*) from outbox.inbox").await, 1);
    let operator = login(&database, &admin, "outbox_operator").await;
    assert_eq!(number(&operator, "select outbox.prune_inbox(0)").await, 1);
    assert_eq!(try_sql(&operator, "select from outbox.prune(0)").await, "00000");

    // What a relay's keeper and `postrider receive` call, through the library, with no more than their own rights.
    for group in ["outbox_relay", "outbox_receiver"] {
        let name = login_name(&database, group);
        let store = PostgresStore::connect(&database.url_as(&name), Schema::default()).await.unwrap();
        assert_eq!(store.prune_inbox(None).await.unwrap(), 0);
        assert_eq!(store.prune().await.is_ok(), group == "outbox_relay");
        let below = Some(std::time::Duration::ZERO);
        let prune = Action::Prune { older_than: below };
        assert!(
            matches!(store.operate("ann", &prune).await, Err(error) if error.kind() == ErrorKind::Denied),
            "{group}"
        );
        assert!(matches!(store.prune_inbox(below).await, Err(error) if error.kind() == ErrorKind::Denied), "{group}");
    }
}

/// Proves P7: an operator reads everything and acts on dead letters; what it may not do is write past the functions.
#[tokio::test]
async fn an_operator_reads_everything_and_acts_on_dead_letters() {
    let (database, admin) = with_roles().await;
    let operator = login(&database, &admin, "outbox_operator").await;
    assert_eq!(executable(&operator).await, OPERATOR);
    let all: BTreeSet<String> = texts(&admin, TABLES).await.iter().map(|t| t.replace("outbox.", "SELECT ")).collect();
    assert_eq!(table_rights(&operator).await, all);
    assert_tables_denied(&admin, &operator, |_| true).await;

    for _ in 0..3 {
        enqueue(&admin, "t", "").await;
    }
    let held = claim(&admin, "w", 3).await;
    complete(&admin, "w", &held[0], "FAILED").await.unwrap();
    complete(&admin, "w", &held[1], "DISPATCHED").await.unwrap();
    assert_eq!(number(&operator, "select outbox.redrive(all_dead => true)").await, 1);
    assert_eq!(number(&operator, &format!("select outbox.replay(array['{}']::uuid[])", held[1].id)).await, 1);
    assert_eq!(number(&operator, "select outbox.unclaim_stuck(0, live => true)").await, 1);
    let failed = claim(&admin, "w", 1).await;
    complete(&admin, "w", &failed[0], "FAILED").await.unwrap();
    assert_eq!(number(&operator, &format!("select outbox.discard(array['{}']::uuid[])", failed[0].id)).await, 1);
    assert_eq!(number(&operator, "select outbox.cancel(at_most => 1, actor => 'ann')").await, 1);
    let actions = "select action from outbox.audit_log order by id";
    assert_eq!(texts(&operator, actions).await, ["redrive", "replay", "unclaim_stuck", "discard", "cancel"]);
    let denied = "select outbox.write_audit('ann', 'redrive', '{}', 1); select from outbox.claim('w', 1, 1); select outbox.next_sequence('a'); \
                  insert into outbox.audit (at, affected, actor, db_user, action, detail) values (now(), 0, 'a', 'a', 'b', '{}'); \
                  update outbox.audit set actor = 'bob'; select nextval('outbox.audit_id_seq'); \
                  select outbox.change_letters('redrive', '{}', '{}'); select outbox.change_dead('redrive', null, null, null, null, \
                  null, null, null, null, null, null, 1, 'ann')";
    assert_denied(&operator, denied).await;
}

/// Proves P7: a reader reads everything, the sequences too, and changes nothing.
#[tokio::test]
async fn a_reader_reads_everything_and_changes_nothing() {
    let (database, admin) = with_roles().await;
    let reader = login(&database, &admin, "outbox_reader").await;
    assert_eq!(executable(&reader).await, READER);
    let all: BTreeSet<String> = texts(&admin, TABLES).await.iter().map(|t| t.replace("outbox.", "SELECT ")).collect();
    assert_eq!(table_rights(&reader).await, all);
    enqueue(&admin, "t", "").await;
    assert_eq!(texts(&reader, "select topic from outbox.find_messages()").await, ["t"]);
    assert_eq!(number(&reader, "select partitions from outbox.prunable()").await, 0);
    let before = contents(&admin, "outbox").await;
    assert_tables_denied(&admin, &reader, |_| true).await;
    let denied = "select from outbox.enqueue('t', '1'); select from outbox.enqueue_as('ann', 't', '1'); \
        select outbox.redrive(all_dead => true); select outbox.discard('{}'); select from outbox.prune(); \
        select outbox.unclaim_stuck(0); select outbox.retry_now(); select outbox.cancel('{}'::uuid[]); \
        select outbox.configure_sink('s', paused => true); select outbox.add_route('s')";
    assert_denied(&reader, denied).await;
    assert_eq!(contents(&admin, "outbox").await, before);
}

/// An operator's library works with the rights of an operator, and those of a reader and an auditor read.
#[tokio::test]
async fn an_operator_gives_orders_and_others_read_them() {
    let (database, admin) = with_roles().await;
    enqueue(&admin, "t", "").await;
    let held = claim(&admin, "w", 1).await;
    complete(&admin, "w", &held[0], "FAILED").await.unwrap();
    let store = async |group: &str| {
        login(&database, &admin, group).await;
        let url = database.url_as(&login_name(&database, group));
        PostgresStore::connect(&url, Schema::default()).await.unwrap()
    };
    let [operator, reader, auditor, relay] = [
        store("outbox_operator").await,
        store("outbox_reader").await,
        store("outbox_auditor").await,
        store("outbox_relay").await,
    ];
    let all = DeadFilter::default();
    for reader in [&operator, &reader, &auditor] {
        assert_eq!(reader.count_dead(&all).await.unwrap(), 1);
        assert_eq!(reader.dead_groups(&all).await.unwrap().len(), 1);
        assert_eq!(reader.dead_letters(&all, &PageRequest::first(10)).await.unwrap().items.len(), 1);
    }
    let order = Action::Redrive { which: all, at_most: 10 };
    for other in [&reader, &auditor, &relay] {
        assert!(matches!(other.operate("mallory", &order).await, Err(error) if error.kind() == ErrorKind::Denied));
    }
    assert_eq!(operator.operate("ann", &order).await.unwrap().affected, 1);
    let entries = auditor.audit(&PageRequest::first(10)).await.unwrap().items;
    assert_eq!(entries.iter().map(|entry| entry.actor.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert!(relay.audit(&PageRequest::first(10)).await.is_err());
}

/// Proves P7: partitions that are made after the grants are read through their parents, by operator, reader and auditor.
#[tokio::test]
async fn later_partitions_are_read_through_their_parents() {
    let (database, admin) = with_roles().await;
    let operator = login(&database, &admin, "outbox_operator").await;
    let reader = login(&database, &admin, "outbox_reader").await;
    let auditor = login(&database, &admin, "outbox_auditor").await;
    assert!(number(&operator, "select outbox.make_partitions(40)").await > 20);
    let later = "insert into outbox.message (id, occurred_at, priority, content_bytes, namespace, topic, payload) select \
                 outbox.message_id_floor(now() + interval '30 days'), now(), 0, 1, 'n', 'later', '1' returning tableoid";
    let partition = "select relname::text from pg_class where oid = (select tableoid from outbox.message)";
    admin.query_one(later, &[]).await.unwrap();
    assert_ne!(texts(&admin, partition).await, ["message_rest"]);
    for reader in [&operator, &reader, &auditor] {
        assert_eq!(texts(reader, "select topic from outbox.message").await, ["later"]);
        assert_eq!(texts(reader, "select topic from outbox.messages").await, ["later"]);
    }
}

/// Proves P7, P17: an auditor reads all but the sequences and executes nothing that writes.
#[tokio::test]
async fn an_auditor_reads_all_but_the_sequences() {
    let (database, admin) = with_roles().await;
    let auditor = login(&database, &admin, "outbox_auditor").await;
    assert_eq!(executable(&auditor).await, AUDITOR);
    let tables = texts(&admin, TABLES).await;
    let expected: BTreeSet<String> = tables
        .iter()
        .filter(|table| *table != "outbox.lane_sequence")
        .map(|table| table.replace("outbox.", "SELECT "))
        .collect();
    assert_eq!(table_rights(&auditor).await, expected);
    assert_tables_denied(&admin, &auditor, |table| table != "outbox.lane_sequence").await;
    enqueue(&admin, "t", "").await;
    assert_eq!(texts(&auditor, "select topic from outbox.find_messages()").await, ["t"]);
    assert_denied(&auditor, "select from outbox.enqueue('t', '1'); select outbox.redrive(all_dead => true)").await;
}

/// Proves P7: PUBLIC may nothing, with or without the group roles, and nobody logs in as the owner.
#[tokio::test]
async fn public_may_nothing() {
    let (database, mut admin) = fresh().await;
    let nobody = login(&database, &admin, "").await;
    for made in ["before the roles", "after the roles"] {
        assert_eq!(executable(&nobody).await, "", "{made}");
        assert_eq!(table_rights(&nobody).await, BTreeSet::new(), "{made}");
        assert_eq!(number(&nobody, "select has_schema_privilege('outbox', 'usage, create')::int").await, 0, "{made}");
        assert_denied(&nobody, "select from outbox.enqueue('t', '1'); select outbox.schema_version()").await;
        assert_tables_denied(&admin, &nobody, |_| false).await;
        migrate::roles(&mut admin, &Schema::default(), &Schema::default()).await.unwrap();
    }
    let logins = "select rolname::text from pg_roles where rolname like 'outbox\\_%' and (rolcanlogin or rolsuper)";
    assert_eq!(texts(&admin, logins).await, Vec::<String>::new());
    let foreign = "select relname::text from pg_class where relnamespace = 'outbox'::regnamespace \
                   and relowner <> 'outbox_owner'::regrole union all select proname::text from pg_proc \
                   where pronamespace = 'outbox'::regnamespace and proowner <> 'outbox_owner'::regrole union all \
                   select typname::text from pg_type where typnamespace = 'outbox'::regnamespace \
                   and typowner <> 'outbox_owner'::regrole";
    assert_eq!(texts(&admin, foreign).await, Vec::<String>::new(), "everything belongs to the owner");
}

/// Proves P7: every function pins its path, none is PUBLIC's, and what is granted runs with the owner's rights.
#[tokio::test]
async fn every_function_pins_its_path() {
    let (_database, admin) = with_roles().await;
    // A body that was parsed when the function was made has looked up its names already.
    let loose = "select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'outbox'::regnamespace \
                 and p.prosqlbody is null and not coalesce('search_path=pg_catalog, outbox, pg_temp' = any (p.proconfig), false)";
    assert_eq!(texts(&admin, loose).await, Vec::<String>::new());
    let public = "select p.oid::regprocedure::text from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', \
                  p.proowner))) a where p.pronamespace = 'outbox'::regnamespace and a.grantee = 0";
    assert_eq!(texts(&admin, public).await, Vec::<String>::new());
    // These read no table: one takes an id apart, the other makes a pattern.
    let invoker = "select distinct p.proname::text from pg_proc p, aclexplode(p.proacl) a \
                   where p.pronamespace = 'outbox'::regnamespace and a.grantee <> p.proowner and not p.prosecdef order by 1";
    assert_eq!(texts(&admin, invoker).await, ["message_id_time", "topic_like"]);
}

/// Proves P4, P7, P17: nobody truncates, neither the group roles nor the owner nor a superuser.
#[tokio::test]
async fn nobody_truncates() {
    let (_database, admin) = with_roles().await;
    let sql = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'outbox'::regnamespace \
               and c.relkind in ('r', 'p') and (c.relispartition or c.relname in \
               ('message', 'delivery', 'attempt', 'dead_letter', 'lane_sequence', 'dedupe', 'inbox', 'inbox_lane', 'audit')) order by 1";
    let tables = texts(&admin, sql).await;
    assert!(tables.len() > 9 + 2, "partitions are among them: {tables:?}");
    for role in ["postgres", "outbox_owner"] {
        run(&admin, &format!("set role {role}")).await;
        for table in &tables {
            for more in ["", " cascade"] {
                assert_eq!(try_sql(&admin, &format!("truncate {table}{more}")).await, "P0001", "{role}: {table}");
            }
        }
    }
}

/// Proves P4, P17: attempts are append-only for everybody, and a number is taken once.
#[tokio::test]
async fn attempts_are_append_only() {
    let (_database, admin) = with_roles().await;
    let id = enqueue(&admin, "t", "").await;
    let held = claim(&admin, "w", 1).await;
    mark_delivered(&admin, &held).await;
    run(
        &admin,
        "insert into outbox.attempt select outbox.message_id_floor('2001-01-01'), now(), now(), 1, 1, \
                        'FAILED', 'default', 'w' from outbox.setting",
    )
    .await;
    let tables = texts(&admin, "select distinct tableoid::regclass::text from outbox.attempt order by 1").await;
    assert_eq!(tables.len(), 2, "a daily partition and the default one");
    for role in ["postgres", "outbox_owner"] {
        run(&admin, &format!("set role {role}")).await;
        for table in tables.iter().map(String::as_str).chain(["outbox.attempt"]) {
            for change in [format!("update {table} set latency_ms = 2"), format!("delete from {table}")] {
                assert_eq!(try_sql(&admin, &change).await, "P0001", "{role}: {change}");
            }
        }
        assert_eq!(try_sql(&admin, "update outbox.message set topic = 'x'").await, "P0001", "{role}");
        let again = "insert into outbox.attempt select * from outbox.attempt limit 1";
        assert_eq!(try_sql(&admin, again).await, "23505", "{role}: the same attempt twice");
    }
    assert_eq!(attempts(&admin, id).await, ["1 DISPATCHED"]);
}

/// The audit is append-only for everybody, too.
#[tokio::test]
async fn the_audit_is_append_only() {
    let (_database, admin) = with_roles().await;
    for role in ["postgres", "outbox_owner"] {
        run(&admin, &format!("set role {role}")).await;
        run(&admin, "select outbox.write_audit('ann', 'redrive', '{}', 1)").await;
        for change in ["update outbox.audit set actor = 'bob'", "delete from outbox.audit", "truncate outbox.audit"] {
            assert_eq!(try_sql(&admin, change).await, "P0001", "{role}: {change}");
        }
        let number = "insert into outbox.audit (id, at, affected, actor, db_user, action, detail) values (1, now(), 0, 'a', 'a', 'b', '{}')";
        assert_eq!(try_sql(&admin, number).await, "428C9", "{role}: nobody chooses a number");
    }
    assert_eq!(texts(&admin, "select actor from outbox.audit_log order by id").await, ["ann", "ann"]);
}

/// Proves P7: the roles are made again without harm, under any prefix, and `up` by a plain member of the owner role
/// keeps what was granted.
#[tokio::test]
async fn roles_twice_and_up_after_them() {
    let (database, mut admin) = with_roles().await;
    let schema = Schema::default();
    migrate::roles(&mut admin, &schema, &schema).await.unwrap();
    let mut member = login(&database, &admin, "outbox_owner").await;
    assert_eq!(number(&member, "select count(*) from pg_roles where rolname = session_user and rolsuper").await, 0);
    let done = migrate::up(&mut member, &schema).await.unwrap();
    assert!(done.migrations.is_empty() && !done.functions);
    run(&admin, "update outbox.setting set functions_hash = 'another build'").await;
    assert!(migrate::up(&mut member, &schema).await.unwrap().functions);
    assert!(!migrate::up(&mut admin, &schema).await.unwrap().functions, "the superuser can do it too");
    for (group, functions) in
        [("producer", PRODUCER), ("relay", RELAY), ("reader", READER), ("operator", OPERATOR), ("auditor", AUDITOR)]
    {
        let client = login(&database, &admin, &format!("outbox_{group}")).await;
        assert_eq!(executable(&client).await, functions, "{group}");
    }
}

/// Proves P7: another prefix, another schema.
#[tokio::test]
async fn another_prefix_works() {
    let (database, mut admin) = fresh().await;
    let (schema, prefix) = (Schema::new("Mail_2").unwrap(), Schema::new("Post").unwrap());
    migrate::up(&mut admin, &schema).await.unwrap();
    let roles = migrate::roles(&mut admin, &schema, &prefix).await.unwrap();
    assert_eq!(roles.producer, "Post_producer");
    assert_eq!(migrate::status(&admin, &schema).await.unwrap().role_prefix.as_deref(), Some("Post"));
    let producer = login(&database, &admin, "Post_producer").await;
    assert_eq!(try_sql(&producer, "select from \"Mail_2\".enqueue('t', '1')").await, "00000");
    assert_denied(&producer, "select from outbox.enqueue('t', '1'); select from \"Mail_2\".message").await;
}

/// Names that the functions use, planted where a caller may plant them. Each fails or lies as soon as it is looked at.
const PLANTED: &str = "
    create function public.trap() returns text language plpgsql as $$ begin raise exception 'planted' using \
        errcode = 'XX001'; end $$;
    create function public.now() returns timestamptz language sql as 'select public.trap()::timestamptz';
    create function public.clock_timestamp() returns timestamptz language sql as 'select public.trap()::timestamptz';
    create function public.gen_random_uuid() returns uuid language sql as 'select public.trap()::uuid';
    create function public.octet_length(text) returns int language sql as 'select public.trap()::int';
    create function public.pg_notify(text, text) returns void language sql as 'select public.trap()';
    create function public.schema_name() returns text language sql as 'select public.trap()';
    create function public.parks(text) returns boolean language sql as 'select public.trap()::boolean';
    create function public.same(uuid, uuid) returns boolean language sql as 'select public.trap()::boolean';
    create function public.times(numeric, interval) returns interval language sql as 'select public.trap()::interval';
    create operator public.= (leftarg = uuid, rightarg = uuid, function = public.same);
    create operator public.* (leftarg = numeric, rightarg = interval, function = public.times);
    create type public.attempt_state as enum ('PLANTED');
    create type public.claimed as (planted int);
    create table public.delivery (planted int);
    create table public.message (planted int);
    create table public.setting (planted int);
    create table public.lane_sequence (planted int)";

/// Proves P7: whatever a caller plants in `public` or `pg_temp`, and whatever the caller's path, the functions run
/// their own code on their own tables.
#[tokio::test]
async fn planted_names_are_never_picked_up() {
    let (database, admin) = with_roles().await;
    run(&admin, PLANTED).await;
    let caller = login(&database, &admin, "outbox_relay").await;
    let grants = format!("grant outbox_producer, outbox_operator to \"login_{}_outbox_relay\"", database.name());
    run(&admin, &grants).await;
    let temporary = "create temp table delivery (planted int); create temp table message (planted int); \
                     create temp table attempt (planted int); create temp table sink (planted int); \
                     create temp table sleeper (planted int); create type pg_temp.setting as (planted int); \
                     set search_path = public, pg_temp, pg_catalog";
    run(&caller, temporary).await;

    let walk = "select outbox.sleep('w', 60); \
        select from outbox.enqueue('t', '1', delay_seconds => 0); \
        select from outbox.enqueue('t', '1', lane => 'a', dedupe_key => 'k'); \
        select from outbox.enqueue('t', '1', lane => 'a', dedupe_key => 'k'); \
        create temp table held as select message_id, lease_token from outbox.claim('w', 10, 60); \
        select outbox.complete(message_id, lease_token, 'w', 'FAILED', 1.5) from held; \
        select outbox.skip('default', 'a'); select outbox.redrive_matching(at_most => 1); \
        select outbox.redrive(all_dead => true); select outbox.discard_matching(); \
        select outbox.retry_now(); select outbox.cancel('{}'::uuid[], actor => 'ann'); \
        select from outbox.enqueue_as('ann', 't', '1', lane => 'a', dedupe_key => 'k'); select from outbox.prunable(); \
        create temp table again as select message_id, lease_token from outbox.claim('w', 10, 60); \
        select outbox.renew(lease_token, array[message_id], 60) from again; \
        select outbox.release(lease_token, array[message_id]) from again; \
        select outbox.unclaim_stuck(0, live => true); select outbox.repair_expired_leases(); \
        select outbox.replay(array[message_id]) from again; select outbox.discard(array[message_id]) from again; \
        select outbox.configure_sink('s', paused => false); select outbox.add_route('s'); \
        select outbox.remove_route('s'); select outbox.make_partitions(12); select from outbox.prune(); \
        select outbox.woke('w')";
    run(&caller, walk).await;
    assert_eq!(number(&caller, "select count(*) from again").await, 2);
    assert_eq!(number(&admin, "select count(*) from outbox.delivery").await, 2);
    assert_eq!(number(&admin, "select count(*) from outbox.attempt where state = 'FAILED'").await, 2);

    // The traps are sharp: a function that forgets its path steps into them.
    for function in ["enqueue", "enqueue_many", "claim", "change_letters", "prune"] {
        let forget = format!(
            "do $$ begin execute (select format('alter function %s set search_path = public, outbox, pg_catalog', \
             p.oid::regprocedure) from pg_proc p where p.pronamespace = 'outbox'::regnamespace \
             and p.proname = '{function}'); end $$"
        );
        run(&admin, &forget).await;
    }
    for sql in ["enqueue('t', '1')", "claim('w', 1, 1)", "redrive(all_dead => true)", "prune()"] {
        assert_ne!(try_sql(&caller, &format!("select from outbox.{sql}")).await, "00000", "{sql}");
    }
}
