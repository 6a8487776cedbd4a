-- Thousands of messages in one call, in the caller's transaction: arrays in, one row per input out, in input order.
-- Caller: producers and `postrider enqueue`.
-- Transition: nothing -> pending, one delivery for each sink that the topic is routed to (`default` if to none).
-- Locks: dedupe keys in key order, then lanes in lane order, so that two batches never wait for each other in a
--   circle; a lane's row until the transaction ends, so commit order is sequence order and a rollback leaves no hole.
-- Indexes: dedupe_pk, lane_sequence_pk. Zero rows out: zero inputs.
--
-- due_at defaults to the time the message occurred (not later than now), so that order by due_at is order by age.
create or replace function :"schema".enqueue_many(
    topic          text[],
    payload        jsonb[]       default null,
    namespace      text[]        default null,
    tenant_id      text[]        default null,
    lane           text[]        default null,
    dedupe_key     text[]        default null,
    priority       integer[]     default null,
    headers        jsonb[]       default null,
    due_at         timestamptz[] default null,
    occurred_at    timestamptz[] default null,
    body           bytea[]       default null,
    content_type   text[]        default null,
    delay_seconds  numeric[]     default null
)
    returns table (ordinal integer, message_id uuid, sequence_id bigint, created boolean)
    language plpgsql security definer rows 1000
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    -- The planner takes an array for ten rows and would join a thousand with a thousand in nested loops.
    set enable_nestloop = off set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    v_now     constant timestamptz := now();
    v_micros  constant bigint := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
    v_count   constant integer := coalesce(cardinality(enqueue_many.topic), 0);
    v_routed  constant boolean := exists (select from route);
    v_sizes   integer[];
    v_ids     uuid[];
    v_named   uuid[];
    v_new     uuid[];
    v_bad     record;
