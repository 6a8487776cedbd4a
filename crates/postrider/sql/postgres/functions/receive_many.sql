-- Thousands of events in one call, in the consumer's transaction: arrays in, one row per input out, in input order.
-- Caller: consumers, `postrider receive`, and receive (a batch of one).
-- Transition: unknown -> received. An event is known by (tenant_id, event_id) while its row is there; after that by its
--   number, if it has a lane and its id is a UUIDv7 (see prune_inbox). The number of an id that lies further ahead of this
--   clock than setting.inbox_clock_skew is not kept. An event named twice in one call is first once.
-- Locks: keys in key order, so that two calls never wait for each other in a circle. An event that another transaction
--   has just received is waited for: false if that one commits, true if it rolls back.
-- Indexes: inbox_pk, inbox_lane_pk. Zero rows out: zero inputs. Under REPEATABLE READ and SERIALIZABLE: 40001 if an event of
--   the call, or a prune, was committed since the snapshot.
create or replace function :"schema".receive_many(
    event_id     uuid[],
    tenant_id    text[]   default null,
    source       text[]   default null,
    lane         text[]   default null,
    sequence_id  bigint[] default null
)
    returns setof :"schema".received language plpgsql security definer rows 1000
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    -- The one join is with the spans of a lane, and each event reads its own lane's.
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    v_count          constant integer := coalesce(cardinality(receive_many.event_id), 0);
    v_bad            record;
    v_too_new        uuid;
    v_rows           tid[];
    v_events         uuid[];
    v_tenants        text[];
    v_sources        text[];
    v_lanes          text[];
    v_numbers        bigint[];
    v_known_events   uuid[];
    v_known_tenants  text[];
