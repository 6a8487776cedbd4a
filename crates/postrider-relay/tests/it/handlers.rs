//! What a handler may do wrong: panic, hang, come too late, get what it cannot read. It is that message's failure; the
//! relay and all other messages go on.

use std::sync::Arc;
use std::time::Duration;

use postrider::Message;
use postrider::lifecycle::Claimed;
use postrider_relay::sink::checked::checked;
use postrider_relay::{CodeTable, FailureClass, SinkFailure, SinkOptions, handler, json_handler};
use serde::Deserialize;

use crate::support::{Site, arrivals_unless, message, messages, quick, retry, site, site_with, start};

fn impatient() -> SinkOptions {
    SinkOptions::default().deadline(Duration::from_millis(150)).retry(retry(10, 20, 3))
}

async fn errors(site: &Site) -> Vec<(String, String, String)> {
    let rows = site
        .client
        .query(
            "select distinct m.topic, a.state::text, a.error_code from outbox.attempts a \
             join outbox.messages m using (message_id) where a.state <> 'DISPATCHED' order by 1",
            &[],
        )
        .await
        .expect("query");
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

/// Proves P10: every delivery has a hard deadline. A handler that panics, hangs, or returns after its deadline: its
/// message runs out of attempts and dies, everything else is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_message_dies_and_all_others_arrive() {
    let site = site_with(&[message("panics"), message("hangs"), message("late")]).await;
    site.enqueue(&messages(200)).await;
    let sink = handler(|message: Arc<Claimed>| async move {
        match message.topic.as_str() {
            "panics" => panic!("this handler cannot read {}", message.message_id),
            "hangs" => std::future::pending::<()>().await,
            "late" => tokio::time::sleep(Duration::from_millis(2500)).await,
            _ => {}
        }
        Ok::<(), SinkFailure>(())
    });
    // Long enough for what is quick to be in time on a loaded machine.
    let options = impatient().deadline(Duration::from_secs(2));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 3 from outbox.dead_letters").await;
    site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.dead, counts.retried), (200, 3, 6));
    let expected = [("hangs", "TIMEOUT"), ("late", "TIMEOUT"), ("panics", "PANIC")]
        .map(|(topic, code)| (topic.to_owned(), "RETRYABLE".to_owned(), code.to_owned()));
    assert_eq!(errors(&site).await, expected);
    let words = "select bool_and(error_message like '%this handler cannot read%') from outbox.attempts where error_code = 'PANIC'";
    assert!(site.client.query_one(words, &[]).await.expect("query").get::<_, bool>(0));
}

/// A handler that blocks its thread past the deadline is cut off by the clock all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocking_handler_does_not_stop_the_others() {
    let site = site_with(&[message("blocks")]).await;
    site.enqueue(&messages(50)).await;
    let sink = handler(|message: Arc<Claimed>| async move {
        if message.topic == "blocks" {
            std::thread::sleep(Duration::from_millis(2500));
        }
        Ok::<(), SinkFailure>(())
    });
    let options = impatient().deadline(Duration::from_secs(2));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 1 from outbox.dead_letters").await;
    let counts = relay.stop().await;
    assert_eq!((counts.delivered, counts.dead), (50, 1));
}

/// Proves M7: after each attempt that failed a message is due after between half and the whole of `base × 2^(attempts - 1)`, or
/// of `max` if that is less; so at `max` too the times are spread. Both times are the database's.
#[tokio::test]
async fn what_fails_is_due_after_a_ladder_of_times() {
    const LADDER_MS: [f64; 5] = [50.0, 100.0, 200.0, 200.0, 200.0];
    let site = site().await;
    let observe = "create table due (message_id uuid, attempt_no int, due_at timestamptz); \
        create function note() returns trigger language plpgsql as $$ begin insert into public.due values \
        (new.message_id, new.attempt_no, new.due_at); return null; end $$; \
        create trigger note after update on outbox.delivery for each row when (old.lease_token is not null and \
        new.lease_token is null) execute function note()";
    site.client.batch_execute(observe).await.expect("observe");
    site.enqueue(&messages(40)).await;
    let mut options = SinkOptions::default().retry(retry(50, 200, 6));
    options.breaker.failures = 0;
    let (sink, _arrivals) = arrivals_unless(|_| Some(SinkFailure::retryable("NO", "never")));
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 40 from outbox.dead_letters").await;
    relay.stop().await;
    let sql = "select (1000 * extract(epoch from d.due_at - a.completed_at))::float8 from due d \
               join outbox.attempt a using (message_id, attempt_no) where attempt_no = $1";
    for (attempt_no, delay) in (1..).zip(LADDER_MS) {
        let rows = site.client.query(sql, &[&attempt_no]).await.expect("query");
        let delays: Vec<f64> = rows.iter().map(|row| row.get(0)).collect();
        assert_eq!(delays.len(), 40, "after attempt {attempt_no}");
        let half = delay / 2.0;
        assert!(delays.iter().all(|due| (half - 0.01..=delay + 0.01).contains(due)), "{attempt_no}: {delays:?}");
        let longer = delays.iter().filter(|due| **due > 0.75 * delay).count();
        assert!((1..40).contains(&longer), "after attempt {attempt_no} all are due alike: {delays:?}");
    }
}

