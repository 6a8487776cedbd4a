-- A relay stops in good order. Zero rows: it never reported, or was forgotten.
delete from outbox_relay where worker_id = :worker_id
