//! Claims in SQLite: looks without the write lock whether anything is free, then picks, settles and leases in one
//! transaction. The order, the share between lanes and the others, and the round over the lanes are those of
//! `sql/postgres/functions/claim.sql`; each step is a statement, and nothing is written if nothing is free.

use rusqlite::{ToSql, Transaction};
use uuid::Uuid;

use super::complete;
use super::session::{Cursor, Session};
use super::statement::{all, execute, first, micros, sql, value};
use crate::error::{Cause, Error};
use crate::lifecycle::{Claim, Claimed, LeaseToken};
use crate::message::limit;
use crate::record::records;

/// How many lane heads a claim looks at before it stops, unless it is to be thorough: a hop takes some microseconds, and
/// nobody else writes meanwhile.
const USUAL_HOPS: usize = 2_000;

/// A delivery that may be leased.
struct Pick {
    message_id: Uuid,
    /// Its last lease ended without an outcome, or it is out of attempts.
    unsettled: bool,
}

records! { Pick(row) { message_id, unsettled } }

pub(super) fn claim(session: &mut Session, claim: &Claim) -> Result<Vec<Claimed>, Error> {
    let mut cursor = session.cursor(claim);
    // A relay that finds nothing must not keep others from writing, nor wake itself by a commit.
    let nothing = session.read(|tx, now| Search { tx, claim, now }.finds_nothing(&mut cursor))?;
    let mut claimed = Vec::new();
    let mut more = !nothing;
    // What was picked may all be dead and buried: then there may be something behind it.
    while claimed.is_empty() && more {
        (claimed, more) = session.write(|tx, now| {
            let search = Search { tx, claim, now };
            if search.is_paused()? {
                return Ok((Vec::new(), false));
            }
            let begun_after = cursor.lane.clone();
            let picks = search.pick(&mut cursor)?;
            let found = !picks.is_empty();
            let leased = lease(tx, claim, now, picks)?;
            if leased.cut {
                // The round goes on after the last lane that was really handed out.
                cursor.lane = leased.last_lane.map_or(begun_after, String::into_bytes);
            }
            Ok((leased.messages, found))
        })?;
    }
    session.remember(claim, cursor);
    Ok(claimed)
}

/// Whether a claim would find something.
pub(super) fn has_due(session: &mut Session, sink: &str, tenant_id: Option<&str>) -> Result<bool, Error> {
    let tenant_id = tenant_id.map(str::to_owned);
    let claim = Claim { sink: sink.to_owned(), tenant_id, thorough: true, ..Claim::new("") };
    Ok(!session.read(|tx, now| Search { tx, claim: &claim, now }.finds_nothing(&mut Cursor::default()))?)
}

struct Search<'a> {
    tx: &'a Transaction<'a>,
    claim: &'a Claim,
    now: i64,
}

