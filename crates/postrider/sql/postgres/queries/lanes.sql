-- Lanes: those that wait for a person first, then those whose head failed, then the deepest. Caller: Inspect::lanes.
-- The page is chosen first; the heads' last errors are looked up for the page alone.
-- $1 sink, $2 lane, $3 state, $4 limit.
with page as materialized (
    select l.sink, l.lane, l.state, l.depth, l.head_sequence_id, l.head_message_id, l.head_due_at, l.head_attempt_count,
           row_number() over (
               order by l.state = 'parked' desc, l.head_failed desc, l.depth desc, l.sink, l.lane) as place
    from outbox.lanes l
    where ($1::text is null or l.sink = $1) and ($2::text is null or l.lane = $2) and ($3::text is null or l.state = $3)
    order by place
    limit $4
)
select p.sink, p.lane, p.state, p.depth, p.head_sequence_id, p.head_message_id, p.head_due_at, p.head_attempt_count,
       a.error_code as head_error_code, a.error_message as head_error_message
from page p
left join lateral (
    select t.error_code, t.error_message
    from outbox.attempts t
    where t.message_id = p.head_message_id and t.sink = p.sink
    order by t.attempt_no desc
    limit 1
) a on true
order by p.place
