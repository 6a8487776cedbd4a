-- Writes one batch of an import: what import_rows and forward_rows do. Internal; called by them.
-- A row is noted in `imported` in the same statement that writes its message, and only who notes it writes it: two imports,
-- or an import and a trigger, never write a row twice. A dedupe key is taken before that; a key that is taken already makes
-- the row a duplicate of the message that has it, as enqueue would answer.
-- `is_new`: the rows are just being written by their producer, so they come last in their lanes: no lock on the lanes' fronts
-- is needed, which would make producers wait for each other.
create or replace function :"schema".import_messages(
    source text, rows :"schema".import_row[], workers_stopped boolean, is_new boolean,
    out pending bigint, out dead bigint, out delivered bigint, out duplicates bigint, out refused bigint,
    out left_over bigint
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    -- The planner takes an array for ten rows and would join a thousand with a thousand in nested loops.
    set enable_nestloop = off
    set enable_seqscan = off
    set jit = off
as $$
#variable_conflict use_column
declare
    v_source  constant integer := (select s.id from import_source s where s.name = import_messages.source);
    v_now     constant timestamptz := clock_timestamp();
    v_worker  constant text := left('import:' || import_messages.source, 255);
    v_routed  constant boolean := exists (select from route);
    v_dead    uuid[];
    v_buried  integer[];
begin
    if v_source is null then
        raise exception 'there is no import of "%"', import_messages.source
            using errcode = '22023', hint = 'begin_import notes the table first.';
    end if;
    perform keep_import_lanes(v_source, array_agg(l.lane), array_agg(l.last_sequence))
    from (select r.lane, max(r.sequence_id) as last_sequence from unnest(import_messages.rows) r
          where r.lane is not null and r.sequence_id is not null group by r.lane) l;
    if not import_messages.is_new and exists (select from unnest(import_messages.rows) r where r.lane is not null) then
        perform hold_lane_fronts(array(select r.sink from route r union select 'default'));
    end if;

    with checked as materialized (
        select * from import_checked(v_source, import_messages.rows, import_messages.workers_stopped,
                                     import_messages.is_new)
    ),
    known as materialized (
        select c.ordinal, k.message_id from checked c
        cross join lateral (
            select d.message_id from dedupe d
            where d.namespace = c.namespace and d.topic = c.topic and d.tenant = coalesce(c.tenant_id, '')
              and d.dedupe_key = c.dedupe_key
            order by d.message_id desc
            limit 1
        ) k
        where c.refused is null and c.dedupe_key is not null
    ),
    keyed as (
        insert into dedupe (namespace, topic, tenant, dedupe_key, message_id)
        select c.namespace, c.topic, coalesce(c.tenant_id, ''), c.dedupe_key, c.id
        from checked c left join known k on k.ordinal = c.ordinal
        where c.refused is null and c.dedupe_key is not null and k.ordinal is null
        order by c.namespace collate "C", c.topic collate "C", coalesce(c.tenant_id, '') collate "C",
                 c.dedupe_key collate "C", c.ordinal
        on conflict (namespace, topic, tenant, dedupe_key) do nothing
        returning message_id
    ),
    decided as materialized (
        select c.*, coalesce(k.message_id, c.id) as message_id,
               case when c.refused is not null then 'refused' when k.ordinal is not null then 'duplicate'
                    else c.state end as outcome
        from checked c
        left join known k on k.ordinal = c.ordinal
        left join keyed n on n.message_id = c.id
        where c.refused is not null or c.dedupe_key is null or k.ordinal is not null or n.message_id is not null
    ),
    noted as materialized (
        insert into imported as i (source_id, imported_at, source_key, outcome, reason, message_id, lane, sequence_id)
        select v_source, v_now, d.source_key, d.outcome, d.refused,
               case when d.outcome <> 'refused' then d.message_id end,
               case when d.outcome not in ('refused', 'duplicate') then d.lane end,
               case when d.outcome not in ('refused', 'duplicate') then d.sequence_id end
        from decided d order by d.ordinal
        on conflict (source_id, source_key) do update
            set imported_at = excluded.imported_at, outcome = excluded.outcome, reason = excluded.reason,
                message_id = excluded.message_id, lane = excluded.lane, sequence_id = excluded.sequence_id
            where i.outcome = 'refused'
        returning i.source_key, i.outcome
    ),
    mine as materialized (
        select d.* from decided d join noted n on n.source_key = d.source_key
        where d.outcome in ('pending', 'dead', 'delivered')
    ),
    lane_end as (
        insert into lane_sequence as s (lane, last_sequence)
        select m.lane, count(*) from mine m
        where m.lane is not null and m.sequence_id is null
        group by m.lane order by m.lane collate "C"
        on conflict (lane) do update set last_sequence = s.last_sequence + excluded.last_sequence
        returning s.lane, s.last_sequence
    ),
    numbered as materialized (
        select m.ordinal, m.outcome, m.claimed, m.id, m.namespace, m.topic, m.tenant_id, m.lane, m.dedupe_key, m.priority,
               m.headers, m.payload, m.body, m.content_type, m.content_bytes, m.occurred_at, m.due_at, m.attempts,
               m.ended_at, m.error_code, m.error_message, m.sequence_id is not null as has_old_number,
               coalesce(m.sequence_id, e.last_sequence + 1
                        - row_number() over (partition by m.lane, m.sequence_id is null order by m.ordinal desc))
                   as sequence_id
        from mine m left join lane_end e on e.lane = m.lane and m.sequence_id is null
    ),
    written as (
        insert into message (id, occurred_at, priority, content_bytes, sequence_id, tenant_id, namespace, topic, lane,
                             dedupe_key, content_type, headers, payload, body)
        select m.id, m.occurred_at, m.priority, m.content_bytes, m.sequence_id, m.tenant_id, m.namespace, m.topic, m.lane,
               m.dedupe_key, m.content_type, m.headers, m.payload, m.body
        from numbered m order by m.ordinal
    ),
    routed as materialized (
        select m.ordinal, coalesce(r.sink, 'default') as sink
        from numbered m
        left join lateral (
            select distinct r.sink from route r
            where v_routed and r.namespace in ('*', m.namespace) and m.topic like r.topic_like
        ) r on true
    ),
    sent as (
        insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane,
                              attempt_no, attempt_count, lane_tail)
        -- What comes in front of a lane waits until no lease lives up to there, as in change_letters.
        select m.id, m.occurred_at, m.due_at, m.priority,
               m.content_bytes + coalesce(octet_length(m.headers::text), 0), m.sequence_id, m.tenant_id, m.sink,
               m.lane, m.attempts, m.attempts,
               max(case when m.nth = 1 and m.has_old_number and not import_messages.is_new
                        then lane_reach(m.sink, m.lane) end) over (partition by m.sink, m.lane)
        from (
            select m.*, r.sink, row_number() over (partition by r.sink, m.lane, m.has_old_number) as nth
            from numbered m join routed r on r.ordinal = m.ordinal
            where m.outcome = 'pending'
        ) m
        order by m.ordinal
    ),
    tried as (
        insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                             error_message)
        select m.id, r.sink, greatest(m.attempts, 1),
               case when m.outcome = 'delivered' then 'DISPATCHED' when m.outcome = 'dead' then 'FAILED'
                    when m.claimed then 'ZOMBIE_REQUEUE' else 'RETRYABLE' end::attempt_state,
               m.ended_at, m.ended_at, v_worker,
               case when m.outcome <> 'delivered' then m.error_code end,
               case when m.outcome <> 'delivered' then m.error_message end
        from numbered m join routed r on r.ordinal = m.ordinal
        where m.attempts > 0 or m.outcome = 'delivered'
        order by m.ordinal
    )
    select count(*) filter (where n.outcome = 'pending'), count(*) filter (where n.outcome = 'dead'),
           count(*) filter (where n.outcome = 'delivered'), count(*) filter (where n.outcome = 'duplicate'),
           count(*) filter (where n.outcome = 'refused'),
           cardinality(import_messages.rows) - (select count(*) from decided),
           (select array_agg(m.id) from numbered m where m.outcome = 'dead'),
           (select array_agg(m.ordinal) from numbered m where m.outcome = 'dead')
    into pending, dead, delivered, duplicates, refused, left_over, v_dead, v_buried
    from noted n;

    -- After their messages: a trigger copies namespace and topic from there.
    insert into dead_letter (message_id, sink, died_at, reason, priority, size_bytes, tenant_id, lane, sequence_id, attempt_no,
                             attempt_count, parked, error_code, error_message)
    select m.id, coalesce(r.sink, 'default'), coalesce(o.ended_at, m.occurred_at),
           case when o.dead_reason = 'ATTEMPTS_EXHAUSTED' then o.dead_reason else 'FAILED' end, m.priority,
           m.content_bytes + coalesce(octet_length(m.headers::text), 0), m.tenant_id, m.lane, m.sequence_id,
           least(greatest(coalesce(o.attempts, 0), 0), 2147483647), least(greatest(coalesce(o.attempts, 0), 0), 2147483647),
           false, left(o.error_code, 255), left(o.error_message, 4000)
    from unnest(v_dead, v_buried) b (id, nth)
    cross join lateral (select m.* from message m where m.id = b.id offset 0) m
    join unnest(import_messages.rows) with ordinality as o on o.ordinality = b.nth
    left join lateral (
        select distinct r.sink from route r
        where v_routed and r.namespace in ('*', m.namespace) and m.topic like r.topic_like
    ) r on true
    order by m.id;
    if pending > 0 then
        perform notify_sleepers();
    end if;
end
$$;
comment on function :"schema".import_messages is 'Internal: writes one batch of an import.';
