-- Records the outcome of one message and ends its lease.
-- Caller: a worker that handles one message at a time. Transition and locks: complete_many's.
-- Anyone but the current holder (another token, another worker, an ended lease) gets P7002 LEASE_LOST and nothing
-- changes. Returns the number of the attempt that was recorded.
create or replace function :"schema".complete(
    message_id           uuid,
    lease_token          uuid,
    worker_id            text,
    state                text,
    retry_after_seconds  numeric default null,
    error_code           text    default null,
    error_message        text    default null,
    reference            text    default null,
    code                 text    default null,
    latency_ms           integer default null,
    answer               text    default null
)
    returns integer language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_attempt_no integer;
begin
    if complete.worker_id is null then
        raise exception 'worker_id must not be null' using errcode = '22023';
    end if;
    select c.attempt_no into v_attempt_no
    from complete_many(
        message_id => array[complete.message_id], lease_token => array[complete.lease_token],
        state => array[complete.state], worker_id => complete.worker_id,
        retry_after_seconds => array[complete.retry_after_seconds], error_code => array[complete.error_code],
        error_message => array[complete.error_message], reference => array[complete.reference],
        code => array[complete.code], latency_ms => array[complete.latency_ms],
        answer => array[complete.answer]
    ) c;
    if not found then
        raise exception 'LEASE_LOST'
            using errcode = 'P7002',
                  detail = format('message %s is not held by worker %L under token %s', complete.message_id,
                                  complete.worker_id, complete.lease_token),
                  hint = 'The lease ended or was taken over. Do nothing more: the message is with somebody else.';
    end if;
    return v_attempt_no;
end
$$;
comment on function :"schema".complete is 'Records one outcome; raises P7002 LEASE_LOST unless the caller holds the lease.';
grant execute on function :"schema".complete to :"relay";

-- Finalizes a whole batch as delivered. Only rows still held under the token change; returns how many this call
-- changed. A wrong token changes nothing and returns 0.
create or replace function :"schema".mark_delivered(lease_token uuid, message_ids uuid[])
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select count(*)::integer
    from complete_many(
        message_id => message_ids,
        lease_token => array_fill(lease_token, array[coalesce(cardinality(message_ids), 0)]),
        state => array_fill('DISPATCHED'::text, array[coalesce(cardinality(message_ids), 0)])
    )
$$;
comment on function :"schema".mark_delivered is
    'Marks messages held under this token delivered; returns how many this call changed.';
grant execute on function :"schema".mark_delivered to :"relay";
