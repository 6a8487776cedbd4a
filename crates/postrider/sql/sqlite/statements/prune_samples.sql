-- Samples past their retention, oldest first, and those from the future: the clock was ahead or was set back. Caller: measure. Index: sample_pk. Zero rows: none.
delete from outbox_sample
where (at, sink) in (
    select s.at, s.sink from outbox_sample s
    where s.at < :at - (select t.sample_retention_seconds * 1000000 from outbox_setting t) or s.at > :now
    order by s.at
    limit :batch_size
)
