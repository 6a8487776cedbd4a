-- What a claim may take of one lane: its lowest numbers in sequence, up to the first that is not due, leased, somebody
-- else's tenant's, or out of attempts. (A head that is out of attempts is taken alone, to be buried.)
-- A head that failed and was put off goes alone: if it fails again, nothing behind it was leased in vain. Its due time
-- tells, and its last attempt where the clock did not tick in between.
-- Caller: claim. Indexes: outbox_delivery_lane, outbox_delivery_leased.
-- Zero rows: the head is not free, or a lease lives somewhere in the lane: a lane is in one hand at a time.
with lowest as materialized (
    select d.message_id, d.sink, d.sequence_id, d.due_at, d.attempt_no, d.attempt_count,
           d.lease_token is not null as leased, d.attempt_count >= :max_attempts as exhausted,
           d.due_at <= :now and (d.lease_expires_at is null or d.lease_expires_at <= :now)
           and (:tenant_id is null or d.tenant_id is :tenant_id) as free
    from outbox_delivery d indexed by outbox_delivery_lane
    where d.sink = :sink and d.lane = cast(:lane as text) and d.lane is not null
      and not exists (
          select 1 from outbox_delivery t indexed by outbox_delivery_leased
          where t.sink = :sink and t.lane = cast(:lane as text) and t.lease_expires_at > :now and t.lease_token is not null)
    order by d.sequence_id
    limit :room
),
head as (
    select w.sequence_id, w.due_at, w.attempt_count > 0 as tried, w.attempt_count > 0 and exists (
               select 1 from outbox_attempt a
               where a.message_id = w.message_id and a.sink = w.sink and a.attempt_no = w.attempt_no
                 and a.state = 'RETRYABLE') as failed
    from lowest w
    order by w.sequence_id
    limit 1
),
run as (
    select w.message_id, w.sequence_id, w.leased, row_number() over low_to_high as nth,
           min(w.free) over low_to_high as all_free, max(w.exhausted) over low_to_high as one_exhausted,
           max(w.sequence_id > h.sequence_id
               and ((h.tried and h.due_at > w.due_at) or (h.failed and h.due_at = w.due_at))
           ) over low_to_high as behind_a_retry
    from lowest w cross join head h
    window low_to_high as (order by w.sequence_id)
)
select r.message_id, r.leased or r.one_exhausted as unsettled
from run r
where r.all_free and (r.nth = 1 or not (r.one_exhausted or r.behind_a_retry))
order by r.sequence_id
