-- Adds those identities that nobody has, and returns them. $1 tenant, $2 contact, $3 types, $4 values.
-- A racing request that is adding one of them is waited for. All add in one order, so they never wait in a circle.
insert into contact_identities (tenant_id, contact_id, type, value)
select $1, $2, g.type, g.value
from unnest($3::text[], $4::text[]) as g (type, value)
order by g.type, lower(g.value), g.value
on conflict do nothing
returning type, value
