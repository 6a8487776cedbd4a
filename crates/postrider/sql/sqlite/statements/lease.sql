-- What becomes of a lease before its outcome: the holder renews, releases and reads under its token, and a lease that ran
-- out is ended. Called by `store/sqlite/lease.rs`.

-- name: renew
-- leased -> leased for longer, from now. Fenced by the token and the end of the lease. Zero rows: the lease is lost.
update outbox_delivery
set lease_expires_at = :now + :lease_us
where message_id = :message_id and lease_token = :lease_token and lease_expires_at > :now

-- name: release
-- leased -> pending, due as before: the attempt number is given back and nothing is recorded. Fenced by the token and
-- the end of the lease. Zero rows: the lease is lost.
update outbox_delivery
set attempt_no = attempt_no - 1, attempt_count = attempt_count - 1,
    claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and lease_token = :lease_token and lease_expires_at > :now

-- name: held_under
-- What is leased under a token, whether or not the lease has ended. Caller: abandon. Index: outbox_delivery_leased.
select d.message_id
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token = :lease_token and d.lease_token is not null

-- name: content
-- Headers and content of a message that is held under a token. Caller: Store::content. Index: delivery_pk.
-- Zero rows: it is not held under this token.
select m.headers, m.payload, m.body
from outbox_message m
join outbox_delivery d on d.message_id = m.id
where m.id = :message_id and d.lease_token = :lease_token and d.lease_expires_at > :now

-- name: stale
-- Leases that ended by a time, and with `live` those taken by that time, or in the future: the clock was ahead or was set
-- back. Callers: repair and unclaim.
-- Index: outbox_delivery_leased, which holds nothing else than leases. Zero rows: none.
select d.message_id, d.sink
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token is not null
  and (d.lease_expires_at <= :now or (:live and (d.claimed_at <= :until or d.claimed_at > :now)))
limit :batch_size

-- name: count_stale
-- How many leases unclaim would end: see `stale`.
select count(*)
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token is not null
  and (d.lease_expires_at <= :now or (:live and (d.claimed_at <= :until or d.claimed_at > :now)))

-- name: end
-- leased -> pending, after `settle` of complete.sql has recorded the lost attempt. Callers: repair and unclaim.
-- Zero rows: the delivery was buried.
update outbox_delivery
set claimed_at = null, lease_expires_at = null, lease_token = null, claimed_by = null
where message_id = :message_id and sink = :sink and lease_token is not null