impl Search<'_> {
    fn is_paused(&self) -> Result<bool, Error> {
        Ok(value(self.tx, sql!("claim", "sink_is_paused"), &[(":sink", &self.claim.sink)])?.unwrap_or(false))
    }

    fn finds_nothing(&self, cursor: &mut Cursor) -> Result<bool, Error> {
        if self.is_paused()? {
            return Ok(true);
        }
        if !self.due(1)?.is_empty() {
            return Ok(false);
        }
        let (found, last_lane) = self.lanes(1, &cursor.lane)?;
        if found.is_empty()
            && let Some(last_lane) = last_lane
        {
            // Only so many blocked lanes at once: the next claim goes on from here.
            cursor.lane = last_lane;
        }
        Ok(found.is_empty())
    }

    /// What has no lane gets half of the batch if lanes wait too (an odd one goes to each in turn); lanes get the rest;
    /// what they leave is filled up.
    fn pick(&self, cursor: &mut Cursor) -> Result<Vec<Pick>, Error> {
        let batch = self.claim.batch_size as usize;
        let lanes_wait = value(self.tx, sql!("claim", "lanes_wait"), &[(":sink", &self.claim.sink)])?;
        if lanes_wait != Some(true) {
            return self.due(batch);
        }
        let half = if cursor.lanes_turn { batch / 2 } else { batch.div_ceil(2) };
        let mut picks = self.due(half)?;
        let (lanes, last_lane) = self.lanes(batch - picks.len(), &cursor.lane)?;
        cursor.lanes_turn = !cursor.lanes_turn;
        cursor.lane = last_lane.unwrap_or_else(|| cursor.lane.clone());
        if picks.len() == half && half + lanes.len() < batch {
            picks = self.due(batch - lanes.len())?;
        }
        // Who comes first may take one that is larger than its share of the bytes: in turn, too.
        let (first, second) = if cursor.lanes_turn { (picks, lanes) } else { (lanes, picks) };
        Ok(first.into_iter().chain(second).collect())
    }

    /// Due deliveries without a lane: hops from priority to priority, so that those not yet due cost one look for each.
    fn due(&self, room: usize) -> Result<Vec<Pick>, Error> {
        let (next, due) = match &self.claim.tenant_id {
            None => (sql!("claim", "next_priority"), sql!("claim", "due")),
            Some(_) => (sql!("claim", "next_priority_of_tenant"), sql!("claim", "due_of_tenant")),
        };
        let mut picks = Vec::new();
        let mut below = limit::PRIORITY_MAX + 1;
        while picks.len() < room {
            let hop = self.parameters(&[(":below", &below)]);
            let Some((priority, is_due)) = first::<(i32, bool)>(self.tx, next, &hop)? else { break };
            if is_due {
                let left = room - picks.len();
                let take = self.parameters(&[
                    (":priority", &priority),
                    (":max_attempts", &self.claim.max_attempts),
                    (":room", &left),
                ]);
                picks.extend(all(self.tx, due, &take)?);
            }
            below = priority;
        }
        Ok(picks)
    }

    /// Once around the lanes, beginning after `start`: to the last lane, then from the first one up to `start`. Stops when
    /// the room is filled or, on either leg of a claim that need not be thorough, so many heads were looked at; then also
    /// the lane where.
    fn lanes(&self, room: usize, start: &[u8]) -> Result<(Vec<Pick>, Option<Vec<u8>>), Error> {
        let next = match &self.claim.tenant_id {
            None => sql!("claim", "next_lane"),
            Some(_) => sql!("claim", "next_lane_of_tenant"),
        };
        let mut picks = Vec::new();
        let to_the_end = (start, None);
        let from_the_beginning = (&b""[..], Some(start));
        for (after, up_to) in [to_the_end, from_the_beginning] {
            let mut at = after.to_owned();
            let mut hops = 0;
            while picks.len() < room && up_to != Some(b"") {
                let hop = self.parameters(&[(":after", &at)]);
                let found = first::<(Vec<u8>, bool)>(self.tx, next, &hop)?;
                let Some((lane, is_open)) = found.filter(|(lane, _)| up_to.is_none_or(|end| lane.as_slice() <= end))
                else {
                    break;
                };
                if is_open {
                    picks.extend(self.run(&lane, room - picks.len())?);
                }
                at = lane;
                hops += 1;
                if picks.len() >= room || (hops >= USUAL_HOPS && !self.claim.thorough) {
                    return Ok((picks, Some(at)));
                }
            }
        }
        Ok((picks, None))
    }

    fn run(&self, lane: &[u8], room: usize) -> Result<Vec<Pick>, Error> {
        let room = room.min(self.claim.lane_run as usize);
        let parameters: [(&str, &dyn ToSql); 6] = [
            (":sink", &self.claim.sink),
            (":now", &self.now),
            (":tenant_id", &self.claim.tenant_id),
            (":lane", &lane),
            (":max_attempts", &self.claim.max_attempts),
            (":room", &room),
        ];
        all(self.tx, sql!("claim", "lane_run"), &parameters)
    }

    /// What every search has in common, and the tenant if there is one.
    fn parameters<'a>(&'a self, more: &[(&'a str, &'a dyn ToSql)]) -> Vec<(&'a str, &'a dyn ToSql)> {
        let mut parameters: Vec<(&str, &dyn ToSql)> = vec![(":sink", &self.claim.sink), (":now", &self.now)];
        if let Some(tenant_id) = &self.claim.tenant_id {
            parameters.push((":tenant_id", tenant_id));
        }
        parameters.extend(more);
        parameters
    }
}

