-- Records outcomes and ends their leases, for any number of messages and leases, in one statement.
-- Caller: a relay's completer; complete and mark_delivered are special cases.
-- Fenced: only rows that still hold the given token, whose lease has not ended by this database's clock (and, where
--   worker_id is given, that this worker claimed) change. The rest are left out of the answer: those leases are lost.
-- Transition: DISPATCHED: leased -> gone. RETRYABLE: leased -> pending, due after retry_after_seconds (at once if
--   null); dead if that was the last attempt. FAILED: leased -> dead. Each adds one attempt row.
-- Locks: the rows, in id order. Index: delivery_pk. Zero rows: every lease was lost.
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
    latency_ms           integer[] default null
)
    returns setof :"schema".completed
    language plpgsql security definer
    rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_bitmapscan = off
    set enable_hashjoin = off
    set enable_mergejoin = off
    set jit = off
as $$
#variable_conflict use_column
declare
    v_now    constant timestamptz := clock_timestamp();
    v_count  constant integer := coalesce(cardinality(complete_many.message_id), 0);
    v_bad    record;
begin
    if v_count <> any (array[
        coalesce(cardinality(complete_many.lease_token), 0), coalesce(cardinality(complete_many.state), 0),
        coalesce(cardinality(complete_many.retry_after_seconds), v_count),
        coalesce(cardinality(complete_many.error_code), v_count),
        coalesce(cardinality(complete_many.error_message), v_count),
        coalesce(cardinality(complete_many.reference), v_count), coalesce(cardinality(complete_many.code), v_count),
        coalesce(cardinality(complete_many.latency_ms), v_count)])
    then
        raise exception 'the arrays given to complete_many differ in length (message_id has %)', v_count
            using errcode = '22023';
    end if;
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
    -- Every call takes its rows in id order: a mixed batch locks all of them first, a delivered one deletes in order.
    if exists (select from unnest(complete_many.state) o (state) where o.state <> 'DISPATCHED') then
        -- (Each by a look of its own: in a plain join, an order by id invites a walk over the whole index.)
        perform from (
            select distinct i.message_id, i.lease_token
            from unnest(complete_many.message_id, complete_many.lease_token) i (message_id, lease_token)
            order by i.message_id, i.lease_token
        ) o
        cross join lateral (
            select from delivery d where d.message_id = o.message_id and d.lease_token = o.lease_token
            offset 0 for update
        ) locked;

        return query
        with outcome as materialized (
            select distinct on (o.message_id, o.lease_token) o.*
            from unnest(complete_many.message_id, complete_many.lease_token, complete_many.state,
                        complete_many.retry_after_seconds, complete_many.error_code, complete_many.error_message,
                        complete_many.reference, complete_many.code, complete_many.latency_ms)
                 with ordinality as o (message_id, lease_token, state, retry_after_seconds, error_code, error_message,
                                       reference, code, latency_ms, ordinal)
            order by o.message_id, o.lease_token, o.ordinal
        ),
        held as materialized (
            select d.*, o.state, o.retry_after_seconds, o.error_code, o.error_message, o.reference, o.code,
                   o.latency_ms, v.dead, v.dead and d.lane is not null and parks(d.sink) as parked
            from outcome o
            join delivery d on d.message_id = o.message_id and d.lease_token = o.lease_token
            cross join lateral (select o.state = 'FAILED' or d.attempt_count >= d.max_attempts as dead) v
            where o.state <> 'DISPATCHED' and d.lease_expires_at > v_now
              and (complete_many.worker_id is null or d.claimed_by = complete_many.worker_id)
        ),
        gone as (
            delete from delivery d using held h
            where d.message_id = h.message_id and d.sink = h.sink and h.dead and not h.parked
        ),
        back as (
            update delivery d
            set due_at = case when h.parked then 'infinity'
                              else v_now + coalesce(h.retry_after_seconds, 0) * interval '1 second' end,
                claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
            from held h
            where d.message_id = h.message_id and d.sink = h.sink and (h.parked or not h.dead)
        ),
        buried as (
            insert into dead_letter (message_id, sink, died_at, reason, priority, size_bytes, tenant_id, lane,
                                     sequence_id, attempt_no, attempt_count, parked, error_code, error_message)
            select h.message_id, h.sink, v_now, case h.state when 'FAILED' then 'FAILED' else 'ATTEMPTS_EXHAUSTED' end,
                   h.priority, h.size_bytes, h.tenant_id, h.lane, h.sequence_id, h.attempt_no, h.attempt_count, h.parked,
                   left(h.error_code, 255), left(h.error_message, 4000)
            from held h where h.dead
        ),
        recorded as (
            insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id,
                                 code, reference, error_code, error_message)
            select h.message_id, h.sink, h.attempt_no, h.state::attempt_state, h.claimed_at, v_now, h.latency_ms,
                   h.claimed_by, left(h.code, 255), left(h.reference, 1000), left(h.error_code, 255),
                   left(h.error_message, 4000)
            from held h
        )
        select h.message_id, h.sink, h.attempt_no, h.dead from held h;
    end if;

    if 'DISPATCHED' = any (complete_many.state) then
        return query
        with outcome as materialized (
            select o.*
            from unnest(complete_many.message_id, complete_many.lease_token, complete_many.state,
                        complete_many.reference, complete_many.code, complete_many.latency_ms)
                 as o (message_id, lease_token, state, reference, code, latency_ms)
            where o.state = 'DISPATCHED'
            order by o.message_id, o.lease_token
        ),
        gone as (
            delete from delivery d using outcome o
            where d.message_id = o.message_id and d.lease_token = o.lease_token and d.lease_expires_at > v_now
              and (complete_many.worker_id is null or d.claimed_by = complete_many.worker_id)
            returning d.message_id, d.sink, d.attempt_no, d.claimed_at, d.claimed_by, o.latency_ms, o.code, o.reference
        )
        insert into attempt as a (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id,
                                  code, reference)
        select g.message_id, g.sink, g.attempt_no, 'DISPATCHED', g.claimed_at, v_now, g.latency_ms, g.claimed_by,
               left(g.code, 255), left(g.reference, 1000)
        from gone g
        returning a.message_id, a.sink, a.attempt_no, false;
    end if;
end
$$;
comment on function :"schema".complete_many(uuid[], uuid[], text[], text, numeric[], text[], text[], text[], text[], integer[]) is
    'Records outcomes for messages still held under their lease tokens; returns those it changed.';
