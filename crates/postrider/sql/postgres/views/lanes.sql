-- Each lane that has something to deliver: how much, where its head stands, and what the lane is doing. The head's
-- errors are looked up for the rows that are shown: with an ORDER BY and a LIMIT, after both.
create view :"schema".lanes as
select g.sink, g.lane, g.depth, h.sequence_id as head_sequence_id, h.message_id as head_message_id,
       case when h.due_at = 'infinity' then 'parked'
            when g.leased > 0 then 'leased'
            when h.due_at > now() then 'waiting'
            else 'due' end as state,
       nullif(h.due_at, 'infinity') as head_due_at, h.attempt_count as head_attempt_count, g.leased,
       -- The attempt under way counts already, and has not failed.
       h.attempt_count > case when h.lease_token is null then 0 else 1 end as head_failed,
       (select a.error_code from :"schema".attempt a where a.message_id = h.message_id and a.sink = g.sink
        order by a.attempt_no desc limit 1) as head_error_code,
       (select a.error_message from :"schema".attempt a where a.message_id = h.message_id and a.sink = g.sink
        order by a.attempt_no desc limit 1) as head_error_message
from (
    select d.sink, d.lane, count(*) as depth,
           count(*) filter (where d.lease_expires_at > now()) as leased
    from :"schema".delivery d
    where d.lane is not null
    group by d.sink, d.lane
) g
cross join lateral (
    select d.message_id, d.sequence_id, d.due_at, d.attempt_count, d.lease_token from :"schema".delivery d
    where d.sink = g.sink and d.lane = g.lane and d.lane is not null
    order by d.sequence_id
    limit 1
) h;
comment on view :"schema".lanes is
    'Lanes with something to deliver: depth, head with its last error, and what the lane is doing.';
grant select on :"schema".lanes to :"relay";
