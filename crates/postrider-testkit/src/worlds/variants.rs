//! The SQL, broken on purpose: each variant takes a guard out of the functions, and comes with the story in which that shows.
//! Called by tests and by the program `worlds`, which demand that each is caught, and that the same story goes well without
//! it. A variant whose text is no longer in its function fails at once.

use super::place::Place;
use super::real::Change;
use super::scheduler::{Act, Story};
use super::state::{Call, Ending, Which};
use super::stories::{call, calls};

const CLAIM_ONE: Call = Call::Claim(1);
const CLAIM: Call = Call::Claim(2);
const DELIVERED: Call = Call::Complete(Ending::Dispatched, Which::First);
const FAILED: Call = Call::Complete(Ending::Failed, Which::First);
const RENEW_LAST: Call = Call::Renew(Which::Last);
const RELEASE: Call = Call::Release(Which::First);
const REDRIVE: Call = Call::Redrive(0b0001);

const TWO: &str = "two in a lane, one without";
const HELD: &str = "a run in one hand";
const HELD_ONE_BEHIND: &str = "a run in one hand and one behind";
const ENDED: &str = "a lease that has ended";
const PASSED_BY: &str = "dead and passed by, delivered, and one more";
const PASSED_BY_AND_HELD: &str = "dead and passed by, the rest in one hand";
const PARKED: &str = "dead at its place";

/// A guard taken out of the SQL.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What is no longer done.
    pub name: &'static str,
    /// How.
    pub changes: &'static [Change],
    /// Where it shows.
    pub story: Story,
}

fn variant(name: &'static str, changes: &'static [Change], story: Story) -> Variant {
    Variant { name, changes, story }
}

fn story(start: &'static str, acts: [Vec<Act>; 2], ticks: u8) -> Story {
    let [first, second] = acts;
    Story { start, parks: true, acts: [first, second, Vec::new()], ticks }
}

fn skipping(story: Story) -> Story {
    Story { parks: false, ..story }
}

/// Stopped at a place, then committed.
fn stopped(one: Call, at: Place) -> Vec<Act> {
    call(one, Some(at), true)
}

/// All of them.
#[must_use]
pub fn variants() -> Vec<Variant> {
    [fences(), lane_locks(), lane_leases(), counters(), operators()].concat()
}

