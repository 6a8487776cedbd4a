-- One event of somebody else's, in the consumer's transaction: one row written is the first time, none is again.
-- Caller: every adapter of src/inbox, and whoever speaks SQL: ?1 event id (16 bytes), ?2 tenant id (16 bytes, or null),
-- ?3 source (text), ?4 lane and ?5 number in it (or null). Transition: unknown -> received. Locks: SQLite's one write
-- lock, so a second transaction waits for the first. Index: inbox_pk, inbox_lane_pk.
-- An event whose row was pruned is known by its number, if its id is a UUIDv7. One that was made after all that the lane
-- remembers there is new: its sender has begun to count anew. The number of an id that lies further ahead of this clock
-- than the setting allows is not kept: such an id would make its lane take everything that is made until then for old.
insert into outbox_inbox (event_id, tenant, received_at, source, lane, sequence_id)
select ?1, coalesce(?2, x''), t.now, ?3, iif(t.is_too_new, null, ?4), iif(t.is_too_new, null, ?5)
from (
    select c.now, substr(hex(?1), 1, 12) >= printf('%012X', c.now / 1000 + s.inbox_clock_skew_seconds * 1000) as is_too_new
    from outbox_clock c cross join outbox_setting s
) t
where not exists (
    select 1 from outbox_inbox_lane s
    where s.source = ?3 and s.lane = ?4 and s.tenant = coalesce(?2, x'')
      and s.first_sequence <= ?5 and s.last_sequence >= ?5 and s.newest_event_id >= ?1
      and substr(hex(?1), 13, 1) = '7')
on conflict (event_id, tenant) do nothing
