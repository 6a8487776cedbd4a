-- What an application's tests ask. Called by `testing.rs` and `store/sqlite/testing.rs`, with the feature `testing` only.

-- name: enqueued
-- What this transaction sees in the outbox, the newest first: a JSON object for each message. In step with MAX_MESSAGES.
select json_object(
           'message_id', lower(hex(m.id)), 'namespace', m.namespace, 'topic', m.topic, 'tenant_id', m.tenant_id, 'lane', m.lane,
           'sequence_id', m.sequence_id, 'dedupe_key', m.dedupe_key, 'headers', json(coalesce(m.headers, '{}')),
           'payload', json(m.payload)
       )
from outbox_message m
order by m.id desc
limit 1000

-- name: movable_clock
-- Puts a clock that can be moved in place of the outbox's own, in this file, for good. It goes on as the real one does, so far
-- ahead of it.
create table if not exists outbox_test_clock (only_row integer primary key check (only_row = 1), ahead_us integer not null);
insert into outbox_test_clock (only_row, ahead_us) values (1, 0) on conflict do nothing;
drop view outbox_clock;
create view outbox_clock as
select cast(round(unixepoch('subsec') * 1000) as integer) * 1000 + (select ahead_us from outbox_test_clock) as now;

-- name: advance
-- So many microseconds further ahead.
update outbox_test_clock set ahead_us = ahead_us + :by_us
