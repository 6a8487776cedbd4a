-- One event of somebody else's, in the consumer's transaction: one row written is the first time, none is again.
-- Caller: every adapter of src/inbox, and whoever speaks SQL: ?1 event id (16 bytes), ?2 tenant id (16 bytes, or null),
-- ?3 source (text), ?4 lane and ?5 number in it (or null). Transition: unknown -> received. Locks: SQLite's one write
-- lock, so a second transaction waits for the first. Index: inbox_pk, inbox_lane_pk.
-- An event whose row was pruned is known by its number, if its id is a UUIDv7. One that was made after all that the lane
-- remembers there is new: its sender has begun to count anew.
insert into outbox_inbox (event_id, tenant, received_at, source, lane, sequence_id)
select ?1, coalesce(?2, x''), c.now, ?3, ?4, ?5
from outbox_clock c
where not exists (
    select 1 from outbox_inbox_lane s
    where s.source = ?3 and s.lane = ?4 and s.tenant = coalesce(?2, x'')
      and s.first_sequence <= ?5 and s.last_sequence >= ?5 and s.newest_event_id >= ?1
      and substr(hex(?1), 13, 1) = '7')
on conflict (event_id, tenant) do nothing
