-- What an operator sets about a sink; null leaves it as it is. Zero rows: it was so already.
update outbox_sink set paused = coalesce(:paused, paused), on_dead = coalesce(:on_dead, on_dead)
where name = :sink and (paused <> :paused or on_dead <> :on_dead)
