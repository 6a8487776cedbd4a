-- What an operator asks before an action, and about those before. Called by `store/postgres/inspect.rs`. The actions themselves are
-- calls of their functions, in `store/postgres/operate.rs`.

-- name: count_replay
-- What one step of a replay would take: see replay_batch. Messages that are pending, leased or dead for the sink are
-- neither. $1 messages, $2 sink, $3 first id, $4 first id that is no longer meant, $5 namespace, $6 topic, $7 after this
-- message, $8 look at no more than this many.
with looked_at as materialized (
    select m.id, ($5::text is null or m.namespace = $5) and ($6::text is null or m.topic like :"schema".topic_like($6)) as meant
    from :"schema".message m
    where ($1::uuid[] is null or m.id = any ($1)) and m.id >= $3 and m.id < $4 and ($7::uuid is null or m.id > $7)
    order by m.id
    limit $8
),
meant as (
    select m.id,
           coalesce((select true from :"schema".attempt a
                     where a.message_id = m.id and a.sink = $2 and a.state = 'DISPATCHED' limit 1), false) as delivered
    from looked_at m
    where m.meant
      and not exists (select from :"schema".delivery d where d.message_id = m.id and d.sink = $2)
      and not exists (select from :"schema".dead_letter l where l.message_id = m.id and l.sink = $2)
)
select (select count(*) from meant m where m.delivered) as delivered,
       (select count(*) from meant m where not m.delivered) as never_delivered,
       (select count(*) from looked_at) as looked_at,
       (select m.id from looked_at m order by m.id desc limit 1) as last_id,
       $7 is not null or :"schema".sink_is_known($2, $3, $4, $1) as known

-- name: count_stale
-- How many leases have ended, and with $2 also those that were taken at least $1 seconds ago or in the future: what
-- unclaim_stuck would take.
select count(*)
from :"schema".delivery d
where d.lease_expires_at <= clock_timestamp()
   or ($2 and d.lease_token is not null
       and (d.claimed_at <= clock_timestamp() - $1::text::numeric * interval '1 second' or d.claimed_at > clock_timestamp()))

-- name: prunable
-- What a prune would take now.
select partitions as partitions_dropped, rest as rest_deleted, dedupe as dedupe_deleted
from :"schema".prunable(older_than_seconds => $1::text::numeric)

-- name: routes
-- Which new messages go where.
select sink, topic, namespace from :"schema".route
order by namespace collate "C", topic collate "C", sink collate "C"

-- name: audit
-- What operators did, newest first. $1: before this entry.
select * from :"schema".audit_log
where $1::int8 is null or id < $1
order by id desc
limit $2
