//! How a database comes to its schema: applied once however many ask, refused when database and build do not belong
//! together, restored when somebody changed a function, in any schema, through psql as well as by `up`. Every refusal
//! is checked to have changed nothing.

use futures_util::future::join_all;
use postrider::inspect::DeadFilter;
use postrider::lifecycle::{Claim, Outcome};
use postrider::migrate::State;
use postrider::operate::Action;
use postrider::{ErrorKind, Inspect as _, Message, Operate as _, Outbox, PostgresStore, Queue as _, Schema, migrate};
use postrider_testkit::{Cluster, Database, psql};
use tokio_postgres::Client;

use crate::support::{contents, enqueue, fresh, number, partitions_of_2020, run, texts, try_sql};

async fn empty() -> (Database, Client) {
    let database = postrider_testkit::database().await.cluster().empty_database().await;
    let client = database.connect().await;
    (database, client)
}

fn outbox() -> Schema {
    Schema::default()
}

/// Everything in the schema: relations, functions with a hash of their text, types, triggers, constraints.
async fn catalogue(client: &Client, schema: &str) -> Vec<String> {
    let sql = format!(
        "with n as (select oid from pg_namespace where nspname = '{schema}') \
         select 'relation ' || relname || ' ' || coalesce(md5(pg_get_viewdef(c.oid)), '') from pg_class c, n \
         where relnamespace = n.oid and relkind in ('r', 'p', 'v', 'i', 'I') \
         union all select 'function ' || p.oid::regprocedure || ' ' || md5(pg_get_functiondef(p.oid)) \
         from pg_proc p, n where pronamespace = n.oid \
         union all select 'constraint ' || c.conrelid::regclass || ' ' || c.conname || ' ' || pg_get_constraintdef(c.oid) \
         from pg_constraint c, n where connamespace = n.oid \
         union all select 'trigger ' || t.tgrelid::regclass || ' ' || t.tgname from pg_trigger t \
         join pg_class c on c.oid = t.tgrelid, n where c.relnamespace = n.oid \
         union all select 'type ' || typname from pg_type t, n where typnamespace = n.oid order by 1"
    );
    texts(client, &sql).await
}

/// A migration makes functions in any order and leaves their bodies unchecked: here each is made again, and checked. What a body
/// calls and reads is there, and its result is of the type that it says.
#[tokio::test]
async fn every_body_of_a_function_is_valid() {
    let (_database, client) = fresh().await;
    let sql = "select pg_get_functiondef(p.oid) from pg_proc p where p.pronamespace = 'outbox'::regnamespace";
    let definitions = texts(&client, sql).await;
    assert!(definitions.len() > 50, "the functions are not where this test looks for them");
    run(&client, "set check_function_bodies = on").await;
    for definition in definitions {
        assert_eq!(try_sql(&client, &definition).await, "00000", "{definition}");
    }
}

#[tokio::test]
async fn up_makes_the_schema_and_a_second_up_does_nothing() {
    let (database, mut client) = empty().await;
    let before = migrate::status(&client, &outbox()).await.unwrap();
    assert!(before.state == State::Missing && before.migrations.iter().all(|migration| migration.applied_at.is_none()));
    let first = migrate::up(&mut client, &outbox()).await.unwrap();
    assert_eq!(first.migrations.len(), usize::try_from(migrate::latest_version()).unwrap());
    assert!(first.functions);
    migrate::check(&client, &outbox()).await.unwrap();
    assert_eq!(migrate::status(&client, &outbox()).await.unwrap().state, State::Current);

    let before = (catalogue(&client, "outbox").await, contents(&client, "outbox").await);
    let second = migrate::up(&mut client, &outbox()).await.unwrap();
    assert_eq!(second, migrate::Applied { migrations: Vec::new(), functions: false });
    assert_eq!((catalogue(&client, "outbox").await, contents(&client, "outbox").await), before);
    PostgresStore::connect(&database.url(), outbox()).await.unwrap();
}

