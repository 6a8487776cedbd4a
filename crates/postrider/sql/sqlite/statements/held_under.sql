-- What is leased under a token, whether or not the lease has ended. Caller: abandon. Index: outbox_delivery_leased.
select d.message_id
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token = :lease_token and d.lease_token is not null
