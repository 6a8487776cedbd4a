-- Sinks that wait until they are resumed. Caller: explain.
select name from outbox_sink where paused
