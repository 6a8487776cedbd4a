-- What an import can carry: rows of other designs, read, checked, and given ids. Internal; called by import.sql. A row that
-- breaks a rule is not an error: it is refused with a reason, and the others go on.

-- Texts as JSON; null where a text is none. Tries all at once, for one bad text in a batch is rare.
create or replace function :"schema".import_json(texts text[])
    returns jsonb[]
    language plpgsql immutable
    set search_path = pg_catalog, :"schema", pg_temp
as $$
begin
    return array(select t.text::jsonb from unnest(texts) with ordinality as t (text, ordinal) order by t.ordinal);
exception when data_exception or program_limit_exceeded then
    if cardinality(texts) = 1 then
        return array[null::jsonb];
    end if;
    return import_json(texts[:cardinality(texts) / 2]) || import_json(texts[cardinality(texts) / 2 + 1:]);
end
$$;
comment on function :"schema".import_json is 'Internal: texts as JSON, null where a text is none.';

-- A text as JSON, null if it is none: for mappings that look into a text. Caller: a mapping's SQL; an operator.
create or replace function :"schema".as_json(text text)
    returns jsonb
    language sql immutable security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select (import_json(array[text]))[1]
$$;
comment on function :"schema".as_json is 'A text as JSON, null if it is none.';
grant execute on function :"schema".as_json to :"operator";

-- Each row with the message it would become, or with why it is refused.
-- The id is kept if it is a UUIDv7 of the last setting.dedupe_window (or of a clock that is ahead), so that it sorts, and is
-- pruned, like an id of this outbox. Any other id would lie in a partition of the far future or past: such a row gets a new
-- id, of now, and its own is the header `import-id`.
-- `workers_stopped`: what an old worker held is pending. `renumber`: a number that is taken is replaced by the lane's next
-- one, instead of a refusal. Indexes: message_pk, lane_sequence_pk, import_lane_pk, imported_lane.
create or replace function :"schema".import_checked(
    source_id integer, rows :"schema".import_row[], workers_stopped boolean, renumber boolean
)
    returns table (
        ordinal integer, source_key text, refused text, state text, claimed boolean, id uuid, namespace text, topic text,
        tenant_id text, lane text, sequence_id bigint, dedupe_key text, priority integer, headers jsonb, payload jsonb,
        body bytea, content_type text, content_bytes integer, occurred_at timestamptz, due_at timestamptz,
        attempts integer, ended_at timestamptz, error_code text, error_message text
    )
    language plpgsql volatile
    rows 1000
    set search_path = pg_catalog, :"schema", pg_temp
    set plan_cache_mode = force_generic_plan
    set enable_seqscan = off
    set enable_nestloop = off
    set jit = off
as $$
#variable_conflict use_column
declare
    v_now       constant timestamptz := clock_timestamp();
    v_micros    constant bigint := (date_part('epoch', v_now) * 1e6)::bigint;
    v_first_id  constant uuid := message_id_floor(v_now - (select s.dedupe_window from setting s));
    v_last_id   constant uuid := message_id_floor(v_now + (select s.partition_width from setting s));
    v_uuid_7    constant text := '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$';
    v_payloads  jsonb[];
    v_headers   jsonb[];
    v_sizes     integer[];
