//! What a sink sends beside the content: the producer's headers as they are, and what the relay knows about the message
//! under names of its own. One mapping for every sink, so that a receiver finds the same names wherever it listens.

use std::borrow::Cow;

use postrider::lifecycle::{Claimed, Content};

use super::rfc3339;

/// The message's id: the same over all retries. What a receiver deduplicates by.
pub(crate) const MESSAGE_ID: &str = "postrider-message-id";
pub(crate) const NAMESPACE: &str = "postrider-namespace";
pub(crate) const TOPIC: &str = "postrider-topic";
pub(crate) const TENANT_ID: &str = "postrider-tenant-id";
pub(crate) const LANE: &str = "postrider-lane";
pub(crate) const SEQUENCE_ID: &str = "postrider-sequence-id";
/// The producer's own key of the message, if it gave one: unique with namespace, topic and tenant.
pub(crate) const DEDUPE_KEY: &str = "postrider-dedupe-key";
/// When what it tells happened, as RFC 3339.
pub(crate) const OCCURRED_AT: &str = "postrider-occurred-at";
pub(crate) const CONTENT_TYPE: &str = "content-type";

/// Names that are the relay's: a producer's header of such a name is not sent.
const OURS: &str = "postrider-";

/// The headers of a message: the producer's first, in the order of their names, then ours.
#[cfg(any(feature = "kafka", feature = "mqtt", feature = "nats", feature = "rabbitmq", feature = "redis"))]
pub(crate) fn headers<'a>(message: &'a Claimed) -> Vec<(&'a str, Cow<'a, str>)> {
    let given = producers(message).map(|(name, value)| (name, Cow::from(value)));
    given.chain(ours(message).map(|(name, value)| -> (&'a str, Cow<'a, str>) { (name, value) })).collect()
}

/// What the producer gave, in the order of their names.
pub(crate) fn producers(message: &Claimed) -> impl Iterator<Item = (&str, &str)> {
    let given = message.headers.iter().filter(|(name, _)| !is_ours(name));
    given.map(|(name, value)| (name.as_str(), value.as_str()))
}

/// What the relay knows.
pub(crate) fn ours(message: &Claimed) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
    [
        Some((CONTENT_TYPE, content_type(message).into())),
        Some((MESSAGE_ID, message.message_id.to_string().into())),
        Some((NAMESPACE, Cow::from(&message.namespace))),
        Some((TOPIC, Cow::from(&message.topic))),
        message.tenant_id.as_ref().map(|tenant| (TENANT_ID, Cow::from(tenant))),
        message.lane.as_ref().map(|lane| (LANE, Cow::from(lane))),
        message.sequence_id.map(|sequence| (SEQUENCE_ID, sequence.to_string().into())),
        message.dedupe_key.as_ref().map(|key| (DEDUPE_KEY, Cow::from(key))),
        Some((OCCURRED_AT, rfc3339(message.occurred_at).into())),
    ]
    .into_iter()
    .flatten()
}

fn is_ours(name: &str) -> bool {
    let begins_like_ours = name.get(..OURS.len()).is_some_and(|start| start.eq_ignore_ascii_case(OURS));
    begins_like_ours || name.eq_ignore_ascii_case(CONTENT_TYPE)
}

/// What the content is: what the producer said, in its field or in a header.
pub(crate) fn content_type(message: &Claimed) -> &str {
    let said = message.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE)).map(|(_, value)| value);
    let said = message.content_type.as_ref().or(said).map(String::as_str);
    said.unwrap_or(match message.content {
        Content::Json(_) => "application/json",
        Content::Bytes(_) => "application/octet-stream",
    })
}
