-- The message that a dedupe key stands for, and its number in its lane; both null if the key is free. Internal.
-- Caller: enqueue, which has just met the key. Indexes: dedupe_pk, message_pk, whatever the planner thought of the tables.
create or replace function :"schema".known_key(
    namespace text, topic text, tenant_id text, dedupe_key text, out message_id uuid, out sequence_id bigint
)
    language plpgsql
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_seqscan = off
as $$
#variable_conflict use_column
begin
    select d.message_id into message_id from dedupe d
    where d.namespace = known_key.namespace and d.topic = known_key.topic
      and d.tenant = coalesce(known_key.tenant_id, '') and d.dedupe_key = known_key.dedupe_key
    -- An old snapshot may show a key that was pruned beside the one of this transaction.
    order by d.message_id desc
    limit 1;
    select m.sequence_id into sequence_id from message m where m.id = known_key.message_id;
end
$$;
comment on function :"schema".known_key is
    'Internal: the message that a dedupe key stands for, and its number in its lane.';

-- One message, in the caller's transaction. The rules, the locks and their order are enqueue_many's; the statements are plain
-- ones, because a plan for thousands costs one message five times as much to start.
-- Caller: any producer, in any language. Returns one row; created = false means that the dedupe key was known, and
-- message_id is the first message's. Errors: 22023 for wrong input, and nothing is written.
-- Locks: the dedupe key, then the lane's row, both until the transaction ends.
--
-- What a message does not use stands in branches of its own: a session's first call compiles only what it runs.
create or replace function :"schema".enqueue(
    topic          text,
    payload        jsonb       default null,
    namespace      text        default 'default',
    tenant_id      text        default null,
    lane           text        default null,
    dedupe_key     text        default null,
    priority       integer     default 0,
    headers        jsonb       default null,
    due_at         timestamptz default null,
    occurred_at    timestamptz default null,
    body           bytea       default null,
    content_type   text        default null,
    delay_seconds  numeric     default null,
    out message_id   uuid,
    out sequence_id  bigint,
    out created      boolean
)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_micros  constant bigint := date_part('epoch', clock_timestamp()) * float8 '1000000';
    v_size    integer;
    v_due_at  timestamptz := now();
    v_sink    text := 'default';
    v_sinks   text[];
    v_broken  text[];
