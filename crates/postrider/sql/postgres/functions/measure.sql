-- Samples: how every sink stands, written down every setting.sample_every, so that charts and `status` read a few rows
-- instead of many attempts.

-- Writes one row for each sink, with the attempts since the last sample, and deletes at most `batch_size` samples past
-- setting.sample_retention. Any number of relays may call it: lock_measure lets one in, and it does nothing unless the
-- last sample is old enough. Returns whether it wrote.
--   A sample ends setting.sample_lag ago: an attempt has its time a moment before its transaction commits, and must not
--   fall between two samples. The same moment is what a caller may be early by. The first sample, and the first after a
--   pause, begins setting.sample_reach before its end at most.
--   The last success and the last failure of a sink go on from sample to sample, so they are known for good. Before the
--   first sample, and in a pause that is longer than setting.sample_reach, they are looked for (see last_outcomes).
--   Samples from the future, of a clock that was ahead or was set back, are deleted: nothing would be measured until then,
--   and what they counted is counted again when its time comes.
-- Reads: the hot table once (see queues.sql), and the attempts of the interval (attempts_between). Locks: those of
-- summarize_attempts, until it commits. READ COMMITTED only.
create or replace function :"schema".measure(batch_size integer default 1000)
    returns boolean language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set max_parallel_workers_per_gather = 0 set random_page_cost = 2
    set jit = off
as $$
#variable_conflict use_column
declare
    v_setting  setting;
    v_last     timestamptz;
    v_from     timestamptz;
    v_at       timestamptz;
begin
    perform refuse_unless(measure.batch_size >= 1, 'batch_size must be at least 1');
    perform refuse_stale_snapshot();
    if not try_lock('measure') then
        return false;
    end if;
    select * into v_setting from setting;
    v_last := (select max(s.at) from sample s where s.at <= clock_timestamp());
    v_at := clock_timestamp() - v_setting.sample_lag;
    if v_last > v_at - (v_setting.sample_every - v_setting.sample_lag) then
        return false;
    end if;
    v_from := greatest(v_last, v_at - v_setting.sample_reach);

    insert into sample (at, seconds, sink, pending, due, leased, expired, dead, parked_lanes, oldest_pending_age_seconds,
                        oldest_due_age_seconds, dispatched, retryable, failed, zombie_requeue, latency_p50_ms,
                        latency_p99_ms, last_success_at, last_error_at)
    select v_at, extract(epoch from v_at - v_from), coalesce(q.sink, a.sink), coalesce(q.pending, 0),
           coalesce(q.due, 0), coalesce(q.leased, 0), coalesce(q.expired, 0), coalesce(q.dead, 0),
           coalesce(q.parked_lanes, 0), coalesce(q.oldest_pending_age_seconds, 0),
           coalesce(q.oldest_due_age_seconds, 0), coalesce(a.dispatched, 0),
           coalesce(a.retryable, 0), coalesce(a.failed, 0), coalesce(a.zombie_requeue, 0), a.latencies_ms[1],
           a.latencies_ms[2], greatest(a.last_success_at, o.last_success_at), greatest(a.last_error_at, o.last_error_at)
    from sinks q
    full join attempts_between(v_from, v_at) a on a.sink = q.sink
    left join last_outcomes(v_last, v_from) o on o.sink = coalesce(q.sink, a.sink);

    delete from sample s
    where s.ctid = any (array(
        select o.ctid from sample o
        where o.at < v_at - v_setting.sample_retention or o.at > clock_timestamp()
        order by o.at
        limit measure.batch_size));
    perform summarize_attempts();
    return true;
end
$$;
comment on function :"schema".measure is
    'Writes down how every sink stands and what happened since the last time, if it is time. Returns whether it was.';
grant execute on function :"schema".measure to :"relay";

-- Brings the index on the attempts' time up to date. What was written after the last summary is read by every look at
-- recent attempts, whatever its time; a vacuum summarizes, too, but at full speed a million attempts may lie between two.
-- Caller: measure. Internal. Every partition, for an old backlog is tried now; one that is up to date costs a walk over its
-- summaries, under a millisecond for ten million attempts.
-- Locks: SHARE UPDATE EXCLUSIVE on each partition, which blocks neither producers nor relays, but VACUUM and ANALYZE by
-- hand. Where somebody else has it, autovacuum most likely, that partition waits for the next sample; this does not.
create or replace function :"schema".summarize_attempts()
    returns void language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
