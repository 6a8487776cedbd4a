//! A real server prepared for small worlds: a clock that only the scheduler moves, places inside functions where a session
//! can be stopped, and tables that are put back in no time. `scheduler` drives it. The functions are the build's own but for
//! those places and the clock; a variant changes their text on purpose. It must never be used on a server that holds anything.

use std::collections::BTreeMap;

use tokio_postgres::{Client, SimpleQueryMessage};

use super::mutant::Rules;
use super::place::Place;
use super::state::{ATTEMPTS, Delivery, Ending, LANE_SLOTS, Letter, NEVER, SESSIONS, SLOTS, State, number};
use crate::{Cluster, Database};

/// Nothing of it is to be kept.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    // A deadlock is a finding, and is to be found soon.
    ("deadlock_timeout", "100ms"),
];
/// Worlds between two looks at what the last ones left in the tables.
const VACUUM_EVERY: u32 = 300;
/// The tables that a world consists of; messages and attempts stand in the default partitions.
const TABLES: [&str; 5] = ["message_rest", "delivery", "dead_letter", "attempt_rest", "lane_sequence"];

const PREPARE: &str = "
create sequence outbox.world_ticks minvalue 0;
create sequence outbox.world_ids;
create table outbox.world_saved (start text, tick bigint);
create function outbox.world_clock() returns timestamptz language sql volatile as $$
    select timestamptz '2040-01-01 00:00+00' + t.last_value * interval '1 second' from outbox.world_ticks t $$;
create function outbox.world_pause(place text) returns boolean language plpgsql volatile as $$
begin
    if current_setting('world.place', true) = place then
        perform set_config('world.place', '', false);
        perform pg_advisory_lock(current_setting('world.session')::bigint);
        perform pg_advisory_unlock(current_setting('world.session')::bigint);
    end if;
    return true;
end $$;
do $$ declare t text; begin
    for t in select c.relname from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind = 'r'
             and c.relname ~ '^(message|attempt)_[0-9]' loop
        execute format('drop table outbox.%I', t);
    end loop;
end $$;
update outbox.setting set prune_lock_wait = '1 millisecond';
";

