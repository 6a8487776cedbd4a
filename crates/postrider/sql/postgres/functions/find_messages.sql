-- A page of messages, newest first, with where each stands: what an operator looks through.
-- Caller: Inspect::list, people. Reads only. Every filter may be null; ids bound the time (message_id_floor). In the topic
-- * stands for any characters, as in a route.
--   pending, leased, dead: what the delivery itself tells (state, tenant, lane, sink) is asked of the hot table or of the
--   dead letters; what only the message tells (namespace, topic) is looked up for no more than `look_at` deliveries.
--   delivered, discarded, or no state: looks at no more than `look_at` messages of history, one after the other until the
--   page is full. Discarded: nothing is left to deliver, and a sink (the one asked for) has attempts of which none was
--   DISPATCHED: somebody gave it up or cancelled it.
--   The bound is a limit inside, the filters stand outside of it, and nothing in between sorts or
-- hashes but the attempts of one message.
-- A page ends between two messages, so it may have a few rows more than `page_size`. If it did not fill, and there is
-- more behind what was looked at, a last row has no message_id and `look_on` says where to go on (as id_before).
-- Compiling the plan would take longer than running it: no JIT.
-- Indexes: message_pk, delivery_pk, dead_letter_pk, attempt_pk. Zero rows: nothing found, and nothing more to look at.
create or replace function :"schema".find_messages(
    state text default null, namespace text default null, topic text default null, tenant_id text default null,
    lane text default null, sink text default null, id_from uuid default null, id_before uuid default null,
    page_size integer default 100, look_at integer default 10000
)
    returns setof :"schema".found language plpgsql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_custom_plan
    -- With old statistics a table of dead letters that has grown is read from end to end for every message.
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    v_from    constant uuid := coalesce($7, '00000000-0000-0000-0000-000000000000');
    v_before  constant uuid := coalesce($8, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    v_topic   constant text := topic_like($3);
begin
    perform refuse_unless($9 between 1 and 10000, 'page_size must be between 1 and 10000');
    perform refuse_unless($10 between 1 and 1000000, 'look_at must be between 1 and 1000000');
    perform refuse_unless(coalesce($1 in ('pending', 'leased', 'dead', 'delivered', 'discarded'), true),
                          'state must be pending, leased, dead, delivered or discarded');
    if $1 not in ('delivered', 'discarded') then
        return query
        with page as materialized (
            select d.message_id, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, d.state, d.attempt_no, d.due_at
            from (
                select d.message_id, d.sink, d.state, d.attempt_no, d.due_at
                from deliveries d
                where d.state = $1 and d.message_id >= v_from and d.message_id < v_before
                  and ($4 is null or d.tenant_id = $4) and ($5 is null or d.lane = $5) and ($6 is null or d.sink = $6)
                order by d.message_id desc
                fetch first ($10) rows with ties
            ) d
            cross join lateral (
                select m.namespace, m.topic, m.lane, m.sequence_id
                from message m
                where m.id = d.message_id and ($2 is null or m.namespace = $2) and ($3 is null or m.topic like v_topic)
                offset 0
            ) m
            order by d.message_id desc
            fetch first ($9) rows with ties
        ), rest as (
            select d.message_id from deliveries d
            where d.state = $1 and d.message_id >= v_from and d.message_id < v_before
              and ($4 is null or d.tenant_id = $4) and ($5 is null or d.lane = $5) and ($6 is null or d.sink = $6)
            order by d.message_id desc
            offset $10 - 1 limit 1
        )
        select p.message_id, message_id_time(p.message_id), p.namespace::text, p.topic::text, p.lane::text,
               p.sequence_id, p.sink::text, p.state, p.attempt_no, p.due_at, null::uuid
        from page p
        union all
        select null, null, null, null, null, null, null, null, null, null, r.message_id
        from rest r
        where (select count(*) from page) < $9
        order by 1 desc nulls last, 7;
        return;
    end if;
    return query
    with page as materialized (
        select m.id, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, coalesce(d.state, e.state) as state,
               d.attempt_no, d.due_at
        from (
            select m.id, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id
            from message m
            where m.id >= v_from and m.id < v_before
            order by m.id desc
            limit $10
        ) m
        left join lateral (
            select d.sink, d.state, d.attempt_no, d.due_at from deliveries d where d.message_id = m.id offset 0
        ) d on true
        left join lateral (
            select case when not bool_and(t.delivered) then 'discarded' else 'delivered' end as state
            from (
                select bool_or(a.state = 'DISPATCHED') as delivered from attempt a
                where a.message_id = m.id and ($6 is null or a.sink = $6)
                group by a.sink
            ) t
            where d.sink is null
            having $6 is null or count(*) > 0
            offset 0
        ) e on true
        where ($2 is null or m.namespace = $2) and ($3 is null or m.topic like v_topic) and ($4 is null or m.tenant_id = $4)
          and ($5 is null or m.lane = $5) and ($1 is null or (d.sink is null and e.state = $1))
          and ($6 is null or d.sink = $6 or (d.sink is null and e.state is not null))
        order by m.id desc
        fetch first ($9) rows with ties
    ), rest as (
        select m.id from message m
        where m.id >= v_from and m.id < v_before
        order by m.id desc
        offset $10 - 1 limit 1
    )
    select p.id, message_id_time(p.id), p.namespace::text, p.topic::text, p.lane::text, p.sequence_id, p.sink::text,
           p.state, p.attempt_no, p.due_at, null::uuid
    from page p
    union all
    select null, null, null, null, null, null, null, null, null, null, r.id
    from rest r
    where (select count(*) from page) < $9
    order by 1 desc nulls last, 7;
end
$$;
comment on function :"schema".find_messages is
    'A page of messages, newest first, with where each stands. Looks at a bounded number of them.';
grant execute on function :"schema".find_messages to :"reader", :"operator", :"auditor";