as $$
declare
    v_index  record;
begin
    for v_index in
        select i.indexrelid as id, c.relname as of_table
        from pg_inherits h
        join pg_index i on i.indexrelid = h.inhrelid
        join pg_class c on c.oid = i.indrelid
        where h.inhparent = 'attempt_completed'::regclass and pg_relation_size(c.oid) > 0
    loop
        begin
            execute format('lock table %I.%I in share update exclusive mode nowait', schema_name(), v_index.of_table);
            perform brin_summarize_new_values(v_index.id);
        exception when lock_not_available or undefined_table then
            null;
        end;
    end loop;
end
$$;
comment on function :"schema".summarize_attempts is
    'Internal to measure: brings the index on the time of attempts up to date.';

-- Attempts that ended from `since` on and before `until`, by sink and outcome, with half and 99 of 100 of the times from
-- enqueue to delivery. Of a sink with 20,000 deliveries or more one in 16 is looked at for these: to sort all of them takes
-- longer than everything else here. Caller: measure. Internal. Index: attempt_completed, in every partition: a message of
-- last week may be tried now.
create or replace function :"schema".attempts_between(since timestamptz, until timestamptz)
    returns table (
        sink text, dispatched bigint, retryable bigint, failed bigint, zombie_requeue bigint,
        last_success_at timestamptz, last_error_at timestamptz, latencies_ms double precision[]
    )
    language plpgsql stable
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set max_parallel_workers_per_gather = 0
    set jit = off
as $$
#variable_conflict use_column
declare
    v_many constant bigint := 20000;
begin
    return query
    with counted as materialized (
        select t.sink, t.state, count(*) as attempts, max(t.completed_at) as last_at,
               array_agg(t.message_id) filter (where t.state = 'DISPATCHED' and uuid_hash(t.message_id) & 15 = 0) as ids,
               array_agg(t.completed_at) filter (where t.state = 'DISPATCHED' and uuid_hash(t.message_id) & 15 = 0) as times
        from attempt t
        where t.completed_at >= attempts_between.since and t.completed_at < attempts_between.until
        group by t.sink, t.state
    ),
    latencies as (
        select s.sink,
               -- The milliseconds of a UUIDv7, taken out here: a call of message_id_time for each attempt would cost ten
               -- times as much.
               percentile_disc(array[0.5, 0.99]) within group (order by greatest(0,
                   date_part('epoch', s.completed_at) * 1000
                   - ('x' || translate(left(s.message_id::text, 13), '-', ''))::bit(48)::bigint)) as ms
        from (
            select c.sink, i.message_id, i.completed_at
            from counted c
            cross join lateral unnest(c.ids, c.times) i (message_id, completed_at)
            where c.attempts >= v_many
            union all
            select t.sink, t.message_id, t.completed_at
            from attempt t
            where (select count(*) from counted c where c.state = 'DISPATCHED' and c.attempts < v_many) > 0
              and t.completed_at >= attempts_between.since and t.completed_at < attempts_between.until
              and t.state = 'DISPATCHED'
              and t.sink = any (array(select c.sink from counted c where c.state = 'DISPATCHED' and c.attempts < v_many))
        ) s
        group by s.sink
    )
    select c.sink::text,
           coalesce(sum(c.attempts) filter (where c.state = 'DISPATCHED'), 0)::bigint,
           coalesce(sum(c.attempts) filter (where c.state = 'RETRYABLE'), 0)::bigint,
           coalesce(sum(c.attempts) filter (where c.state = 'FAILED'), 0)::bigint,
           coalesce(sum(c.attempts) filter (where c.state = 'ZOMBIE_REQUEUE'), 0)::bigint,
           max(c.last_at) filter (where c.state = 'DISPATCHED'),
           max(c.last_at) filter (where c.state not in ('DISPATCHED', 'CANCELLED')),
           (select l.ms from latencies l where l.sink = c.sink)
    from counted c
    group by c.sink;
end
$$;
comment on function :"schema".attempts_between is
    'Internal to measure: attempts of an interval, by sink and outcome, with latencies.';

