-- Every function in the outbox's schema, with its body, to be compared with what this build would make.
select p.proname::text as name, p.prosrc as body
from pg_proc p
where p.pronamespace = to_regnamespace($1)
order by p.proname
