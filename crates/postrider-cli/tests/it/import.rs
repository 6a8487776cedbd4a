//! `postrider import` on tables of other designs: every shape in every state, what is refused, interruptions, writers that go
//! on, and a million rows. The real binary on a real PostgreSQL.

mod shapes;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use postrider_testkit::{Cluster, Database};
use serde_json::{Value, json};

use self::shapes::{SHAPES, Shape};
use crate::support::{Ran, command, run, run_example, sql};

/// Rows that were imported, with the message each became.
const IMPORTED: &str = "select concat_ws('|', i.source_key, i.outcome, m.topic, coalesce(m.lane, ''), coalesce(m.sequence_id::text, ''), \
     coalesce(d.attempt_count, l.attempt_count, a.attempt_no), m.priority, coalesce(m.dedupe_key, ''), \
     coalesce(a.error_code || ' ', case when a.error_message is not null then ' ' else '' end) || coalesce(a.error_message, ''), \
     coalesce(m.payload::text, convert_from(m.body, 'UTF8'))) \
     from outbox.imported i join outbox.message m on m.id = i.message_id \
     left join outbox.delivery d on d.message_id = m.id left join outbox.dead_letter l on l.message_id = m.id \
     left join lateral (select * from outbox.attempt a where a.message_id = m.id order by a.attempt_no desc limit 1) a on true \
     order by i.source_key";

/// Everything that the outbox holds, as one hash.
const CONTENTS: &str = "select md5(string_agg(t::text, ';' order by t::text)) from (\
     select m::text from outbox.message m union all select d::text from outbox.delivery d union all \
     select a::text from outbox.attempt a union all select l::text from outbox.dead_letter l union all \
     select s::text from outbox.lane_sequence s union all select k::text from outbox.dedupe k union all \
     select i::text from outbox.imported i union all select u::text from outbox.audit u union all \
     select s::text from outbox.import_source s) t (t)";

/// A database with a table of `sync_outbox` and rows that are pending.
async fn with_sync_rows(rows: u32) -> Database {
    let database = postrider_testkit::database().await;
    make_sync_rows(&database, rows).await;
    database
}

async fn make_sync_rows(database: &Database, rows: u32) {
    let ddl = SHAPES[3].tables.split("; insert into").next().unwrap();
    let fill = format!(
        "{ddl}; insert into sync_outbox (id, event_type, status, payload_json, occurred_at) \
         select gen_random_uuid(), 'test.event', 'pending', jsonb_build_object('n', n), now() - n * interval '1 millisecond' \
         from generate_series(1, {rows}) n; analyze sync_outbox"
    );
    sql(database, &fill).await;
}

/// A table of a lane with numbers, in the design of gruelbox.
async fn with_lane(rows: &str) -> Database {
    let database = postrider_testkit::database().await;
    let ddl = SHAPES[8].tables.split("; insert into").next().unwrap();
    sql(&database, &format!("{ddl}; {rows}")).await;
    database
}

fn import(database: &Database, args: &[&str]) -> Ran {
    run(database, &[&["import"], args, &["--json"]].concat())
}

/// The document of an import that may have refused something.
fn document(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
}

async fn number(database: &Database, query: &str) -> u64 {
    sql(database, query).await.parse().unwrap()
}

/// Proves L8: the older shapes of this design's own past, with rows of every state.
#[tokio::test]
async fn every_older_shape_is_carried() {
    carry(&SHAPES[..4]).await;
}

/// Proves L8: tables of others, with rows of every state.
#[tokio::test]
async fn tables_of_others_are_carried() {
    carry(&SHAPES[4..9]).await;
}

/// Proves L8: queues and tables of jobs, by the mappings of the examples.
#[tokio::test]
async fn queues_and_jobs_of_others_are_carried() {
    carry(&SHAPES[9..]).await;
}