begin
    -- A small payload needs no net for texts that are too long, which is a subtransaction. An array holds it uncompressed.
    if enqueue.body is null and pg_column_size(array[enqueue.payload]) <= 65536 then
        v_size := octet_length(enqueue.payload::text);
    elsif enqueue.payload is null then
        v_size := octet_length(enqueue.body);
    else
        v_size := (content_sizes(array[enqueue.payload], array[enqueue.body]))[1];
    end if;
    -- What broken_rule says, in short: an expression is prepared in every transaction, and a long one costs more than the insert
    -- into an index. A size is null for no content and for two.
    if (octet_length(enqueue.topic) between 1 and 255 and v_size <= 16777216
        and coalesce(octet_length(enqueue.namespace) between 1 and 255, true)) is not true
    then
        v_broken := broken_rule(enqueue.topic, enqueue.namespace, enqueue.payload, enqueue.body, v_size);
        raise exception '%', v_broken[1] using errcode = '22023', hint = v_broken[2];
    end if;

    message_id := new_message_id(v_micros);
    created := true;
    if num_nonnulls(nullif(enqueue.priority, 0), enqueue.tenant_id, enqueue.lane, enqueue.dedupe_key, enqueue.headers,
                    enqueue.content_type, enqueue.due_at, enqueue.occurred_at, enqueue.delay_seconds) > 0
    then
        v_broken := broken_option(
            enqueue.tenant_id, enqueue.lane, enqueue.dedupe_key, enqueue.priority, enqueue.headers, enqueue.content_type,
            enqueue.due_at, enqueue.occurred_at, enqueue.delay_seconds);
        if v_broken is not null then
            raise exception '%', v_broken[1] using errcode = '22023', hint = v_broken[2];
        end if;
        if enqueue.dedupe_key is not null then
            -- The insert itself is the answer, at every isolation level: a snapshot may still show a key that was pruned
            -- since. A racing producer of the same key is waited for; if a key that was met is pruned meanwhile, it is
            -- written in the next round.
            loop
                insert into dedupe (namespace, topic, tenant, dedupe_key, message_id)
                values (coalesce(enqueue.namespace, 'default'), enqueue.topic, coalesce(enqueue.tenant_id, ''),
                        enqueue.dedupe_key, enqueue.message_id)
                on conflict (namespace, topic, tenant, dedupe_key) do nothing;
                exit when found;
                select k.message_id, k.sequence_id into message_id, sequence_id
                from known_key(coalesce(enqueue.namespace, 'default'), enqueue.topic, enqueue.tenant_id,
                               enqueue.dedupe_key) k;
                if message_id is not null then
                    created := false;
                    return;
                end if;
                message_id := new_message_id(v_micros);
            end loop;
        end if;
        if enqueue.lane is not null then
            insert into lane_sequence as s (lane, last_sequence) values (enqueue.lane, 1)
            on conflict (lane) do update set last_sequence = s.last_sequence + 1
            returning s.last_sequence into sequence_id;
        end if;
        v_due_at := coalesce(enqueue.due_at, now() + enqueue.delay_seconds * interval '1 second',
                             least(enqueue.occurred_at, now()));
    end if;

    insert into message (id, occurred_at, priority, content_bytes, sequence_id, tenant_id, namespace, topic, lane,
                         dedupe_key, content_type, headers, payload, body)
    values (enqueue.message_id, coalesce(enqueue.occurred_at, now()), coalesce(enqueue.priority, 0), v_size,
            enqueue.sequence_id, enqueue.tenant_id, coalesce(enqueue.namespace, 'default'), enqueue.topic, enqueue.lane,
            enqueue.dedupe_key, enqueue.content_type, enqueue.headers, enqueue.payload, enqueue.body);

    if enqueue.headers is not null then
        v_size := v_size + octet_length(enqueue.headers::text);
    end if;
    if exists (select from route) then
        v_sinks := array(
            select distinct r.sink from route r
            where r.namespace in ('*', coalesce(enqueue.namespace, 'default')) and enqueue.topic like r.topic_like);
        v_sink := coalesce(v_sinks[1], v_sink);
        if cardinality(v_sinks) > 1 then
            insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane)
            select enqueue.message_id, coalesce(enqueue.occurred_at, now()), v_due_at, coalesce(enqueue.priority, 0), v_size,
                   enqueue.sequence_id, enqueue.tenant_id, s.sink, enqueue.lane
            from unnest(v_sinks[2:]) s (sink);
        end if;
    end if;
    insert into delivery (message_id, occurred_at, due_at, priority, size_bytes, sequence_id, tenant_id, sink, lane)
    values (enqueue.message_id, coalesce(enqueue.occurred_at, now()), v_due_at, coalesce(enqueue.priority, 0), v_size,
            enqueue.sequence_id, enqueue.tenant_id, v_sink, enqueue.lane);

    if v_due_at <= now() and exists (select from sleeper) then
        perform notify_sleepers();
    end if;
end
$$;
comment on function :"schema".enqueue is
    'Writes one message in this transaction. Returns its id, its number in its lane, and whether it is new.';
grant execute on function :"schema".enqueue to :"producer", :"operator";

-- One message that an operator writes by hand, audited: the entry tells what the message is about, not what it says.
-- Caller: an operator, through the admin API or by SQL. The rules are enqueue's. `actor` null: the login.
-- Returns one row, as enqueue does; a dedupe key that was known is an entry that changed nothing.
create or replace function :"schema".enqueue_as(
    actor text, topic text, payload jsonb default null, namespace text default 'default', tenant_id text default null,
    lane text default null, dedupe_key text default null, priority integer default 0, headers jsonb default null,
    due_at timestamptz default null, occurred_at timestamptz default null, body bytea default null,
    content_type text default null, delay_seconds numeric default null,
    out message_id uuid, out sequence_id bigint, out created boolean
)
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
begin
    select e.message_id, e.sequence_id, e.created into message_id, sequence_id, created
    from enqueue(enqueue_as.topic, enqueue_as.payload, enqueue_as.namespace, enqueue_as.tenant_id, enqueue_as.lane,
                 enqueue_as.dedupe_key, enqueue_as.priority, enqueue_as.headers, enqueue_as.due_at,
                 enqueue_as.occurred_at, enqueue_as.body, enqueue_as.content_type, enqueue_as.delay_seconds) e;
    perform write_audit(enqueue_as.actor, 'enqueue', jsonb_build_object(
        'topic', enqueue_as.topic, 'namespace', nullif(enqueue_as.namespace, 'default'),
        'tenant_id', enqueue_as.tenant_id, 'lane', enqueue_as.lane, 'dedupe_key', enqueue_as.dedupe_key,
        'message_id', enqueue_as.message_id), enqueue_as.created::integer);
end
$$;
comment on function :"schema".enqueue_as is
    'Writes one message for an operator, with an entry in the audit. Returns what enqueue returns.';
grant execute on function :"schema".enqueue_as to :"operator";
