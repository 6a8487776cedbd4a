-- Adds the tokens of a turn to its tenant's account, once. $1 tenant, $2 turn, $3 request, $4 tokens. True: the quota is used
-- up. Zero rows: the turn is known.
with recorded as (
    insert into billing.usage (tenant_id, turn_id, request_id, tokens) values ($1, $2, $3, $4)
    on conflict (tenant_id, turn_id, request_id) do nothing
    returning tenant_id, tokens
)
insert into billing.account as a (tenant_id, spent) select r.tenant_id, r.tokens from recorded r
on conflict (tenant_id) do update set spent = a.spent + excluded.spent
returning a.spent >= a.quota