/// A dry run, a refusal of what is held, the import, and a second import that changes nothing.
async fn carry(shapes: &[Shape]) {
    for Shape { from, tables, becomes: [pending, dead, delivered], claimed, rows } in shapes {
        let database = postrider_testkit::database().await;
        sql(&database, tables).await;
        let before = sql(&database, CONTENTS).await;
        let dry = import(&database, &[from, &["--dry-run", "--workers-stopped"][..]].concat()).json();
        let total = |document: &Value| {
            ["pending", "dead", "delivered", "duplicates", "refused"]
                .map(|what| document["this_run"][what].as_u64().unwrap())
        };
        assert_eq!(total(&dry), [*pending, *dead, *delivered, 0, 0], "{from:?}: {dry}");
        assert_eq!(sql(&database, CONTENTS).await, before, "{from:?}: a dry run writes nothing");

        let held = import(&database, &[from, &["--yes"][..]].concat());
        if *claimed > 0 {
            assert_eq!((held.code, held.error()["code"].as_str()), (5, Some("invalid_input")), "{from:?}");
            assert!(held.stderr.contains("old workers hold 1 row of"), "{}", held.stderr);
            assert_eq!(sql(&database, CONTENTS).await, before, "{from:?}: nothing was changed");
        }
        let done = import(&database, &[from, &["--yes", "--workers-stopped"][..]].concat()).json();
        if *claimed > 0 {
            assert_eq!(total(&done), total(&dry), "{from:?}: {done}");
        }
        assert_eq!(done["complete"], true, "{done}");
        let source: u64 =
            done["states"].as_object().unwrap().values().map(|state| state["rows"].as_u64().unwrap()).sum();
        assert_eq!(source, pending + dead + delivered, "{done}");
        assert_eq!(
            done["outbox"],
            json!({"imported": source, "messages": source, "open": pending, "dead": dead}),
            "{from:?}"
        );
        assert_eq!(sql(&database, IMPORTED).await.lines().collect::<Vec<_>>(), *rows, "{from:?}");

        let after = sql(&database, CONTENTS).await;
        let again = import(&database, &[from, &["--yes", "--workers-stopped"][..]].concat()).json();
        assert_eq!(total(&again), [0; 5], "{from:?}: {again}");
        assert_eq!(sql(&database, CONTENTS).await, after, "{from:?}: a second run changes nothing");

        // The trigger runs with no rows, too, and so does all of its SQL.
        let script = run(&database, &[&["import"], *from, &["--forward-sql"]].concat()).ok();
        let source = done["source"].as_str().unwrap();
        sql(&database, &format!("{script}; insert into {source} select * from {source} where false")).await;
    }
}

/// Proves L8: lanes go on behind the highest number, dedupe keys are found, attempts count, dead letters can be redriven, and
/// the old id is found.
#[tokio::test]
async fn lanes_keys_budgets_and_dead_letters_are_kept() {
    let database = postrider_testkit::database().await;
    let Shape { tables, from, .. } = &SHAPES[1];
    sql(&database, tables).await;
    import(&database, &[from, &["--yes", "--workers-stopped"][..]].concat()).json();

    let key = "select message_id = (select message_id from outbox.imported where source_key like '%000{n}') and not created \
               from outbox.enqueue('sepa', '0', dedupe_key => 'i{n}/k')";
    for n in ["1", "2", "4"] {
        assert_eq!(sql(&database, &key.replace("{n}", n)).await, "t", "the key of {n}");
    }
    let next = "select sequence_id from outbox.enqueue('sepa', '0', lane => 'bank-1')";
    assert_eq!(sql(&database, next).await, "5");
    let mut order = Vec::new();
    for _ in 0..8 {
        let next = "with claimed as materialized (select * from outbox.claim(worker_id => 'w', batch_size => 1, lease_seconds => 60) \
                    where lane = 'bank-1') select sequence_id || ':' || attempt_count || ':' || \
                    outbox.mark_delivered(lease_token, array[message_id]) from claimed";
        order.push(sql(&database, next).await);
    }
    order.retain(|line| !line.is_empty());
    assert_eq!(order, ["2:2:1", "3:2:1", "4:1:1", "5:1:1"], "in order, and the second attempt is the second");
    let dead = "select reason || ' ' || error_code || ' ' || error_message || ' ' || topic || ' ' || parked from outbox.dead_letter";
    assert_eq!(sql(&database, dead).await, "FAILED AC01 no such account instant false");
    assert_eq!(sql(&database, "select outbox.redrive(all_dead => true)").await, "1");
    let old = "select count(*) from outbox.message m join outbox.imported i on i.message_id = m.id \
               where m.headers ->> 'import-id' = i.source_key";
    assert_eq!(sql(&database, old).await, "6");
    let audited = run(&database, &["audit", "--limit", "1", "--json"]).json();
    assert_eq!(audited["items"][0]["action"], "redrive", "{audited}");
    let entry =
        "select action || ' ' || affected || ' ' || (detail ->> 'source') from outbox.audit where action = 'import'";
    assert_eq!(sql(&database, entry).await, "import 6 public.payment_outbox_pending");
}

