-- Samples past their retention, oldest first. Caller: measure. Index: sample_pk. Zero rows: none.
delete from outbox_sample
where (at, sink) in (
    select s.at, s.sink from outbox_sample s
    where s.at < :at - (select t.sample_retention_seconds * 1000000 from outbox_setting t)
    order by s.at
    limit :batch_size
)
