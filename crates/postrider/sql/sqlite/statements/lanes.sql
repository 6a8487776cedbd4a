-- Lanes: those that wait for a person first, then those whose head failed, then the deepest. Caller: lanes.
-- The page is chosen first; the heads' last errors are looked up for the page alone.
with page as materialized (
    select l.sink, l.lane, l.state, l.depth, l.head_sequence_id, l.head_message_id, l.head_due_at, l.head_attempt_count,
           row_number() over (
               order by l.state = 'parked' desc, l.head_failed desc, l.depth desc, l.sink, l.lane) as place
    from outbox_lanes l
    where (:sink is null or l.sink = :sink) and (:lane is null or l.lane = :lane) and (:state is null or l.state = :state)
    order by place
    limit :limit
)
select p.sink, p.lane, p.state, p.depth, p.head_sequence_id, p.head_message_id, p.head_due_at, p.head_attempt_count,
       a.error_code as head_error_code, a.error_message as head_error_message
from page p
left join outbox_attempt a
  on a.message_id = p.head_message_id and a.sink = p.sink and a.attempt_no = (
      select max(t.attempt_no) from outbox_attempt t where t.message_id = p.head_message_id and t.sink = p.sink)
order by p.place
