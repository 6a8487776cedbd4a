//! Payloads are checked against a JSON Schema before they are sent.

use postrider::Message;
use postrider_relay::SinkOptions;
use postrider_relay::sink::schema::Schemas;
use serde_json::{Value, json};

use crate::support::{arrivals, quick, site, start};

/// The rules of a payment: an amount above nothing, a currency of three letters, a destination that can be one.
fn payment() -> Value {
    json!({
        "type": "object",
        "required": ["amount", "currency", "destination"],
        "properties": {
            "amount": {"type": "number", "exclusiveMinimum": 0},
            "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "destination": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}[A-Z0-9]{10,30}$"}
        }
    })
}

/// Proves P9: an invalid payload is FAILED at once with the place of the offending value, the value itself is not written
/// down, and no byte of it is sent; the valid one beside it goes, and so does a topic without a schema.
#[tokio::test]
async fn an_invalid_payload_is_never_sent() {
    let site = site().await;
    let valid = json!({"amount": 12.5, "currency": "EUR", "destination": "DE02120300000000202051"});
    let mut payments = vec![valid.clone()];
    for (field, value) in [
        ("amount", json!(0)),
        ("amount", json!(-3)),
        ("amount", json!("12")),
        ("currency", json!("EURO")),
        ("currency", json!("eur")),
        ("destination", json!("4111111111111111")),
        ("destination", Value::Null),
    ] {
        let mut payment = valid.clone();
        payment[field] = value;
        payments.push(payment);
    }
    let mut messages: Vec<Message> =
        payments.iter().map(|payment| Message::json("payment.requested", payment).expect("JSON")).collect();
    messages.push(Message::bytes("payment.requested", b"\xff".to_vec(), "application/octet-stream"));
    messages.push(Message::json("other", &json!({"amount": -1})).expect("JSON"));
    site.enqueue(&messages).await;

    let (sink, mut arrived) = arrivals();
    let sink = Schemas::default().with("payment.*", &payment()).expect("a schema").guard(sink);
    let relay = start(site.relay().sink_with("default", sink, SinkOptions::default()).options(quick()));
    site.until("select count(*) = 8 from outbox.dead_letters").await;
    site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.dead, counts.retried), (2, 8, 0));
    assert_eq!(arrived.until_now().len(), 2, "the others were never sent");
    let places = site
        .client
        .query(
            "select distinct split_part(error_message, ':', 1) from outbox.attempts \
             where state = 'FAILED' and error_code = 'INVALID_PAYLOAD' order by 1",
            &[],
        )
        .await
        .expect("query");
    let places: Vec<String> = places.iter().map(|row| row.get(0)).collect();
    assert_eq!(places, ["/amount", "/currency", "/destination", "the payload is not JSON"]);
    let told = "select count(*) from outbox.attempts where error_message like '%4111%'";
    assert_eq!(site.number(told).await, 0, "a payload does not belong into an error");
}
