-- How a claim finds free deliveries and leases them. Called by `store/sqlite/claim.rs`, in the order of this file; nothing is
-- written if nothing is free.

-- name: sink_is_paused
-- Whether nothing is to be handed out. Caller: claim. Zero rows: the sink is as every sink is at first.
select s.paused from outbox_sink s where s.name = :sink

-- name: lanes_wait
-- Whether the sink has anything in lanes, due or not. Caller: claim, to share a batch.
select exists (
    select 1 from outbox_delivery d indexed by outbox_delivery_lane where d.sink = :sink and d.lane is not null
)

-- name: next_priority
-- The next lower priority in use, and its earliest due time: one hop, whatever waits there.
-- Caller: claim. Index: outbox_delivery_due. Zero rows: no lower one.
select d.priority, d.due_at <= :now
from outbox_delivery d indexed by outbox_delivery_due
where d.sink = :sink and d.lane is null and d.priority < :below
order by d.priority desc, d.due_at
limit 1

-- name: next_priority_of_tenant
-- `next_priority` for one tenant. Index: outbox_delivery_due_of_tenant.
select d.priority, d.due_at <= :now
from outbox_delivery d indexed by outbox_delivery_due_of_tenant
where d.sink = :sink and d.tenant_id = :tenant_id and d.lane is null and d.priority < :below
order by d.priority desc, d.due_at
limit 1

-- name: due
-- Due deliveries without a lane, of one priority: due time, then id. Those not yet due are not read.
-- Caller: claim. Index: outbox_delivery_due. `unsettled`: its last lease ended without an outcome, or it is out of
-- attempts. Zero rows: nothing of this priority is due and free.
select d.message_id, d.lease_token is not null or d.attempt_count >= :max_attempts as unsettled
from outbox_delivery d indexed by outbox_delivery_due
where d.sink = :sink and d.lane is null and d.priority = :priority and d.due_at <= :now
  and (d.lease_expires_at is null or d.lease_expires_at <= :now)
order by d.due_at, d.message_id
limit :room

-- name: due_of_tenant
-- `due` for one tenant. Index: outbox_delivery_due_of_tenant.
select d.message_id, d.lease_token is not null or d.attempt_count >= :max_attempts as unsettled
from outbox_delivery d indexed by outbox_delivery_due_of_tenant
where d.sink = :sink and d.tenant_id = :tenant_id and d.lane is null and d.priority = :priority and d.due_at <= :now
  and (d.lease_expires_at is null or d.lease_expires_at <= :now)
order by d.due_at, d.message_id
limit :room

-- name: next_lane
-- The next lane after this one, as bytes (what another program wrote need not be UTF-8), and whether its head is due and free: one hop, whatever waits in the lane.
-- Caller: claim. Index: outbox_delivery_lane. Zero rows: that was the last lane.
select cast(d.lane as blob), d.due_at <= :now and (d.lease_expires_at is null or d.lease_expires_at <= :now)
from outbox_delivery d indexed by outbox_delivery_lane
where d.sink = :sink and d.lane > cast(:after as text) and d.lane is not null
order by d.lane, d.sequence_id
limit 1

-- name: next_lane_of_tenant
-- The next lane in which this tenant has something, and whether the lane's head, whosever it is, is due and free.
-- Caller: claim. Indexes: outbox_delivery_lane_of_tenant, then outbox_delivery_lane. Zero rows: that was the last lane.
select cast(d.lane as blob), (
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

-- name: lane_run
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

-- name: size_as_sent
-- Content and headers of a message as they are sent, in bytes. Caller: claim, which hands out no more than it was asked for.
-- Zero rows: there is no such message.
select coalesce(octet_length(m.payload), octet_length(m.body), 0) + coalesce(octet_length(m.headers), 0)
from outbox_message m
where m.id = :message_id

-- name: lease
-- pending -> leased: the counters go up with the claim, so that a crash counts.
-- Caller: claim, for each row that it picked in this transaction and that was not buried. Index: delivery_pk.
update outbox_delivery
set attempt_no = attempt_no + 1, attempt_count = attempt_count + 1, max_attempts = :max_attempts, claimed_at = :now,
    lease_expires_at = :now + :lease_us, lease_token = :lease_token, claimed_by = :worker_id
where message_id = :message_id and sink = :sink

-- name: claimed
-- What the producer said, and the terms of the lease that was just taken. Caller: claim.
-- lost_leases: how many of the two attempts before this one ended because their lease ran out; asked only of what was
-- tried before.
select m.id as message_id, d.sink, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id, m.dedupe_key, d.priority,
       iif(:with_content, m.headers, null) as headers, iif(:with_content, m.payload, null) as payload,
       iif(:with_content, m.body, null) as body, m.content_type, m.occurred_at, d.due_at, d.attempt_no, d.attempt_count,
       case when d.attempt_count > 1 then (
           select count(*) from outbox_attempt a
           where a.message_id = d.message_id and a.sink = d.sink
             and a.attempt_no between d.attempt_no - 2 and d.attempt_no - 1 and a.state = 'ZOMBIE_REQUEUE'
       ) else 0 end as lost_leases,
       d.lease_token, d.claimed_at, d.lease_expires_at
from outbox_delivery d
join outbox_message m on m.id = d.message_id
where d.message_id = :message_id and d.sink = :sink
