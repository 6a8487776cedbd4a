-- The contacts that identities lead to: none, one, or several. $1 tenant, $2 types, $3 values.
-- One branch for each unique index, in the words of its predicate.
select distinct o.contact_id
from unnest($2::text[], $3::text[]) as g (type, value)
cross join lateral (
    select i.contact_id from contact_identities i
    where i.tenant_id = $1 and i.type = 'external_id' and g.type = 'external_id' and i.value = g.value
    union all
    select i.contact_id from contact_identities i
    where i.tenant_id = $1 and i.type = 'email' and g.type = 'email' and lower(i.value) = lower(g.value)
) o
order by o.contact_id
