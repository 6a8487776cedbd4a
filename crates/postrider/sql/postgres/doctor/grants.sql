-- Which of these functions the current role may call, and which group roles it is in. $1: signatures; $2: group roles.
select array(select s.signature from unnest($1::text[]) s (signature)
             where to_regprocedure(s.signature) is null
                or not has_function_privilege(s.signature, 'execute')) as missing,
       array(select g.name from unnest($2::text[]) g (name)
             where exists (select from pg_roles r where r.rolname = g.name and pg_has_role(r.oid, 'usage'))) as groups
