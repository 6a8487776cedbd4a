-- The names of an older payment outbox over this one, so that its callers run unchanged: its enqueue function, its tables as
-- views, and the claim, completion and repair of its later, leased form. Apply it with psql, as the outbox's owner, after
-- `postrider migrate up`, schema.sql and logins.sql; it may be applied again. A rail is a topic `payment.<rail>`, a route and a
-- sink `<rail>`; a participant is a lane.
--
-- What is different: a claimed row stays in payment_outbox_pending, with its lease, and shows as one DISPATCHING row in
-- payment_outbox_attempts until its outcome takes that attempt's number; a participant's payments are handed out one at a
-- time, in order.
--
-- Views read tables. `migrate up` makes the outbox's own views anew, and refuses to if a view of yours depends on one.

do $$
begin
    create type public.outbox_attempt_state as enum ('DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE');
exception when duplicate_object then
    null;
end
$$;

create or replace function public.enqueue_payment_outbox(
    p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload jsonb
)
    returns table (outbox_id uuid, sequence_id bigint, created boolean)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    v_key    constant text := p_instruction_id || '/' || p_idempotency_key;
    v_known  uuid;
begin
    -- A key stands for one payment, whatever the rail; the outbox's own keys are unique for each topic.
    perform pg_advisory_xact_lock(hashtextextended('payment/' || v_key, 0));
    select k into v_known from outbox.find_keys(v_key) k limit 1;
    if v_known is not null then
        return query select m.id, m.sequence_id, false from outbox.message m where m.id = v_known;
        return;
    end if;
    return query
    select e.message_id, e.sequence_id, e.created
    from outbox.enqueue(topic => 'payment.' || p_rail_type, payload => p_payload, lane => p_participant_id,
                        dedupe_key => v_key,
                        headers => jsonb_build_object('instruction-id', p_instruction_id, 'client-key', p_idempotency_key)) e;
end
$$;
comment on function public.enqueue_payment_outbox is
    'Writes one payment in this transaction, or returns the one that has this instruction and idempotency key.';

create or replace view public.payment_outbox_pending as
select d.message_id as outbox_id, m.headers ->> 'instruction-id' as instruction_id, d.lane as participant_id, d.sequence_id,
       m.headers ->> 'client-key' as idempotency_key, d.sink as rail_type, m.payload, d.attempt_count,
       d.due_at as next_attempt_at, m.occurred_at as created_at, d.claimed_by, d.lease_token, d.lease_expires_at
from outbox.delivery d
join outbox.message m on m.id = d.message_id
where m.topic like 'payment.%' and d.due_at < 'infinity';
comment on view public.payment_outbox_pending is 'Payments that are not settled yet, and who holds them.';

create or replace view public.payment_outbox_attempts as
select a.message_id as outbox_id, m.headers ->> 'instruction-id' as instruction_id, m.lane as participant_id, m.sequence_id,
       m.headers ->> 'client-key' as idempotency_key, a.sink as rail_type, m.payload, a.attempt_no, a.state, a.claimed_at,
       a.completed_at, a.reference as rail_reference, a.code as rail_code, a.error_code, a.error_message, a.latency_ms
from (
    select t.message_id, t.sink, t.attempt_no, t.state::text::public.outbox_attempt_state as state, t.claimed_at,
           t.completed_at, t.reference, t.code, t.error_code, t.error_message, t.latency_ms
    from outbox.attempt t
    where t.state::text <> 'CANCELLED'
    union all
    select d.message_id, d.sink, d.attempt_no, 'DISPATCHING', d.claimed_at, null, null, null, null, null, null
    from outbox.delivery d
    where d.lease_token is not null
) a
join outbox.message m on m.id = a.message_id
where m.topic like 'payment.%';
comment on view public.payment_outbox_attempts is 'Every attempt and how it ended; DISPATCHING while it is under way.';

create or replace view public.participant_outbox_sequences as
select s.lane as participant_id, s.last_sequence + 1 as next_sequence_id from outbox.lane_sequence s;
comment on view public.participant_outbox_sequences is 'The next number of each participant.';

