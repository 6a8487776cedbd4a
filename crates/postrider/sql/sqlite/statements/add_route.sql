-- New messages of a topic go to a sink; those already written keep theirs. Zero rows: the route was there.
insert into outbox_route (namespace, topic, sink) values (:namespace, :topic, :sink) on conflict do nothing
