-- Whether a known instruction says the same as this request. The parameters are those of accept.sql.
select i.participant_id = $3 and i.rail = $4 and i.payment = $5::jsonb
from instructions i
where i.instruction_id = $1 and i.idempotency_key = $2
