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
