-- Leases up to batch_size deliveries of one sink to one worker, under one new token.
-- Caller: a relay, or any worker in any language. One statement, one round trip, never waits.
-- Transition: pending -> leased (attempt_no and attempt_count go up: a crash counts);
--   lease ended -> ZOMBIE_REQUEUE recorded -> leased to the caller; out of attempts -> dead letter, not handed out.
-- Locks: the rows handed out, picked FOR UPDATE SKIP LOCKED by pick_due and claim_lanes; and, shared, the sink's right to
--   put messages in front of lanes (see hold_lane_fronts): while somebody uses it, lanes wait for the next claim.
-- Index: theirs, then message_pk. No lease column is indexed, so every lease is a HOT update.
-- READ COMMITTED only (25001 otherwise), and not read-only (25006): "is this lane free" is decided by what is committed now, not by a snapshot.
-- Zero rows: nothing is due, the sink is paused, what was picked was out of attempts and is buried, or so many lane heads
-- were looked at (`hop_limit` before the round wraps, and as many after) and all were blocked: the next claim goes on from
-- there.
--
-- Order: without a lane by priority, due time and id; then lanes, each by sequence. When both wait, each gets half.
-- The round over the lanes begins after the lane where this session's last claim stopped, so that no lane starves. The
-- session remembers it in a custom setting (`+` or `-` for whose turn the odd one is, the tenant after its length, `/`, the lane), one
-- for each sink and 64 for its tenants, so that they stay few: only a hint where to look first, forgotten with the
-- session.
--
-- max_bytes: what is handed out is not longer than this, content and headers as they are sent; but the first is handed out
--   however long it is.
-- lease_token: made by the caller, who can then abandon a claim whose answer is lost. P7002 if it was abandoned and there
--   is something to lease.
-- with_content: false hands out neither headers nor content. They can be read one message at a time, so that one that
--   cannot be read is found.
--
-- Plans are kept for the session's life and must hold whatever the table was when they were made: rows are found by place
-- with no other condition that an index could serve, each message by a lateral look that cannot be turned around.
create or replace function :"schema".claim(
    worker_id      text,
    batch_size     integer,
    lease_seconds  numeric,
    sink           text        default 'default',
    max_attempts   integer     default 10,
    tenant_id      text        default null,
    lane_run       integer     default 100,
    due_from       timestamptz default '-infinity',
    hop_limit      integer     default 2000,
    max_bytes      bigint      default null,
    lease_token    uuid        default null,
    with_content   boolean     default true
)
    returns setof :"schema".claimed language plpgsql security definer rows 100
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off
    set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
as $$
#variable_conflict use_column
declare
    v_now         constant timestamptz := clock_timestamp();
    v_wrong       text;
    v_token       constant uuid := coalesce(claim.lease_token, gen_random_uuid());
    v_max_bytes   constant bigint := coalesce(claim.max_bytes, 9223372036854775807);
    v_leased_at   timestamptz;
    v_half        integer;
    v_lanes_wait  boolean;
    v_cursor      text;
    v_memory      text;
    v_turn        integer;
    v_tenant      text;
    v_start_lane  text;
    v_due         record;
    v_lanes       record;
    v_places      tid[];
    v_tails       bigint[];
    v_unsettled   uuid[];
    v_tried       boolean;
    v_lost        integer[];
    v_fence       tid;
