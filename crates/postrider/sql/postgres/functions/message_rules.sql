-- The rules of a message, spelled once: the one that it breaks and what to do about it, or null. Internal.
-- Caller: enqueue and enqueue_many. A body that is parsed when the function is made depends on no search path; without a SET
-- clause the planner puts it in the place of the call, so the two functions cost no more than if their text stood there.

-- What every message has.
create or replace function :"schema".broken_rule(
    topic text, namespace text, payload jsonb, body bytea, content_bytes integer
)
    returns text[] language sql immutable parallel safe
begin atomic
    select case
        when topic is null or topic = '' or octet_length(topic) > 255
            then array['topic must be 1 to 255 bytes of text', 'Name what happened, for example order.placed.']
        when namespace = '' or octet_length(namespace) > 255
            then array['namespace must be 1 to 255 bytes of text', 'Leave it out for the namespace default.']
        when (payload is null) = (body is null)
            then array['give a payload (JSON) or a body (bytes), exactly one', 'A JSON null is ''null''::jsonb, not NULL.']
        when content_bytes > 16777216
            then array['payload or body is larger than 16 MiB as it is sent',
                       'Store large content elsewhere and send a reference.']
        end;
end;
comment on function :"schema".broken_rule is
    'Internal: which rule a topic or a content breaks, and what to do about it.';

-- What a message may have.
create or replace function :"schema".broken_option(
    tenant_id text, lane text, dedupe_key text, priority integer, headers jsonb, content_type text,
    due_at timestamptz, occurred_at timestamptz, delay_seconds numeric
)
    returns text[] language sql immutable parallel safe
begin atomic
    select case
        when lane = '' or octet_length(lane) > 255
            then array['lane must be 1 to 255 bytes of text', 'Leave it out for a message without order.']
        when tenant_id = '' or octet_length(tenant_id) > 255
            then array['tenant_id must be 1 to 255 bytes of text', 'Leave it out for a message of no tenant.']
        when dedupe_key = '' or octet_length(dedupe_key) > 512
            then array['dedupe_key must be 1 to 512 bytes of text', 'Hash a longer key.']
        when tenant_id is not null and dedupe_key is not null
             and not starts_with(dedupe_key, tenant_id || '/')
             -- A UUID may stand there as 32 digits, too.
             and not (tenant_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                      and starts_with(dedupe_key, replace(tenant_id, '-', '') || '/'))
            then array['dedupe_key does not belong to the tenant', 'Begin it with the tenant id and "/".']
        when priority not between -100 and 100
            then array['priority must be between -100 and 100', 'Higher goes first; 0 is the default.']
        when jsonb_typeof(headers) <> 'object' or jsonb_path_exists(headers, 'strict $.* ? (@.type() != "string")')
            then array['headers must be a JSON object whose values are strings', 'For example {"traceparent": "00-…"}.']
        when octet_length(headers::text) > 65536
            then array['headers are larger than 64 KiB', 'Put content into the payload.']
        when content_type = '' or octet_length(content_type) > 255
            then array['content_type must be 1 to 255 bytes of text', 'For example application/avro.']
        when not isfinite(due_at) or not isfinite(occurred_at)
            then array['due_at and occurred_at must be finite', 'Give a time.']
        when least(due_at, occurred_at) < '0001-01-01 00:00+00' or greatest(due_at, occurred_at) >= '10000-01-01 00:00+00'
            then array['due_at and occurred_at must be in the years 1 to 9999',
                       'Other times have no text that receivers understand.']
        when due_at is not null and delay_seconds is not null
            then array['give due_at or delay_seconds, not both', 'A delay counts from this transaction.']
        when not (delay_seconds >= 0 and delay_seconds <= 3155760000)
            then array['delay_seconds must be between 0 and 3155760000 (100 years)', 'Leave it out to send at once.']
        end;
end;
comment on function :"schema".broken_option is
    'Internal: which rule an option of a message breaks, and what to do about it.';