-- When each sink had its last success and its last failure before `until`, as the sample that was taken at `sampled` knows
-- it. If there is none, or if it ended before `until`, 10,000 attempts of the newest messages tell, too: no index has
-- the last attempt of a sink. Caller: measure. Internal. Indexes: sample_pk, attempt_pk backwards in every partition.
create or replace function :"schema".last_outcomes(sampled timestamptz, until timestamptz)
    returns table (sink text, last_success_at timestamptz, last_error_at timestamptz)
    language plpgsql stable
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off
    set max_parallel_workers_per_gather = 0 set jit = off
as $$
#variable_conflict use_column
declare
    v_look_at  constant integer := case when last_outcomes.sampled is distinct from last_outcomes.until then 10000 else 0 end;
begin
    return query
    select o.sink::text, max(o.last_success_at), max(o.last_error_at)
    from (
        select s.sink, s.last_success_at, s.last_error_at from sample s where s.at = last_outcomes.sampled
        union all
        select t.sink,
               case when t.state = 'DISPATCHED' then t.completed_at end,
               case when t.state not in ('DISPATCHED', 'CANCELLED') then t.completed_at end
        from (select t.sink, t.state, t.completed_at from attempt t order by t.message_id desc limit v_look_at) t
        where t.completed_at < last_outcomes.until
    ) o
    group by o.sink;
end
$$;
comment on function :"schema".last_outcomes is
    'Internal to measure: the last success and failure of each sink before a sample.';

-- Attempts of the last setting.status_window by sink and outcome: from the samples that ended in it, and from the attempts
-- after the last sample. So it reaches back as far as the window, and the one interval that began before it; if that one is
-- longer than the window, as after a pause, its attempts are read instead. If nobody measures, those of the window are.
-- Of the attempts after the last sample no more than 10,000 are read: at full speed there are hundreds of thousands, and the
-- next sample has them all. The last success and failure may be older: the last sample has them. Every sink of the last
-- sample has a row.
-- Caller: the view `status`. Internal. Index: attempt_completed.
create or replace function :"schema".recent_attempts()
    returns table (
        sink text, dispatched bigint, retryable bigint, failed bigint, zombie_requeue bigint,
        last_success_at timestamptz, last_error_at timestamptz
    )
    language plpgsql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set max_parallel_workers_per_gather = 0
    set jit = off
as $$
#variable_conflict use_column
declare
    v_span     constant interval := (select s.status_window from setting s);
    v_window   constant timestamptz := now() - v_span;
    v_sampled  constant timestamptz := (select max(s.at) from sample s);
    -- In a variable of its own: what is computed in the statement is not looked up in the index.
    v_from     constant timestamptz := greatest(v_window, v_sampled);
    v_at_most  constant integer := case when v_sampled >= v_window then 10000 end;
    -- The end of a sample that tells of more than the window.
    v_long     constant timestamptz := (select max(s.at) from sample s
                                        where s.at > v_window and s.seconds > extract(epoch from v_span));
begin
    return query
    select p.sink, sum(p.dispatched)::bigint, sum(p.retryable)::bigint, sum(p.failed)::bigint,
           sum(p.zombie_requeue)::bigint, max(p.last_success_at), max(p.last_error_at)
    from (
        select s.sink, s.dispatched, s.retryable, s.failed, s.zombie_requeue, s.last_success_at, s.last_error_at
        from sample s
        where s.at > v_window and (v_long is null or s.at > v_long)
        union all
        select s.sink, 0, 0, 0, 0, s.last_success_at, s.last_error_at from sample s where s.at = v_sampled
        union all
        select a.sink,
               count(*) filter (where a.state = 'DISPATCHED'),
               count(*) filter (where a.state = 'RETRYABLE'),
               count(*) filter (where a.state = 'FAILED'),
               count(*) filter (where a.state = 'ZOMBIE_REQUEUE'),
               max(a.completed_at) filter (where a.state = 'DISPATCHED'),
               max(a.completed_at) filter (where a.state not in ('DISPATCHED', 'CANCELLED'))
        from (
            (select a.sink, a.state, a.completed_at from attempt a where a.completed_at >= v_from limit v_at_most)
            union all
            select a.sink, a.state, a.completed_at from attempt a
            where a.completed_at >= v_window and a.completed_at < v_long
        ) a
        group by a.sink
    ) p
    group by p.sink;
end
$$;
comment on function :"schema".recent_attempts is
    'Internal to status: attempts of the last minutes, by sink and outcome, and the last of all time.';
grant execute on function :"schema".recent_attempts to :"relay", :"reader", :"operator", :"auditor";
