-- One message, in the caller's transaction. The rules are enqueue_many's: this is a batch of one.
-- Caller: any producer, in any language. Returns one row; created = false means that the dedupe key was known, and
-- message_id is the first message's. Errors: 22023 for wrong input, and nothing is written.
create or replace function :"schema".enqueue(
    topic          text,
    payload        jsonb       default null,
    namespace      text        default 'default',
    tenant_id      uuid        default null,
    lane           text        default null,
    dedupe_key     text        default null,
    priority       integer     default 0,
    headers        jsonb       default null,
    due_at         timestamptz default null,
    occurred_at    timestamptz default null,
    body           bytea       default null,
    content_type   text        default null,
    delay_seconds  numeric     default null
)
    returns table (message_id uuid, sequence_id bigint, created boolean)
    language sql security definer
    rows 1
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select e.message_id, e.sequence_id, e.created
    from enqueue_many(
        topic => array[topic], payload => array[payload], namespace => array[namespace],
        tenant_id => array[tenant_id], lane => array[lane], dedupe_key => array[dedupe_key],
        priority => array[priority], headers => array[headers], due_at => array[due_at],
        occurred_at => array[occurred_at], body => array[body], content_type => array[content_type],
        delay_seconds => array[delay_seconds]
    ) e
$$;
comment on function :"schema".enqueue is
    'Writes one message in this transaction. Returns its id, its number in its lane, and whether it is new.';
