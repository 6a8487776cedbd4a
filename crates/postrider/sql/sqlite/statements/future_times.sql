-- Times that the clock cannot have written, had it always been right: leases, relays' reports and samples from later than
-- `latest`, and leases that last longer than `longest_us`. Caller: doctor.
select (select count(*) from outbox_delivery d indexed by outbox_delivery_leased
        where d.lease_token is not null and (d.claimed_at > :latest or d.lease_expires_at > :latest + :longest_us)),
       (select count(*) from outbox_relay r where r.reported_at > :latest),
       (select count(*) from outbox_sample s where s.at > :latest)
