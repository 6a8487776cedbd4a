-- Whether the sink has anything in lanes, due or not. Caller: claim, to share a batch.
select exists (
    select 1 from outbox_delivery d indexed by outbox_delivery_lane where d.sink = :sink and d.lane is not null
)
