-- What one step of a replay would take: see replay_batch. Messages that are pending, leased or dead for the sink are
-- neither. $1 messages, $2 sink, $3 first id, $4 first id that is no longer meant, $5 namespace, $6 topic, $7 after this
-- message, $8 look at no more than this many.
with looked_at as materialized (
    select m.id, ($5::text is null or m.namespace = $5) and ($6::text is null or m.topic like outbox.topic_like($6)) as meant
    from outbox.message m
    where ($1::uuid[] is null or m.id = any ($1)) and m.id >= $3 and m.id < $4 and ($7::uuid is null or m.id > $7)
    order by m.id
    limit $8
),
meant as (
    select m.id,
           coalesce((select true from outbox.attempt a
                     where a.message_id = m.id and a.sink = $2 and a.state = 'DISPATCHED' limit 1), false) as delivered
    from looked_at m
    where m.meant
      and not exists (select from outbox.delivery d where d.message_id = m.id and d.sink = $2)
      and not exists (select from outbox.dead_letter l where l.message_id = m.id and l.sink = $2)
)
select (select count(*) from meant m where m.delivered) as delivered,
       (select count(*) from meant m where not m.delivered) as never_delivered,
       (select count(*) from looked_at) as looked_at,
       (select m.id from looked_at m order by m.id desc limit 1) as last_id,
       $7 is not null or outbox.sink_is_known($2, $3, $4, $1) as known
