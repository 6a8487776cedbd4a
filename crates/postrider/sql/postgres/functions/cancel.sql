-- Takes pending deliveries back: they are never handed out, and their lanes go on without them. At most `at_most` of them,
-- those that are due next first: whoever wants all calls again until it returns 0. What is not given does not matter;
-- nothing given means every pending delivery. What is leased is left alone, and counted; dead lane heads that park their
-- lane are left alone: discard those.
-- Caller: an operator, for what was enqueued or replayed by mistake; audited. Transition: pending -> gone, with an attempt
--   CANCELLED under the next number that says who and when. The message stays as history.
-- Locks: see choose_pending: a claim under way has what it has locked, and is passed by. A lane needs no further lock: each
--   row knows itself how far a lease may reach behind it (lane_tail), and whoever claims looks at the lowest that is left.
-- Zero: nothing of the kind is pending, or a claim is just taking it.
create or replace function :"schema".cancel(
    message_ids  uuid[]  default null,
    sink         text    default null,
    namespace    text    default null,
    topic        text    default null,
    tenant_id    uuid    default null,
    lane         text    default null,
    at_most      integer default 1000,
    actor        text    default null
)
    returns integer
    language plpgsql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$
#variable_conflict use_column
declare
    v_now     constant timestamptz := clock_timestamp();
    v_places  tid[];
    v_count   integer;
begin
    v_places := choose_pending(cancel.message_ids, cancel.sink, cancel.namespace, cancel.topic, cancel.tenant_id,
                               cancel.lane, null, cancel.at_most);
    with gone as (
        delete from delivery d where d.ctid = any (v_places)
        returning d.message_id, d.sink, d.attempt_no
    )
    insert into attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                         error_message)
    select g.message_id, g.sink, g.attempt_no + 1, 'CANCELLED', v_now, v_now, coalesce(cancel.actor, session_user),
           'CANCELLED', 'an operator cancelled the delivery'
    from gone g;
    get diagnostics v_count = row_count;
    if v_count > 0 then
        perform notify_sleepers();
    end if;
    perform write_audit(cancel.actor, 'cancel', jsonb_build_object(
        'message_ids', cancel.message_ids, 'sink', cancel.sink, 'namespace', cancel.namespace, 'topic', cancel.topic,
        'tenant_id', cancel.tenant_id, 'lane', cancel.lane, 'at_most', cancel.at_most), v_count);
    return v_count;
end
$$;
comment on function :"schema".cancel(uuid[], text, text, text, uuid, text, integer, text) is
    'Takes pending deliveries back for good; returns how many. What a worker holds is left alone.';