#[tokio::test]
async fn twenty_migrators_apply_exactly_once() {
    let (database, admin) = empty().await;
    let mut migrators = Vec::new();
    for _ in 0..20 {
        migrators.push(database.connect().await);
    }
    let applied =
        join_all(migrators.iter_mut().map(async |client| migrate::up(client, &outbox()).await.unwrap())).await;
    assert_eq!(applied.iter().filter(|applied| !applied.migrations.is_empty()).count(), 1);
    assert_eq!(applied.iter().filter(|applied| applied.functions).count(), 1);
    let recorded = number(&admin, "select count(*) from outbox.migration").await;
    assert_eq!(recorded, i64::from(migrate::latest_version()));
    assert_eq!(number(&admin, "select count(*) from outbox.setting").await, 1);
    enqueue(&admin, "t", "").await;
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let (database, mut client) = fresh().await;
    let newer = "insert into outbox.migration (version, name, checksum) values (9999, 'from the future', 'x'); \
                 update outbox.setting set functions_hash = 'from the future'";
    run(&client, newer).await;
    let before = (catalogue(&client, "outbox").await, contents(&client, "outbox").await);
    let refusals = [
        migrate::up(&mut client, &outbox()).await.map(drop),
        migrate::check(&client, &outbox()).await,
        migrate::roles(&mut client, &outbox(), &outbox()).await.map(drop),
        PostgresStore::connect(&database.url(), outbox()).await.map(drop),
    ];
    for refusal in refusals {
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::SchemaTooNew, "{refusal:?}");
        let known = migrate::latest_version();
        let words = format!("schema \"outbox\" is at version 9999, this build understands up to {known}:");
        assert!(refusal.to_string().starts_with(&words), "{refusal}");
    }
    assert_eq!((catalogue(&client, "outbox").await, contents(&client, "outbox").await), before);
}

#[tokio::test]
async fn an_older_schema_is_refused_by_the_store() {
    let (database, client) = fresh().await;
    run(&client, "delete from outbox.migration").await;
    for refusal in
        [migrate::check(&client, &outbox()).await, PostgresStore::connect(&database.url(), outbox()).await.map(drop)]
    {
        let refusal = refusal.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::SchemaTooOld, "{refusal:?}");
        assert!(refusal.to_string().contains("is at version 0,"), "{refusal}");
    }
}

#[tokio::test]
async fn a_changed_migration_is_refused() {
    let (_database, mut client) = fresh().await;
    run(&client, "update outbox.migration set checksum = 'edited' where version = 1").await;
    let before = (catalogue(&client, "outbox").await, contents(&client, "outbox").await);
    let refusal = migrate::up(&mut client, &outbox()).await.unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::MigrationChanged, "{refusal:?}");
    assert!(refusal.to_string().starts_with("migration 1 ("), "{refusal}");
    assert_eq!((catalogue(&client, "outbox").await, contents(&client, "outbox").await), before);
}

#[tokio::test]
async fn a_missing_schema_is_named() {
    let (database, mut client) = empty().await;
    for state in ["no schema", "a schema with nothing in it"] {
        let refusals = [
            migrate::check(&client, &outbox()).await,
            migrate::roles(&mut client, &outbox(), &outbox()).await.map(drop),
            PostgresStore::connect(&database.url(), outbox()).await.map(drop),
        ];
        for refusal in refusals {
            let refusal = refusal.unwrap_err();
            assert_eq!(refusal.kind(), ErrorKind::SchemaMissing, "{state}: {refusal:?}");
            assert!(refusal.to_string().contains("schema \"outbox\""), "{state}: {refusal}");
        }
        run(&client, "create schema if not exists outbox").await;
    }
}

#[tokio::test]
async fn changed_functions_and_views_are_restored() {
    let (_database, mut client) = fresh().await;
    let before = catalogue(&client, "outbox").await;
    let tamper = "create or replace function outbox.next_sequence(lane text) returns bigint language sql \
                      as 'select 7::bigint'; \
                  create function outbox.enqueue(topic text) returns int language sql as 'select 1'; \
                  create function outbox.left_over(a int) returns int language sql as 'select 1'; \
                  drop view outbox.lanes; create or replace view outbox.in_flight as select * from outbox.delivery \
                  where false";
    assert_ne!(try_sql(&client, tamper).await, "00000", "a view's columns cannot be replaced");
    let tamper = tamper.replace("create or replace view", "drop view outbox.in_flight; create view");
    run(&client, &tamper).await;
    assert!(!migrate::up(&mut client, &outbox()).await.unwrap().functions, "the hash decides, not the text");
    run(&client, "update outbox.setting set functions_hash = 'an older build'").await;
    assert!(!migrate::status(&client, &outbox()).await.unwrap().functions_current);
    assert!(migrate::up(&mut client, &outbox()).await.unwrap().functions);
    assert_eq!(catalogue(&client, "outbox").await, before);
    let public = "select proname::text from pg_proc p where p.pronamespace = 'outbox'::regnamespace \
                  and (p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0))";
    assert_eq!(texts(&client, public).await, Vec::<String>::new(), "and PUBLIC may execute none of them");
}

