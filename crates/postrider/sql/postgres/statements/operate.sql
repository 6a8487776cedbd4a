-- What an operator does. Called by `store/postgres/operate.rs`: each is one call of the function that does it and writes its
-- entry of the audit. $1 is who acts. One row: how much was changed.

-- name: redrive
-- dead -> pending.
select :"schema".redrive_matching(actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6,
                                  tenant_id => $7, lane => $8, reason => $9, error_code => $10, died_from => $11,
                                  died_to => $12)

-- name: discard
-- dead -> gone.
select :"schema".discard_matching(actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6,
                                  tenant_id => $7, lane => $8, reason => $9, error_code => $10, died_from => $11,
                                  died_to => $12)

-- name: retry_now
-- pending, due later -> pending, due now.
select :"schema".retry_now(actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6,
                           tenant_id => $7, lane => $8)

-- name: cancel
-- pending -> gone.
select :"schema".cancel(actor => $1, at_most => $2, message_ids => $3, sink => $4, namespace => $5, topic => $6,
                        tenant_id => $7, lane => $8)

-- name: skip
-- A parked lane goes on without its dead head.
select :"schema".skip(actor => $1, sink => $2, lane => $3)::integer

-- name: replay
-- delivered -> pending, one step of it.
select r.replayed::bigint, r.next_id, r.paced_until
from :"schema".replay_batch(actor => $1, sink => $2, message_ids => $3, enqueued_from => $4, enqueued_to => $5,
                            namespace => $6, topic => $7, include_never_delivered => $8, after_id => $9, at_most => $10,
                            per_second => $11, paced_from => $12) r

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

-- name: pause
-- A sink is paused, or goes on.
select :"schema".configure_sink(actor => $1, sink => $2, paused => $3)::integer

-- name: set_on_dead
-- What a dead lane head does to its lane.
select :"schema".configure_sink(actor => $1, sink => $2, on_dead => $3)::integer

-- name: unclaim_stuck
-- leased -> pending, for leases that ended long ago, or live and were taken long ago.
select :"schema".unclaim_stuck(actor => $1, older_than_seconds => $2::text::numeric, live => $3)

-- name: prune
-- History that is over goes.
select p.partitions_dropped + p.rest_deleted + p.dedupe_deleted
from :"schema".prune(actor => $1, older_than_seconds => $2::text::numeric) p

-- name: add_route
-- New messages of a topic go to a sink.
select :"schema".add_route(actor => $1, sink => $2, topic => $3, namespace => $4)::integer

-- name: remove_route
-- New messages no longer go there.
select :"schema".remove_route(actor => $1, sink => $2, topic => $3, namespace => $4)::integer

-- name: apply_routes
-- pending -> pending at the sinks that the routes name, one step of it.
select r.added + r.removed from :"schema".apply_routes(actor => $1, at_most => $2) r

-- name: count_route_changes
-- What that would add and remove in all.
select r.added::bigint as added, r.removed::bigint as removed from :"schema".apply_routes(dry_run => true) r

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
