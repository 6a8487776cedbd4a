//! Receive inside a rusqlite transaction, and prune what was received: plain functions, since rusqlite's calls block.
//! The SQLite store prunes with the same ones. What a lane remembers is worked out in `inbox/span.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, params_from_iter};
use uuid::Uuid;

use super::span::{self, Span};
use super::{Event, check_many, sqlite};
use crate::enqueue::Statement;
use crate::error::Error;
use crate::record::records;
use crate::store::sqlite::input;
use crate::store::sqlite::statement::{all, execute, micros, now, sql, value};

/// Notes in the caller's transaction that an event was received: true the first time, false again.
///
/// `tx` is a `rusqlite::Transaction`, best begun as `Immediate`: one that reads first and writes later can be refused
/// as busy. The tables are made by [`crate::SqliteStore::open`] or [`crate::sqlite::migrate`].
pub fn receive(tx: &Connection, event: &Event) -> Result<bool, Error> {
    event.check()?;
    receive_one(tx, event)
}

/// The same for up to [`crate::MAX_BATCH_MESSAGES`] events. One answer for each, in the same order; an event named twice is
/// first once. If one is refused, roll the transaction back: those before it are received.
pub fn receive_many(tx: &Connection, events: &[Event]) -> Result<Vec<bool>, Error> {
    check_many(events)?;
    events.iter().map(|event| receive_one(tx, event)).collect()
}

fn receive_one(tx: &Connection, event: &Event) -> Result<bool, Error> {
    let Statement { sql, parameters } = sqlite(event);
    Ok(tx.prepare_cached(&sql)?.execute(params_from_iter(parameters))? == 1)
}

/// Deletes received events that are older than this (than the setting, 7 days, if `None`), up to `batch_size` of them,
/// and lets their lanes remember the numbers. Returns how many went: call it again, in a new transaction, while that is
/// `batch_size`. A relay's keeper does this by itself.
pub fn prune_inbox(tx: &Connection, older_than: Option<Duration>, batch_size: u32) -> Result<u64, Error> {
    older_than.map_or(Ok(()), input::age)?;
    input::batch_size(batch_size)?;
    let now = now(tx)?;
    execute(tx, sql!("inbox", "prune_lanes"), &[(":now", &now), (":batch_size", &batch_size)])?;
    let pruned: Vec<PrunedEvent> = all(
        tx,
        sql!("inbox", "prune_candidates"),
        &[(":now", &now), (":older_than_us", &older_than.map(micros)), (":batch_size", &batch_size)],
    )?;
    let mut lanes: BTreeMap<LaneKey, Vec<(i64, Uuid)>> = BTreeMap::new();
    for event in &pruned {
        execute(tx, sql!("inbox", "prune_event"), &[(":event_id", &event.event_id), (":tenant", &event.tenant)])?;
        if let (Some(lane), Some(sequence_id)) = (&event.lane, event.sequence_id) {
            let key = (event.source.clone(), lane.clone(), event.tenant.clone());
            lanes.entry(key).or_default().push((sequence_id, event.event_id));
        }
    }
    for (lane, numbers) in lanes {
        remember(tx, &lane, &numbers, now)?;
    }
    Ok(pruned.len() as u64)
}

/// Source, lane and tenant.
type LaneKey = (String, String, String);

struct PrunedEvent {
    event_id: Uuid,
    tenant: String,
    source: String,
    lane: Option<String>,
    sequence_id: Option<i64>,
}

records! { PrunedEvent(row) { event_id, tenant, source, lane, sequence_id } }

fn remember(tx: &Connection, lane: &LaneKey, numbers: &[(i64, Uuid)], now: i64) -> Result<(), Error> {
    let (source, lane, tenant) = lane;
    let most: u64 = value(tx, sql!("inbox", "most_spans"), &[])?.unwrap_or(1);
    let known = all(tx, sql!("inbox", "spans"), &[(":source", source), (":lane", lane), (":tenant", tenant)])?;
    let known: Vec<Span> = known.into_iter().map(|(first, last, newest)| Span { first, last, newest }).collect();
    let spans = span::remember(&known, numbers, usize::try_from(most).unwrap_or(usize::MAX));
    for gone in known.iter().filter(|old| spans.iter().all(|span| span.first != old.first)) {
        execute(
            tx,
            sql!("inbox", "forget_span"),
            &[(":source", source), (":lane", lane), (":tenant", tenant), (":first_sequence", &gone.first)],
        )?;
    }
    for span in &spans {
        if known.contains(span) {
            continue;
        }
        execute(
            tx,
            sql!("inbox", "remember_span"),
            &[
                (":source", source),
                (":lane", lane),
                (":tenant", tenant),
                (":first_sequence", &span.first),
                (":last_sequence", &span.last),
                (":newest_event_id", &span.newest),
                (":now", &now),
            ],
        )?;
    }
    Ok(())
}
