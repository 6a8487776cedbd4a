//! The rules of a message, one by one.

use serde_json::json;

use super::*;

fn message() -> Message {
    Message::json("order.placed", &json!({"id": 1})).unwrap()
}

#[test]
fn every_limit_has_a_typed_error() {
    let long = "x".repeat(256);
    let cases: Vec<(Message, InvalidMessage)> = vec![
        (Message::json("", &1).unwrap(), InvalidMessage::Empty { field: "topic" }),
        (Message::json(&*long, &1).unwrap(), InvalidMessage::TooLong { field: "topic", bytes: 256, max: 255 }),
        (Message::json("a\0b", &1).unwrap(), InvalidMessage::Nul { field: "topic" }),
        (message().namespace(""), InvalidMessage::Empty { field: "namespace" }),
        (message().tenant(""), InvalidMessage::Empty { field: "tenant_id" }),
        (message().tenant(&*long), InvalidMessage::TooLong { field: "tenant_id", bytes: 256, max: 255 }),
        (message().tenant("a\0"), InvalidMessage::Nul { field: "tenant_id" }),
        (message().lane(""), InvalidMessage::Empty { field: "lane" }),
        (message().lane("\0"), InvalidMessage::Nul { field: "lane" }),
        (message().dedupe_key("k".repeat(513)), InvalidMessage::TooLong { field: "dedupe_key", bytes: 513, max: 512 }),
        (message().priority(101), InvalidMessage::Priority { priority: 101, min: -100, max: 100 }),
        (message().header("", "x"), InvalidMessage::Empty { field: "header name" }),
        (message().header("h", "\0"), InvalidMessage::Nul { field: "header" }),
        (message().delay(Duration::MAX), InvalidMessage::TimeOutOfRange { field: "delay" }),
        (
            message().due_at(SystemTime::UNIX_EPOCH + UNTIL_YEAR_10000),
            InvalidMessage::TimeOutOfRange { field: "due_at" },
        ),
        (
            message().occurred_at(SystemTime::UNIX_EPOCH - SINCE_YEAR_1 - Duration::from_nanos(1)),
            InvalidMessage::TimeOutOfRange { field: "occurred_at" },
        ),
        (Message::json("t", "\0").unwrap(), InvalidMessage::Nul { field: "payload" }),
        (
            Message::bytes("t", vec![0; limit::CONTENT_BYTES + 1], "x/y"),
            InvalidMessage::ContentTooLarge { bytes: limit::CONTENT_BYTES + 1, max: limit::CONTENT_BYTES },
        ),
        (
            message().tenant("acme").dedupe_key("other/1"),
            InvalidMessage::ForeignDedupeKey { key: "other/1".to_owned(), tenant_id: "acme".to_owned() },
        ),
    ];
    for (message, error) in cases {
        assert_eq!(message.check(), Err(error));
    }
    let headers = (0..1000).fold(message(), |message, n| message.header(format!("h{n}"), "v".repeat(70)));
    assert!(matches!(headers.check(), Err(InvalidMessage::TooLong { field: "headers", .. })));
}

/// Proves M4 on the producer's side: the tenant id as it stands is accepted, a UUID as 32 digits too, nothing else is.
#[test]
fn a_dedupe_key_belongs_to_its_tenant() {
    let uuid = Uuid::from_u128(0xabcd);
    let upper = uuid.to_string().to_uppercase();
    let cases = [
        ("tenant-1", "tenant-1/1", true),
        ("a/b", "a/b/1", true),
        ("tenant-1", "tenant1/1", false),
        ("tenant-1", "tenant-1", false),
        ("tenant-1", "tenant-10/1", false),
        ("tenant-1", "Tenant-1/1", false),
        (&uuid.to_string(), &format!("{uuid}/1"), true),
        (&uuid.to_string(), &format!("{}/1", uuid.simple()), true),
        (&uuid.to_string(), &format!("{upper}/1"), false),
        (&uuid.simple().to_string(), &format!("{uuid}/1"), false),
        (&upper, &format!("{upper}/1"), true),
        (&upper, &format!("{}/1", uuid.simple()), false),
    ];
    for (tenant, key, belongs) in cases {
        assert_eq!(message().tenant(tenant).dedupe_key(key).check().is_ok(), belongs, "{tenant:?} {key:?}");
    }
    assert_eq!(message().dedupe_key("anything").check(), Ok(()), "without a tenant any key will do");
}

#[test]
fn an_escaped_backslash_before_u0000_is_not_nul() {
    assert_eq!(Message::json("t", "\\u0000").unwrap().check(), Ok(()));
    assert_eq!(Message::bytes("t", vec![0, 1], "x/y").check(), Ok(()), "bytes may hold anything");
}

#[test]
fn what_cannot_be_json_is_refused() {
    let map: BTreeMap<(u8, u8), u8> = BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(Message::json("t", &map), Err(InvalidMessage::NotJson { .. })));
}
