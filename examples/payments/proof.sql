-- The proof checks of the payment outbox that one session can make: rights, append-only attempts, numbering, claim, retry,
-- repair. Run by `run` and by the tests, as a superuser: psql -X -v ON_ERROR_STOP=1 -f proof.sql. The first check that fails
-- raises an error, and everything is rolled back. The ninth check, notification and poll, needs a relay: see `run`.
\set QUIET on
begin;
set local client_min_messages = notice;

-- Runs a statement as a login; returns its SQLSTATE, 00000 if it went well.
create function pg_temp.outcome(login text, statement text) returns text language plpgsql as $$
begin
    execute format('set local role %I', login);
    execute statement;
    reset role;
    return '00000';
exception when others then
    reset role;
    return sqlstate;
end
$$;

create function pg_temp.expect(what text, login text, statement text, expected text) returns void language plpgsql as $$
declare
    v_got constant text := pg_temp.outcome(login, statement);
begin
    if v_got <> expected then
        raise exception '%: % as %, instead of %', what, v_got, login, expected;
    end if;
end
$$;

create temporary table proof (outbox_id uuid, lease_token uuid, attempt_no integer) on commit drop;

do $$
declare
    v_enqueue constant text := 'select * from enqueue_payment_outbox(%L, %L, %L, %L, %L)';
    v_row     record;
    v_login   text;
    v_table   text;
    v_state   text;
