-- Which of the named messages have no open delivery of this kind.
select distinct unhex(i.value) as id
from json_each(:message_ids) i
where not exists (select 1 from matching d where d.message_id = unhex(i.value))
order by id
