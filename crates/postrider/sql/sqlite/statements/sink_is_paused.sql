-- Whether nothing is to be handed out. Caller: claim. Zero rows: the sink is as every sink is at first.
select s.paused from outbox_sink s where s.name = :sink