begin
    if array_ndims(receive_many.event_id) > 1 then
        raise exception 'receive_many takes one-dimensional arrays' using errcode = '22023';
    end if;
    if v_count <> any (array[
        coalesce(cardinality(receive_many.tenant_id), v_count), coalesce(cardinality(receive_many.source), v_count),
        coalesce(cardinality(receive_many.lane), v_count), coalesce(cardinality(receive_many.sequence_id), v_count)])
    then
        raise exception 'the arrays given to receive_many differ in length (event_id has %)', v_count
            using errcode = '22023', hint = 'Give every array the length of event_id, or leave it out.';
    end if;
    if v_count = 0 then
        return;
    end if;

    -- The first rule that an event breaks, with what to do about it.
    select i.ordinal, b.broken into v_bad
    from unnest(receive_many.event_id, receive_many.tenant_id, receive_many.source, receive_many.lane,
                receive_many.sequence_id)
         with ordinality as i (event_id, tenant_id, source, lane, sequence_id, ordinal)
    cross join lateral (select case
        when i.event_id is null
            then array['event_id must not be null', 'Give the id that the sender gave to the event.']
        when i.tenant_id = '' or octet_length(i.tenant_id) > 255
            then array['tenant_id must be 1 to 255 bytes of text', 'Leave it out for an event of no tenant.']
        when octet_length(i.source) > 255
            then array['source must be at most 255 bytes of text', 'Name who numbers the lanes, for example site-7.']
        when i.lane = '' or octet_length(i.lane) > 255
            then array['lane must be 1 to 255 bytes of text', 'Leave it out for an event without order.']
        when (i.lane is null) <> (i.sequence_id is null)
            then array['lane and sequence_id belong together', 'Give both, or neither.']
        when i.sequence_id < 1
            then array['sequence_id must be at least 1', 'It is the event''s number in its lane.']
        end as broken) b
    where b.broken is not null
    order by i.ordinal
    limit 1;
    if found then
        raise exception '%', case when v_count > 1 then format('event %s of %s: ', v_bad.ordinal, v_count) else '' end
                             || v_bad.broken[1]
            using errcode = '22023', hint = v_bad.broken[2];
    end if;

    -- A snapshot from before a prune shows neither the rows that it deleted nor what their lanes remember. Locked, the
    -- setting tells: 40001 if there was a prune since, and none until this transaction ends.
    if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
        lock table lock_inbox_snapshots in row share mode;
        perform from setting for share;
    end if;
    -- Senders choose the ids. What a lane remembers is as new as its newest id, so one from the year 2100 would make the
    -- lane take everything that is made until then for old.
    if receive_many.lane is not null then
        select message_id_floor(clock_timestamp() + s.inbox_clock_skew) into v_too_new from setting s;
    end if;
    with written as (
        insert into inbox (event_id, received_at, sequence_id, tenant, source, lane)
        select distinct on (i.event_id, i.tenant) i.event_id, now(), i.sequence_id, i.tenant, i.source, i.lane
        from (
            select e.event_id, coalesce(e.tenant_id, '') collate "C" as tenant, coalesce(e.source, '') as source,
                   case when e.event_id < v_too_new then e.lane end as lane,
                   case when e.event_id < v_too_new then e.sequence_id end as sequence_id, e.ordinal
            from unnest(receive_many.event_id, receive_many.tenant_id, receive_many.source, receive_many.lane,
                        receive_many.sequence_id)
                 with ordinality as e (event_id, tenant_id, source, lane, sequence_id, ordinal)
        ) i
        order by i.event_id, i.tenant, i.ordinal
        on conflict (event_id, tenant) do nothing
        returning ctid, event_id, tenant, source, lane, sequence_id
    )
    select array_agg(w.ctid), array_agg(w.event_id), array_agg(w.tenant), array_agg(w.source), array_agg(w.lane),
           array_agg(w.sequence_id)
    into v_rows, v_events, v_tenants, v_sources, v_lanes, v_numbers
    from written w;

    -- No row, but perhaps only because it was pruned. Looked at after the insert, which has waited for a prune of the
    -- same event: what that one remembered is seen here. Ids of another version tell no time, so the row alone counts.
    if receive_many.lane is not null then
        with known as (
            delete from inbox i
            where i.ctid = any (array(
                select w.place
                from unnest(v_rows, v_events, v_tenants, v_sources, v_lanes, v_numbers)
                     as w (place, event_id, tenant, source, lane, sequence_id)
                where substr(w.event_id::text, 15, 1) = '7'
                  and exists (
                      select from inbox_lane s
                      where s.source = w.source and s.lane = w.lane and s.tenant = w.tenant
                        and s.first_sequence <= w.sequence_id and s.last_sequence >= w.sequence_id
                        -- Made after all that is remembered there: the sender has begun to count anew.
                        and s.newest_event_id >= w.event_id)))
            returning event_id, tenant
        )
        select array_agg(k.event_id), array_agg(k.tenant) into v_known_events, v_known_tenants from known k;
    end if;

    return query
    select a.ordinal, a.event_id, a.first
    from (
        select m.ordinal, m.event_id,
               sum(m.mark) over (partition by m.event_id, m.tenant) > 0
               and row_number() over (partition by m.event_id, m.tenant order by m.ordinal) = 1 as first
        from (
            select i.ordinal::integer as ordinal, i.event_id, coalesce(i.tenant_id, '') as tenant, 0 as mark
            from unnest(receive_many.event_id, receive_many.tenant_id)
                 with ordinality as i (event_id, tenant_id, ordinal)
            union all
            select null, w.event_id, w.tenant, 1 from unnest(v_events, v_tenants) as w (event_id, tenant)
            union all
            select null, k.event_id, k.tenant, -1 from unnest(v_known_events, v_known_tenants) as k (event_id, tenant)
        ) m
    ) a
    where a.ordinal is not null
    order by a.ordinal;
end
$$;
comment on function :"schema".receive_many is
    'Notes in this transaction that events were received, arrays in; says of each whether it came for the first time.';
grant execute on function :"schema".receive_many to :"receiver";