/// Proves L8: an id that is a recent UUIDv7 stays; another would be pruned at the wrong time, and is a header.
#[tokio::test]
async fn ids_are_kept_where_retention_allows_it() {
    let database = with_sync_rows(0).await;
    sql(
        &database,
        "insert into sync_outbox (id, event_type, status, payload_json) \
         select outbox.new_message_id((extract(epoch from now() - a * interval '1 day') * 1e6)::bigint), 't', 'pending', to_jsonb(a) \
         from unnest(array[0, 3, 90]) a",
    )
    .await;
    import(&database, &["--from", "sync-outbox", "--yes"]).json();
    let kept = "select string_agg(m.payload #>> '{}' || ':' || (message_id::text = source_key) || ':' || (m.headers is null), ' ' order by m.payload) \
                from outbox.imported join outbox.message m on m.id = message_id";
    assert_eq!(sql(&database, kept).await, "0:true:true 3:true:true 90:false:false");
    sql(&database, "select outbox.prune(older_than_seconds => 0)").await;
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 3, "nothing undelivered is pruned");
    sql(
        &database,
        "select outbox.mark_delivered(lease_token, array_agg(message_id)) from outbox.claim(worker_id => 'w', \
                    batch_size => 10, lease_seconds => 60) group by lease_token",
    )
    .await;
    sql(&database, "select outbox.prune()").await;
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 3, "younger than the retention");
}

