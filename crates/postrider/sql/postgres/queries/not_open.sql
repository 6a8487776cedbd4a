-- Which of the named messages have no open delivery of this kind. Parameters as in count_open.sql; $1 is not null.
select i.id
from (select distinct i.id from unnest($1::uuid[]) i (id)) i
where not exists (
    select from outbox.delivery d
    where d.message_id = i.id and d.due_at < 'infinity' and ($2::text is null or d.sink = $2)
      and ($5::uuid is null or d.tenant_id = $5) and ($6::text is null or d.lane = $6)
      and (($3::text is null and $4::text is null) or exists (
          select from outbox.message m
          where m.id = d.message_id and ($3 is null or m.namespace = $3) and ($4 is null or m.topic like outbox.topic_like($4)) offset 0)))
order by i.id