/// What only the holder may do.
fn fences() -> Vec<Variant> {
    vec![
        variant(
            "a completion does not ask for the token",
            &[("complete_delivered", "d.lease_token = complete_delivered.lease_token", "d.lease_token is not null")],
            story(ENDED, [calls(&[DELIVERED]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a completion does not ask whether the lease has ended",
            &[("complete_delivered", "and d.lease_expires_at > complete_delivered.at_time", "")],
            story(ENDED, [calls(&[DELIVERED]), calls(&[Call::Repair])], 0),
        ),
        variant(
            "a failure does not ask for the token",
            &[("complete_failed", "d.lease_token = complete_failed.lease_token", "d.lease_token is not null")],
            story(ENDED, [calls(&[FAILED]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a release does not ask for the token",
            &[("release", "d.lease_token = release.lease_token", "d.lease_token is not null")],
            story(ENDED, [calls(&[RELEASE]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a renewal does not look at the clock again after it has waited",
            &[
                (
                    "renew",
                    "perform lock_held(renew.lease_token, renew.message_ids, outbox.world_clock());",
                    "v_now := outbox.world_clock(); perform lock_held(renew.lease_token, renew.message_ids, v_now);",
                ),
                (
                    "renew",
                    "perform outbox.world_pause('RenewWrite'); v_now := outbox.world_clock();",
                    "perform outbox.world_pause('RenewWrite');",
                ),
            ],
            story(HELD, [stopped(RENEW_LAST, Place::RenewWrite), calls(&[CLAIM_ONE])], 2),
        ),
        variant(
            "repair ends leases that live",
            &[("end_stale_leases", "where d.lease_expires_at <= v_now", "where d.lease_token is not null")],
            story(HELD, [calls(&[DELIVERED]), calls(&[Call::Repair])], 0),
        ),
    ]
}

/// Who may have a row or a lane.
fn lane_locks() -> Vec<Variant> {
    vec![
        variant(
            "a claim does not share the lock of the lanes",
            &[(
                "lane_fronts_are_free",
                "execute format('lock table %I in row share mode nowait', lane_lock(sink));",
                "",
            )],
            skipping(story(PASSED_BY, [calls(&[CLAIM]), calls(&[REDRIVE])], 0)),
        ),
        variant(
            "a redrive does not hold the front of the lanes",
            &[("hold_lane_fronts", "execute format('lock table %I in exclusive mode', v_lock);", "null;")],
            skipping(story(PASSED_BY, [calls(&[CLAIM]), calls(&[REDRIVE])], 0)),
        ),
        variant(
            "a replay does not hold the front of the lanes",
            &[("replay_batch", "perform hold_lane_fronts(array[replay_batch.sink]);", "")],
            skipping(story(PASSED_BY, [calls(&[CLAIM]), calls(&[Call::Replay(1)])], 0)),
        ),
        variant(
            "a claim from lanes waits for locked rows",
            &[("claim_lane_runs", "for update of d skip locked", "for update of d")],
            story(TWO, [calls(&[CLAIM]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a claim without lanes waits for locked rows",
            &[("pick_due", "for update skip locked", "for update")],
            story(TWO, [calls(&[CLAIM]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a claim locks no rows of lanes",
            &[("claim_lane_runs", "for update of d skip locked", "")],
            story(TWO, [stopped(CLAIM, Place::ClaimLease), calls(&[CLAIM])], 0),
        ),
        variant(
            "a claim locks no rows without a lane",
            &[("pick_due", "for update skip locked", "")],
            story(TWO, [stopped(CLAIM, Place::ClaimLease), calls(&[CLAIM])], 0),
        ),
        variant(
            "repair waits for locked rows",
            &[("end_stale_leases", "for update skip locked", "for update")],
            story(ENDED, [calls(&[CLAIM]), calls(&[Call::Repair])], 0),
        ),
        variant(
            "producers of a lane do not wait for its counter",
            &[(
                "enqueue",
                "insert into lane_sequence as s (lane, last_sequence) values (enqueue.lane, 1)\n            \
                 on conflict (lane) do update set last_sequence = s.last_sequence + 1\n            \
                 returning s.last_sequence into sequence_id;",
                "sequence_id := coalesce((select max(m.sequence_id) from message m where m.lane = enqueue.lane), 0) + 1;",
            )],
            story("empty", [calls(&[Call::Enqueue(true)]), calls(&[Call::Enqueue(true)])], 0),
        ),
    ]
}

/// Whether a lane is in somebody's hand.
fn lane_leases() -> Vec<Variant> {
    vec![
        variant(
            "a claim does not ask whether a row has changed since it looked",
            &[
                (
                    "claim_lane_runs",
                    "select d.ctid as place, d.xmin as version, row_number() over () as nth,",
                    "select d.message_id as id, d.ctid as place, d.xmin as version, row_number() over () as nth,",
                ),
                // By its place, 15.18 does not find a row that has moved on: the check is missed where it is found by its id.
                (
                    "claim_lane_runs",
                    "join delivery d on d.ctid = w.place\n                where w.free and d.xmin = w.version",
                    "join delivery d on d.message_id = w.id\n                where w.free",
                ),
            ],
            story(TWO, [stopped(CLAIM, Place::ClaimLock), calls(&[CLAIM, RELEASE])], 0),
        ),
        variant(
            "a claim does not look for leases behind its run",
            &[("claim_lane_runs", "and d.sequence_id <= h.lane_tail", "and false")],
            story(HELD, [calls(&[RELEASE]), calls(&[CLAIM_ONE])], 0),
        ),
        variant(
            "a claim does not ask whether a lease in the lane lives",
            &[("claim_lane_runs", "where not w.one_lives and (w.leased", "where (w.leased")],
            story(HELD, [calls(&[RELEASE]), calls(&[CLAIM_ONE])], 0),
        ),
        variant(
            "a claim takes a lane although it could not lock all that ended there",
            &[("claim_lane_runs", "and k.leased_and_locked = k.leased_in_all", "")],
            story(HELD_ONE_BEHIND, [calls(&[RENEW_LAST]), calls(&[CLAIM_ONE])], 2),
        ),
        variant(
            "a redriven message does not know how far leases reach",
            &[("change_letters", "lane_reach(f.sink, f.lane)", "null::bigint")],
            skipping(story(PASSED_BY_AND_HELD, [calls(&[REDRIVE]), calls(&[CLAIM_ONE])], 0)),
        ),
        variant(
            "a replayed message does not know how far leases reach",
            &[("replay_batch", "lane_reach(replay_batch.sink, f.lane)", "null::bigint")],
            story("delivered, the rest in one hand", [calls(&[Call::Replay(0)]), calls(&[CLAIM_ONE])], 0),
        ),
        variant(
            "a run goes on behind a row that could not be locked",
            &[("claim_lane_runs", "f.unbroken", "true")],
            story(
                "three in a lane",
                [stopped(Call::Claim(3), Place::ClaimLock), calls(&[CLAIM, Call::Release(Which::All)])],
                0,
            ),
        ),
    ]
}

/// What is counted and recorded.
fn counters() -> Vec<Variant> {
    vec![
        variant(
            "the count does not go up at the claim",
            &[("claim", "attempt_count = d.attempt_count + 1", "attempt_count = d.attempt_count")],
            story(TWO, [calls(&[CLAIM]), calls(&[CLAIM])], 0),
        ),
        variant(
            "a release keeps the count",
            &[("release", "attempt_count = d.attempt_count - 1", "attempt_count = d.attempt_count")],
            story(HELD, [calls(&[RELEASE]), calls(&[CLAIM_ONE])], 0),
        ),
        variant(
            "repair records nothing",
            &[("end_stale_leases", "settle(v_stale.sink, v_stale.message_ids, null, v_now)", "1")],
            story(ENDED, [calls(&[CLAIM]), calls(&[Call::Repair])], 0),
        ),
        variant(
            "no lease that has ended is recorded",
            &[("settle", "and d.lease_token is not null;", "and false;")],
            story(ENDED, [calls(&[CLAIM]), calls(&[Call::Repair])], 0),
        ),
        variant(
            "what is out of attempts does not park its lane",
            &[("bury", "v_parks constant boolean := parks(bury.sink)", "v_parks constant boolean := false")],
            story("out of attempts", [calls(&[CLAIM]), calls(&[Call::Repair])], 0),
        ),
    ]
}

/// What operators do.
fn operators() -> Vec<Variant> {
    vec![
        variant(
            "a redrive does not lock the dead letters",
            &[("change_letters", "and l.sink = i.sink offset 0 for update", "and l.sink = i.sink offset 0")],
            skipping(story(PASSED_BY, [stopped(REDRIVE, Place::LetterWrite), calls(&[Call::Discard(0b0001)])], 0)),
        ),
        variant(
            "a skip does not lock the dead letter",
            &[("skip", "offset 0 for update", "offset 0")],
            story(PARKED, [calls(&[REDRIVE]), calls(&[Call::Skip])], 0),
        ),
        variant(
            "a replay does not look for dead letters again",
            &[(
                "replay_batch",
                "delete from delivery d using dead_letter l\n    where",
                "delete from delivery d using dead_letter l\n    where false and",
            )],
            skipping(story("delivered and again in one hand", [calls(&[FAILED]), calls(&[Call::Replay(0)])], 0)),
        ),
        variant(
            "a replay begins its numbers anew",
            &[(
                "replay_batch",
                "set attempt_no = coalesce((select max(a.attempt_no)",
                "set attempt_no = coalesce((select 0 * max(a.attempt_no)",
            )],
            story("delivered", [calls(&[Call::Replay(0)]), calls(&[Call::Replay(0)])], 0),
        ),
        variant(
            "prune looks without a lock",
            &[("prune", "lock table only message, message_rest in access exclusive mode;", "")],
            story("delivered", [calls(&[Call::Replay(0)]), calls(&[Call::Prune])], 0),
        ),
        variant(
            "prune does not look for dead letters",
            &[("prune", "and not exists (select from dead_letter l where l.message_id = r.id)", "")],
            skipping(story(PASSED_BY, [calls(&[Call::Discard(0b0001)]), calls(&[Call::Prune])], 0)),
        ),
    ]
}