/// Proves L8: what cannot be carried is refused with a reason, and the rest is imported; repaired rows follow.
#[tokio::test]
async fn what_cannot_be_carried_is_refused() {
    let database = postrider_testkit::database().await;
    let ddl = SHAPES[7].tables.split("; insert into").next().unwrap();
    sql(&database, ddl).await;
    sql(
        &database,
        "insert into cap.published select n, 'v1', 't', '{\"Headers\": {}, \"Value\": 1}', 0, now(), null, 'Scheduled' \
         from generate_series(1, 20) n; \
         update cap.published set \"Content\" = '{broken' where \"Id\" in (3, 4, 5, 6); \
         update cap.published set \"Name\" = '' where \"Id\" = 7; \
         update cap.published set \"StatusName\" = 'Odd' where \"Id\" = 8; \
         update cap.published set \"Content\" = '{\"Headers\": [1], \"Value\": 1}' where \"Id\" = 9",
    )
    .await;
    let before = sql(&database, CONTENTS).await;
    let dry = import(&database, &["--from", "cap", "--dry-run", "--examples", "2"]);
    assert_eq!(dry.code, 5, "{dry:?}");
    let dry = document(&dry);
    assert_eq!((&dry["this_run"]["pending"], &dry["this_run"]["refused"]), (&13.into(), &7.into()), "{dry}");
    assert_eq!(
        dry["refusals"][0],
        json!({"outcome": "refused", "reason": "give a payload (JSON) or a body (bytes), exactly one", "rows": 4, "examples": ["3", "4"]})
    );
    assert_eq!(sql(&database, CONTENTS).await, before);

    let ran = import(&database, &["--from", "cap", "--yes"]);
    let done = document(&ran);
    assert_eq!((ran.code, &done["states"]["pending"]["refused"]), (5, &6.into()), "{done}");
    assert_eq!(done["states"]["pending"]["imported"], 13, "{done}");
    let reasons: Vec<_> = done["refusals"].as_array().unwrap().iter().map(|group| group["reason"].clone()).collect();
    for reason in [
        "topic must be 1 to 255 bytes of text",
        "state Odd is none of pending, claimed, delivered and dead",
        "headers are not a JSON object",
    ] {
        assert!(reasons.contains(&reason.into()), "{reasons:?}");
    }
    let words = run(&database, &["import", "--from", "cap", "--yes"]);
    assert!(
        words.code == 5 && words.stdout.contains("0 messages to deliver") && words.stdout.contains("7 rows refused"),
        "{words:?}"
    );

    sql(
        &database,
        "update cap.published set \"Content\" = '{\"Headers\": {}, \"Value\": 2}', \"Name\" = 't', \"StatusName\" = 'Scheduled'",
    )
    .await;
    let mended = import(&database, &["--from", "cap", "--yes"]).json();
    assert_eq!(
        (&mended["this_run"]["pending"], &mended["states"]["pending"]["imported"]),
        (&7.into(), &20.into()),
        "{mended}"
    );
}

/// A mapping that does not fit, a table that is not there, keys that are not unique: nothing is changed.
#[tokio::test]
async fn a_mapping_that_does_not_fit_is_refused() {
    let database = with_sync_rows(3).await;
    let directory = tempfile::tempdir().unwrap();
    let own = |text: &str| {
        let file = directory.path().join("own.toml");
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let mapping = |key: &str, topic: &str| {
        own(&format!(
            "name = 'own'\nabout = ''\ntable = 'sync_outbox'\nkey = \"{key}\"\n[message]\ntopic = \"{topic}\"\npayload = \"'1'\"\n"
        ))
    };
    for (args, code, said) in [
        (vec!["--from".to_owned(), "nothing".to_owned()], 2, "there is no mapping"),
        (vec!["--from".to_owned(), "cap".to_owned()], 5, "there is no table cap.published"),
        (vec!["--mapping".to_owned(), own("name = 'own'\ntabel = 'x'\n")], 2, "tabel"),
        (vec!["--mapping".to_owned(), directory.path().join("gone").to_str().unwrap().to_owned()], 5, "cannot read"),
        (
            vec!["--from".to_owned(), "debezium".to_owned(), "--table".to_owned(), "sync_outbox".to_owned()],
            5,
            "does not fit public.sync_outbox: column",
        ),
    ] {
        let args: Vec<&str> = args.iter().map(String::as_str).chain(["--yes"]).collect();
        let ran = import(&database, &args);
        assert_eq!(ran.code, code, "{args:?}: {ran:?}");
        assert!(ran.stderr.contains(said), "{args:?}: {}", ran.stderr);
    }
    for (key, topic, said) in [
        ("1", "'t'", "2 rows of public.sync_outbox have the key of another row"),
        ("nullif(event_type, event_type)", "'t'", "have no key"),
        ("id", "1 / 0", "does not fit public.sync_outbox: division by zero"),
    ] {
        let ran = import(&database, &["--mapping", &mapping(key, topic), "--yes"]);
        assert_eq!(ran.code, 5, "{ran:?}");
        assert!(ran.stderr.contains(said), "{key}: {}", ran.stderr);
    }
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 0);
    // The same table by another key could be imported twice.
    import(&database, &["--from", "sync-outbox", "--yes"]).json();
    let other = import(&database, &["--mapping", &mapping("id::text || 'x'", "'t'"), "--yes"]);
    assert!(other.code == 5 && other.stderr.contains("were imported by the key id"), "{other:?}");
    let sqlite = command(&["import", "--from", "cap", "--database-url", "sqlite:x.db"]);
    let sqlite = crate::support::finish(sqlite, b"");
    assert!(sqlite.code == 2 && sqlite.stderr.contains("SQLite"), "{sqlite:?}");
}