struct Leased {
    messages: Vec<Claimed>,
    /// The lane of the last one that has a lane.
    last_lane: Option<String>,
    /// The bytes were too few for all that was picked.
    cut: bool,
}

/// Leases what was picked and reads it, up to the bytes that were asked for; what is out of attempts is buried instead.
fn lease(tx: &Transaction<'_>, claim: &Claim, now: i64, picks: Vec<Pick>) -> Result<Leased, Error> {
    let LeaseToken(token) = claim.lease_token.unwrap_or_else(LeaseToken::random);
    let mut claimed: Vec<Claimed> = Vec::with_capacity(picks.len());
    let (mut bytes, mut cut) = (0_u64, false);
    for pick in picks {
        let id = pick.message_id;
        if let Some(max_bytes) = claim.max_bytes {
            let size = value::<u64>(tx, sql!("claim", "size_as_sent"), &[(":message_id", &id)])?;
            bytes = bytes.saturating_add(size.unwrap_or(0));
            if bytes > max_bytes && !claimed.is_empty() {
                cut = true;
                break;
            }
        }
        if pick.unsettled && complete::settle(tx, id, &claim.sink, Some(claim.max_attempts), now)?.buried {
            continue;
        }
        let terms: [(&str, &dyn ToSql); 7] = [
            (":message_id", &id),
            (":sink", &claim.sink),
            (":now", &now),
            (":max_attempts", &claim.max_attempts),
            (":lease_us", &micros(claim.lease)),
            (":lease_token", &token),
            (":worker_id", &claim.worker_id),
        ];
        execute(tx, sql!("claim", "lease"), &terms)?;
        let leased: [(&str, &dyn ToSql); 3] =
            [(":message_id", &id), (":sink", &claim.sink), (":with_content", &claim.with_content)];
        match first(tx, sql!("claim", "claimed"), &leased) {
            Ok(message) => claimed.extend(message),
            // Another program wrote what no receiver can be given. It is dead at once, and stops nobody else.
            Err(error) => match error.cause() {
                Cause::Unreadable { reason } => complete::unreadable(tx, id, &claim.sink, reason, now)?,
                _ => return Err(error),
            },
        }
    }
    let last_lane = claimed.iter().rev().find_map(|message| message.lane.clone());
    // Without a lane first, then lane by lane; within both the order is the one they were picked in.
    claimed.sort_by(|one, other| one.lane.cmp(&other.lane));
    Ok(Leased { messages: claimed, last_lane, cut })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves H3: every look of a claim lands in an index, and nothing is sorted but a run.
    #[test]
    fn looks_land_in_an_index() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        super::super::migrate(&mut connection).unwrap();
        for sql in [
            sql!("claim", "lanes_wait"),
            sql!("claim", "next_priority"),
            sql!("claim", "next_priority_of_tenant"),
            sql!("claim", "due"),
            sql!("claim", "due_of_tenant"),
            sql!("claim", "next_lane"),
            sql!("claim", "next_lane_of_tenant"),
            sql!("claim", "lane_run"),
            sql!("claim", "claimed"),
            sql!("claim", "size_as_sent"),
            sql!("lease", "content"),
            sql!("complete", "held"),
        ] {
            let mut statement = connection.prepare(&format!("explain query plan {sql}")).unwrap();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().unwrap() {
                let step: String = row.get(3).unwrap();
                // What a claim has gathered itself, a run at most, may be read as a whole.
                let own =
                    ["SCAN w", "SCAN lowest", "SCAN run", "SCAN r", "SCAN CONSTANT ROW", "SCAN (subquery", "SCAN h"];
                let walks = step.contains("SCAN") && !own.iter().any(|name| step.starts_with(name));
                let sorts = step.contains("TEMP B-TREE") && sql != sql!("claim", "lane_run");
                assert!(!walks && !sorts, "{step} in\n{sql}");
            }
        }
    }
}
