//! Partitions are made ahead of time and dropped when everything in them is history. Old partitions are made by hand,
//! with ids of old times, so that each rule of pruning is seen alone: nothing undelivered ever goes, nobody is kept
//! waiting, and a message that is being replayed stays.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    claim, claim_expired, complete, contents, enqueue, fresh, mark_delivered, number, run, texts, try_sql,
    until_blocked,
};

/// What the keeper appended to the names of that day's partitions.
async fn suffix(client: &Client, days_ago: i32) -> String {
    let sql = format!("select to_char(now() at time zone 'UTC' - interval '{days_ago} days', '\"_\"YYYYMMDD\"_00\"')");
    texts(client, &sql).await.remove(0)
}

/// Makes a pair of partitions for the day that began `days_ago` days before today, as the keeper of that time did.
async fn old_partition(client: &Client, days_ago: i32) {
    let name = suffix(client, days_ago).await;
    for parent in ["message", "attempt"] {
        let bounds = format!(
            "select format('create table outbox.{parent}{name} partition of outbox.{parent} for values from (%L) to (%L)', \
             outbox.message_id_floor(date_trunc('day', now()) - interval '{days_ago} days'), \
             outbox.message_id_floor(date_trunc('day', now()) - interval '{} days'))",
            days_ago - 1
        );
        let sql = texts(client, &bounds).await.remove(0);
        run(client, &sql).await;
    }
}