/// Proves L8: numbers that this outbox gave out belong to its messages; a forwarded row takes the next one.
#[tokio::test]
async fn numbers_of_a_lane_are_never_given_twice() {
    let database = with_lane(
        "insert into txno_outbox (id, invocation, attempts, blocked, processed, topic, seq) \
         select 'r' || n, '{}', 0, false, false, 'c', n from generate_series(1, 4) n",
    )
    .await;
    // Somebody was faster.
    for _ in 0..2 {
        sql(&database, "select outbox.enqueue('t', '0', lane => 'c')").await;
    }
    let ran = import(&database, &["--from", "gruelbox", "--yes"]);
    let done = document(&ran);
    assert_eq!(
        (ran.code, &done["this_run"]["pending"], &done["this_run"]["refused"]),
        (5, &2.into(), &2.into()),
        "{done}"
    );
    assert!(ran.stdout.contains("number 1 of lane c belongs to another message"), "{done}");

    forward(&database, "gruelbox").await;
    let insert = |id: &str, seq: u32| {
        format!(
            "insert into txno_outbox (id, invocation, attempts, blocked, processed, topic, seq) values ('{id}', '{{}}', 0, false, false, 'c', {seq})"
        )
    };
    sql(&database, &insert("new-5", 5)).await;
    sql(&database, "select outbox.enqueue('t', '0', lane => 'c')").await;
    sql(&database, &insert("new-6", 6)).await;
    let numbers = "select string_agg(coalesce(i.source_key, 'native') || ':' || m.sequence_id, ' ' order by m.sequence_id) \
                   from outbox.message m left join outbox.imported i on i.message_id = m.id where m.lane = 'c'";
    assert_eq!(sql(&database, numbers).await, "native:1 native:2 r3:3 r4:4 new-5:5 native:6 new-6:7");
}

/// Makes the trigger that forwards new rows.
async fn forward(database: &Database, from: &str) {
    let script = run(database, &["import", "--from", from, "--forward-sql"]).ok();
    sql(database, &script).await;
}

/// Proves L8: old writers write during the import, with the trigger and before it, and nothing is lost or doubled.
#[tokio::test]
async fn old_writers_may_go_on() {
    let database = with_sync_rows(12_000).await;
    let stop = AtomicBool::new(false);
    let written = AtomicU64::new(0);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(database.connect().await);
    }
    let write = |n: u64| {
        let (stop, written, client) = (&stop, &written, clients.pop().unwrap());
        async move {
            let mut i = 0_u64;
            while !stop.load(Relaxed) {
                i += 1;
                // Every fifth transaction changes its mind.
                let end = if i.is_multiple_of(5) { "rollback" } else { "commit" };
                let text = format!(
                    "begin; insert into sync_outbox (id, event_type, status, payload_json) select gen_random_uuid(), 'test.event', \
                     'pending', jsonb_build_object('writer', {n}, 'i', {i}, 'k', k) from generate_series(1, 2) k; {end}"
                );
                client.batch_execute(&text).await.unwrap();
                if end == "commit" {
                    written.fetch_add(2, Relaxed);
                }
            }
        }
    };
    let writers: [_; 3] = [1, 2, 3].map(write);
    let [one, two, three] = writers;
    let work = async {
        // Some are written before there is a trigger.
        until(|| written.load(Relaxed) > 50).await;
        forward(&database, "sync-outbox").await;
        let url = database.url();
        let ran = tokio::task::spawn_blocking(move || {
            crate::support::run_at(&url, &["import", "--from", "sync-outbox", "--yes", "--json"])
        });
        let ran = ran.await.unwrap();
        let so_far = written.load(Relaxed);
        until(|| written.load(Relaxed) > so_far + 50).await;
        stop.store(true, Relaxed);
        ran
    };
    let (ran, ..) = tokio::join!(work, one, two, three);
    assert_eq!(ran.code, 0, "{ran:?}");
    let rows = 12_000 + written.load(Relaxed);
    assert_eq!(number(&database, "select count(*) from sync_outbox").await, rows);
    assert_eq!(number(&database, "select count(*) from outbox.message").await, rows, "each row is one message");
    assert_eq!(number(&database, "select count(distinct payload) from outbox.message").await, rows);
    assert_eq!(number(&database, "select count(*) from outbox.delivery").await, rows);
    let last = import(&database, &["--from", "sync-outbox", "--yes"]).json();
    assert_eq!(
        (&last["this_run"]["pending"], &last["states"]["pending"]["imported"]),
        (&0.into(), &rows.into()),
        "{last}"
    );
    sql(&database, "drop trigger postrider_forward on sync_outbox; drop function postrider_forward_sync_outbox()")
        .await;
}

