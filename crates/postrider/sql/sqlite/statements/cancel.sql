-- The record of a delivery that an operator took back, under the next number; end.sql takes the delivery away. Caller: cancel.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code, error_message)
values (:message_id, :sink, :attempt_no, 'CANCELLED', :now, :now, :actor, 'CANCELLED', 'an operator cancelled the delivery')
