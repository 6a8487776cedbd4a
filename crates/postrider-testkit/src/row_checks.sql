-- What holds for every row of message, delivery and attempt, as CHECK constraints: the template has them, so each test database
-- fails where a function writes a row that breaks one. Production does not: see docs/decisions/0013-the-cheapest-enqueue.md.

alter table outbox.message
    add constraint message_has_payload_or_body check (num_nonnulls(payload, body) = 1),
    add constraint message_namespace_is_short_text check (namespace <> '' and octet_length(namespace) <= 255),
    add constraint message_topic_is_short_text check (topic <> '' and octet_length(topic) <= 255),
    add constraint message_tenant_id_is_short_text check (tenant_id <> '' and octet_length(tenant_id) <= 255),
    add constraint message_lane_is_short_text check (lane <> '' and octet_length(lane) <= 255),
    add constraint message_dedupe_key_is_short_text check (dedupe_key <> '' and octet_length(dedupe_key) <= 512),
    add constraint message_content_type_is_short_text check (content_type <> '' and octet_length(content_type) <= 255),
    add constraint message_priority_is_bounded check (priority between -100 and 100),
    add constraint message_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    add constraint message_sequence_starts_at_one check (sequence_id >= 1),
    add constraint message_headers_is_object check (jsonb_typeof(headers) = 'object'),
    add constraint message_content_is_bounded check (content_bytes between 0 and 16777216);

alter table outbox.delivery
    add constraint delivery_sink_is_short_text check (sink <> '' and octet_length(sink) <= 255),
    add constraint delivery_lane_has_sequence check ((lane is null) = (sequence_id is null)),
    add constraint delivery_counts_are_ordered check (attempt_count between 0 and attempt_no),
    add constraint delivery_lease_is_whole check (
        num_nonnulls(claimed_at, lease_expires_at, lease_token, claimed_by) in (0, 4)
    ),
    add constraint delivery_parked_is_a_lane_head_without_lease check (
        due_at <> 'infinity' or (lane is not null and lease_token is null)
    );

alter table outbox.attempt
    add constraint attempt_no_starts_at_one check (attempt_no >= 1),
    add constraint attempt_latency_is_not_negative check (latency_ms >= 0);
