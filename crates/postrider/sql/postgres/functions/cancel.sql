-- Takes pending deliveries back: they are never handed out, and their lanes go on without them. At most `at_most` of them,
-- those that are due next first: whoever wants all calls again until it returns 0. What is not given does not matter;
-- nothing given means every pending delivery. What is leased is left alone, and counted; dead lane heads that park their
-- lane are left alone: discard those.
-- Caller: an operator, for what was enqueued or replayed by mistake; audited. Transition: pending -> gone, with an attempt
--   CANCELLED under the next number that says who and when. The message stays as history.
-- Locks: see change_pending: a claim under way has what it has locked, and is passed by. A lane needs no further lock: each
--   row knows itself how far a lease may reach behind it (lane_tail), and whoever claims looks at the lowest that is left.
-- Zero: nothing of the kind is pending, or a claim is just taking it.
create or replace function :"schema".cancel(
    message_ids uuid[] default null, sink text default null, namespace text default null, topic text default null,
    tenant_id text default null, lane text default null, at_most integer default 1000, actor text default null
)
    returns integer language sql security definer
    set search_path = pg_catalog, :"schema", pg_temp
as $$ select change_pending('cancel', message_ids, sink, namespace, topic, tenant_id, lane, at_most, actor) $$;
comment on function :"schema".cancel is 'Takes pending deliveries back for good, not those that a worker holds.';
