-- The partitions of `message` and the bounds of each as text: from and to are UUIDv7s, whose first 48 bits are a time.
select c.relname::text as name,
       substring(pg_get_expr(c.relpartbound, c.oid) from 'FROM [(]''([0-9a-f-]+)''[)]')::uuid as id_from,
       substring(pg_get_expr(c.relpartbound, c.oid) from 'TO [(]''([0-9a-f-]+)''[)]')::uuid as id_to
from pg_inherits i
join pg_class c on c.oid = i.inhrelid
where i.inhparent = to_regclass($1) and pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
order by id_from