/// Waits until it is so.
async fn until(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "it took too long");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills an import when it has written at least so many rows.
async fn kill_at(database: &Database, rows: u64, args: &[&str]) -> u64 {
    let mut command = command(&[&["import"], args].concat());
    command.env("DATABASE_URL", database.url()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let client = database.connect().await;
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let row = client.query_one("select count(*) from outbox.imported", &[]).await.unwrap();
        if row.get::<_, i64>(0) >= i64::try_from(rows).unwrap() || Instant::now() > deadline {
            break;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // The server may still be at its last batch.
    let busy = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    while client.query_one(busy, &[]).await.unwrap().get::<_, i64>(0) > 0 {
        assert!(Instant::now() < deadline, "the last batch does not end");
    }
    u64::try_from(client.query_one("select count(*) from outbox.imported", &[]).await.unwrap().get::<_, i64>(0))
        .unwrap()
}

/// Proves L8: killed at any moment and run again, it goes on where it stood.
#[tokio::test]
async fn a_killed_import_goes_on() {
    let database = with_sync_rows(30_000).await;
    let args = ["--from", "sync-outbox", "--yes"];
    let first = kill_at(&database, 1, &args).await;
    let second = kill_at(&database, first + 1, &args).await;
    assert!(first > 0 && second > first && second < 30_000, "{first} {second}");
    let done = import(&database, &args).json();
    assert_eq!(done["this_run"]["pending"], 30_000 - second, "{done}");
    assert_eq!(done["outbox"], json!({"imported": 30_000, "messages": 30_000, "open": 30_000, "dead": 0}));
    let same = "select count(*) from sync_outbox s join outbox.imported i on i.source_key = s.id::text \
                join outbox.message m on m.id = i.message_id and m.payload = s.payload_json";
    assert_eq!(number(&database, same).await, 30_000);
}

/// Batches go on by any type that can be sorted.
#[tokio::test]
async fn every_row_is_found_by_keys_of_any_type() {
    let database = postrider_testkit::database().await;
    let directory = tempfile::tempdir().unwrap();
    sql(
        &database,
        "create table old (c char(36), b bit(16), t timestamp, n numeric, i interval, f float8, e text collate \"C\"); \
         insert into old select 'key-' || n, n::bit(16), '2026-01-01'::timestamp + n * interval '1.000001 seconds', n / 7.0, \
         n * interval '1 hour', n / 7.0, 'Ä' || n from generate_series(1, 6000) n",
    )
    .await;
    for key in ["c", "b", "t", "n", "i", "f", "e"] {
        let file = directory.path().join("own.toml");
        let mapping = format!(
            "name = 'own'\nabout = ''\ntable = 'by_{key}'\nkey = '{key}'\n[message]\ntopic = \"'t'\"\npayload = 'n'\n"
        );
        std::fs::write(&file, mapping).unwrap();
        sql(&database, &format!("create table by_{key} as select * from old")).await;
        let done = import(&database, &["--mapping", file.to_str().unwrap(), "--yes"]).json();
        assert_eq!(done["this_run"]["pending"], 6_000, "{key}: {done}");
    }
}

/// Two imports at once share the work.
#[tokio::test]
async fn two_imports_at_once_write_a_row_once() {
    let database = with_sync_rows(20_000).await;
    let url = database.url();
    let import = || {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            crate::support::run_at(&url, &["import", "--from", "sync-outbox", "--yes", "--json"]).json()
        })
    };
    let (one, other) = tokio::join!(import(), import());
    let (one, other) = (one.unwrap(), other.unwrap());
    let imported = |document: &Value| document["this_run"]["pending"].as_u64().unwrap();
    assert_eq!(imported(&one) + imported(&other), 20_000, "{one} {other}");
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 20_000);
}

