-- What an operator sets about a sink; null leaves it as it is. A sink needs no row to exist.
insert into outbox_sink (name, paused, on_dead)
values (:sink, coalesce(:paused, false), coalesce(:on_dead, 'park'))
on conflict (name) do update
set paused = coalesce(:paused, paused), on_dead = coalesce(:on_dead, on_dead)
