-- Records outcomes and ends their leases, for any number of messages and leases, in one statement.
-- Caller: a relay's completer; complete and mark_delivered are special cases.
-- Fenced: only rows that still hold the given token, whose lease has not ended by this database's clock (and, where
--   worker_id is given, that this worker claimed) change. The rest are left out of the answer: those leases are lost.
-- Transition: DISPATCHED: leased -> gone. RETRYABLE: leased -> pending, due after retry_after_seconds (at once if
--   null); dead if that was the last attempt. FAILED: leased -> dead. Each adds one attempt row. Only a failure keeps
--   the answer.
-- Locks: the rows, lease by lease, in id order. Index: delivery_pk. Zero rows: every lease was lost.
create or replace function :"schema".complete_many(
    message_id           uuid[],
    lease_token          uuid[],
    state                text[],
    worker_id            text      default null,
    retry_after_seconds  numeric[] default null,
    error_code           text[]    default null,
    error_message        text[]    default null,
    reference            text[]    default null,
    code                 text[]    default null,
    latency_ms           integer[] default null,
    answer               text[]    default null
)
    returns setof :"schema".completed language plpgsql security definer rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
    v_now    constant timestamptz := clock_timestamp();
    v_count  constant integer := coalesce(cardinality(complete_many.message_id), 0);
    v_token  constant uuid := complete_many.lease_token[1];
    v_alike  boolean;
    v_bad    record;
    v_lease  record;
begin
    if v_count <> any (array[
        coalesce(cardinality(complete_many.lease_token), 0), coalesce(cardinality(complete_many.state), 0),
        coalesce(cardinality(complete_many.retry_after_seconds), v_count),
        coalesce(cardinality(complete_many.error_code), v_count),
        coalesce(cardinality(complete_many.error_message), v_count),
        coalesce(cardinality(complete_many.reference), v_count), coalesce(cardinality(complete_many.code), v_count),
        coalesce(cardinality(complete_many.latency_ms), v_count),
        coalesce(cardinality(complete_many.answer), v_count)])
    then
        raise exception 'the arrays given to complete_many differ in length (message_id has %)', v_count
            using errcode = '22023';
    end if;
    if not (complete_many.state <@ array['DISPATCHED', 'RETRYABLE', 'FAILED']
            and (0 <= all (complete_many.retry_after_seconds)) is not false
            and (3155760000 >= all (complete_many.retry_after_seconds)) is not false
            and (0 <= all (complete_many.latency_ms)) is not false)
    then
        select o.message_id, o.state, r.reason into v_bad
        from unnest(complete_many.message_id, complete_many.state, complete_many.retry_after_seconds,
                    complete_many.latency_ms)
             as o (message_id, state, retry_after_seconds, latency_ms)
        cross join lateral (values
            (o.state is null or o.state not in ('DISPATCHED', 'RETRYABLE', 'FAILED'),
                'unknown state: it must be DISPATCHED, RETRYABLE or FAILED'),
            (not (o.retry_after_seconds >= 0 and o.retry_after_seconds <= 3155760000),
                'retry_after_seconds must be between 0 and 3155760000 (100 years)'),
            (o.latency_ms < 0, 'latency_ms must not be negative')
        ) as r (broken, reason)
        where r.broken
        limit 1;
        if found then
            raise exception 'message %: %', v_bad.message_id, v_bad.reason
                using errcode = '22023', detail = format('The state given is %L.', v_bad.state);
        end if;
    end if;
    -- As it usually is: all of one lease, each once, delivered.
    v_alike := complete_many.state = array_fill('DISPATCHED'::text, array[v_count])
        and complete_many.lease_token = array_fill(v_token, array[v_count]);
    if v_alike and v_count > 1 then
        v_alike := (select count(distinct i.id) from unnest(complete_many.message_id) i (id)) = v_count;
    end if;
    if v_alike then
        return query
        select * from complete_delivered(v_token, complete_many.message_id, complete_many.worker_id, v_now,
                                         complete_many.reference, complete_many.code, complete_many.latency_ms);
        return;
    end if;
    -- Lease by lease, and within each in id order, so that two calls with the same rows cannot wait for each other in a circle.
    for v_lease in
        select o.lease_token, o.dispatched, array_agg(o.message_id) as message_ids, array_agg(o.state) as states,
               array_agg(o.retry_after_seconds) as retry_after_seconds, array_agg(o.error_code) as error_codes,
               array_agg(o.error_message) as error_messages, array_agg(o.reference) as refs, array_agg(o.code) as codes,
               array_agg(o.latency_ms) as latencies_ms, array_agg(o.answer) as answers,
               -- The other kind of the same lease, if this one is the first of two.
               case when lead(o.lease_token) over (order by o.lease_token, o.dispatched) = o.lease_token
                    then lead(array_agg(o.message_id)) over (order by o.lease_token, o.dispatched) end as others
        -- In order, so that the arrays are.
        from (
            select d.*, d.state = 'DISPATCHED' as dispatched
            from (
                select distinct on (i.lease_token, i.message_id) i.*
                from unnest(complete_many.message_id, complete_many.lease_token, complete_many.state,
                            complete_many.retry_after_seconds, complete_many.error_code, complete_many.error_message,
                            complete_many.reference, complete_many.code, complete_many.latency_ms,
                            complete_many.answer)
                     with ordinality as i (message_id, lease_token, state, retry_after_seconds, error_code, error_message,
                                           reference, code, latency_ms, answer, ordinal)
                order by i.lease_token, i.message_id, i.ordinal
            ) d
            order by d.lease_token, d.state = 'DISPATCHED', d.message_id
        ) o
        group by o.lease_token, o.dispatched
        order by o.lease_token, o.dispatched
    loop
        if v_lease.others is not null then
            perform lock_held(v_lease.lease_token, v_lease.message_ids || v_lease.others, v_now);
        end if;
        if v_lease.dispatched then
            return query
            select * from complete_delivered(v_lease.lease_token, v_lease.message_ids, complete_many.worker_id, v_now,
                                             v_lease.refs, v_lease.codes, v_lease.latencies_ms);
        else
            return query
            select * from complete_failed(v_lease.lease_token, v_lease.message_ids, complete_many.worker_id, v_now,
                                          v_lease.states, v_lease.retry_after_seconds, v_lease.error_codes,
                                          v_lease.error_messages, v_lease.refs, v_lease.codes, v_lease.latencies_ms,
                                          v_lease.answers);
        end if;
    end loop;
