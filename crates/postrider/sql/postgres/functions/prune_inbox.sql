-- Deletes received events past their retention, one batch, and lets their lanes remember the numbers; forgets spans
-- that have not grown for long. Caller: an operator; others call prune_inbox_at_retention. Returns how many events went: call it again
-- while that is batch_size. older_than_seconds: default setting.inbox_retention.
-- Transition: received -> remembered by number (with a lane and a UUIDv7), or forgotten.
--   What is remembered of a lane is the exact set of its numbers, as spans: a gap is a number that never came. A number
--   that comes into its span a second time with another event says that the sender counts anew: the lane is forgotten,
--   and this batch adds nothing to it. Of more than setting.inbox_lane_spans the lowest are forgotten. To forget is safe:
--   a late duplicate would then be first again, a new event is never taken for one.
-- Locks: consumers with a snapshot of their own are waited for, setting.prune_lock_wait at most (then 0: another time); the
--   rows that go; those that somebody holds are left for the next time. lock_inbox lets one caller in; others return 0.
-- Indexes: inbox_by_age, inbox_lane_pk, inbox_lane_by_age. READ COMMITTED only.
create or replace function :"schema".prune_inbox(
    older_than_seconds  numeric default null,
    batch_size          integer default 10000
)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
    v_setting     setting;
    -- Read once: a clock that goes on cannot be looked up in an index.
    v_keep        timestamptz;
    v_keep_lanes  timestamptz;
    v_count       integer;
    v_lock_timeout text;
begin
    perform refuse_unless(coalesce(prune_inbox.older_than_seconds between 0 and 3155760000, true),
                          'older_than_seconds must be between 0 and 3155760000');
    perform refuse_unless(prune_inbox.batch_size >= 1, 'batch_size must be at least 1');
    perform refuse_stale_snapshot();
    if not try_lock('inbox') then
        return 0;
    end if;
    select * into v_setting from setting;
    -- Consumers with a snapshot of their own are waited for, but not for long: see receive_many. Those that come meanwhile
    -- stand behind, so that there is an end to it.
    v_lock_timeout := current_setting('lock_timeout');
    perform set_config('lock_timeout', (extract(epoch from v_setting.prune_lock_wait) * 1000)::bigint::text, true);
    begin
        lock table lock_inbox_snapshots in exclusive mode;
    exception when lock_not_available then
        perform set_config('lock_timeout', v_lock_timeout, true);
        return 0;
    end;
    perform set_config('lock_timeout', v_lock_timeout, true);
    v_keep := clock_timestamp()
        - coalesce(prune_inbox.older_than_seconds * interval '1 second', v_setting.inbox_retention);

    v_keep_lanes := clock_timestamp() - v_setting.inbox_lane_retention;

    delete from inbox_lane s
    where s.ctid = any (array(
        select o.ctid from inbox_lane o
        where o.remembered_at < v_keep_lanes
        limit prune_inbox.batch_size));

    with gone as (
        delete from inbox i
        where i.ctid = any (array(
            select o.ctid from inbox o
            where o.received_at < v_keep
            order by o.received_at
            limit prune_inbox.batch_size
            for update skip locked))
        returning event_id, tenant, source, lane, sequence_id
    ), numbered as materialized (
        select g.source, g.lane, g.tenant, g.sequence_id, g.event_id from gone g
        where g.lane is not null and substr(g.event_id::text, 15, 1) = '7'
    ), touched as materialized (
        select n.source, n.lane, n.tenant, count(*) <> count(distinct n.sequence_id) as twice
        from numbered n group by n.source, n.lane, n.tenant
    ), known as materialized (
        select s.source, s.lane, s.tenant, s.first_sequence, s.last_sequence, s.newest_event_id
        from touched t
        cross join lateral (
            select * from inbox_lane l where l.source = t.source and l.lane = t.lane and l.tenant = t.tenant offset 0
        ) s
    ), counted_anew as materialized (
        select t.source, t.lane, t.tenant from touched t where t.twice
        union
        select n.source, n.lane, n.tenant
        from numbered n
        join known k on k.source = n.source and k.lane = n.lane and k.tenant = n.tenant
                    and n.sequence_id between k.first_sequence and k.last_sequence
    ), pieces as (
        select p.*,
               p.first_sequence - 1 > max(p.last_sequence) over (
                   partition by p.source, p.lane, p.tenant order by p.first_sequence
                   rows between unbounded preceding and 1 preceding) as begins
        from (
            select n.source, n.lane, n.tenant, n.sequence_id as first_sequence, n.sequence_id as last_sequence,
                   n.event_id as newest_event_id
            from numbered n
            union all
            select k.source, k.lane, k.tenant, k.first_sequence, k.last_sequence, k.newest_event_id from known k
        ) p
        where not exists (select from counted_anew a where a.source = p.source and a.lane = p.lane and a.tenant = p.tenant)
    ), gathered as (
        select p.*, count(*) filter (where p.begins) over (
                   partition by p.source, p.lane, p.tenant order by p.first_sequence) as span
        from pieces p
    ), spans as materialized (
        select g.source, g.lane, g.tenant, min(g.first_sequence) as first_sequence, max(g.last_sequence) as last_sequence,
               -- There is no max(uuid) before PostgreSQL 18.
               max(g.newest_event_id::text collate "C")::uuid as newest_event_id,
               row_number() over (partition by g.source, g.lane, g.tenant order by min(g.first_sequence) desc) as rank
        from gathered g group by g.source, g.lane, g.tenant, g.span
    ), forgotten as (
        -- Spans that others took in, the lowest of too many, and lanes that are counted anew. None of them is written
        -- below: one statement must not touch a row twice.
        delete from inbox_lane s
        using known k
        where s.source = k.source and s.lane = k.lane and s.tenant = k.tenant and s.first_sequence = k.first_sequence
          and not exists (
              select from spans n
              where n.source = k.source and n.lane = k.lane and n.tenant = k.tenant
                and n.first_sequence = k.first_sequence and n.rank <= v_setting.inbox_lane_spans)
    ), remembered as (
        insert into inbox_lane (first_sequence, last_sequence, newest_event_id, remembered_at, tenant, source, lane)
        select n.first_sequence, n.last_sequence, n.newest_event_id, now(), n.tenant, n.source, n.lane
        from spans n
        where n.rank <= v_setting.inbox_lane_spans
          and not exists (
              select from known k
              where k.source = n.source and k.lane = n.lane and k.tenant = n.tenant
                and k.first_sequence = n.first_sequence and k.last_sequence = n.last_sequence)
        on conflict (source, lane, tenant, first_sequence) do update
            set last_sequence = excluded.last_sequence, newest_event_id = excluded.newest_event_id,
                remembered_at = excluded.remembered_at
    )
    select count(*) into v_count from gone;
    if v_count > 0 then
        update setting set inbox_pruned_at = clock_timestamp();
    end if;
    return v_count;
end
$$;
comment on function :"schema".prune_inbox is
    'Deletes one batch of received events past their retention; their lanes remember the numbers. Returns how many.';
grant execute on function :"schema".prune_inbox to :"operator";

-- The same at setting.inbox_retention, for who may not choose another: consumers, and the keeper of a relay.
create or replace function :"schema".prune_inbox_at_retention(batch_size integer default 10000)
    returns integer language sql volatile security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select prune_inbox(null, batch_size) $$;
comment on function :"schema".prune_inbox_at_retention is
    'Deletes one batch of received events past the configured retention; their lanes remember the numbers. Returns how many.';
grant execute on function :"schema".prune_inbox_at_retention to :"receiver", :"relay", :"operator";
