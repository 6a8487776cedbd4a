-- How a delivery ends, well or badly. Called by `store/sqlite/complete.rs`, in the transaction that holds or ends the lease.

-- name: held
-- The fence: the delivery, if it still holds the token, was claimed by this worker, and its lease has not ended.
-- Caller: complete. Index: delivery_pk. Zero rows: the lease is lost, and nothing may be written.
select d.sink, d.attempt_no, d.attempt_count >= d.max_attempts
from outbox_delivery d
where d.message_id = :message_id and d.lease_token = :lease_token and d.lease_expires_at > :now
  and d.claimed_by = :worker_id

-- name: record
-- Adds the attempt that this lease ends with. Caller: complete, for what `held` found in this transaction.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, latency_ms, worker_id, code,
                            reference, error_code, error_message, answer)
select d.message_id, d.sink, d.attempt_no, :state, d.claimed_at, :now, :latency_ms, d.claimed_by,
       substr(:code, 1, 255), substr(:reference, 1, 1000), substr(:error_code, 1, 255), substr(:error_message, 1, 4000),
       substr(:answer, 1, 8192)
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink

-- name: retry
-- leased -> pending, due after the delay that the worker computed. Caller: complete.
update outbox_delivery
set due_at = :now + :retry_after_us, claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink

-- name: end
-- The delivery ends: delivered, or dead without a lane to park, or discarded.
-- Callers: complete, bury and discard, in the transaction that recorded why.
delete from outbox_delivery where message_id = :message_id and sink = :sink

-- name: settle
-- Closes a lease that ended without an outcome: its attempt is recorded as ZOMBIE_REQUEUE. The lease itself stays; the
-- caller overwrites or clears it. Callers: claim, repair and unclaim, which have decided that the lease is over.
-- Zero rows: there was no lease.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                            error_message)
select d.message_id, d.sink, d.attempt_no, 'ZOMBIE_REQUEUE', d.claimed_at, :now, d.claimed_by, 'LEASE_EXPIRED',
       'the lease ended before the worker reported an outcome'
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink and d.lease_token is not null

-- name: is_spent
-- Whether a delivery is out of attempts: by this limit, or by the one it was last claimed with.
-- Callers: claim, repair and unclaim, after `settle`.
select d.attempt_count >= coalesce(:max_attempts, d.max_attempts)
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink

-- name: bury
-- -> dead: a dead letter with what its message is about and the error of the last attempt. Returns whether it parks its
-- lane: `park` then keeps the delivery in the lane, otherwise `end` takes it away.
-- Callers: claim, repair, unclaim and complete, in the transaction that recorded the last attempt.
insert into outbox_dead_letter (message_id, sink, died_at, reason, priority, tenant_id, lane, sequence_id, attempt_no,
                                attempt_count, parked, error_code, error_message, namespace, topic)
select d.message_id, d.sink, :now, :reason, d.priority, d.tenant_id, d.lane, d.sequence_id, d.attempt_no,
       d.attempt_count,
       d.lane is not null and coalesce((select s.on_dead = 'park' from outbox_sink s where s.name = d.sink), true),
       a.error_code, a.error_message, coalesce(m.namespace, ''), coalesce(m.topic, '')
from outbox_delivery d
left join outbox_attempt a on a.message_id = d.message_id and a.sink = d.sink and a.attempt_no = d.attempt_no
left join outbox_message m on m.id = d.message_id
where d.message_id = :message_id and d.sink = :sink
returning parked

-- name: park
-- A dead lane head stays the lowest number of its lane and is never due, so that it holds the lane.
update outbox_delivery
set due_at = 9223372036854775807, claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink
