-- The dead letters that a filter means: the first part of count_dead, group_dead, list_dead_letters and choose_dead.
-- What is null does not matter; an empty `error_code` means those without one; `message_ids` is a JSON array of ids as 32
-- hexadecimal digits. Not materialized: where it
-- is looked at twice, each look reads what it needs.
with matching as not materialized (
    select l.* from outbox_dead_letter l
    where (:message_ids is null or l.message_id in (select unhex(i.value) from json_each(:message_ids) i))
      and (:sink is null or l.sink = :sink)
      and (:namespace is null or l.namespace = :namespace)
      and (:topic is null or l.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
      and (:tenant_id is null or l.tenant_id = :tenant_id)
      and (:lane is null or l.lane = :lane)
      and (:reason is null or l.reason = :reason)
      and (:error_code is null or coalesce(l.error_code, '') = :error_code)
      and (:died_from is null or l.died_at >= :died_from)
      and (:died_to is null or l.died_at < :died_to)
)
