-- Partitions of message and attempt, side by side: made ahead of time, dropped when everything in them is history.
-- Caller: the keeper, `postrider migrate up`, a scheduler.

-- Makes the partitions for now and the next `ahead` widths (default: setting.partitions_ahead), wherever none is: holes
-- are filled, one of the far future stops nothing, and a changed width goes on without a gap. Returns how many pairs are
-- new. A range that already has rows in the default partition is left to it.
-- Locks: ATTACH takes SHARE UPDATE EXCLUSIVE on the parent, which blocks neither producers nor relays, and ACCESS
-- EXCLUSIVE on the (empty) default partition, for which it waits setting.prune_lock_wait at most. lock_partitions lets one
-- caller in; others return 0.
create or replace function :"schema".make_partitions(ahead integer default null)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_setting  setting;
    v_width    bigint;
    v_first    bigint;
    v_covered  tstzmultirange;
    v_from     timestamptz;
    v_to       timestamptz;
    v_name     text;
    v_parent   text;
    v_made     integer := 0;
    v_lock_timeout text := current_setting('lock_timeout');
begin
    select * into v_setting from setting;
    perform refuse_unless(coalesce(make_partitions.ahead between 0 and 1000, true), 'ahead must be between 0 and 1000');
    if not try_lock('partitions') then
        return 0;
    end if;
    v_width := extract(epoch from v_setting.partition_width)::bigint;
    v_first := floor(extract(epoch from clock_timestamp()) / v_width)::bigint;
    v_covered := (select range_agg(tstzrange(message_id_time(b.id_from), message_id_time(b.id_to)))
                  from partition_bounds() b);
    perform set_config('lock_timeout', (extract(epoch from v_setting.prune_lock_wait) * 1000)::bigint::text, true);
    for v_from, v_to in
        select lower(g.gap), upper(g.gap)
        from generate_series(v_first, v_first + coalesce(make_partitions.ahead, v_setting.partitions_ahead)) n (slot),
             unnest(tstzmultirange(tstzrange(to_timestamp(n.slot * v_width), to_timestamp((n.slot + 1) * v_width)))
                    - coalesce(v_covered, tstzmultirange())) g (gap)
        order by lower(g.gap)
    loop
        continue when exists (select from message_rest m
                              where m.id >= message_id_floor(v_from) and m.id < message_id_floor(v_to))
            or exists (select from attempt_rest a
                       where a.message_id >= message_id_floor(v_from) and a.message_id < message_id_floor(v_to));
        v_name := to_char(v_from at time zone 'UTC', '"_"YYYYMMDD"_"HH24');
        begin
            foreach v_parent in array array['message', 'attempt'] loop
                execute format('create table %1$I.%2$I (like %1$I.%3$I including defaults including constraints)',
                               schema_name(), v_parent || v_name, v_parent);
                execute format('alter table %1$I.%2$I attach partition %1$I.%3$I for values from (%4$L) to (%5$L)',
                               schema_name(), v_parent, v_parent || v_name,
                               message_id_floor(v_from), message_id_floor(v_to));
                execute format('create trigger %3$I before truncate on %1$I.%2$I'
                               ' for each statement execute function %1$I.refuse_truncate()',
                               schema_name(), v_parent || v_name, v_parent || '_is_not_truncated');
            end loop;
            v_made := v_made + 1;
        exception
            -- Somebody reads the default partition: the next run tries again. Waiting here would stop every producer.
            when lock_not_available then exit;
            -- Rows for this range are just being written to the default partition: it keeps the range.
            when check_violation then null;
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
    return v_made;
end
$$;
comment on function :"schema".make_partitions is 'Makes partitions ahead of time; returns how many pairs are new.';
grant execute on function :"schema".make_partitions to :"relay", :"operator";