begin
    -- 1. Ingest enqueues by the function, and cannot write or read the queue or the sequences.
    perform pg_temp.expect('1: enqueue', 'payments_ingest',
        format(v_enqueue, 'PROOF-1', 'proof', 'k', 'instant', '{"amount": 1}'), '00000');
    foreach v_state in array array[
        'insert into outbox.delivery (message_id, occurred_at, due_at, priority, size_bytes, sink) values (gen_random_uuid(), now(), now(), 0, 0, ''x'')',
        'insert into outbox.message (id) values (gen_random_uuid())',
        'update outbox.lane_sequence set last_sequence = 0', 'select outbox.next_sequence(''proof'')',
        'select * from payment_outbox_pending', 'select * from outbox.claim(''w'', 1, 1)'] loop
        perform pg_temp.expect('1: ' || v_state, 'payments_ingest', v_state, '42501');
    end loop;
    raise notice 'ok: 1. ingest may only execute enqueue';

    -- A claim that is completed, so that there is an attempt to protect.
    insert into proof
    select c.outbox_id, c.lease_token, 1 from claim_outbox_batch(100, 'proof', 60) c where c.instruction_id = 'PROOF-1';
    perform complete_outbox_attempt(p.outbox_id, p.lease_token, 'proof', 'RETRYABLE', p_error_code => 'RAIL_DOWN',
                                    p_retry_delay_seconds => 0) from proof p;

    -- 2. Nobody rewrites an attempt: a relay lacks the right, and the owner meets the trigger.
    foreach v_state in array array['update outbox.attempt set latency_ms = 0', 'delete from outbox.attempt'] loop
        perform pg_temp.expect('2: ' || v_state, 'payments_relay', v_state, '42501');
        perform pg_temp.expect('2: ' || v_state, 'payments_operator', v_state, '42501');
        perform pg_temp.expect('2: ' || v_state, current_user, v_state, 'P0001');
    end loop;
    raise notice 'ok: 2. attempts are append-only';

    -- 3. Nobody truncates, the owner included.
    foreach v_table in array array['outbox.delivery', 'outbox.attempt', 'outbox.message'] loop
        foreach v_login in array array['payments_ingest', 'payments_relay', 'payments_operator', 'payments_auditor'] loop
            perform pg_temp.expect('3: truncate ' || v_table, v_login, 'truncate ' || v_table, '42501');
        end loop;
        perform pg_temp.expect('3: truncate ' || v_table, current_user, 'truncate ' || v_table, 'P0001');
    end loop;
    raise notice 'ok: 3. nobody truncates';

    -- 4. An auditor reads everything but the sequences.
    perform pg_temp.expect('4: attempts', 'payments_auditor', 'select * from outbox.attempts', '00000');
    perform pg_temp.expect('4: pending', 'payments_auditor', 'select * from payment_outbox_pending', '00000');
    perform pg_temp.expect('4: sequences', 'payments_auditor', 'select * from outbox.lane_sequence', '42501');
    perform pg_temp.expect('4: sequences', 'payments_auditor', 'select * from participant_outbox_sequences', '42501');
    perform pg_temp.expect('4: sequences', 'payments_operator', 'select * from participant_outbox_sequences', '00000');
    raise notice 'ok: 4. the sequences are not the auditor''s';

    -- 5. An attempt number is taken once, whoever writes.
    perform pg_temp.expect('5: a second attempt 1', current_user,
        'insert into outbox.attempt select a.* from outbox.attempt a join proof p on p.outbox_id = a.message_id', '23505');
    raise notice 'ok: 5. an attempt number is taken once';

    -- 6. A claim is one statement: the payment is no longer free, and the attempt it will end in is open.
    update proof p set lease_token = c.lease_token, attempt_no = 2
    from claim_outbox_batch(100, 'proof', 60) c where c.outbox_id = p.outbox_id;
    select count(*) filter (where a.state = 'DISPATCHING' and a.attempt_no = 2 and a.completed_at is null) as dispatching,
           count(*) as attempts into v_row
    from payment_outbox_attempts a join proof p using (outbox_id);
    if (v_row.dispatching, v_row.attempts) is distinct from (1::bigint, 2::bigint) then
        raise exception '6: % DISPATCHING of % attempts after a claim', v_row.dispatching, v_row.attempts;
    elsif exists (select from claim_outbox_batch(100, 'another', 60) c join proof p using (outbox_id)) then
        raise exception '6: a claimed payment was claimed again';
    end if;
    raise notice 'ok: 6. a claim takes the payment and opens its attempt';

    -- 7. A retry records RETRYABLE and puts the payment back: same id, same number, the attempts counted.
    perform complete_outbox_attempt(p.outbox_id, p.lease_token, 'proof', 'RETRYABLE', p_error_code => 'RAIL_DOWN',
                                    p_retry_delay_seconds => 0) from proof p;
    select n.attempt_count, n.sequence_id, n.claimed_by, a.state::text as state, a.attempt_no into v_row
    from payment_outbox_pending n join proof p using (outbox_id)
    join payment_outbox_attempts a on a.outbox_id = p.outbox_id
    order by a.attempt_no desc limit 1;
    if (v_row.attempt_count, v_row.claimed_by, v_row.state, v_row.attempt_no) is distinct from (2, null::text, 'RETRYABLE', 2) then
        raise exception '7: after a retry: %', v_row;
    end if;
    raise notice 'ok: 7. a retry is recorded and requeued';

    -- 8. A lease that ran out is repaired; the worker that lost it can complete nothing.
    update proof p set lease_token = c.lease_token
    from claim_outbox_batch(100, 'proof', 1) c where c.outbox_id = p.outbox_id;
    perform pg_sleep(greatest(0, extract(epoch from max(n.lease_expires_at) - clock_timestamp()))::double precision)
    from payment_outbox_pending n join proof p using (outbox_id);
    if repair_expired_leases() < 1 then
        raise exception '8: nothing was repaired';
    end if;
    perform pg_temp.expect('8: a stale completion', current_user,
        'select complete_outbox_attempt(p.outbox_id, p.lease_token, ''proof'', ''DISPATCHED'') from proof p', 'P7002');
    select n.attempt_count, n.claimed_by, a.state::text as state, a.attempt_no into v_row
    from payment_outbox_pending n join proof p using (outbox_id)
    join payment_outbox_attempts a on a.outbox_id = p.outbox_id
    order by a.attempt_no desc limit 1;
    if (v_row.attempt_count, v_row.claimed_by, v_row.state, v_row.attempt_no)
       is distinct from (3, null::text, 'ZOMBIE_REQUEUE', 3) then
        raise exception '8: after a repair: %', v_row;
    end if;
    raise notice 'ok: 8. an expired lease is repaired, and its holder refused with P7002';
end
$$;

rollback;
