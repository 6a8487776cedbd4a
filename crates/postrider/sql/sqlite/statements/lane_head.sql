-- The head of a lane, with its last error. Caller: explain. Index: outbox_delivery_lane. Zero rows: nothing is in it.
select h.sink, h.message_id, h.sequence_id, nullif(h.due_at, 9223372036854775807) as due_at, h.claimed_by,
       h.lease_expires_at, a.error_code, a.error_message
from (
    select d.sink, d.message_id, d.sequence_id, d.due_at, d.claimed_by, d.lease_expires_at
    from outbox_delivery d indexed by outbox_delivery_lane
    where d.sink = :sink and d.lane = :lane and d.lane is not null
    order by d.sequence_id
    limit 1
) h
left join outbox_attempt a
  on a.message_id = h.message_id and a.sink = h.sink and a.attempt_no = (
      select max(t.attempt_no) from outbox_attempt t where t.message_id = h.message_id and t.sink = h.sink)
