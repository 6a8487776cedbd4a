-- Whether a sink of this name exists: it is `default`, or has a setting, a route, a delivery, a dead letter or an attempt, or
-- a relay has reported it. Attempts are looked through last, and only those of the messages that are meant.
select case
    when :sink = 'default'
      or exists (select 1 from outbox_sink s where s.name = :sink)
      or exists (select 1 from outbox_route r where r.sink = :sink)
      or exists (select 1 from outbox_relay r, json_each(r.sinks) s where json_extract(s.value, '$.sink') = :sink)
      or exists (select 1 from outbox_dead_letter l where l.sink = :sink)
      or exists (select 1 from outbox_delivery d where d.sink = :sink and d.lane is null)
      or exists (select 1 from outbox_delivery d where d.sink = :sink and d.lane is not null) then 1
    else exists (
        select 1 from outbox_attempt a
        where a.message_id >= :id_from and a.message_id < :id_before and a.sink = :sink
          and (:message_ids is null or a.message_id in (select unhex(i.value) from json_each(:message_ids) i)))
    end