/// Proves L8, P7: an operator needs the control role and the right to read the old table; a writer needs nothing new.
#[tokio::test]
async fn an_operator_needs_no_more_than_its_role() {
    let database = with_sync_rows(5).await;
    run(&database, &["migrate", "roles"]).ok();
    let (operator, writer) = (format!("operator_{}", database.name()), format!("writer_{}", database.name()));
    sql(
        &database,
        &format!(
            "create role {operator} login; grant outbox_operator to {operator}; create role {writer} login; \
             alter table sync_outbox owner to {operator}; grant create on schema public to {operator}; grant insert on sync_outbox to {writer}"
        ),
    )
    .await;
    let as_operator = |args: &[&str]| crate::support::run_at(&database.url_as(&operator), args);
    assert_eq!(as_operator(&["import", "--from", "sync-outbox", "--dry-run"]).code, 0);
    let script = as_operator(&["import", "--from", "sync-outbox", "--forward-sql"]).ok();
    database.connect_as(&operator).await.batch_execute(&script).await.unwrap();
    let insert = "insert into sync_outbox (id, event_type, status, payload_json) values (gen_random_uuid(), 't', 'pending', '1')";
    database.connect_as(&writer).await.batch_execute(insert).await.unwrap();
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 1);
    assert_eq!(as_operator(&["import", "--from", "sync-outbox", "--yes"]).code, 0);
    assert_eq!(number(&database, "select count(*) from outbox.message").await, 6);
    let denied = crate::support::run_at(&database.url_as(&writer), &["import", "--from", "sync-outbox", "--yes"]);
    assert_eq!(denied.code, 7, "{denied:?}");
}

/// The example runs to its end, which it does only if everything is as it says.
#[tokio::test]
async fn the_example_ends_well() {
    let said = run_example("migrating").await;
    assert!(said.contains("ERROR:  P7002: LEASE_LOST"), "{said}");
}

/// Proves L8: a million rows with a kill in the middle.
#[tokio::test]
async fn heavy_slow_a_million_rows_survive_a_kill() {
    let cluster =
        Cluster::start_with(&[("max_wal_size", "8GB"), ("synchronous_commit", "off"), ("shared_buffers", "512MB")])
            .await;
    let database = cluster.database().await;
    make_sync_rows(&database, 1_000_000).await;
    let args = ["--from", "sync-outbox", "--yes"];
    let begun = Instant::now();
    let killed = kill_at(&database, 400_000, &args).await;
    let done = import(&database, &args).json();
    let took = begun.elapsed();
    assert!(killed < 1_000_000);
    assert_eq!(done["this_run"]["pending"], 1_000_000 - killed, "{done}");
    assert_eq!(done["outbox"], json!({"imported": 1_000_000, "messages": 1_000_000, "open": 1_000_000, "dead": 0}));
    assert_eq!(number(&database, "select count(distinct (payload ->> 'n')::int) from outbox.message").await, 1_000_000);
    println!("a million rows, killed at {killed}: {took:?}");
}
