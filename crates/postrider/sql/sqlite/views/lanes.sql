-- Each lane that has something to deliver: how much, where its head stands and its last error, and what the lane is
-- doing. Ids are 16 bytes, times microseconds since 1970.
create view outbox_lanes as
select g.sink, g.lane, g.depth, g.head_sequence_id, h.message_id as head_message_id,
       case when h.due_at = 9223372036854775807 then 'parked'
            when g.leased > 0 then 'leased'
            when h.due_at > c.now then 'waiting'
            else 'due' end as state,
       nullif(h.due_at, 9223372036854775807) as head_due_at, h.attempt_count as head_attempt_count, g.leased,
       -- The attempt under way counts already, and has not failed.
       h.attempt_count > (h.lease_token is not null) as head_failed,
       (select a.error_code from outbox_attempt a where a.message_id = h.message_id and a.sink = g.sink
        order by a.attempt_no desc limit 1) as head_error_code,
       (select a.error_message from outbox_attempt a where a.message_id = h.message_id and a.sink = g.sink
        order by a.attempt_no desc limit 1) as head_error_message
from (
    select d.sink, d.lane, count(*) as depth, min(d.sequence_id) as head_sequence_id,
           count(*) filter (where d.lease_expires_at > (select now from outbox_clock)) as leased
    from outbox_delivery d
    where d.lane is not null
    group by d.sink, d.lane
) g
join outbox_delivery h
  on h.sink = g.sink and h.lane = g.lane and h.sequence_id = g.head_sequence_id and h.lane is not null
cross join outbox_clock c;
