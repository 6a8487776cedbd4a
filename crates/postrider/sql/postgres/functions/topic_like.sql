-- A topic as a filter names it, as a pattern for LIKE: `*` stands for any characters, as in a route. Internal.
-- Caller: every function and query that filters by topic. With a constant it is folded when the statement is planned.
-- chr(92) is a backslash, which means something else in databases without standard_conforming_strings.
create or replace function :"schema".topic_like(topic text)
    returns text language sql immutable strict parallel safe
    set search_path = pg_catalog, :"schema", pg_temp
as $$
    select replace(replace(replace(replace(topic_like.topic, chr(92), chr(92) || chr(92)), '%', chr(92) || '%'),
                           '_', chr(92) || '_'), '*', '%')
$$;
comment on function :"schema".topic_like is 'Internal: a topic in which * stands for any characters, for LIKE.';
grant execute on function :"schema".topic_like to :"reader", :"operator", :"auditor";
