-- -> dead: a dead letter with what its message is about and the error of the last attempt. Returns whether it parks its
-- lane: bury_parked.sql then keeps the delivery in the lane, otherwise end.sql takes it away.
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
