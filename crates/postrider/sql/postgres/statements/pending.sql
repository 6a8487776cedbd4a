-- Open deliveries, as an operator chooses them. Called by `store/postgres/inspect.rs`; `matching` is the first part of the
-- others.

-- name: matching
-- The open deliveries that a filter means: $1 messages, $2 sink, $3 namespace, $4 topic, $5 tenant, $6 lane; null: any. A dead
-- lane head that parks its lane is none of them: it belongs to its dead letter. The message is looked up only if its
-- namespace or topic is asked for.
with matching as not materialized (
    select d.* from :"schema".delivery d
    where d.due_at < 'infinity'
      and ($1::uuid[] is null or d.message_id = any ($1))
      and ($2::text is null or d.sink = $2)
      and ($5::text is null or d.tenant_id = $5)
      and ($6::text is null or d.lane = $6)
      and (($3::text is null and $4::text is null) or exists (
          select from :"schema".message m
          where m.id = d.message_id and ($3 is null or m.namespace = $3) and ($4 is null or m.topic like :"schema".topic_like($4)) offset 0))
)

-- name: count
-- How many are pending, how many of those wait for their time, and how many a worker holds: what cancel and retry_now
-- would take, and what they leave alone.
select count(*) filter (where d.lease_token is null) as pending,
       count(*) filter (where d.lease_token is null and d.due_at > clock_timestamp()) as waiting,
       count(*) filter (where d.lease_token is not null) as leased
from matching d

-- name: missing
-- Which of the named messages have no open delivery of this kind.
select i.id
from (select distinct i.id from unnest($1::uuid[]) i (id)) i
where not exists (select from matching d where d.message_id = i.id)
order by i.id
