-- Writes down what an operator did, in the transaction that did it.
insert into outbox_audit (at, affected, actor, action, detail) values (:now, :affected, :actor, :action, :detail)
