-- Which of the named messages have no dead letter of this kind.
select distinct unhex(i.value) as id
from json_each(:message_ids) i
where not exists (select 1 from matching l where l.message_id = unhex(i.value))
order by id