-- The partitions there are, by the ids they hold. Internal.
create or replace function :"schema".partition_bounds()
    returns table (suffix text, id_from uuid, id_to uuid) language sql stable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select substr(c.relname, length('message') + 1),
           substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM [(]''([0-9a-f-]+)''[)]')::uuid,
           substring(pg_get_expr(c.relpartbound, c.oid) from 'TO [(]''([0-9a-f-]+)''[)]')::uuid
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'message'::regclass and c.relname ~ '^message_[0-9]{8}_[0-9]{2}$'
$$;
comment on function :"schema".partition_bounds is 'Internal: partitions of message and the ids each holds.';

-- Drops what is over: partitions whose deliveries have all ended, the last of them longer ago than the retention; the same in
-- the default partitions row by row (rest_deleted: messages and attempts); and dedupe keys older than their window whose
-- message has ended. A partition with even one pending, leased or dead delivery, or one that ended lately, stays whole.
-- older_than_seconds: default setting.retention; if that is null, nothing is ever over (and the same for keys). Caller: an operator, audited (prunable counts what it would take); a relay calls prune_at_retention.
-- Locks: ACCESS EXCLUSIVE on both parents for the drop, parents before children like every query. If that cannot be
-- had within setting.prune_lock_wait, pruning stops there and says how far it got; the next run goes on.
create or replace function :"schema".prune(
    older_than_seconds numeric default null, batch_size integer default 10000, actor text default null
)
    returns table (partitions_dropped integer, rest_deleted integer, dedupe_deleted integer)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_setting  setting;
    v_ended    timestamptz;
    v_keep     uuid;
    v_part     record;
    v_lock_timeout text;
begin
    perform refuse_unless(coalesce(prune.older_than_seconds between 0 and 3155760000, true),
                          'older_than_seconds must be between 0 and 3155760000');
    perform refuse_unless(prune.batch_size >= 1, 'batch_size must be at least 1');
    perform refuse_stale_snapshot();
    select * into v_setting from setting;
    partitions_dropped := 0;
    rest_deleted := 0;
    dedupe_deleted := 0;
    if not try_lock('partitions') then
        perform write_audit(prune.actor, 'prune',
                            jsonb_build_object('older_than_seconds', trim_scale(prune.older_than_seconds)), 0);
        return next;
        return;
    end if;
    v_ended := clock_timestamp() - coalesce(prune.older_than_seconds * interval '1 second', v_setting.retention);
    -- Of no time, that is the lowest id: nothing is older.
    v_keep := message_id_floor(v_ended);

    delete from dedupe k
    where k.ctid = any (array(
        select o.ctid from dedupe o
        where o.message_id < message_id_floor(clock_timestamp() - v_setting.dedupe_window)
          and not exists (select from delivery d where d.message_id = o.message_id)
          and not exists (select from dead_letter l where l.message_id = o.message_id)
        limit prune.batch_size
        for update skip locked));
    get diagnostics dedupe_deleted = row_count;

    -- Last, so that the locks are held for the drop alone. Lock first, then look: a replay that has read the partition
    -- is waited for, and what it wrote is seen.
    v_lock_timeout := current_setting('lock_timeout');
    perform set_config('lock_timeout', (extract(epoch from v_setting.prune_lock_wait) * 1000)::bigint::text, true);
    if exists (select from message_rest m where m.id < v_keep) then
        begin
            lock table only message, message_rest in access exclusive mode;
            delete from message_rest m
            where m.id in (
                select r.id from message_rest r
                where r.id < v_keep
                  and not exists (select from delivery d where d.message_id = r.id)
                  and not exists (select from dead_letter l where l.message_id = r.id)
                  and not exists (select from attempt a where a.message_id = r.id and a.completed_at > v_ended)
                limit prune.batch_size);
            get diagnostics rest_deleted = row_count;
        exception when lock_not_available then
            null;
        end;
    end if;
    rest_deleted := rest_deleted + prune_rest_attempts(v_keep, prune.batch_size);
    for v_part in select b.* from partition_bounds() b where b.id_to <= v_keep order by b.id_from loop
        continue when undelivered_in(v_part.id_from, v_part.id_to) or ended_after(v_part.suffix, v_ended);
        begin
            lock table only message, only attempt in access exclusive mode;
            continue when undelivered_in(v_part.id_from, v_part.id_to) or ended_after(v_part.suffix, v_ended);
            execute format('drop table %1$I.%2$I, %1$I.%3$I',
                           schema_name(), 'message' || v_part.suffix, 'attempt' || v_part.suffix);
            partitions_dropped := partitions_dropped + 1;
        exception when lock_not_available then
            exit;
        end;
    end loop;
    perform set_config('lock_timeout', v_lock_timeout, true);
    perform write_audit(prune.actor, 'prune', jsonb_build_object('older_than_seconds', trim_scale(prune.older_than_seconds)),
                        partitions_dropped + rest_deleted + dedupe_deleted);
    return next;