/// A textual change of one function: its name, what stands there, and what then stands there.
pub type Change = (&'static str, &'static str, &'static str);

/// One delivery as a session really holds it.
#[derive(Clone, Debug, Default)]
pub(super) struct Lease {
    pub(super) token: String,
}

/// The server, and what is known of the messages in it.
pub struct Real {
    database: Database,
    /// Looks, prepares and puts back; never waits for a row.
    pub(super) watcher: Client,
    /// Holds the sessions that are stopped in the middle of a function.
    pub(super) stopper: Client,
    /// Texts of all functions, as they are without a variant.
    functions: BTreeMap<String, String>,
    changed: Vec<String>,
    worlds: u32,
}

impl Real {
    /// Starts a server and prepares it.
    ///
    /// # Panics
    ///
    /// If it cannot, or if a place where a session is to be stopped is no longer in its function.
    pub async fn start() -> Self {
        let database = Cluster::start_with(SETTINGS).await.database().await;
        let (watcher, stopper) = (database.connect().await, database.connect().await);
        run(&watcher, PREPARE).await;
        run(&watcher, "set session_replication_role = replica").await;
        let list = "select p.proname, pg_get_functiondef(p.oid) from pg_proc p \
                    where p.pronamespace = 'outbox'::regnamespace and p.proname !~ '^world_' order by 1, p.oid";
        let mut functions: BTreeMap<String, String> = BTreeMap::new();
        for row in rows(&watcher, list).await {
            functions.entry(row[0].clone()).or_insert_with(|| prepared(&row[0], &row[1]));
        }
        let real = Self { database, watcher, stopper, functions, changed: Vec::new(), worlds: 0 };
        for text in real.functions.values() {
            run(&real.watcher, text).await;
        }
        real
    }

    /// A session of a world.
    pub(super) async fn session(&self, session: usize) -> Client {
        let client = self.database.connect().await;
        let number = number(session);
        run(&client, &format!("set world.session = '{number}'; set world.place = ''")).await;
        client
    }

    /// Puts other texts in the place of functions, until the next call.
    ///
    /// # Panics
    ///
    /// If what is to be changed is not there.
    pub async fn change(&mut self, changes: &[Change]) {
        for name in std::mem::take(&mut self.changed) {
            run(&self.watcher, &self.functions[&name]).await;
        }
        let mut texts: BTreeMap<&str, String> = BTreeMap::new();
        for (function, from, to) in changes {
            let text = texts.entry(function).or_insert_with(|| self.functions[*function].clone());
            assert!(text.contains(from), "the function {function} no longer says: {from}");
            *text = text.replace(from, to);
        }
        for (name, text) in texts {
            run(&self.watcher, &text).await;
            self.changed.push(name.to_owned());
        }
    }

    /// Empties the outbox, and says what the sink does with a dead head.
    pub(super) async fn empty(&mut self, rules: Rules) {
        self.worlds += 1;
        let on_dead = if rules.parks { "park" } else { "skip" };
        let deletes = TABLES.map(|table| format!("delete from outbox.{table};")).concat();
        let sql = format!(
            "{deletes} select outbox.configure_sink('default', on_dead => '{on_dead}'); \
                           select setval('outbox.world_ticks', 1)"
        );
        run(&self.watcher, &sql).await;
    }

    /// Keeps what is there under this name, with the clock.
    pub(super) async fn save(&self, name: &str) {
        let saves = TABLES
            .map(|table| format!("create table outbox.world_{name}_{table} as select * from outbox.{table};"))
            .concat();
        let tick = "(select last_value from outbox.world_ticks)";
        let clock = format!("insert into outbox.world_saved values ('{name}', {tick})");
        run(&self.watcher, &format!("{saves} {clock}")).await;
    }

    /// Puts it back.
    pub(super) async fn restore(&mut self, name: &str, rules: Rules) {
        self.worlds += 1;
        if self.worlds.is_multiple_of(VACUUM_EVERY) {
            for table in TABLES {
                run(&self.watcher, &format!("vacuum outbox.{table}")).await;
            }
            run(&self.watcher, "truncate outbox.audit").await;
        }
        let back = TABLES
            .map(|table| {
                format!(
                    "delete from outbox.{table}; \
                     insert into outbox.{table} select * from outbox.world_{name}_{table};"
                )
            })
            .concat();
        let clock = format!("select setval('outbox.world_ticks', tick) from outbox.world_saved where start = '{name}'");
        let on_dead = if rules.parks { "park" } else { "skip" };
        let sink = format!("update outbox.sink set on_dead = '{on_dead}' where on_dead <> '{on_dead}'");
        run(&self.watcher, &format!("{back} {sink}; {clock}")).await;
    }

    /// The clock moves on.
    pub(super) async fn tick(&self) {
        run(&self.watcher, "select nextval('outbox.world_ticks')").await;
    }

    /// The messages there are, by their slots.
    pub(super) async fn ids(&self) -> [Option<String>; SLOTS] {
        let mut ids = <[Option<String>; SLOTS]>::default();
        for row in rows(&self.watcher, "select coalesce(sequence_id, 4), id from outbox.message_rest").await {
            let slot: usize = row[0].parse().unwrap_or(SLOTS);
            if let Some(id) = ids.get_mut(slot.wrapping_sub(1)) {
                *id = Some(row[1].clone());
            }
        }
        ids
    }

    /// What is committed, as a model's state: with a token for each that is there, by its session.
    pub(super) async fn committed(&self, ids: &[Option<String>; SLOTS]) -> State {
        let tick = |column: &str| format!("extract(epoch from {column} - timestamptz '2040-01-01 00:00+00')::int");
        let due = format!("case when due_at = 'infinity' then {NEVER} else {} end", tick("nullif(due_at, 'infinity')"));
        let sql = format!(
            "select 'm', id, 0, 0, 0, 0, 0, 0, '' from outbox.message_rest union all \
             select 'd', message_id, {due}, attempt_no, attempt_count, coalesce({}, 0), coalesce(lane_tail, 0), \
                    coalesce(substr(claimed_by, 2)::int, 0), coalesce(lease_token::text, '') from outbox.delivery union all \
             select 'l', message_id, parked::int, attempt_no, 0, 0, 0, 0, '' from outbox.dead_letter union all \
             select 'a', message_id, attempt_no, 0, 0, 0, 0, 0, state::text from outbox.attempt_rest union all \
             select 't', null, last_value, 0, 0, 0, 0, 0, '' from outbox.world_ticks union all \
             select 'c', null, last_sequence, 0, 0, 0, 0, 0, '' from outbox.lane_sequence",
            tick("lease_expires_at")
        );
        let mut state = State::default();
        for row in rows(&self.watcher, &sql).await {
            put(&mut state, ids, &row);
        }
        state
    }
}

fn put(state: &mut State, ids: &[Option<String>; SLOTS], row: &[String]) {
    let n = |column: usize| row[column].parse::<u8>().unwrap_or(NEVER);
    let slot = ids.iter().position(|id| id.as_deref() == Some(&row[1]));
    match (&*row[0], slot) {
        ("t", _) => state.clock = n(2),
        ("c", _) => state.counter.committed = Some(n(2)),
        ("m", Some(slot)) => state.messages[slot].committed = Some(0),
        ("d", Some(slot)) => {
            state.deliveries[slot].committed = Some(Delivery {
                due: n(2),
                no: n(3),
                count: n(4),
                token: n(7),
                ends: n(5),
                tail: n(6),
                base: n(3).saturating_sub(n(4)),
            });
        }
        ("l", Some(slot)) => {
            state.letters[slot].committed = Some(Letter { parked: n(2) == 1, no: n(3), given_up: false });
        }
        ("a", Some(slot)) => {
            let ending = match &*row[8] {
                "ZOMBIE_REQUEUE" => Ending::Zombie,
                "RETRYABLE" => Ending::Retryable,
                "FAILED" => Ending::Failed,
                _ => Ending::Dispatched,
            };
            if let Some(attempt) = state.attempts[slot].get_mut(usize::from(n(2)).wrapping_sub(1)) {
                attempt.committed = Some(ending);
            }
        }
        _ => state.beyond = true,
    }
}

/// A model's state as it would be read from a server: what is committed, tokens by their sessions.
pub(super) fn as_read(state: &State) -> State {
    let mut read = State { clock: state.clock, ..State::default() };
    for slot in 0..SLOTS {
        read.messages[slot].committed = state.messages[slot].committed.map(|_| 0);
        read.deliveries[slot].committed = state.deliveries[slot].committed.map(|row| Delivery {
            token: row.token / super::claim::TOKENS,
            base: row.no.saturating_sub(row.count),
            ..row
        });
        read.letters[slot].committed = state.letters[slot].committed.filter(|letter| !letter.given_up);
        for no in 0..ATTEMPTS {
            read.attempts[slot][no].committed = state.attempts[slot][no].committed;
        }
    }
    read.counter.committed = state.counter.committed;
    read
}

/// The function with the scheduler's clock, and with the places where a session can be stopped.
fn prepared(name: &str, text: &str) -> String {
    let mut text = text
        .replace("clock_timestamp()", "outbox.world_clock()")
        .replace("new_message_id(v_micros)", "new_message_id(v_micros + nextval('outbox.world_ids'))");
    for before in [" ", "(", "\n"] {
        text = text.replace(&format!("{before}now()"), &format!("{before}outbox.world_clock()"));
    }
    for place in Place::ALL {
        for (function, anchor, stop) in place.text() {
            if *function == name {
                assert!(text.contains(anchor), "the function {name} no longer says: {anchor}");
                text = text.replace(anchor, stop);
            }
        }
    }
    text
}

pub(super) async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{error:?} in {sql}");
    }
}

/// Every row as texts; an absent value is empty.
pub(super) async fn rows(client: &Client, sql: &str) -> Vec<Vec<String>> {
    match try_rows(client, sql).await {
        Ok(rows) => rows,
        Err(error) => panic!("{error:?} in {sql}"),
    }
}

pub(super) async fn try_rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|n| row.get(n).unwrap_or_default().to_owned()).collect())
            }
            _ => None,
        })
        .collect())
}

/// Everything beside the sessions.
const _: () = assert!(LANE_SLOTS + 1 == SLOTS && SESSIONS == 3);
