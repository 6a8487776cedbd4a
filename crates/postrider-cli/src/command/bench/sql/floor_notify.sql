-- One message into one table, and word of it at commit.
with written as (
    insert into :"schema".floor_job (id, payload) values ($1, $2::text::jsonb)
)
select pg_notify($3, '')