end
$$;
comment on function :"schema".prune is
    'Drops history older than the retention, and never anything undelivered. Returns what it removed.';
grant execute on function :"schema".prune to :"operator";

-- The same at setting.retention, for who may not choose another: the keeper of a relay.
create or replace function :"schema".prune_at_retention(batch_size integer default 10000)
    returns table (partitions_dropped integer, rest_deleted integer, dedupe_deleted integer)
    language sql volatile security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select * from prune(null, batch_size) $$;
comment on function :"schema".prune_at_retention is
    'Drops history older than the configured retention, and never anything undelivered. Returns what it removed.';
grant execute on function :"schema".prune_at_retention to :"relay", :"operator";

-- Attempts in the default partition whose message is gone, older than `keep`, at most `batch_size`; how many went. Attempts
-- of a message that is still there stay: it may be replayed, and its numbers go on.
-- Attempts are append-only by a trigger, which is off here and on again before anybody else can write: ALTER TABLE locks
-- the table against writers until the transaction ends, and an error rolls both back. Internal: called by prune, under its
-- lock_timeout. Locks: SHARE ROW EXCLUSIVE on attempt_rest. Zero: nothing to do, or the lock was not to be had.
create or replace function :"schema".prune_rest_attempts(keep uuid, batch_size integer)
    returns integer language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    -- Each message is looked up by its id; a hash join would read all of them.
    set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    v_ended    tid[];
    v_deleted  integer := 0;
begin
    if not exists (select from attempt_rest a
                   where a.message_id < prune_rest_attempts.keep
                     and not exists (select from message m where m.id = a.message_id)) then
        return 0;
    end if;
    alter table attempt_rest disable trigger attempt_is_append_only;
    v_ended := array(select a.ctid from attempt_rest a
                     where a.message_id < prune_rest_attempts.keep
                       and not exists (select from message m where m.id = a.message_id)
                     limit prune_rest_attempts.batch_size);
    delete from attempt_rest a where a.ctid = any (v_ended);
    get diagnostics v_deleted = row_count;
    alter table attempt_rest enable trigger attempt_is_append_only;
    return v_deleted;
exception when lock_not_available then
    return 0;
end
$$;
comment on function :"schema".prune_rest_attempts is
    'Internal to prune: removes attempts of the default partition whose message is gone.';

-- Whether some message in this range of ids is pending, leased or dead. Internal.
create or replace function :"schema".undelivered_in(id_from uuid, id_to uuid)
    returns boolean language sql volatile
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select exists (select from delivery d where d.message_id >= id_from and d.message_id < id_to)
        or exists (select from dead_letter l where l.message_id >= id_from and l.message_id < id_to)
$$;
comment on function :"schema".undelivered_in is 'Internal: true if a message in this range has not ended well.';

-- Whether an attempt of the messages of this partition ended after this time. Internal.
-- Index: attempt_completed, the BRIN: a partition that is over costs a few pages, and the first attempt found is enough.
create or replace function :"schema".ended_after(suffix text, ended timestamptz)
    returns boolean language plpgsql volatile
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
as $$
declare
    v_found  boolean;
begin
    execute format('select exists (select from %I.%I a where a.completed_at > $1)', schema_name(),
                   'attempt' || ended_after.suffix)
        into v_found using ended_after.ended;
    return v_found;
end
$$;
comment on function :"schema".ended_after is 'Internal: true if an attempt of a partition ended after this time.';