-- A function between the views: see above.
create or replace function public.supervisor_outbox_rows()
    returns table (rail_type text, pending bigint, due bigint, dispatching bigint, stuck bigint, failed bigint,
                   parked_participants bigint, oldest_pending_age_seconds double precision, recently_dispatched bigint,
                   recently_retryable bigint, recently_failed bigint, recent_zombies bigint)
    language sql stable
    set search_path = pg_catalog, pg_temp
as $$
    select s.sink, s.pending, s.due, s.leased, s.expired, s.dead, s.parked_lanes,
           s.oldest_pending_age_seconds, s.recent_dispatched, s.recent_retryable, s.recent_failed, s.recent_zombies
    from outbox.status s
    where exists (select from outbox.route r where r.sink = s.sink and r.topic like 'payment.%')
$$;
comment on function public.supervisor_outbox_rows is 'The rows of supervisor_outbox_status.';

create or replace view public.supervisor_outbox_status as select r.* from public.supervisor_outbox_rows() r;
comment on view public.supervisor_outbox_status is 'Each rail: what waits, what is under way, what failed, and for how long.';

-- The rails take turns at being asked first, by chance, so that none starves. One payment of a participant at a time: a
-- worker that fails one need not know that those behind it have to go back.
create or replace function public.claim_outbox_batch(p_batch_size integer, p_worker_id text, p_lease_seconds integer)
    returns table (outbox_id uuid, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text,
                   rail_type text, payload jsonb, attempt_count integer, lease_token uuid, lease_expires_at timestamptz)
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    v_token    constant uuid := gen_random_uuid();
    v_rail     text;
    v_left     integer := p_batch_size;
    v_claimed  bigint;
begin
    for v_rail in
        select r.sink from outbox.route r where r.topic like 'payment.%' group by r.sink order by random()
    loop
        exit when v_left = 0;
        return query
        select c.message_id, c.headers ->> 'instruction-id', c.lane, c.sequence_id, c.headers ->> 'client-key', c.sink,
               c.payload, c.attempt_count, c.lease_token, c.lease_expires_at
        from outbox.claim(worker_id => p_worker_id, batch_size => v_left, lease_seconds => p_lease_seconds, sink => v_rail,
                          lane_run => 1, lease_token => v_token) c;
        get diagnostics v_claimed = row_count;
        v_left := v_left - v_claimed;
    end loop;
end
$$;
comment on function public.claim_outbox_batch is 'Leases up to p_batch_size payments to a worker, over all rails.';

create or replace function public.complete_outbox_attempt(
    p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_state public.outbox_attempt_state,
    p_rail_reference text default null, p_rail_code text default null, p_error_code text default null,
    p_error_message text default null, p_latency_ms integer default null, p_retry_delay_seconds numeric default null
)
    returns integer
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select outbox.complete(p_outbox_id, p_lease_token, p_worker_id, p_state::text,
                           retry_after_seconds => p_retry_delay_seconds, error_code => p_error_code,
                           error_message => p_error_message, reference => p_rail_reference, code => p_rail_code,
                           latency_ms => p_latency_ms)
$$;
comment on function public.complete_outbox_attempt is
    'Records the outcome of a payment and ends its lease; P7002 LEASE_LOST for anybody but its holder.';

create or replace function public.repair_expired_leases()
    returns integer
    language sql security definer
    set search_path = pg_catalog, pg_temp
as $$
    select outbox.repair_expired_leases()
$$;
comment on function public.repair_expired_leases is 'Ends leases that ran out, each with a ZOMBIE_REQUEUE attempt.';

-- The older roles, by what they may do. Every function runs as its owner, who made it.
revoke all on function public.enqueue_payment_outbox, public.claim_outbox_batch, public.complete_outbox_attempt,
    public.repair_expired_leases, public.supervisor_outbox_rows from public;
grant execute on function public.enqueue_payment_outbox to payments_ingest;
grant execute on function public.claim_outbox_batch, public.complete_outbox_attempt, public.repair_expired_leases
    to payments_relay;
grant select on public.payment_outbox_pending, public.payment_outbox_attempts to payments_relay, payments_operator, payments_auditor;
grant select on public.supervisor_outbox_status to payments_relay, payments_operator, payments_auditor;
grant execute on function public.supervisor_outbox_rows to payments_relay, payments_operator, payments_auditor;
grant select on public.participant_outbox_sequences to payments_operator;
