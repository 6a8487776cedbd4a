-- The next lane in which this tenant has something, and whether the lane's head, whosever it is, is due and free.
-- Caller: claim. Indexes: outbox_delivery_lane_of_tenant, then outbox_delivery_lane. Zero rows: that was the last lane.
select d.lane, (
    select h.due_at <= :now and (h.lease_expires_at is null or h.lease_expires_at <= :now)
    from outbox_delivery h indexed by outbox_delivery_lane
    where h.sink = :sink and h.lane = d.lane and h.lane is not null
    order by h.sequence_id
    limit 1
)
from outbox_delivery d indexed by outbox_delivery_lane_of_tenant
where d.sink = :sink and d.tenant_id = :tenant_id and d.lane > cast(:after as text) and d.lane is not null
order by d.lane
limit 1
