-- Rows of other outbox tables become messages of this one. The caller reads its own table and hands the rows over: nothing
-- here reads a table that is not the outbox's, so a mapping runs with its caller's rights. See docs/import.md.
-- READ COMMITTED only, except forward_rows.

-- Notes that a table is imported, and keeps the numbers of its lanes for it: later enqueues continue behind the highest, and
-- numbers that this outbox gave out before stay with their messages. Safe to repeat. Returns the number of the source.
-- Caller: `postrider import` before the first batch, and the script of `--forward-sql`; an operator. Locks: lanes in lane
-- order. Errors: 22023 if the rows were told apart by another key before.
create or replace function :"schema".begin_import(
    source text, key_expression text, lanes text[] default null, last_sequences bigint[] default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_source import_source;
begin
    if begin_import.source is null or begin_import.source = '' or octet_length(begin_import.source) > 255 then
        raise exception 'source must be 1 to 255 bytes of text' using errcode = '22023';
    elsif begin_import.key_expression is null then
        raise exception 'key_expression must not be null' using errcode = '22023';
    elsif coalesce(cardinality(begin_import.lanes), 0) <> coalesce(cardinality(begin_import.last_sequences), 0) then
        raise exception 'lanes and last_sequences differ in length' using errcode = '22023';
    end if;
    insert into import_source (begun_at, name, key_expression)
    values (clock_timestamp(), begin_import.source, begin_import.key_expression)
    on conflict (name) do nothing;
    select s.* into v_source from import_source s where s.name = begin_import.source;
    if v_source.key_expression <> begin_import.key_expression then
        raise exception 'rows of % were imported by the key %, not by %', v_source.name, v_source.key_expression,
                        begin_import.key_expression
            using errcode = '22023', hint = 'With another key they could be imported twice. Use the key of the first import.';
    end if;
    perform keep_import_lanes(v_source.id, begin_import.lanes, begin_import.last_sequences);
    return v_source.id;
end
$$;
comment on function :"schema".begin_import is
    'Notes that a table is imported, and keeps the numbers of its lanes for it. Returns the number of the source.';
grant execute on function :"schema".begin_import to :"operator";

-- Raises lanes to at least these numbers, and notes the range that belongs to the source. If this outbox gave out numbers
-- since, the range ends before them. Internal.
create or replace function :"schema".keep_import_lanes(source_id integer, lanes text[], last_sequences bigint[])
    returns void
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_nestloop = off
    set jit = off
as $$
#variable_conflict use_column
declare
    v_lanes  text[];
    v_lasts  bigint[];
    v_given  bigint[];
begin
    -- Lanes whose numbers are not all kept yet.
    select array_agg(w.lane order by w.lane collate "C"), array_agg(w.last_sequence order by w.lane collate "C")
    into v_lanes, v_lasts
    from (
        select w.lane, max(w.last_sequence) as last_sequence
        from unnest(keep_import_lanes.lanes, keep_import_lanes.last_sequences) w (lane, last_sequence)
        where w.last_sequence >= 1 and w.lane <> '' and octet_length(w.lane) <= 255
        group by w.lane
    ) w
    left join import_lane l on l.source_id = keep_import_lanes.source_id and l.lane = w.lane
    where l.lane is null or l.last_sequence < w.last_sequence;
    if v_lanes is null then
        return;
    end if;
    -- Lock, then look: what a lane has given out is known once nobody else adds to it.
    insert into lane_sequence (lane, last_sequence)
    select w.lane, 0 from unnest(v_lanes) with ordinality as w (lane, nth) order by w.nth
    on conflict (lane) do nothing;
    v_given := array(
        select l.last_sequence from unnest(v_lanes) with ordinality as w (lane, nth)
        cross join lateral (
            select s.last_sequence from lane_sequence s where s.lane = w.lane offset 0 for update
        ) l
        order by w.nth);
    update lane_sequence s set last_sequence = w.last_sequence
    from unnest(v_lanes, v_lasts, v_given) w (lane, last_sequence, given)
    where s.lane = w.lane and w.last_sequence > w.given;
    insert into import_lane as l (source_id, lane, after_sequence, last_sequence)
    select keep_import_lanes.source_id, w.lane, w.given, greatest(w.given, w.last_sequence)
    from unnest(v_lanes, v_lasts, v_given) w (lane, last_sequence, given)
    on conflict (source_id, lane) do update set last_sequence = excluded.last_sequence
    where l.last_sequence = excluded.after_sequence;
end
$$;
comment on function :"schema".keep_import_lanes is 'Internal: keeps numbers of lanes for the messages of a source.';

-- One batch of rows becomes messages, in one transaction with whatever the caller reads them from. Rows that were imported
-- before are left alone; rows that were refused before are tried again.
-- Caller: `postrider import`; an operator, audited. Transition: nothing -> pending, dead or delivered, for each sink that the
--   topic is routed to. A dead letter parks no lane: the old outbox went on past it. The last attempt of the old outbox is
--   written with its number; the numbers before it stay there.
-- Locks: dedupe keys in key order, lanes in lane order, then the front of the lanes of each sink (see hold_lane_fronts).
-- `left_over`: rows whose dedupe key is just being written by somebody else, or comes twice: the next call has them.
create or replace function :"schema".import_rows(
    source text, rows :"schema".import_row[], workers_stopped boolean default false, actor text default null,
    out pending bigint, out dead bigint, out delivered bigint, out duplicates bigint, out refused bigint,
    out left_over bigint
)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    perform refuse_stale_snapshot();
    select i.* into pending, dead, delivered, duplicates, refused, left_over
    from import_messages(import_rows.source, import_rows.rows, coalesce(import_rows.workers_stopped, false), false) i;
    if cardinality(import_rows.rows) > 0 then
        perform write_audit(import_rows.actor, 'import', jsonb_build_object(
            'source', import_rows.source, 'pending', nullif(pending, 0), 'dead', nullif(dead, 0),
            'delivered', nullif(delivered, 0), 'duplicates', nullif(duplicates, 0), 'refused', nullif(refused, 0)),
            pending + dead + delivered);
    end if;
end
$$;
comment on function :"schema".import_rows is 'Rows of another outbox become messages, each once. Returns how many, by outcome.';
grant execute on function :"schema".import_rows to :"operator";

-- New rows of an old table become messages in the transaction that writes them. Only what is pending: anything else, and
-- what is refused, waits for the import. A number that the lane has given to somebody else is replaced by its next one.
-- Caller: the trigger that `postrider import --forward-sql` makes, with the rights of the operator who made it. Not audited:
-- a producer writes. Errors: 22023 if begin_import does not know the table.
create or replace function :"schema".forward_rows(source text, rows :"schema".import_row[])
    returns bigint
    language sql volatile security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select i.pending from import_messages(source, array(
        select (r.source_key, r.state, r.id, r.namespace, r.topic, r.tenant_id, r.lane, r.sequence_id, r.dedupe_key,
                r.priority, r.headers, r.payload, r.body, r.content_type, r.occurred_at, r.due_at, r.attempts, r.ended_at,
                r.dead_reason, r.error_code, r.error_message)::import_row
        from unnest(rows) with ordinality as r
        where r.state = 'pending' order by r.ordinality), false, true) i
$$;
comment on function :"schema".forward_rows is
    'New rows of an old table become messages in this transaction. Returns how many.';
grant execute on function :"schema".forward_rows to :"operator";

-- What import_rows would do with these rows, by state and reason, each with keys of up to `examples` rows. Changes nothing.
-- Caller: `postrider import --dry-run`; an operator. `source` may be unknown yet.
create or replace function :"schema".check_rows(
    source text, rows :"schema".import_row[], workers_stopped boolean default false, examples integer default 5
)
    returns table (outcome text, reason text, count bigint, source_keys text[])
    language plpgsql volatile security definer
    rows 10
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    return query
    select c.outcome, c.reason, count(*), (array_agg(c.source_key order by c.ordinal))[:greatest(check_rows.examples, 0)]
    from (
        select c.ordinal, c.source_key, c.refused as reason,
               case when c.refused is not null then 'refused'
                    when c.dedupe_key is not null
                         and (k.message_id is not null
                              or row_number() over (partition by c.refused is null, c.namespace, c.topic, c.tenant_id,
                                                                 c.dedupe_key order by c.ordinal) > 1)
                        then 'duplicate'
                    else c.state end as outcome
        from import_checked((select s.id from import_source s where s.name = check_rows.source), check_rows.rows,
                            coalesce(check_rows.workers_stopped, false), false) c
        left join lateral known_key(c.namespace, c.topic, c.tenant_id, c.dedupe_key) k on c.dedupe_key is not null
    ) c
    group by c.outcome, c.reason
    order by c.outcome, c.reason;
end
$$;
comment on function :"schema".check_rows is 'What import_rows would do with these rows; changes nothing.';
grant execute on function :"schema".check_rows to :"operator";
