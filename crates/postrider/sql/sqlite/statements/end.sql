-- The delivery ends: delivered, or dead without a lane to park, or discarded.
-- Callers: complete, bury and discard, in the transaction that recorded why.
delete from outbox_delivery where message_id = :message_id and sink = :sink