end
$$;
comment on function :"schema".complete_many is
    'Records outcomes for messages still held under their lease tokens; returns those it changed.';
grant execute on function :"schema".complete_many to :"relay";

-- Locks what is held under one lease at this time, in id order: for a call with outcomes of both kinds, and for one that looks
-- at the clock after it has waited. Internal to complete_many and renew.
create or replace function :"schema".lock_held(lease_token uuid, message_ids uuid[], at_time timestamptz)
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
begin
    perform from delivery d
    where d.message_id = any (lock_held.message_ids) and d.lease_token = lock_held.lease_token
      and d.lease_expires_at > lock_held.at_time
    order by d.message_id
    for update;
end
$$;
comment on function :"schema".lock_held is 'Internal: locks the rows of one lease.';

-- DISPATCHED, for messages of one lease. Internal to complete_many. Zero rows: the lease is lost.
-- Index: delivery_pk, by the ids alone (see settle); the joins are of arrays, thousands with thousands, so never in nested
--   loops.
create or replace function :"schema".complete_delivered(
    lease_token uuid, message_ids uuid[], worker_id text, at_time timestamptz, refs text[], codes text[],
    latencies_ms integer[]
)
    returns setof :"schema".completed language plpgsql rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_nestloop = off set jit = off
as $$
#variable_conflict use_column
begin
    return query
    with gone as (
        delete from delivery d
        where d.message_id = any (complete_delivered.message_ids) and d.lease_token = complete_delivered.lease_token
          and d.lease_expires_at > complete_delivered.at_time
          and (complete_delivered.worker_id is null or d.claimed_by = complete_delivered.worker_id)
        returning d.message_id, d.sink, d.attempt_no, d.claimed_at, d.claimed_by
    )
    insert into attempt as a (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id,
                              code, reference)
    select g.message_id, g.sink, g.attempt_no, 'DISPATCHED', g.claimed_at, complete_delivered.at_time, o.latency_ms,
           g.claimed_by, left(o.code, 255), left(o.reference, 1000)
    from gone g
    join unnest(complete_delivered.message_ids, complete_delivered.refs, complete_delivered.codes,
                complete_delivered.latencies_ms) o (message_id, reference, code, latency_ms)
      on o.message_id = g.message_id
    returning a.message_id, a.sink, a.attempt_no, false;
