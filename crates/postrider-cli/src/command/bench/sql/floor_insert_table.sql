-- A batch into one table.
insert into :"schema".floor_job (id, payload)
select u.id, u.payload::jsonb from unnest($1::uuid[], $2::text[]) u (id, payload)
