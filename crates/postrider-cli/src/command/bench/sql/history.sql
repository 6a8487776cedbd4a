-- Messages that were delivered in the last hour: $1 of them.
with messages as (
    insert into :"schema".message (id, occurred_at, priority, content_bytes, namespace, topic, payload)
    select :"schema".new_message_id(((extract(epoch from now()) - random() * 3600) * 1e6)::bigint), now(), 0,
           octet_length($2), 'default', 'bench', $2::jsonb
    from generate_series(1, $1)
    returning id
)
insert into :"schema".attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id)
select m.id, 'default', 1, 'DISPATCHED', now(), now(), 1, 'bench' from messages m
