-- What a consumer received. Called by `src/inbox`, in the consumer's transaction.

-- name: receive
-- One event of somebody else's, in the consumer's transaction: one row written is the first time, none is again.
-- Caller: every adapter of src/inbox, and whoever speaks SQL: ?1 event id (16 bytes), ?2 tenant id (text, or null),
-- ?3 source (text), ?4 lane and ?5 number in it (or null). Transition: unknown -> received. Locks: SQLite's one write
-- lock, so a second transaction waits for the first. Index: inbox_pk, inbox_lane_pk.
-- An event whose row was pruned is known by its number, if its id is a UUIDv7. One that was made after all that the lane
-- remembers there is new: its sender has begun to count anew. The number of an id that lies further ahead of this clock
-- than the setting allows is not kept: such an id would make its lane take everything that is made until then for old.
insert into outbox_inbox (event_id, tenant, received_at, source, lane, sequence_id)
select ?1, coalesce(?2, ''), t.now, ?3, iif(t.is_too_new, null, ?4), iif(t.is_too_new, null, ?5)
from (
    select c.now, substr(hex(?1), 1, 12) >= printf('%012X', c.now / 1000 + s.inbox_clock_skew_seconds * 1000) as is_too_new
    from outbox_clock c cross join outbox_setting s
) t
where not exists (
    select 1 from outbox_inbox_lane s
    where s.source = ?3 and s.lane = ?4 and s.tenant = coalesce(?2, '')
      and s.first_sequence <= ?5 and s.last_sequence >= ?5 and s.newest_event_id >= ?1
      and substr(hex(?1), 13, 1) = '7')
on conflict (event_id, tenant) do nothing

-- name: prune_candidates
-- Received events past their retention (`older_than_us`, or the setting), oldest first.
-- Caller: prune_inbox, batch by batch. Index: outbox_inbox_by_age. Zero rows: that was all.
select i.event_id, i.tenant, i.source, i.lane, i.sequence_id
from outbox_inbox i indexed by outbox_inbox_by_age
where i.received_at < :now - coalesce(:older_than_us, (select s.inbox_retention_seconds * 1000000 from outbox_setting s))
order by i.received_at
limit :batch_size

-- name: prune_event
-- received -> gone. Its lane, if it has one, remembers the number.
delete from outbox_inbox where event_id = :event_id and tenant = :tenant

-- name: prune_lanes
-- Spans that have not grown for so long that they are forgotten.
-- Caller: prune_inbox. Index: outbox_inbox_lane_by_age. Zero rows: that was all.
delete from outbox_inbox_lane
where (source, lane, tenant, first_sequence) in (
    select l.source, l.lane, l.tenant, l.first_sequence
    from outbox_inbox_lane l indexed by outbox_inbox_lane_by_age
    where l.remembered_at < :now - (select s.inbox_lane_retention_seconds * 1000000 from outbox_setting s)
    limit :batch_size
)

-- name: most_spans
-- How many spans a lane may remember.
select inbox_lane_spans from outbox_setting

-- name: spans
-- What a lane remembers, lowest number first. Index: inbox_lane_pk.
select l.first_sequence, l.last_sequence, l.newest_event_id
from outbox_inbox_lane l
where l.source = :source and l.lane = :lane and l.tenant = :tenant
order by l.first_sequence

-- name: forget_span
-- A span that another took in, one of too many, or of a lane that is counted anew.
delete from outbox_inbox_lane
where source = :source and lane = :lane and tenant = :tenant and first_sequence = :first_sequence

-- name: remember_span
-- A span as it is now: new, or reaching further. Caller: prune_inbox.
insert into outbox_inbox_lane (source, lane, tenant, first_sequence, last_sequence, newest_event_id, remembered_at)
values (:source, :lane, :tenant, :first_sequence, :last_sequence, :newest_event_id, :now)
on conflict (source, lane, tenant, first_sequence) do update
    set last_sequence = excluded.last_sequence, newest_event_id = excluded.newest_event_id,
        remembered_at = excluded.remembered_at
