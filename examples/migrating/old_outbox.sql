-- The outbox that is being replaced: a claim deletes the row and writes an attempt DISPATCHING, and nothing tells one worker
-- from another. Run by `run` in its own database.
create type outbox_attempt_state as enum ('DISPATCHING', 'DISPATCHED', 'RETRYABLE', 'FAILED', 'ZOMBIE_REQUEUE');

create table participant_outbox_sequences (participant_id text primary key, next_sequence_id bigint not null);

create table payment_outbox_pending (
    outbox_id        uuid primary key default gen_random_uuid(),
    instruction_id   text not null,
    participant_id   text not null,
    sequence_id      bigint not null,
    idempotency_key  text not null,
    rail_type        text not null,
    payload          jsonb not null,
    attempt_count    int not null default 0,
    next_attempt_at  timestamptz not null default now(),
    created_at       timestamptz not null default now(),
    unique (participant_id, sequence_id),
    unique (instruction_id, idempotency_key)
);

create table payment_outbox_attempts (
    attempt_id       uuid primary key default gen_random_uuid(),
    outbox_id        uuid not null,
    instruction_id   text not null,
    participant_id   text not null,
    sequence_id      bigint not null,
    idempotency_key  text not null,
    rail_type        text not null,
    payload          jsonb not null,
    attempt_no       int not null,
    state            outbox_attempt_state not null,
    claimed_at       timestamptz not null default now(),
    completed_at     timestamptz,
    error_code       text,
    error_message    text,
    created_at       timestamptz not null default now(),
    unique (outbox_id, attempt_no)
);

-- What an old writer does.
create function old_enqueue(instruction text, participant text, payload jsonb) returns uuid language plpgsql as $$
declare
    v_sequence bigint;
    v_id uuid;
begin
    insert into participant_outbox_sequences as s values (participant, 2)
    on conflict (participant_id) do update set next_sequence_id = s.next_sequence_id + 1
    returning s.next_sequence_id - 1 into v_sequence;
    insert into payment_outbox_pending (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
    values (instruction, participant, v_sequence, 'once', 'sepa', old_enqueue.payload)
    returning outbox_id into v_id;
    return v_id;
end
$$;

-- What an old worker does: claim the next one, and later say how it went. No token.
create function old_claim() returns payment_outbox_attempts language sql as $$
    with claimed as (
        delete from payment_outbox_pending where outbox_id = (
            select outbox_id from payment_outbox_pending where next_attempt_at <= now()
            order by created_at limit 1 for update skip locked)
        returning *
    )
    insert into payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                                         payload, attempt_no, state)
    select c.outbox_id, c.instruction_id, c.participant_id, c.sequence_id, c.idempotency_key, c.rail_type, c.payload,
           1 + coalesce((select max(a.attempt_no) from payment_outbox_attempts a where a.outbox_id = c.outbox_id), 0),
           'DISPATCHING'
    from claimed c
    returning *
$$;

create function old_complete(id uuid, outcome outbox_attempt_state, error text default null) returns text language sql as $$
    insert into payment_outbox_attempts (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                                         payload, attempt_no, state, completed_at, error_code)
    select a.outbox_id, a.instruction_id, a.participant_id, a.sequence_id, a.idempotency_key, a.rail_type, a.payload,
           a.attempt_no + 1, outcome, now(), error
    from payment_outbox_attempts a where a.outbox_id = id order by a.attempt_no desc limit 1
    returning 'attempt ' || attempt_no || ' ' || state
$$;

-- What repairs the work of a worker that died.
create function old_requeue_zombies() returns bigint language sql as $$
    with stale as (
        select distinct on (a.outbox_id) a.* from payment_outbox_attempts a order by a.outbox_id, a.attempt_no desc
    ),
    requeued as (
        insert into payment_outbox_pending (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                                            payload, attempt_count)
        select s.outbox_id, s.instruction_id, s.participant_id, s.sequence_id, s.idempotency_key, s.rail_type, s.payload, 1
        from stale s where s.state = 'DISPATCHING'
        on conflict (outbox_id) do nothing
        returning outbox_id
    )
    select count(*) from requeued
$$;
