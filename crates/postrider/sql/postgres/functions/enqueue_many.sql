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
    v_now        constant timestamptz := now();
    v_micros     constant bigint := (date_part('epoch', clock_timestamp()) * 1e6)::bigint;
    v_count      constant integer := coalesce(cardinality(enqueue_many.topic), 0);
    -- What is random in the ids of this batch.
    v_random     constant bytea := uuid_send(gen_random_uuid());
    v_half       constant bytea := substr(v_random, 9, 4);
    v_low        constant integer := ('x' || encode(substr(v_random, 13), 'hex'))::bit(32)::integer;
    v_dims       text[];
    v_sizes      integer[];
    v_ids        uuid[];
    v_named      uuid[];
    v_new        uuid[];
    v_sequences  bigint[];
    v_bad        record;
begin
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
    v_dims := array[
        array_dims(enqueue_many.topic), array_dims(enqueue_many.payload), array_dims(enqueue_many.namespace),
        array_dims(enqueue_many.tenant_id), array_dims(enqueue_many.lane), array_dims(enqueue_many.dedupe_key),
        array_dims(enqueue_many.priority), array_dims(enqueue_many.headers), array_dims(enqueue_many.due_at),
        array_dims(enqueue_many.occurred_at), array_dims(enqueue_many.body), array_dims(enqueue_many.content_type),
        array_dims(enqueue_many.delay_seconds)];
    if format('[1:%s]', v_count) <> any (v_dims) then
        if array_to_string(v_dims, ' ') like '%][%' then
            raise exception 'enqueue_many takes one-dimensional arrays' using errcode = '22023';
        end if;
        -- Elements may be numbered from anywhere; those of a slice are numbered from 1.
        return query select * from enqueue_many(
            enqueue_many.topic[:], enqueue_many.payload[:], enqueue_many.namespace[:], enqueue_many.tenant_id[:],
            enqueue_many.lane[:], enqueue_many.dedupe_key[:], enqueue_many.priority[:], enqueue_many.headers[:],
            enqueue_many.due_at[:], enqueue_many.occurred_at[:], enqueue_many.body[:], enqueue_many.content_type[:],
            enqueue_many.delay_seconds[:]);
        return;
    end if;

    -- plpgsql holds arrays unpacked, so an element by its number costs nothing. unnest would copy each of them into a tuplestore.
    v_sizes := content_sizes(enqueue_many.payload, enqueue_many.body);
    -- The rules in short, as in enqueue; then the first one that a message breaks, with what to do about it.
    if num_nonnulls(enqueue_many.tenant_id, enqueue_many.lane, enqueue_many.dedupe_key, enqueue_many.priority,
                    enqueue_many.headers, enqueue_many.due_at, enqueue_many.occurred_at, enqueue_many.content_type,
                    enqueue_many.delay_seconds) > 0
       or exists (
            select from generate_series(1, v_count) n
            where (octet_length(enqueue_many.topic[n]) between 1 and 255 and v_sizes[n] <= 16777216
                   and coalesce(octet_length(enqueue_many.namespace[n]) between 1 and 255, true)) is not true)
    then
        select n.n as ordinal, b.broken into v_bad
        from generate_series(1, v_count) n (n)
        cross join lateral (select coalesce(
            broken_rule(enqueue_many.topic[n], enqueue_many.namespace[n], enqueue_many.payload[n], enqueue_many.body[n],
                        v_sizes[n]),
            broken_option(enqueue_many.tenant_id[n], enqueue_many.lane[n], enqueue_many.dedupe_key[n],
                          enqueue_many.priority[n], enqueue_many.headers[n], enqueue_many.content_type[n],
                          enqueue_many.due_at[n], enqueue_many.occurred_at[n], enqueue_many.delay_seconds[n])) as broken) b
        where b.broken is not null
        order by n.n
        limit 1;
        if found then
            raise exception '%',
                case when v_count > 1 then format('message %s of %s: ', v_bad.ordinal, v_count) else '' end || v_bad.broken[1]
                using errcode = '22023', hint = v_bad.broken[2];
        end if;
    end if;

    -- One microsecond apart, so that ids keep the order of the input. A random half for each would cost as much as an insert into
    -- an index; the last bytes differ, for people find a message by the end of its id.
    v_ids := array(select new_message_id(v_micros + n, v_half || int4send(v_low # n)) from generate_series(1, v_count) n);

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

    if enqueue_many.lane is not null then
        with fresh as materialized (
            select n, enqueue_many.lane[n] collate "C" as lane from generate_series(1, v_count) n
            where enqueue_many.lane[n] is not null and v_ids[n] = v_named[n]
        ),
        lane_end as (
            insert into lane_sequence as s (lane, last_sequence)
            select f.lane, count(*) from fresh f group by f.lane order by f.lane
            on conflict (lane) do update set last_sequence = s.last_sequence + excluded.last_sequence
            returning s.lane, s.last_sequence
        ),
        numbered as (
            select f.n, e.last_sequence + 1 - row_number() over (partition by f.lane order by f.n desc) as sequence_id
            from fresh f join lane_end e on e.lane = f.lane
        )
        select array_agg(b.sequence_id order by i.n) into v_sequences
        from generate_series(1, v_count) i (n) left join numbered b on b.n = i.n;
    end if;
    insert into message (id, occurred_at, priority, content_bytes, sequence_id, tenant_id, namespace, topic, lane,
                         dedupe_key, content_type, headers, payload, body)
    select v_ids[n], coalesce(enqueue_many.occurred_at[n], v_now), coalesce(enqueue_many.priority[n], 0), v_sizes[n],
           v_sequences[n], enqueue_many.tenant_id[n], coalesce(enqueue_many.namespace[n], 'default'), enqueue_many.topic[n],
           enqueue_many.lane[n], enqueue_many.dedupe_key[n], enqueue_many.content_type[n], enqueue_many.headers[n],
           enqueue_many.payload[n], enqueue_many.body[n]
    from generate_series(1, v_count) n
    where v_ids[n] = v_named[n];
    if exists (select from route) then
        insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane)
        select v_ids[n], coalesce(enqueue_many.occurred_at[n], v_now),
               coalesce(enqueue_many.due_at[n], v_now + enqueue_many.delay_seconds[n] * interval '1 second',
                        least(enqueue_many.occurred_at[n], v_now)),
               coalesce(enqueue_many.priority[n], 0), v_sizes[n] + coalesce(octet_length(enqueue_many.headers[n]::text), 0),
               v_sequences[n], enqueue_many.tenant_id[n], coalesce(r.sink, 'default'), enqueue_many.lane[n]
        from generate_series(1, v_count) n
        left join lateral (
            select distinct r.sink from route r
            where r.namespace in ('*', coalesce(enqueue_many.namespace[n], 'default'))
              and enqueue_many.topic[n] like r.topic_like
        ) r on true
        where v_ids[n] = v_named[n];
    else
        insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane)
        select v_ids[n], coalesce(enqueue_many.occurred_at[n], v_now),
               coalesce(enqueue_many.due_at[n], v_now + enqueue_many.delay_seconds[n] * interval '1 second',
                        least(enqueue_many.occurred_at[n], v_now)),
               coalesce(enqueue_many.priority[n], 0), v_sizes[n] + coalesce(octet_length(enqueue_many.headers[n]::text), 0),
               v_sequences[n], enqueue_many.tenant_id[n], 'default', enqueue_many.lane[n]
        from generate_series(1, v_count) n
        where v_ids[n] = v_named[n];
    end if;
    if enqueue_many.dedupe_key is null then
        return query
        select n, v_ids[n], v_sequences[n], true from generate_series(1, v_count) n;
    else
        return query
        select n, v_named[n],
               case when v_ids[n] = v_named[n] then v_sequences[n]
                    else (select m.sequence_id from message m where m.id = v_named[n]) end,
               v_ids[n] = v_named[n]
        from generate_series(1, v_count) n;
    end if;

    if (enqueue_many.due_at is null and enqueue_many.delay_seconds is null)
       or exists (select from generate_series(1, v_count) n
                  where coalesce(enqueue_many.due_at[n], v_now) <= v_now and coalesce(enqueue_many.delay_seconds[n], 0) = 0)
    then
        perform notify_sleepers();
    end if;
end
$$;
comment on function :"schema".enqueue_many is 'Writes many messages in this transaction. One row per input, in input order.';
grant execute on function :"schema".enqueue_many to :"producer", :"operator";
