-- A relay says that it is alive. Caller: report. When it first said so is kept.
insert into outbox_relay (worker_id, started_at, reported_at, every_us, version, sinks)
values (:worker_id, :now, :now, :every_us, :version, :sinks)
on conflict (worker_id) do update
set reported_at = excluded.reported_at, every_us = excluded.every_us, version = excluded.version, sinks = excluded.sinks