begin
    v_wrong := case
        when claim.worker_id is null or claim.worker_id = '' or octet_length(claim.worker_id) > 255
            then 'worker_id must be 1 to 255 bytes of text'
        when claim.batch_size is null or claim.batch_size not between 1 and 10000
            then 'batch_size must be between 1 and 10000'
        when claim.lease_seconds is null or not (claim.lease_seconds > 0 and claim.lease_seconds <= 86400)
            then 'lease_seconds must be more than 0 and at most 86400'
        when claim.sink is null or claim.sink = '' or octet_length(claim.sink) > 255
            then 'sink must be 1 to 255 bytes of text'
        when claim.max_attempts is null or claim.max_attempts not between 1 and 1000000
            then 'max_attempts must be between 1 and 1000000'
        when claim.lane_run is null or claim.lane_run not between 1 and 10000
            then 'lane_run must be between 1 and 10000'
        when claim.hop_limit is null or claim.hop_limit not between 1 and 1000000
            then 'hop_limit must be between 1 and 1000000'
        when claim.due_from is null then 'due_from must not be null'
        when claim.max_bytes < 1 then 'max_bytes must be at least 1'
        when claim.with_content is null then 'with_content must not be null'
    end;
    if v_wrong is not null then
        raise exception '%', v_wrong using errcode = '22023';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        perform refuse_stale_snapshot();
    end if;
    -- On a standby, where nothing is due nothing is written, and a worker would stay there.
    if current_setting('transaction_read_only') = 'on' then
        raise exception 'a claim needs a transaction that may write' using errcode = '25006';
    end if;
    if exists (select from sink s where s.name = claim.sink and s.paused) then
        return;
    end if;

    -- What has no lane gets half of the batch if lanes wait too (an odd one goes to each in turn); lanes get the rest;
    -- what they leave is filled up. Rows locked by this transaction are not skipped, so the second look finds the first
    -- half again, and more. Whose turn it is may take one that is too large for its share.
    v_cursor := 'postrider.cursor_' || to_hex(hashtextextended(current_setting('search_path') || '/' || claim.sink, 0))
        || coalesce('_' || (hashtextextended(claim.tenant_id, 0) & 63), '');
    v_memory := coalesce(current_setting(v_cursor, true), '');
    v_turn := case when v_memory like '-%' then 0 else 1 end;
    v_tenant := coalesce(length(claim.tenant_id) || ':' || claim.tenant_id, '') || '/';
    v_start_lane := case when starts_with(substr(v_memory, 2), v_tenant)
                         then substr(v_memory, 2 + length(v_tenant)) else '' end;
    -- Once, unless all that was picked had to be buried; not for ever, for each round steps over what the ones before it
    -- have deleted, and what was buried must be committed one day.
    for round in 1 .. 10 loop
        -- Looked for where lanes were last found, not at the front of the index, where what was delivered leaves its traces.
        v_lanes_wait := coalesce(
            (select true from delivery d where d.sink = claim.sink and d.lane > v_start_lane and d.lane is not null
             order by d.lane, d.sequence_id limit 1),
            (select true from delivery d where d.sink = claim.sink and d.lane is not null
             order by d.lane, d.sequence_id limit 1),
            false) and lane_fronts_are_free(claim.sink);
        v_half := case when v_lanes_wait then (claim.batch_size + v_turn) / 2 else claim.batch_size end;
        v_due := pick_due(claim.sink, claim.tenant_id, v_half, case when v_lanes_wait then v_max_bytes / 2 else v_max_bytes end,
                          not v_lanes_wait or v_turn = 1, v_now, claim.max_attempts, claim.due_from);
        v_places := '{}';
        v_tails := '{}';
        v_unsettled := '{}';
        v_tried := v_due.tried;
        v_lost := '{}';
        if v_lanes_wait then
            v_lanes := claim_lanes(claim.sink, claim.tenant_id, claim.batch_size - cardinality(v_due.places),
                v_max_bytes - v_due.bytes, v_turn = 0 or v_due.places = '{}', v_now, claim.max_attempts, claim.lane_run, v_start_lane,
                claim.hop_limit);
            perform set_config(v_cursor, case v_turn when 1 then '-' else '+' end || v_tenant || v_lanes.last_lane, false);
            -- Lanes left something over, or took one that is larger than what was left.
            if v_due.bytes + v_lanes.bytes > v_max_bytes
               or ((v_due.more or cardinality(v_due.places) = v_half)
                   and cardinality(v_due.places) + cardinality(v_lanes.places) < claim.batch_size)
            then
                v_due := pick_due(claim.sink, claim.tenant_id, claim.batch_size - cardinality(v_lanes.places),
                                  v_max_bytes - v_lanes.bytes, v_lanes.places = '{}', v_now, claim.max_attempts,
                                  claim.due_from);
            end if;
            v_places := v_lanes.places;
            v_tails := v_lanes.lane_tails;
            v_unsettled := v_lanes.unsettled_ids;
            v_tried := v_due.tried or v_lanes.tried;
        end if;
        v_places := v_places || v_due.places;
        v_unsettled := v_unsettled || v_due.unsettled_ids;
        exit when v_places = '{}';
        -- Written to meet the row of an abandon, whichever came first: the later one waits for the transaction of the other.
        -- The table is unlogged: this adds nothing to the write-ahead log.
        if claim.lease_token is not null then
            insert into abandoned_claim (lease_token, abandoned_at) values (claim.lease_token, clock_timestamp())
            on conflict do nothing
            returning ctid into v_fence;
            if v_fence is null then
                raise exception 'LEASE_LOST'
                    using errcode = 'P7002',
                          detail = format('the claim with token %s was abandoned', claim.lease_token),
                          hint = 'Claim again, with another token.';
            end if;
            delete from abandoned_claim c where c.ctid = v_fence;
        end if;
        -- The lease begins now that the rows are locked, not when the search for them began: it lasts as long as was asked
        -- for, and it begins after whatever ended the one before.
        v_leased_at := clock_timestamp();
        if v_unsettled <> '{}' then
            perform settle(claim.sink, v_unsettled, claim.max_attempts, v_leased_at);
        end if;
        -- Two in a row: it may be what kills its workers. Asked apart, so that the usual claim does not open the attempts.
        if v_tried then
            v_lost := array(
                select (
                    select count(*)::integer from attempt a
                    where a.message_id = d.message_id and a.sink = d.sink
                      and a.attempt_no between d.attempt_no - 1 and d.attempt_no and a.state = 'ZOMBIE_REQUEUE'
                      and d.attempt_count > 0)
                from unnest(v_places) with ordinality i (place, nth)
                left join lateral (select d.* from delivery d where d.ctid = i.place offset 0) d on true
                order by i.nth);
        end if;

        -- By place: the rows are locked, so they stand where they were found. (By key it would be one more walk down an
        -- index for each.) What settle has buried stands there no longer.
        return query
        with leased as (
            update delivery d
            set attempt_no = d.attempt_no + 1, attempt_count = d.attempt_count + 1, max_attempts = claim.max_attempts,
                claimed_at = v_leased_at, lease_expires_at = v_leased_at + claim.lease_seconds * interval '1 second',
                lease_token = v_token, lane_tail = i.lane_tail, claimed_by = claim.worker_id
            from unnest(v_places, v_tails, v_lost) i (place, lane_tail, lost_leases)
            where d.ctid = i.place and d.due_at <= v_now
              and (d.lease_expires_at is null or d.lease_expires_at <= v_now)
            returning d.message_id, d.sink, d.priority, d.due_at, d.attempt_no, d.attempt_count, i.lost_leases, d.lease_token,
                      d.claimed_at, d.lease_expires_at
        )
        select m.id, l.sink, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id, m.dedupe_key, l.priority,
               case when claim.with_content then m.headers end, case when claim.with_content then m.payload end,
               case when claim.with_content then m.body end, m.content_type, m.occurred_at, l.due_at, l.attempt_no,
               l.attempt_count, coalesce(l.lost_leases, 0), l.lease_token, l.claimed_at, l.lease_expires_at
        from leased l
        cross join lateral (select m.* from message m where m.id = l.message_id offset 0) m
        order by m.lane nulls first, m.sequence_id, l.priority desc, l.due_at, m.id;
        -- What was picked was out of attempts and is buried now: there may be something behind it.
        exit when found or v_unsettled = '{}';
    end loop;
end
$$;
comment on function :"schema".claim is 'Leases up to batch_size due deliveries of a sink to a worker, in delivery order.';
grant execute on function :"schema".claim to :"relay";
