-- Which new messages go where.
select sink, topic, namespace from outbox_route order by namespace, topic, sink