/// One outbox from enqueue to prune, through the library, in any schema.
async fn walk(database: &Database, client: &mut Client, schema: &Schema, topic: &str) {
    let outbox = Outbox::new(schema.clone());
    let store = PostgresStore::connect(&database.url(), schema.clone()).await.unwrap();
    let tx = client.transaction().await.unwrap();
    for lane in [None, Some("a"), Some("a")] {
        let message = Message::json(topic, &1).unwrap();
        let message = lane.into_iter().fold(message, |message: Message, lane| message.lane(lane));
        outbox.enqueue(&tx, &message).await.unwrap();
    }
    tx.commit().await.unwrap();
    let held = store.claim(&Claim::new("w")).await.unwrap();
    assert_eq!(
        held.iter().map(|one| (one.topic.as_str(), one.sequence_id)).collect::<Vec<_>>(),
        [(topic, None), (topic, Some(1)), (topic, Some(2))]
    );
    store.ack("w", &held[0]).await.unwrap();
    store.finish("w", &held[1], Outcome::Failed(postrider::lifecycle::Failure::new("E", "no"))).await.unwrap();
    store.release(held[2].lease_token, &[held[2].message_id]).await.unwrap();
    assert_eq!(store.claim(&Claim::new("w")).await.unwrap().len(), 0, "the lane is parked");
    let redrive = Action::Redrive { which: DeadFilter::default(), at_most: 10 };
    assert_eq!(store.operate("ann", &redrive).await.unwrap().affected, 1);
    let held = store.claim(&Claim::new("w")).await.unwrap();
    assert_eq!(held.iter().map(|one| one.sequence_id).collect::<Vec<_>>(), [Some(1), Some(2)]);
    for one in &held {
        store.ack("w", one).await.unwrap();
    }
    store.prune().await.unwrap();
    let status = store.status().await.unwrap();
    assert_eq!((status.len(), status[0].pending, status[0].dead, status[0].recent.dispatched), (1, 0, 0, 3));
}

#[tokio::test]
async fn two_outboxes_in_one_database_do_not_see_each_other() {
    let (database, mut client) = empty().await;
    migrate::up(&mut client, &outbox()).await.unwrap();
    let second = Schema::new("Mail_2").unwrap();
    migrate::up(&mut client, &second).await.unwrap();
    let normal = |lines: Vec<String>| -> Vec<String> {
        lines
            .iter()
            .map(|line| line.replace("\"Mail_2\"", "outbox"))
            .map(|line| line.replace("Mail_2", "outbox"))
            .collect()
    };
    let names = |lines: Vec<String>| -> Vec<String> {
        lines.iter().filter(|line| !line.contains("function") && !line.contains("relation")).cloned().collect()
    };
    let (one, two) = (catalogue(&client, "outbox").await, catalogue(&client, "Mail_2").await);
    assert_eq!(one.len(), two.len());
    assert_eq!(names(one), names(normal(two)));

    walk(&database, &mut client, &second, "second").await;
    assert_eq!(number(&client, "select count(*) from outbox.message").await, 0);
    let before = contents(&client, "Mail_2").await;
    walk(&database, &mut client, &outbox(), "first").await;
    assert_eq!(contents(&client, "Mail_2").await, before);
    assert_eq!(texts(&client, "select distinct topic from outbox.message").await, ["first"]);
}

