-- Records a turn, unless it is known. $1 tenant, $2 turn, $3 request, $4 tokens. False: the tenant is closed, and the caller
-- must roll back.
with recorded as (
    insert into chat.turn (tenant_id, turn_id, request_id, tokens) values ($1, $2, $3, $4)
    on conflict (tenant_id, turn_id, request_id) do nothing
)
select not exists (select from chat.closed_tenant c where c.tenant_id = $1) as open
