-- An import of another outbox's table. Called by `src/import.rs`. What stands in braces is the mapping's SQL: {rows} is a query
-- whose rows are called o, and {key}, {order} and {row} are about a row of it. They run with the caller's rights.

-- name: source
-- The table's full name, and its number if it was imported before. $1 table.
select t.name, s.id
from (
    select quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.oid = to_regclass($1)
) t
left join :"schema".import_source s on s.name = t.name

-- name: types
-- The types that the order compares, which the marks of a batch are read as again.
select {types}
from (values (1)) one (row)
left join (select {order_named} from ({rows}) o limit 1) t on true

-- name: keys
-- Rows that cannot be told apart, or have no place in the order.
select count(*) filter (where {key} is null or {order_is_null}), count({key}) - count(distinct ({key})::text)
from ({rows}) o

-- name: standing
-- Rows by state, and what became of them. $1 source.
select coalesce(({state})::text, 'null') as state, i.outcome, count(*)
from ({rows}) o
left join lateral (
    select i.outcome from :"schema".imported i where i.source_id = $1 and i.source_key = ({key})::text limit 1
) i on true
group by 1, 2
order by 1, 2

-- name: arrived
-- Messages of a source, and which of them the outbox has: at all, still to be delivered, dead. $1 source.
select count(*),
       count((select true from :"schema".message m where m.id = i.message_id limit 1)),
       count((select true from :"schema".delivery d where d.message_id = i.message_id limit 1)),
       count((select true from :"schema".dead_letter l where l.message_id = i.message_id limit 1))
from :"schema".imported i
where i.source_id = $1 and i.outcome in ('pending', 'dead', 'delivered')

-- name: begin
-- Notes the source, and keeps the numbers of its lanes. $1 source, $2 key.
select :"schema".begin_import($1, $2, array_agg(l.lane), array_agg(l.last_sequence))
from (
    select ({lane})::text as lane, max(({sequence})::bigint) as last_sequence from ({rows}) o
    where ({lane}) is not null and ({sequence}) is not null
    group by 1
) l

-- name: refusals
-- Why rows were refused, with examples. $1 source, $2 examples of each reason, $3 reasons at most.
select i.reason, count(*) as rows, (array_agg(i.source_key order by i.source_key))[:$2] as examples
from :"schema".imported i
where i.source_id = $1 and i.outcome = 'refused'
group by i.reason
order by count(*) desc, i.reason
limit $3

-- name: matching
-- The next rows that are not imported yet. $1 source's number, $2 rows at most, $3 bytes at most, $4 source, $5 old workers are
-- stopped, $6 what is delivered is left out, $7 see below, $8 the mark of the batch before.
with picked as materialized (
    select array[{marks}]::text[] as mark, {row} as mapped
    from ({rows}) o
    where {after}
      and not ($6 and ({state})::text is not distinct from 'delivered')
      -- A look for each row, by its key: with what the planner knows of a table that is just being filled, a join would
      -- compare every row with every other.
      and coalesce((select i.outcome = 'refused' from :"schema".imported i
                    where i.source_id = $1 and i.source_key = ({key})::text limit 1), true)
    order by {order}
    limit $2
),
sized as materialized (
    select p.mark, p.mapped, row_number() over () as nth,
           sum(coalesce(octet_length((p.mapped).payload), 0) + coalesce(octet_length((p.mapped).body), 0))
               over (rows between unbounded preceding and 1 preceding) as bytes_before
    from picked p
),
fitting as materialized (
    select s.* from sized s where coalesce(s.bytes_before, 0) < $3
),
taken as (
    select array_agg(f.mapped order by f.nth) as rows, (select f.mark from fitting f order by f.nth desc limit 1) as mark
    from fitting f
)
-- name: batch
-- They become messages. $7 who acts.
select t.mark, r.pending, r.dead, r.delivered, r.duplicates, r.refused, r.left_over
from taken t
cross join lateral :"schema".import_rows(source => $4, rows => t.rows, workers_stopped => $5, actor => $7) r
where t.mark is not null

-- name: check
-- What would become of them: one row for each outcome and reason. $7 examples of each.
select t.mark, r.outcome, r.reason, r.count, r.source_keys
from taken t
cross join lateral :"schema".check_rows(source => $4, rows => t.rows, workers_stopped => $5, examples => $7) r

-- name: forward
-- A script that lets a trigger forward new rows of the old table, in the transaction that writes them.
-- Forwards new rows of {source} to the outbox, in the transaction that writes them.
-- Made by postrider import --forward-sql. Run it as a role that is in the outbox's operator role and may create a trigger on
-- the table: the function runs with its rights, so writers need no right on the outbox. It waits for transactions that write
-- to the table, and no longer than 10 seconds. To remove it:
--   drop trigger postrider_forward on {source}; drop function {function}();
begin;
set local lock_timeout = '10s';
set local client_min_messages = warning;
select :"schema".begin_import({source_text}, {key_text});
create or replace function {function}() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $postrider$
begin
    perform :"schema".forward_rows({source_text}, array(
        select {row} from ({forward_rows}) o order by {order}));
    return null;
end
$postrider$;
revoke all on function {function}() from public;
drop trigger if exists postrider_forward on {source};
create trigger postrider_forward after insert on {source}
    referencing new table as postrider_new_rows
    for each statement execute function {function}();
commit;