#[tokio::test]
async fn the_script_runs_in_psql_and_leaves_nothing_for_up() {
    for name in ["outbox", "Mail_2"] {
        let (database, mut client) = empty().await;
        let schema = Schema::new(name).unwrap();
        let output = psql(&database, &migrate::script(&schema)).await;
        assert!(output.status.success(), "{}", output.stderr);
        assert_eq!(migrate::status(&client, &schema).await.unwrap().state, State::Current);
        let before = catalogue(&client, name).await;
        let applied = migrate::up(&mut client, &schema).await.unwrap();
        assert_eq!(applied, migrate::Applied { migrations: Vec::new(), functions: false });
        assert_eq!(catalogue(&client, name).await, before);
        let (_other, mut plain) = empty().await;
        migrate::up(&mut plain, &schema).await.unwrap();
        assert_eq!(catalogue(&plain, name).await, before, "the script makes what `up` makes");
        let public = format!(
            "select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a \
             where p.pronamespace = '\"{name}\"'::regnamespace and a.grantee = 0"
        );
        assert_eq!(number(&client, &public).await, 0, "PUBLIC may execute nothing");
    }
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing() {
    // In the way of a table in the middle of the migration, and of a view at its end.
    for in_the_way in ["create table outbox.attempt (a int)", "create table outbox.status (a int)"] {
        let (_database, mut client) = empty().await;
        run(&client, &format!("create schema outbox; {in_the_way}")).await;
        let before = catalogue(&client, "outbox").await;
        let failure = migrate::up(&mut client, &outbox()).await;
        assert_eq!(failure.unwrap_err().kind(), ErrorKind::Driver);
        assert_eq!(catalogue(&client, "outbox").await, before);
        run(&client, "drop table if exists outbox.attempt, outbox.status").await;
        migrate::up(&mut client, &outbox()).await.unwrap();
        enqueue(&client, "t", "").await;
    }
}

/// Proves P7: a migrator is a superuser, so it must not run what others put into `public`. `mod(bigint, integer)` is
/// nearer to what a CHECK here calls than PostgreSQL's own `mod(bigint, bigint)`; the rest is for a path that names
/// `public` first.
#[tokio::test]
async fn a_migrator_does_not_pick_up_planted_functions() {
    for path in ["\"$user\", public", "public, pg_catalog"] {
        let (database, client) = empty().await;
        let plant = format!(
            "create function public.trap(text) returns text language plpgsql as \
                 $$ begin raise exception 'planted %', $1 using errcode = 'XX001'; end $$; \
             create function public.mod(bigint, integer) returns bigint language sql as \
                 $$ select public.trap('mod')::bigint $$; \
             create function public.now() returns timestamptz language sql as \
                 $$ select public.trap('now')::timestamptz $$; \
             create function public.replace(text, text, text) returns text immutable language sql as \
                 $$ select public.trap('replace') $$; \
             alter database {} set search_path = {path}",
            database.name()
        );
        run(&client, &plant).await;
        let mut migrator = database.connect().await;
        migrate::up(&mut migrator, &outbox()).await.unwrap_or_else(|error| panic!("path {path}: {error}"));
        migrate::roles(&mut migrator, &outbox(), &outbox()).await.unwrap();
        let used = "select d.objid::text from pg_depend d where d.refclassid = 'pg_proc'::regclass \
                    and d.refobjid in (select oid from pg_proc where pronamespace = 'public'::regnamespace) \
                    and d.classid <> 'pg_proc'::regclass";
        assert_eq!(texts(&client, used).await, Vec::<String>::new(), "path {path}");
        let script = psql(&database, &migrate::script(&Schema::new("scripted").unwrap())).await;
        assert!(script.status.success(), "path {path}: {}", script.stderr);
    }
}

/// An ordinary role that may create in the database and make roles can do it all: no superuser is needed.
#[tokio::test]
async fn no_superuser_is_needed() {
    let cluster = Cluster::start().await;
    let database = cluster.empty_database().await;
    let superuser = database.connect().await;
    run(
        &superuser,
        &format!("create role deployer login createrole; grant create on database \"{}\" to deployer", database.name()),
    )
    .await;
    let mut deployer = database.connect_as("deployer").await;
    let schema = Schema::default();
    migrate::up(&mut deployer, &schema).await.unwrap();
    migrate::roles(&mut deployer, &schema, &schema).await.unwrap();
    migrate::roles(&mut deployer, &schema, &schema).await.unwrap();
    run(&superuser, "update outbox.setting set functions_hash = 'old'").await;
    assert!(migrate::up(&mut deployer, &schema).await.unwrap().functions);
    run(&superuser, "create role shop login; grant outbox_producer to shop").await;
    let shop = database.connect_as("shop").await;
    shop.query_one("select * from outbox.enqueue('t', '1')", &[]).await.unwrap();
}

/// A database whose strings still take a backslash for an escape: everything is made there, and works.
#[tokio::test]
async fn backslashes_that_escape_break_nothing() {
    let (database, client) = empty().await;
    let old_strings = format!("alter database \"{}\" set standard_conforming_strings = off", database.name());
    run(&client, &old_strings).await;
    let mut client = database.connect().await;
    assert_eq!(texts(&client, "show standard_conforming_strings").await, ["off"]);
    migrate::up(&mut client, &outbox()).await.unwrap();
    assert_eq!(texts(&client, "show standard_conforming_strings").await, ["off"], "the session's own");
    assert_eq!(number(&client, "select outbox.make_partitions(9)").await, 2);
    assert_eq!(number(&client, "select outbox.make_partitions(9)").await, 0, "it sees those that are there");
    run(&client, "select outbox.add_route('s', '50%_off*'); select outbox.add_route('b', '%')").await;
    enqueue(&client, "50%_off.now", "").await;
    enqueue(&client, "50xx_off.now", "").await;
    assert_eq!(texts(&client, "select sink from outbox.delivery order by 1").await, ["default", "s"]);
    assert_eq!(number(&client, "select count(*) from outbox.claim('w', 10, 60, sink => 's')").await, 1);
    partitions_of_2020(&client).await;
    assert_eq!(number(&client, "select partitions_dropped from outbox.prune()").await, 1);
    let store = PostgresStore::connect(&database.url(), outbox()).await.unwrap();
    let found = postrider::doctor::postgres(&store, &postrider::doctor::Limits::default()).await;
    let partitions = found.iter().find(|finding| finding.check == "partitions").unwrap();
    assert_eq!(partitions.level, postrider::doctor::Level::Ok, "{partitions:?}");
    let (other, _) = empty().await;
    let script = format!("set standard_conforming_strings = off;\n{}", migrate::script(&outbox()));
    let script = psql(&other, &script).await;
    assert!(script.status.success(), "{}", script.stderr);
}