end
$$;
comment on function :"schema".complete_delivered is 'Internal to complete_many: what was delivered under one lease.';

-- RETRYABLE and FAILED, for messages of one lease. Internal to complete_many. Zero rows: the lease is lost.
-- Locks the rows, then writes by place, as claim does.
create or replace function :"schema".complete_failed(
    lease_token uuid, message_ids uuid[], worker_id text, at_time timestamptz, states text[],
    retry_after_seconds numeric[], error_codes text[], error_messages text[], refs text[], codes text[],
    latencies_ms integer[], answers text[]
)
    returns setof :"schema".completed language plpgsql rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
declare
    v_places  tid[];
    v_held    uuid[];
    -- Where in the arrays each held message stands.
    v_nth     integer[];
begin
    select array_agg(l.place), array_agg(l.message_id) into v_places, v_held
    from (
        select d.ctid as place, d.message_id from delivery d
        where d.message_id = any (complete_failed.message_ids) and d.lease_token = complete_failed.lease_token
          and d.lease_expires_at > complete_failed.at_time
          and (complete_failed.worker_id is null or d.claimed_by = complete_failed.worker_id)
        order by d.message_id
        for update
    ) l;
    -- All of them, as a rule; the ids are in order on both sides.
    v_nth := case when v_held = complete_failed.message_ids
                  then array(select generate_series(1, cardinality(v_held)))
                  else array(select array_position(complete_failed.message_ids, h.id)
                             from unnest(v_held) with ordinality h (id, nth) order by h.nth) end;

    return query
    with held as materialized (
        select d.*, d.ctid as place, i.nth, o.state, v.dead, v.dead and d.lane is not null and parks(d.sink) as parked,
               left(complete_failed.error_codes[i.nth], 255) as error_code,
               left(complete_failed.error_messages[i.nth], 4000) as error_message
        from unnest(v_places, v_nth) i (place, nth)
        join delivery d on d.ctid = i.place
        cross join lateral (select complete_failed.states[i.nth] as state) o
        cross join lateral (select o.state = 'FAILED' or d.attempt_count >= d.max_attempts as dead) v
    ),
    gone as (
        delete from delivery d using held h where d.ctid = h.place and h.dead and not h.parked
    ),
    back as (
        update delivery d
        set due_at = case when h.parked then 'infinity'
                          else complete_failed.at_time
                               + coalesce(complete_failed.retry_after_seconds[h.nth], 0) * interval '1 second' end,
            claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
        from held h
        where d.ctid = h.place and (h.parked or not h.dead)
    ),
    buried as (
        insert into dead_letter (message_id, sink, died_at, reason, priority, size_bytes, tenant_id, lane, sequence_id,
                                 attempt_no, attempt_count, parked, error_code, error_message)
        select h.message_id, h.sink, complete_failed.at_time,
               case h.state when 'FAILED' then 'FAILED' else 'ATTEMPTS_EXHAUSTED' end, h.priority, h.size_bytes,
               h.tenant_id, h.lane, h.sequence_id, h.attempt_no, h.attempt_count, h.parked, h.error_code, h.error_message
        from held h where h.dead
    ),
    recorded as (
        insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id,
                             code, reference, error_code, error_message, answer)
        select h.message_id, h.sink, h.attempt_no, h.state::attempt_state, h.claimed_at, complete_failed.at_time,
               complete_failed.latencies_ms[h.nth], h.claimed_by, left(complete_failed.codes[h.nth], 255),
               left(complete_failed.refs[h.nth], 1000), h.error_code, h.error_message,
               left(complete_failed.answers[h.nth], 8192)
        from held h
    )
    select h.message_id, h.sink, h.attempt_no, h.dead from held h;
end
$$;
comment on function :"schema".complete_failed is 'Internal to complete_many: what failed under one lease.';