begin
    v_payloads := import_json(array(
        select r.payload from unnest(import_checked.rows) with ordinality as r order by r.ordinality));
    v_headers := import_json(array(
        select r.headers from unnest(import_checked.rows) with ordinality as r order by r.ordinality));
    v_sizes := content_sizes(v_payloads, array(
        select r.body from unnest(import_checked.rows) with ordinality as r order by r.ordinality));
    return query
    with input as materialized (
        select r.*, p.as_json, p.as_headers, p.content_bytes,
               case when lower(r.id) ~ v_uuid_7 then r.id::uuid end as old_id,
               coalesce(r.occurred_at, v_now) as happened_at,
               coalesce(r.state, 'null') as said, r.state in ('pending', 'claimed') as is_pending
        from unnest(import_checked.rows) with ordinality as r
        join unnest(v_payloads, v_headers, v_sizes) with ordinality as p (as_json, as_headers, content_bytes, nth)
             on p.nth = r.ordinality
    ),
    numbered as materialized (
        select i.*,
               i.lane is not null and i.sequence_id is not null and coalesce(
                   row_number() over (partition by i.lane, i.sequence_id order by i.ordinality) > 1
                   or (i.sequence_id <= l.last_sequence
                       and not coalesce(i.sequence_id > o.after_sequence and i.sequence_id <= o.last_sequence, false))
                   or exists (select from imported d
                              where d.source_id = import_checked.source_id and d.lane = i.lane
                                and d.sequence_id = i.sequence_id and d.source_key <> i.source_key),
                   false) as is_taken,
               coalesce(i.old_id >= v_first_id and i.old_id < v_last_id
                        and row_number() over (partition by i.old_id order by i.ordinality) = 1
                        and not exists (select from message m where m.id = i.old_id), false) as is_kept
        from input i
        left join lateral (
            select s.last_sequence from lane_sequence s where s.lane = i.lane and i.sequence_id is not null offset 0
        ) l on true
        left join lateral (
            select n.after_sequence, n.last_sequence from import_lane n
            where n.source_id = import_checked.source_id and n.lane = i.lane and i.sequence_id is not null offset 0
        ) o on true
    ),
    ready as materialized (
        select n.*, h.headers as all_headers
        from numbered n
        cross join lateral (
            select nullif(case when jsonb_typeof(n.as_headers) = 'object'
                               then (select coalesce(jsonb_object_agg(e.key, e.value), '{}')
                                     from jsonb_each_text(n.as_headers) e where e.value is not null)
                               else '{}' end
                          || case when n.is_kept then '{}'
                                  else jsonb_build_object('import-id', coalesce(n.id, n.source_key)) end, '{}') as headers
        ) h
    )
    select m.ordinality::integer, m.source_key,
           case
               when m.said not in ('pending', 'claimed', 'delivered', 'dead')
                   then format('state %s is none of pending, claimed, delivered and dead', left(m.said, 100))
               when m.said = 'claimed' and not import_checked.workers_stopped
                   then 'an old worker holds it'
               when m.payload is not null and m.as_json is null
                   then 'payload is not JSON: map it to body'
               when m.headers is not null and jsonb_typeof(m.as_headers) is distinct from 'object'
                   then 'headers are not a JSON object'
               when m.lane is not null and m.sequence_id < 1
                   then 'sequence must be at least 1'
               when m.is_taken and not import_checked.renumber
                   then format('number %s of lane %s belongs to another message', m.sequence_id, left(m.lane, 100))
               when not coalesce(m.priority between -100 and 100, true)
                   then 'priority must be between -100 and 100'
               else (coalesce(
                   broken_rule(m.topic, m.namespace, m.as_json, m.body, m.content_bytes),
                   broken_option(m.tenant_id, m.lane, m.dedupe_key, 0, m.all_headers, m.content_type,
                                 case when m.is_pending then m.due_at end, m.happened_at, null)))[1]
           end,
           case when m.is_pending then 'pending' else m.said end, m.said = 'claimed',
           case when m.is_kept then m.old_id else new_message_id(v_micros + m.ordinality) end,
           coalesce(m.namespace, 'default'), m.topic, m.tenant_id, m.lane,
           case when m.lane is not null and not m.is_taken then m.sequence_id end,
           m.dedupe_key, least(greatest(coalesce(m.priority, 0), -100), 100)::integer, m.all_headers, m.as_json, m.body,
           m.content_type, m.content_bytes, m.happened_at, coalesce(m.due_at, least(m.happened_at, v_now)),
           least(greatest(coalesce(m.attempts, 0), 0), 2147483647)::integer, coalesce(m.ended_at, m.happened_at),
           left(m.error_code, 255), left(m.error_message, 4000)
    from ready m
    order by m.ordinality;
end
$$;
comment on function :"schema".import_checked is
    'Internal: rows of another outbox, each with its message or with why it is refused.';