begin
    if array_ndims(enqueue_many.topic) > 1 then
        raise exception 'enqueue_many takes one-dimensional arrays' using errcode = '22023';
    end if;
    if v_count <> any (array[
        coalesce(cardinality(enqueue_many.payload), v_count), coalesce(cardinality(enqueue_many.namespace), v_count),
        coalesce(cardinality(enqueue_many.tenant_id), v_count), coalesce(cardinality(enqueue_many.lane), v_count),
        coalesce(cardinality(enqueue_many.dedupe_key), v_count), coalesce(cardinality(enqueue_many.priority), v_count),
        coalesce(cardinality(enqueue_many.headers), v_count), coalesce(cardinality(enqueue_many.due_at), v_count),
        coalesce(cardinality(enqueue_many.occurred_at), v_count), coalesce(cardinality(enqueue_many.body), v_count),
        coalesce(cardinality(enqueue_many.content_type), v_count),
        coalesce(cardinality(enqueue_many.delay_seconds), v_count)])
    then
        raise exception 'the arrays given to enqueue_many differ in length (topic has %)', v_count
            using errcode = '22023', hint = 'Give every array the length of topic, or leave it out.';
    end if;
    if v_count = 0 then
        return;
    end if;

    v_sizes := content_sizes(enqueue_many.payload, enqueue_many.body);
    -- The first rule that a message breaks, with what to do about it.
    select i.ordinal, b.broken into v_bad
    from unnest(enqueue_many.topic, enqueue_many.payload, enqueue_many.namespace, enqueue_many.tenant_id,
                enqueue_many.lane, enqueue_many.dedupe_key, enqueue_many.priority, enqueue_many.headers,
                enqueue_many.due_at, enqueue_many.occurred_at, enqueue_many.body, enqueue_many.content_type,
                enqueue_many.delay_seconds, v_sizes)
         with ordinality as i (topic, payload, namespace, tenant_id, lane, dedupe_key, priority, headers,
                               due_at, occurred_at, body, content_type, delay_seconds, content_bytes, ordinal)
    cross join lateral (select coalesce(
        broken_rule(i.topic, i.namespace, i.payload, i.body, i.content_bytes),
        broken_option(i.tenant_id, i.lane, i.dedupe_key, i.priority, i.headers, i.content_type, i.due_at, i.occurred_at,
                      i.delay_seconds)) as broken) b
    where b.broken is not null
    order by i.ordinal
    limit 1;
    if found then
        raise exception '%', case when v_count > 1 then format('message %s of %s: ', v_bad.ordinal, v_count) else '' end
                             || v_bad.broken[1]
            using errcode = '22023', hint = v_bad.broken[2];
    end if;

    -- One microsecond apart, so that ids keep the order of the input.
    v_ids := array(select new_message_id(v_micros + n) from generate_series(1, v_count) n);

    -- Which message each key stands for: what this insert wrote, or what it met. The insert itself is the answer, at every
    -- isolation level: a snapshot may still show a key that was pruned since. A racing producer of the same key is waited
    -- for; if a key that was met is pruned meanwhile, it is free, and written in the next round.
    v_named := v_ids;
    if enqueue_many.dedupe_key is not null then
        v_named := array_fill(null::uuid, array[v_count]);
        loop
            with written as (
                insert into dedupe (namespace, topic, tenant, dedupe_key, message_id)
                select coalesce(i.namespace, 'default'), i.topic, coalesce(i.tenant_id, ''), i.dedupe_key, i.id
                from unnest(enqueue_many.namespace, enqueue_many.topic, enqueue_many.tenant_id, enqueue_many.dedupe_key,
                            v_ids, v_named)
                     with ordinality as i (namespace, topic, tenant_id, dedupe_key, id, named, ordinal)
                where i.dedupe_key is not null and i.named is null
                order by coalesce(i.namespace, 'default') collate "C", i.topic collate "C",
                         coalesce(i.tenant_id, '') collate "C", i.dedupe_key collate "C", i.ordinal
                on conflict (namespace, topic, tenant, dedupe_key) do nothing
                returning message_id
            )
            select array_agg(w.message_id) into v_new from written w;
            v_named := array(
                select coalesce(i.named, n.id, case when i.dedupe_key is null then i.id else k.message_id end)
                from unnest(enqueue_many.namespace, enqueue_many.topic, enqueue_many.tenant_id, enqueue_many.dedupe_key,
                            v_ids, v_named)
                     with ordinality as i (namespace, topic, tenant_id, dedupe_key, id, named, ordinal)
                left join unnest(v_new) n (id) on n.id = i.id
                left join lateral (
                    select d.message_id from dedupe d
                    where d.namespace = coalesce(i.namespace, 'default') and d.topic = i.topic
                      and d.tenant = coalesce(i.tenant_id, '') and d.dedupe_key = i.dedupe_key and n.id is null
                    -- An old snapshot may show the key that was pruned beside the one of this transaction.
                    order by d.message_id desc
                    limit 1
                ) k on true
                order by i.ordinal);
            exit when array_position(v_named, null) is null;
        end loop;
    end if;

    return query
    with input as materialized (
        select i.ordinal::integer as ordinal, i.id, i.message_id, i.content_bytes,
               i.topic, i.payload, coalesce(i.namespace, 'default') as namespace, i.tenant_id, i.lane, i.dedupe_key,
               coalesce(i.priority, 0) as priority, i.headers, coalesce(i.occurred_at, v_now) as occurred_at,
               coalesce(i.due_at, v_now + i.delay_seconds * interval '1 second', least(i.occurred_at, v_now)) as due_at,
               i.body, i.content_type
        from unnest(v_ids, v_named, v_sizes, enqueue_many.topic, enqueue_many.payload, enqueue_many.namespace, enqueue_many.tenant_id,
                    enqueue_many.lane, enqueue_many.dedupe_key, enqueue_many.priority, enqueue_many.headers,
                    enqueue_many.due_at, enqueue_many.occurred_at, enqueue_many.body, enqueue_many.content_type,
                    enqueue_many.delay_seconds)
             with ordinality as i (id, message_id, content_bytes, topic, payload, namespace, tenant_id, lane, dedupe_key,
                                   priority, headers, due_at, occurred_at, body, content_type, delay_seconds, ordinal)
    ),
    lane_end as (
        insert into lane_sequence as s (lane, last_sequence)
        select i.lane, count(*) from input i
        where i.lane is not null and i.id = i.message_id
        group by i.lane order by i.lane collate "C"
        on conflict (lane) do update set last_sequence = s.last_sequence + excluded.last_sequence
        returning s.lane, s.last_sequence
    ),
    fresh as materialized (
        select i.*, e.last_sequence + 1
                    - row_number() over (partition by i.lane order by i.ordinal desc) as sequence_id
        from input i left join lane_end e on e.lane = i.lane
        where i.id = i.message_id
    ),
    written as (
        insert into message (id, occurred_at, priority, content_bytes, sequence_id, tenant_id, namespace, topic, lane,
                             dedupe_key, content_type, headers, payload, body)
        select f.id, f.occurred_at, f.priority, f.content_bytes, f.sequence_id, f.tenant_id, f.namespace, f.topic, f.lane,
               f.dedupe_key, f.content_type, f.headers, f.payload, f.body
        from fresh f order by f.ordinal
    ),
    sent as (
        insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane)
        select f.id, f.occurred_at, f.due_at, f.priority, f.content_bytes + coalesce(octet_length(f.headers::text), 0),
               f.sequence_id, f.tenant_id, coalesce(r.sink, 'default'), f.lane
        from fresh f
        left join lateral (
            select distinct r.sink from route r
            where v_routed and r.namespace in ('*', f.namespace) and f.topic like r.topic_like
        ) r on true
        order by f.ordinal
    )
    select i.ordinal, i.message_id, coalesce(f.sequence_id, m.sequence_id), i.id = i.message_id
    from input i
    left join fresh f on f.id = i.message_id
    left join lateral (
        select m.sequence_id from message m where m.id = i.message_id and i.id <> i.message_id limit 1
    ) m on true
    order by i.ordinal;

    if exists (select from unnest(enqueue_many.due_at, enqueue_many.delay_seconds, enqueue_many.topic)
                      as i (due_at, delay_seconds, topic)
               where coalesce(i.due_at, v_now) <= v_now and coalesce(i.delay_seconds, 0) = 0)
    then
        perform notify_sleepers();
    end if;
end
$$;
comment on function :"schema".enqueue_many is 'Writes many messages in this transaction. One row per input, in input order.';