/// Writes a message of that day with one attempt, which ended then; what is still to be done with it is the test's business.
async fn old_message(client: &Client, days_ago: i32) -> Uuid {
    let sql = format!(
        "with m as (insert into outbox.message (id, occurred_at, priority, content_bytes, namespace, topic, payload) \
         select (substr(outbox.message_id_floor(date_trunc('day', now()) - interval '{days_ago} days' + interval '1 hour')::text, 1, 14) \
         || substr(gen_random_uuid()::text, 15))::uuid, now() - interval '{days_ago} days', 0, 1, 'default', 'old', '1' \
         returning id) \
         insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
         select id, t.ended, t.ended, 1, 'DISPATCHED', 'default', 'w' \
         from m, (select now() - interval '{days_ago} days' as ended) t returning message_id"
    );
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

async fn pending(client: &Client, id: Uuid) {
    let sql = "insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sink, attempt_no) \
               values ($1, now(), now(), 0, 1, 'default', 1)";
    client.execute(sql, &[&id]).await.unwrap();
}

/// What prune says: partitions, rows of the default partition, dedupe keys.
async fn prune(client: &Client, arguments: &str) -> (i32, i32, i32) {
    let row = client.query_one(&format!("select * from outbox.prune({arguments})"), &[]).await.unwrap();
    (row.get(0), row.get(1), row.get(2))
}

async fn partitions(client: &Client, parent: &str) -> Vec<String> {
    let sql = format!(
        "select substr(c.relname, length('{parent}') + 1) from pg_inherits i join pg_class c on c.oid = i.inhrelid \
         where i.inhparent = 'outbox.{parent}'::regclass order by 1"
    );
    texts(client, &sql).await
}

/// Proves H8: partitions stand ready before they are needed, and making them again makes nothing.
#[tokio::test]
async fn partitions_are_made_ahead_and_only_once() {
    let (_database, client) = fresh().await;
    let before = partitions(&client, "message").await;
    let ahead = number(&client, "select partitions_ahead from outbox.setting").await;
    assert_eq!(i64::try_from(before.len()).unwrap(), ahead + 2, "today, the days ahead, and the net");
    assert_eq!(partitions(&client, "attempt").await, before);
    assert_eq!(number(&client, "select outbox.make_partitions()").await, 0);
    assert_eq!(number(&client, &format!("select outbox.make_partitions({})", ahead + 3)).await, 3);
    assert_eq!(number(&client, &format!("select outbox.make_partitions({})", ahead + 3)).await, 0);
    assert_eq!(partitions(&client, "message").await.len(), before.len() + 3);
    assert_eq!(partitions(&client, "attempt").await, partitions(&client, "message").await);

    enqueue(&client, "t", "").await;
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    for table in ["message", "attempt"] {
        let found = format!("select c.relname::text from outbox.{table} t join pg_class c on c.oid = t.tableoid");
        assert_eq!(texts(&client, &found).await, [format!("{table}{}", suffix(&client, 0).await)]);
    }
}

#[tokio::test]
async fn any_number_may_make_partitions_at_once() {
    let (database, client) = fresh().await;
    let before = partitions(&client, "message").await.len();
    let mut keepers = Vec::new();
    for _ in 0..8 {
        keepers.push(database.connect().await);
    }
    let made = join_all(keepers.iter().map(|keeper| number(keeper, "select outbox.make_partitions(20)"))).await;
    let now = partitions(&client, "message").await.len();
    assert_eq!(i64::try_from(now - before).unwrap(), made.iter().sum::<i64>());
    assert_eq!(number(&client, "select outbox.make_partitions(20)").await, 0);
}

/// A width of an hour beside partitions of a day: the new ones begin where the old ones end.
#[tokio::test]
async fn another_width_does_not_overlap_what_is_there() {
    let (_database, client) = fresh().await;
    run(&client, "update outbox.setting set partition_width = '6 hours'").await;
    assert_eq!(number(&client, "select outbox.make_partitions(3)").await, 0, "days are there already");
    assert!(number(&client, "select outbox.make_partitions(60)").await > 20);
    enqueue(&client, "t", "").await;
}

/// An outbox whose keeper has been away accepts and delivers messages, and comes back to partitions by itself.
#[tokio::test]
async fn the_default_partition_is_a_net() {
    let (_database, client) = fresh().await;
    for parent in ["message", "attempt"] {
        for suffix in partitions(&client, parent).await.iter().filter(|suffix| *suffix != "_rest") {
            run(&client, &format!("drop table outbox.{parent}{suffix}")).await;
        }
    }
    let id = enqueue(&client, "t", "").await;
    assert_eq!(number(&client, "select outbox.make_partitions(0)").await, 0, "today is left to the net");
    let held = claim(&client, "w", 1).await;
    assert_eq!(held[0].id, id);
    mark_delivered(&client, &held).await;
    assert_eq!(number(&client, "select count(*) from outbox.message_rest").await, 1);
    let later = number(&client, "select outbox.make_partitions()").await;
    assert_eq!(later, number(&client, "select partitions_ahead from outbox.setting").await, "all but today's");
    enqueue(&client, "t", "").await;
    // Pruned row by row once they are old, and never while something is to be done with them.
    let (old, waiting) = (old_message(&client, 40).await, old_message(&client, 40).await);
    pending(&client, waiting).await;
    assert_eq!(prune(&client, "").await, (0, 2, 0), "a message and its attempt");
    let left = "select count(*) from outbox.message_rest where id = ";
    assert_eq!(number(&client, &format!("{left} '{old}'")).await, 0);
    assert_eq!(number(&client, &format!("{left} '{waiting}'")).await, 1);
}

/// Proves H1: a claim hands out all that it leases, of whatever days its messages are. It leaves out the partitions below its
/// lowest and above its highest id.
#[tokio::test]
async fn a_claim_hands_out_all_that_it_leases_of_any_day() {
    let (_database, client) = fresh().await;
    for days_ago in [5, 3] {
        old_partition(&client, days_ago).await;
        for _ in 0..2 {
            let id = old_message(&client, days_ago).await;
            pending(&client, id).await;
        }
    }
    // Of two days, too: what begins a lane is older than what comes behind it. One lane of each sort: fresh, and tried before.
    for (lane, attempts) in [("fresh", 0), ("tried", 1)] {
        let first = format!(
            "with m as (insert into outbox.message (id, occurred_at, priority, content_bytes, namespace, topic, payload, lane, \
             sequence_id) select (substr(outbox.message_id_floor(date_trunc('day', now()) - interval '4 days')::text, 1, 14) \
             || substr(gen_random_uuid()::text, 15))::uuid, now(), 0, 1, 'default', 'old', '1', '{lane}', 1 returning id), \
             s as (insert into outbox.lane_sequence (lane, last_sequence) values ('{lane}', 1)) \
             insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sink, attempt_no, \
             attempt_count, lane, sequence_id) \
             select id, now(), now(), 0, 1, 'default', {attempts}, {attempts}, '{lane}', 1 from m"
        );
        run(&client, &first).await;
        enqueue(&client, "t", &format!(", lane => '{lane}'")).await;
    }
    enqueue(&client, "t", ", priority => 5").await;
    enqueue(&client, "t", "").await;
    for batch in 1..=10 {
        run(&client, "begin").await;
        let held = claim(&client, "w", batch).await;
        assert_eq!(held.len(), usize::try_from(batch).unwrap(), "all are due");
        let leased = number(&client, "select count(*) from outbox.delivery where lease_token is not null").await;
        assert_eq!(leased, i64::from(batch), "and no more are leased than are handed out");
        run(&client, "rollback").await;
    }
}

/// Proves H8, M8: pruning drops whole partitions of history with their attempts, and never one in which a delivery is
/// pending, leased or dead.
#[tokio::test]
async fn only_partitions_without_anything_undelivered_are_dropped() {
    let (_database, client) = fresh().await;
    let (gone, kept): (Vec<i32>, Vec<i32>) = ((30..32).collect(), (40..44).collect());
    for days_ago in gone.iter().chain(&kept).chain(&[3]) {
        old_partition(&client, *days_ago).await;
        old_message(&client, *days_ago).await;
    }
    pending(&client, old_message(&client, 40).await).await;
    for state in ["FAILED", "leased"] {
        pending(&client, old_message(&client, if state == "leased" { 42 } else { 41 }).await).await;
    }
    let held = claim(&client, "w", 10).await;
    assert_eq!(held.len(), 3);
    let day_41 = suffix(&client, 41).await;
    for one in &held {
        let in_day_41 = format!("select count(*) from outbox.message{day_41} where id = '{}'", one.id);
        if number(&client, &in_day_41).await == 1 {
            complete(&client, "w", one, "FAILED").await.unwrap();
        }
    }
    // A dead head that parks its lane, in the fourth.
    let parked = old_message(&client, 43).await;
    let park = "insert into outbox.dead_letter (message_id, sink, died_at, reason, priority, size_bytes, lane, sequence_id, \
                attempt_no, attempt_count, parked) values ($1, 'default', now(), 'FAILED', 0, 1, 'a', 1, 1, 1, true)";
    client.execute(park, &[&parked]).await.unwrap();

    assert_eq!(prune(&client, "").await, (2, 0, 0));
    let left = partitions(&client, "message").await;
    assert_eq!(partitions(&client, "attempt").await, left, "attempts go with their messages");
    for days_ago in gone {
        assert!(!left.contains(&suffix(&client, days_ago).await), "{left:?}");
    }
    for days_ago in kept.iter().chain(&[3]) {
        assert!(left.contains(&suffix(&client, *days_ago).await), "{left:?}");
    }
    assert_eq!(number(&client, "select count(*) from outbox.delivery").await, 2);
    assert_eq!(prune(&client, "").await, (0, 0, 0), "and nothing is left to do");
    assert_eq!(
        prune(&client, &format!("older_than_seconds => {}", 24 * 3600)).await,
        (1, 0, 0),
        "the one of 3 days ago"
    );

    // What ends, goes.
    run(&client, "select outbox.discard(array(select message_id from outbox.dead_letter))").await;
    mark_delivered(&client, &held).await;
    assert_eq!(prune(&client, "").await, (1, 0, 0), "the others ended just now");
    assert_eq!(prune(&client, "older_than_seconds => 0").await, (3, 0, 0));
}

/// Proves H8: age counts from the end of delivery. What was delivered at the end of an outage of ten days is kept for the
/// retention from then on, in a partition and in the net beside them; `prunable` says the same.
#[tokio::test]
async fn retention_counts_from_the_end_of_delivery() {
    let (_database, client) = fresh().await;
    for days_ago in [10, 12] {
        old_partition(&client, days_ago).await;
    }
    let mut late = Vec::new();
    for days_ago in [10, 12, 40] {
        old_message(&client, days_ago).await;
        late.push(old_message(&client, days_ago).await);
    }
    for id in [late[0], late[2]] {
        let ended = "insert into outbox.attempt (message_id, claimed_at, completed_at, attempt_no, state, sink, worker_id) \
                     values ($1, now(), now() - interval '6 days', 2, 'DISPATCHED', 'default', 'w')";
        client.execute(ended, &[&id]).await.unwrap();
    }
    let prunable = "select partitions * 100 + rest from outbox.prunable()";
    assert_eq!(number(&client, prunable).await, 102, "a partition; a message and its attempt");
    assert_eq!(prune(&client, "").await, (1, 2, 0));
    assert_eq!(number(&client, "select count(*) from outbox.message").await, 3);
    assert!(partitions(&client, "message").await.contains(&suffix(&client, 10).await));
    run(&client, "update outbox.setting set retention = '5 days'").await;
    assert_eq!(number(&client, prunable).await, 103, "its two attempts, too");
    assert_eq!(prune(&client, "").await, (1, 3, 0));
}

/// Proves H8: what is kept for ever is kept: an archive of years, in partitions of a month.
#[tokio::test]
async fn history_and_keys_can_be_kept_for_ever() {
    let (_database, client) = fresh().await;
    let archive = "update outbox.setting set retention = null, dedupe_window = null, partition_width = '1 month'";
    run(&client, archive).await;
    assert!(number(&client, "select outbox.make_partitions()").await > 0);
    let widths = "select count(*) from outbox.partition_bounds() b \
                  where outbox.message_id_time(b.id_to) - outbox.message_id_time(b.id_from) = interval '30 days'";
    assert!(number(&client, widths).await >= 6);
    old_partition(&client, 4000).await;
    let old = old_message(&client, 4000).await;
    old_message(&client, 2000).await;
    let key = "insert into outbox.dedupe (message_id, namespace, topic, dedupe_key) values ($1, 'default', 'old', 'k')";
    client.execute(key, &[&old]).await.unwrap();
    assert_eq!(prune(&client, "").await, (0, 0, 0));
    assert_eq!(number(&client, "select partitions + rest + dedupe from outbox.prunable()").await, 0);
    assert_eq!(enqueue(&client, "old", ", dedupe_key => 'k'").await, old, "a late repeat pays nothing twice");
    assert_eq!(prune(&client, "older_than_seconds => 86400").await, (1, 2, 0), "an operator may");
}

/// "Keep it for ever" is a long time, and must not turn into none.
#[tokio::test]
async fn a_retention_of_centuries_keeps_everything() {
    let (_database, client) = fresh().await;
    old_partition(&client, 40).await;
    old_message(&client, 40).await;
    enqueue(&client, "t", ", dedupe_key => 'k'").await;
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    let before = (partitions(&client, "message").await, contents(&client, "outbox").await);
    assert_eq!(prune(&client, "older_than_seconds => 3155760000").await, (0, 0, 0), "100 years");
    run(&client, "update outbox.setting set retention = '1000 years', dedupe_window = '1000 years'").await;
    assert_eq!(prune(&client, "").await, (0, 0, 0), "1000 years");
    run(&client, "update outbox.setting set retention = '7 days', dedupe_window = '30 days'").await;
    assert_eq!((partitions(&client, "message").await, contents(&client, "outbox").await), before);
}

/// Proves M3: keys live as long as their window says, longer than the message itself, and longer still while the
/// message has not ended.
#[tokio::test]
async fn dedupe_keys_go_after_their_window_and_after_their_message() {
    let (_database, client) = fresh().await;
    for days_ago in [10, 40] {
        old_partition(&client, days_ago).await;
    }
    let (recent, ended, waiting) =
        (old_message(&client, 10).await, old_message(&client, 40).await, old_message(&client, 40).await);
    for (id, key) in [(recent, "recent"), (ended, "ended"), (waiting, "waiting")] {
        let sql =
            "insert into outbox.dedupe (message_id, namespace, topic, dedupe_key) values ($1, 'default', 't', $2)";
        client.execute(sql, &[&id, &key]).await.unwrap();
    }
    pending(&client, waiting).await;
    assert_eq!(prune(&client, "").await, (1, 0, 1));
    let keys = "select dedupe_key from outbox.dedupe order by 1";
    assert_eq!(texts(&client, keys).await, ["recent", "waiting"]);
    // Its message is gone, the key still answers.
    assert_eq!(enqueue(&client, "t", ", dedupe_key => 'recent'").await, recent);
    assert_eq!(number(&client, "select count(*) from outbox.delivery").await, 1, "nothing was written");
    mark_delivered(&client, &claim(&client, "w", 1).await).await;
    assert_eq!(
        prune(&client, "").await,
        (0, 0, 1),
        "it ended just now, so its history stays; its key is past its window"
    );
}

/// Proves H8: pruning does not hurt the hot path. A producer in an open transaction makes it give way, soon, and it
/// does its work the next time.
#[tokio::test]
async fn pruning_gives_way_to_open_transactions() {
    let (database, client) = fresh().await;
    old_partition(&client, 40).await;
    old_message(&client, 40).await;
    let producer = database.connect().await;
    run(&producer, "begin").await;
    enqueue(&producer, "t", "").await;
    let pruned = tokio::time::timeout(Duration::from_secs(10), prune(&client, "")).await;
    assert_eq!(pruned.expect("it gives up after setting.prune_lock_wait"), (0, 0, 0));
    assert_eq!(texts(&client, "select current_setting('lock_timeout')").await, ["0"], "the caller's own is back");
    enqueue(&producer, "t", "").await;
    run(&producer, "commit").await;
    assert_eq!(prune(&client, "").await, (1, 0, 0));
    assert_eq!(number(&client, "select count(*) from outbox.delivery").await, 2);
}

/// Making partitions must not stop the others either: a transaction that stays open for long makes the keeper give
/// way, and producers and relays go on beside it.
#[tokio::test]
async fn making_partitions_gives_way_to_open_transactions() {
    let (database, client) = fresh().await;
    let (producer, keeper, other) = (database.connect().await, database.connect().await, database.connect().await);
    run(&producer, "begin").await;
    enqueue(&producer, "t", "").await;
    let keeping = tokio::spawn(async move { try_sql(&keeper, "select outbox.make_partitions(12)").await });
    // It waits by now or has given way already: the others must not wait behind it.
    let waits = "select count(*) from pg_locks where not granted";
    while !keeping.is_finished() && number(&client, waits).await == 0 {
        tokio::task::yield_now().await;
    }
    run(&other, "set lock_timeout = '2s'").await;
    assert_eq!(try_sql(&other, "select from outbox.enqueue('t', '1')").await, "00000");
    assert_eq!(try_sql(&other, "select from outbox.claim('w', 1, 1)").await, "00000");
    run(&producer, "commit").await;
    assert_eq!(keeping.await.unwrap(), "00000");
    number(&client, "select outbox.make_partitions(12)").await;
    assert_eq!(partitions(&client, "message").await.len(), 14);
}

/// A replay that has read a message but not committed yet is waited for: the partition stays.
#[tokio::test]
async fn a_message_that_is_being_replayed_is_not_pruned() {
    for in_a_partition in [true, false] {
        let (database, client) = fresh().await;
        if in_a_partition {
            old_partition(&client, 40).await;
        }
        let id = old_message(&client, 40).await;
        let operator = database.connect().await;
        operator.batch_execute("begin").await.unwrap();
        let replay = format!("select outbox.replay(array['{id}']::uuid[])");
        assert_eq!(number(&operator, &replay).await, 1);
        // Gives up after setting.prune_lock_wait, or waits for the operator and sees what it wrote: both keep it.
        assert_eq!(prune(&client, "").await, (0, 0, 0), "in a partition: {in_a_partition}");
        run(&client, "update outbox.setting set prune_lock_wait = '30 seconds'").await;
        let keeper = database.connect().await;
        let pruning = tokio::spawn(async move { prune(&keeper, "").await });
        if in_a_partition {
            until_blocked(&client, 1).await;
        }
        operator.batch_execute("commit").await.unwrap();
        assert_eq!(pruning.await.unwrap(), (0, 0, 0), "in a partition: {in_a_partition}");
        let held = claim(&client, "w", 1).await;
        assert_eq!(held.iter().map(|held| (held.id, held.attempt_no)).collect::<Vec<_>>(), [(id, 2)]);
    }
}

/// The look after the lock must see what was committed while the lock was waited for, whatever isolation level the
/// database makes its default.
#[tokio::test]
async fn a_replay_is_seen_under_every_isolation_level() {
    for level in ["read committed", "repeatable read", "serializable"] {
        let (database, client) = fresh().await;
        old_partition(&client, 40).await;
        let id = old_message(&client, 40).await;
        run(&client, "update outbox.setting set prune_lock_wait = '30 seconds'").await;
        let (operator, keeper) = (database.connect().await, database.connect().await);
        operator.batch_execute("begin").await.unwrap();
        assert_eq!(number(&operator, &format!("select outbox.replay(array['{id}']::uuid[])")).await, 1);
        run(&keeper, &format!("set default_transaction_isolation = '{level}'")).await;
        let pruning = tokio::spawn(async move { try_sql(&keeper, "select from outbox.prune()").await });
        while !pruning.is_finished() && number(&client, "select count(*) from pg_locks where not granted").await == 0 {
            tokio::task::yield_now().await;
        }
        operator.batch_execute("commit").await.unwrap();
        // It may refuse to work at such a level; it may not drop the message.
        pruning.await.unwrap();
        assert_eq!(number(&client, "select count(*) from outbox.message").await, 1, "{level}");
    }
}

/// An expired lease is a lease: what a dead worker held is not history.
#[tokio::test]
async fn an_expired_lease_keeps_its_partition() {
    let (_database, client) = fresh().await;
    old_partition(&client, 40).await;
    pending(&client, old_message(&client, 40).await).await;
    assert_eq!(claim_expired(&client, "w", 1).await.len(), 1);
    assert_eq!(prune(&client, "").await, (0, 0, 0));
    assert_eq!(number(&client, "select outbox.repair_expired_leases()").await, 1);
    assert_eq!(prune(&client, "").await, (0, 0, 0));
}

/// A clock that ran ahead for a moment leaves a partition of next year; the days in between get theirs nevertheless, and
/// so does a hole between partitions of another width.
#[tokio::test]
async fn a_partition_of_the_far_future_leaves_no_hole() {
    let (_database, client) = fresh().await;
    for days_ahead in [3, 4, 5, 6, 7] {
        for parent in ["message", "attempt"] {
            let name = suffix(&client, -days_ahead).await;
            run(&client, &format!("drop table outbox.{parent}{name}")).await;
        }
    }
    old_partition(&client, -400).await;
    assert_eq!(number(&client, "select outbox.make_partitions()").await, 5, "the days before next year's");
    assert_eq!(number(&client, "select outbox.make_partitions()").await, 0);

    let name = suffix(&client, -5).await;
    run(&client, &format!("drop table outbox.message{name}, outbox.attempt{name}")).await;
    run(&client, "update outbox.setting set partition_width = '10 hours'").await;
    assert!(number(&client, "select outbox.make_partitions(20)").await > 3, "slots that do not meet the days");
    let holes = "select count(*) from (select b.id_from, lag(b.id_to) over (order by b.id_from) as before \
                 from outbox.partition_bounds() b where outbox.message_id_time(b.id_from) < now() + interval '8 days') b \
                 where b.id_from <> b.before";
    assert_eq!(number(&client, holes).await, 0);
}

/// Attempts in the default partition go with their message, a batch at a time; those of a message that is kept stay.
/// They are append-only before, meanwhile and afterwards, for the owner too.
#[tokio::test]
async fn attempts_in_the_default_partition_are_pruned() {
    let (database, client) = fresh().await;
    let refused = "delete from outbox.attempt";
    for _ in 0..3 {
        old_message(&client, 40).await;
    }
    let waiting = old_message(&client, 40).await;
    pending(&client, waiting).await;
    let young = old_message(&client, 2).await;
    assert_eq!(number(&client, "select count(*) from outbox.attempt_rest").await, 5);
    assert_eq!(try_sql(&client, refused).await, "P0001");

    // Whoever reads them is not waited for longer than setting.prune_lock_wait; the messages go, the attempts another time.
    let writer = database.connect().await;
    writer.batch_execute("begin; lock table outbox.attempt_rest in row exclusive mode").await.unwrap();
    assert_eq!(prune(&client, "batch_size => 2").await, (0, 2, 0));
    assert_eq!(try_sql(&client, refused).await, "P0001", "nothing is left switched off");
    writer.batch_execute("commit").await.unwrap();

    // While a prune is not committed nobody else changes an attempt.
    run(&client, "begin").await;
    assert_eq!(prune(&client, "batch_size => 2").await, (0, 3, 0), "a message, and two attempts");
    assert_eq!(try_sql(&writer, &format!("set lock_timeout = '100ms'; {refused}")).await, "55P03");
    run(&client, "savepoint s").await;
    assert_eq!(try_sql(&client, refused).await, "P0001", "in the same transaction");
    run(&client, "rollback to s; commit").await;

    assert_eq!(prune(&client, "batch_size => 2").await, (0, 1, 0));
    assert_eq!(prune(&client, "").await, (0, 0, 0));
    let left = "select message_id::text from outbox.attempt_rest order by message_id";
    assert_eq!(texts(&client, left).await, [waiting.to_string(), young.to_string()]);
    for sql in [refused, "delete from outbox.attempt_rest", "update outbox.attempt_rest set code = 'x'"] {
        assert_eq!(try_sql(&client, sql).await, "P0001", "{sql}");
    }
}
