-- The open deliveries that a filter means: the first part of count_open, not_open and choose_pending. What is null does not
-- matter; `message_ids` is a JSON array of ids as 32 hexadecimal digits. A dead lane head that parks its lane is none of
-- them: it belongs to its dead letter. The message is looked up only if its namespace or topic is asked for.
with matching as not materialized (
    select d.* from outbox_delivery d
    where d.due_at < 9223372036854775807
      and (:message_ids is null or d.message_id in (select unhex(i.value) from json_each(:message_ids) i))
      and (:sink is null or d.sink = :sink)
      and (:tenant_id is null or d.tenant_id = :tenant_id)
      and (:lane is null or d.lane = :lane)
      and ((:namespace is null and :topic is null) or exists (
          select 1 from outbox_message m
          where m.id = d.message_id and (:namespace is null or m.namespace = :namespace)
            and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))))
)
