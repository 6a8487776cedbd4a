-- New messages no longer go there. Zero rows: there was no such route.
delete from outbox_route where namespace = :namespace and topic = :topic and sink = :sink