struct Panicky;

#[async_trait::async_trait]
impl postrider_relay::Sink for Panicky {
    fn batching(&self) -> postrider_relay::Batching {
        postrider_relay::Batching::unordered(100)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<postrider_relay::Verdict> {
        assert!(batch.iter().all(|message| message.topic != "poison"), "a poisoned batch");
        batch.iter().map(|_| postrider_relay::Verdict::Delivered(().into())).collect()
    }
}

/// A message that fails its whole batch does not take the same neighbours with it each time: batches of what was tried
/// before get smaller, and in the end it is alone.
#[tokio::test]
async fn a_message_that_fails_its_batch_dies_alone() {
    let site = site().await;
    let mut all = messages(99);
    all.insert(50, message("poison"));
    site.enqueue(&all).await;
    let mut options = impatient();
    options.retry.max_attempts = 10;
    options.breaker.failures = 0;
    let relay = start(site.relay().sink_with("default", Panicky, options).options(quick()));
    site.until("select count(*) = 1 from outbox.dead_letters").await;
    site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
    assert_eq!(relay.stop().await.delivered, 99);
}

#[derive(Deserialize)]
struct Order {
    id: u64,
}

/// A payload that is not what the handler expects is that one message's terminal failure.
#[tokio::test]
async fn an_undecodable_payload_fails_alone() {
    let site = site().await;
    let json = |value: &serde_json::Value| Message::json("order", value).expect("json");
    site.enqueue(&[
        json(&serde_json::json!({"id": 1})),
        json(&serde_json::json!({"id": "one"})),
        Message::bytes("order", vec![0xff, 0x00], "application/octet-stream"),
        Message::bytes("order", br#"{"id": 2}"#.to_vec(), "application/json"),
    ])
    .await;
    let (tell, mut ids) = tokio::sync::mpsc::unbounded_channel();
    let sink = json_handler(move |order: Order, _message| {
        let told = tell.send(order.id).is_ok();
        async move { if told { Ok(()) } else { Err(SinkFailure::retryable("GONE", "")) } }
    });
    let relay = start(site.relay().sink("default", sink).options(quick()));
    site.until("select count(*) = 2 from outbox.dead_letters").await;
    site.until("select not exists (select from outbox.deliveries where state <> 'dead')").await;
    assert_eq!(relay.stop().await.delivered, 2);
    let mut seen = [ids.recv().await, ids.recv().await];
    seen.sort_unstable();
    assert_eq!(seen, [Some(1), Some(2)]);
    assert_eq!(errors(&site).await, [("order".to_owned(), "FAILED".to_owned(), "INVALID_PAYLOAD".to_owned())]);
}

#[derive(Deserialize)]
struct Payment {
    amount: i64,
    currency: String,
    destination: String,
}

/// The rules of a payment: amount, currency, form of the destination.
fn payable(message: &Claimed) -> Result<(), String> {
    let payment: Payment = message.json().map_err(|error| error.to_string())?;
    let currency = payment.currency.len() == 3 && payment.currency.bytes().all(|byte| byte.is_ascii_uppercase());
    let destination = payment.destination.strip_prefix("acct-").is_some_and(|number| number.parse::<u32>().is_ok());
    match payment {
        Payment { amount: ..=0, .. } => Err("amount is not more than 0".to_owned()),
        _ if !currency => Err("currency is not three letters".to_owned()),
        _ if !destination => Err("destination is not an account".to_owned()),
        _ => Ok(()),
    }
}

/// Proves P9: a payload is checked before it is sent; an invalid one is FAILED at once, and never sent. In a lane it
/// holds what follows, like any dead head.
#[tokio::test]
async fn an_invalid_payload_fails_at_once_and_is_never_sent() {
    let site = site().await;
    let payment = |amount: i64, currency: &str, destination: &str| {
        let payload = serde_json::json!({"amount": amount, "currency": currency, "destination": destination});
        Message::json("payment", &payload).expect("json")
    };
    site.enqueue(&[
        payment(0, "EUR", "acct-1"),
        payment(5, "euro", "acct-2"),
        payment(5, "EUR", "nowhere"),
        payment(5, "EUR", "acct-3"),
        payment(7, "EUR", "acct-4").lane("a"),
        payment(-7, "EUR", "acct-5").lane("a"),
        payment(7, "EUR", "acct-6").lane("a"),
    ])
    .await;
    let (sink, mut arrivals) = arrivals_unless(|_| None);
    let relay = start(site.relay().sink("default", checked(sink, payable)).options(quick()));
    site.until("select count(*) = 4 from outbox.dead_letters").await;
    site.until("select count(*) = 2 from outbox.attempts where state = 'DISPATCHED'").await;
    relay.stop().await;
    let mut sent: Vec<String> =
        arrivals.until_now().iter().map(|message| message.json::<Payment>().expect("a payment").destination).collect();
    sent.sort_unstable();
    assert_eq!(sent, ["acct-3", "acct-4"]);
    assert_eq!(site.attempts().await, "DISPATCHED 2, FAILED 4");
    assert_eq!(errors(&site).await, [("payment".to_owned(), "FAILED".to_owned(), "INVALID_PAYLOAD".to_owned())]);
}

/// Proves P11: what is terminal and what is retryable is decided by codes, and the table of the sink has the last word.
#[tokio::test]
async fn codes_decide_what_is_tried_again() {
    let site = site_with(&["GONE", "BUSY", "CONFLICT"].map(message)).await;
    let (sink, _arrivals) = arrivals_unless(|message| match message.topic.as_str() {
        "GONE" => Some(SinkFailure::terminal("GONE", "temporary! retry! timeout!")),
        code => Some(SinkFailure::retryable(code, "permanent failure")),
    });
    let codes = CodeTable::default().with("CONFLICT", FailureClass::Terminal);
    let relay = start(site.relay().sink_with("default", sink, impatient().codes(codes)).options(quick()));
    site.until("select count(*) = 3 from outbox.dead_letters").await;
    relay.stop().await;
    let expected = [("BUSY", "RETRYABLE"), ("CONFLICT", "FAILED"), ("GONE", "FAILED")]
        .map(|(code, state)| (code.to_owned(), state.to_owned(), code.to_owned()));
    assert_eq!(errors(&site).await, expected);
    assert_eq!(site.attempts().await, "FAILED 2, RETRYABLE 3", "terminal ones are tried once, the other three times");
}

/// A destination may ask for more time than the backoff, up to the cap.
#[tokio::test]
async fn a_hint_of_the_destination_is_honoured() {
    let site = site_with(&[message("hour"), message("year")]).await;
    let (sink, _arrivals) = arrivals_unless(|message| {
        let hours = if message.topic == "hour" { 1 } else { 24 * 365 };
        Some(SinkFailure::retryable("BUSY", "later").retry_after(Duration::from_hours(hours)))
    });
    let mut options = impatient();
    options.retry.retry_after_max = Duration::from_hours(2);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select count(*) = 2 from outbox.attempts").await;
    relay.stop().await;
    let hours = "select array_agg(round(extract(epoch from due_at - now()) / 3600)::int order by due_at) from outbox.deliveries";
    let hours: Vec<i32> = site.client.query_one(hours, &[]).await.expect("query").get(0);
    assert_eq!(hours, [1, 2]);
}

/// A destination that wants nothing more: the sink is paused, nothing is lost, and a person resumes it.
#[tokio::test]
async fn a_destination_that_is_gone_pauses_its_sink() {
    let site = site_with(&messages(30)).await;
    let gone = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let says = Arc::clone(&gone);
    let (sink, mut arrivals) = arrivals_unless(move |_| {
        let gone = says.load(std::sync::atomic::Ordering::Relaxed);
        gone.then(|| SinkFailure::retryable("HTTP_410", "gone").reply_code("ENDPOINT_REMOVED").pausing())
    });
    let options = impatient().concurrency(1);
    let relay = start(site.relay().sink_with("default", sink, options).options(quick()));
    site.until("select exists (select from outbox.sink where name = 'default' and paused)").await;
    site.until("select count(*) = 0 from outbox.in_flight").await;
    let tried = arrivals.until_now().len();
    assert!(tried < 30, "the rest was not tried: {tried}");
    let recorded = "select bool_and(state = 'RETRYABLE' and error_code = 'HTTP_410' and code = 'ENDPOINT_REMOVED') from outbox.attempts";
    assert!(site.client.query_one(recorded, &[]).await.expect("query").get::<_, bool>(0));
    let entry = "select action || ' ' || (detail ->> 'sink') || ' ' || affected || ' ' || (actor like 'relay:%') || ' ' || \
                 (db_user = session_user) from outbox.audit_log order by id limit 1";
    let entry: String = site.client.query_one(entry, &[]).await.expect("query").get(0);
    assert_eq!(entry, "pause default 1 true true", "who paused it, and under which login");
    gone.store(false, std::sync::atomic::Ordering::Relaxed);
    site.client.batch_execute("select outbox.configure_sink('default', paused => false)").await.expect("resume");
    site.until("select not exists (select from outbox.deliveries)").await;
    assert_eq!(relay.stop().await.delivered, 30);
}
