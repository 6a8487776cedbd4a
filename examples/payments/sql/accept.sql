-- Records an instruction. $1 instruction, $2 idempotency key, $3 participant, $4 rail, $5 payment.
-- A racing request with the same instruction and key is waited for. Zero rows: it is known.
insert into instructions (instruction_id, idempotency_key, participant_id, rail, payment)
values ($1, $2, $3, $4, $5::jsonb)
on conflict (instruction_id, idempotency_key) do nothing
returning true
