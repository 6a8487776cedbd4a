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
    v_token       constant uuid := coalesce(claim.lease_token, gen_random_uuid());
    v_max_bytes   constant bigint := coalesce(claim.max_bytes, 9223372036854775807);
    v_leased_at   timestamptz;
    v_half        integer;
    v_paused      boolean;
    v_lanes_wait  boolean;
    v_lowest      integer;
    v_cursor      text;
    v_memory      text;
    v_turn        integer := 1;
    v_tenant      text := '/';
    v_start_lane  text := '';
    v_due         record;
    v_lanes       record;
    v_places      tid[];
    v_tails       bigint[];
    v_unsettled   uuid[];
    v_tried       boolean;
    -- Between them are the ids of all that was picked.
    v_low         uuid;
    v_high        uuid;
    v_lost        integer[];
    v_fence       tid;
begin
    -- What refuse_claim says, in short: a long expression costs more than the look into the tables.
    if (octet_length(claim.worker_id) between 1 and 255 and claim.batch_size between 1 and 10000
        and claim.lease_seconds > 0 and claim.lease_seconds <= 86400 and octet_length(claim.sink) between 1 and 255
        and claim.max_attempts between 1 and 1000000 and claim.lane_run between 1 and 10000
        and claim.hop_limit between 1 and 1000000 and num_nulls(claim.due_from, claim.with_content) = 0
        and v_max_bytes >= 1 and current_setting('transaction_isolation') = 'read committed'
        and current_setting('transaction_read_only') = 'off') is not true
    then
        perform refuse_claim(
            claim.worker_id, claim.batch_size, claim.lease_seconds, claim.sink, claim.max_attempts, claim.lane_run,
            claim.hop_limit, claim.due_from, claim.max_bytes, claim.with_content);
    end if;

    -- What has no lane gets half of the batch if lanes wait too (an odd one goes to each in turn); lanes get the rest;
    -- what they leave is filled up. Rows locked by this transaction are not skipped, so the second look finds the first
    -- half again, and more. Whose turn it is may take one that is too large for its share.
    v_cursor := 'postrider.cursor_' || to_hex(hashtextextended(current_setting('search_path') || '/' || claim.sink, 0));
    if claim.tenant_id is not null then
        v_cursor := v_cursor || '_' || (hashtextextended(claim.tenant_id, 0) & 63);
        v_tenant := length(claim.tenant_id) || ':' || claim.tenant_id || '/';
    end if;
    v_memory := current_setting(v_cursor, true);
    if v_memory <> '' then
        v_turn := case when v_memory like '-%' then 0 else 1 end;
        if starts_with(substr(v_memory, 2), v_tenant) then
            v_start_lane := substr(v_memory, 2 + length(v_tenant));
        end if;
    end if;
    -- Once, unless all that was picked had to be buried; not for ever, for each round steps over what the ones before it
    -- have deleted, and what was buried must be committed one day.
    for round in 1 .. 10 loop
        -- Is there anything at all? Lanes are looked for where they were last found, not at the front of the index, where what
        -- was delivered leaves its traces.
        if claim.tenant_id is null then
            select exists (select from sink s where s.name = claim.sink and s.paused),
                   (select true from delivery d where d.sink = claim.sink and d.lane > v_start_lane and d.lane is not null
                    order by d.lane, d.sequence_id limit 1),
                   (select d.priority from delivery d where d.sink = claim.sink and d.lane is null
                    order by d.priority, d.due_at desc, d.message_id desc limit 1)
            into v_paused, v_lanes_wait, v_lowest;
        else
            select exists (select from sink s where s.name = claim.sink and s.paused),
                   (select true from delivery d where d.sink = claim.sink and d.lane > v_start_lane and d.lane is not null
                    order by d.lane, d.sequence_id limit 1),
                   -- In the words of the tenants' index, and of no other.
                   (select d.priority from delivery d
                    where d.sink = claim.sink and d.tenant_id = claim.tenant_id
                      and num_nonnulls(d.lane) = 0 and num_nonnulls(d.tenant_id) = 1
                    order by d.priority, d.due_at desc, d.message_id desc limit 1)
            into v_paused, v_lanes_wait, v_lowest;
        end if;
        exit when v_paused;
        if v_lanes_wait is null and v_start_lane <> '' then
            v_lanes_wait := (select true from delivery d where d.sink = claim.sink and d.lane is not null
                             order by d.lane, d.sequence_id limit 1);
        end if;
        exit when num_nonnulls(v_lanes_wait, v_lowest) = 0;
        v_lanes_wait := v_lanes_wait is not null and lane_fronts_are_free(claim.sink);
        v_half := case when v_lanes_wait then (claim.batch_size + v_turn) / 2 else claim.batch_size end;
        v_due := pick_due(
            claim.sink, claim.tenant_id, v_lowest, v_half, case when v_lanes_wait then v_max_bytes / 2 else v_max_bytes end,
            not v_lanes_wait or v_turn = 1, v_now, claim.due_from);
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
                v_due := pick_due(claim.sink, claim.tenant_id, v_lowest, claim.batch_size - cardinality(v_lanes.places),
                                  v_max_bytes - v_lanes.bytes, v_lanes.places = '{}', v_now, claim.due_from);
            end if;
            v_places := v_lanes.places || v_due.places;
            v_tails := v_lanes.lane_tails;
            v_tried := v_due.tried or v_lanes.tried;
            v_low := least(v_lanes.low, v_due.low);
            v_high := greatest(v_lanes.high, v_due.high);
        else
            v_places := v_due.places;
            v_tails := '{}';
            v_tried := v_due.tried;
            v_low := v_due.low;
            v_high := v_due.high;
        end if;
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
        v_unsettled := null;
        v_lost := null;
        -- What was tried before may need more than a lease: the last one ended without an outcome, or no attempt is left. And two
        -- lost in a row may be what kills its workers. Asked apart, so that the usual claim does not open the attempts.
        if v_tried then
            v_unsettled := array(
                select d.message_id from unnest(v_places) i (place)
                cross join lateral (select t.* from delivery t where t.ctid = i.place offset 0) d
                where d.lease_token is not null or d.attempt_count >= claim.max_attempts);
            if v_unsettled <> '{}' then
                perform settle(claim.sink, v_unsettled, claim.max_attempts, v_leased_at);
            end if;
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

        -- Between low and high: so the partitions that hold none of these messages are left out before the statement starts.
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
            returning array[d.message_id] as ids, d.sink, d.priority, d.due_at, d.attempt_no, d.attempt_count, i.lost_leases, d.lease_token,
                      d.claimed_at, d.lease_expires_at
        )
        select m.id, l.sink, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id, m.dedupe_key, l.priority,
               case when claim.with_content then m.headers end, case when claim.with_content then m.payload end,
               case when claim.with_content then m.body end, m.content_type, m.occurred_at, l.due_at, l.attempt_no,
               l.attempt_count, coalesce(l.lost_leases, 0), l.lease_token, l.claimed_at, l.lease_expires_at
        from leased l
        cross join lateral (select m.* from message m
                            where m.id = any (l.ids) and m.id >= v_low and m.id <= v_high offset 0) m
        order by m.lane nulls first, m.sequence_id, l.priority desc, l.due_at, m.id;
        -- What was picked was out of attempts and is buried now: there may be something behind it.
        exit when found or coalesce(v_unsettled, '{}') = '{}';
    end loop;
end
$$;
comment on function :"schema".claim is 'Leases up to batch_size due deliveries of a sink to a worker, in delivery order.';
grant execute on function :"schema".claim to :"relay";

-- What is wrong with a claim: 22023 for its parameters, 25001 and 25006 for its transaction. Returns if nothing is. Internal to
-- claim, which asks the same in short.
create or replace function :"schema".refuse_claim(
    worker_id text, batch_size integer, lease_seconds numeric, sink text, max_attempts integer, lane_run integer,
    hop_limit integer, due_from timestamptz, max_bytes bigint, with_content boolean
)
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    perform refuse_unless(octet_length(worker_id) between 1 and 255, 'worker_id must be 1 to 255 bytes of text');
    perform refuse_unless(batch_size between 1 and 10000, 'batch_size must be between 1 and 10000');
    perform refuse_unless(lease_seconds > 0 and lease_seconds <= 86400,
                          'lease_seconds must be more than 0 and at most 86400');
    perform refuse_unless(octet_length(sink) between 1 and 255, 'sink must be 1 to 255 bytes of text');
    perform refuse_unless(max_attempts between 1 and 1000000, 'max_attempts must be between 1 and 1000000');
    perform refuse_unless(lane_run between 1 and 10000, 'lane_run must be between 1 and 10000');
    perform refuse_unless(hop_limit between 1 and 1000000, 'hop_limit must be between 1 and 1000000');
    perform refuse_unless(due_from is not null, 'due_from must not be null');
    perform refuse_unless(coalesce(max_bytes >= 1, true), 'max_bytes must be at least 1');
    perform refuse_unless(with_content is not null, 'with_content must not be null');
    perform refuse_stale_snapshot();
    -- On a standby, where nothing is due nothing is written, and a worker would stay there.
    if current_setting('transaction_read_only') = 'on' then
        raise exception 'a claim needs a transaction that may write' using errcode = '25006';
    end if;
end
$$;
comment on function :"schema".refuse_claim is 'Internal to claim: raises what is wrong with its parameters or its transaction.';
