//! What RabbitMQ alone can do to a publisher: return a message, refuse one in the middle of a flight, close a channel over
//! one, block them all.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use lapin::options::{QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use postrider::lifecycle::Claimed;
use postrider_relay::secret::Secret;
use postrider_relay::sink::rabbitmq::{RabbitmqOptions, RabbitmqSink};
use postrider_relay::sink::{Finding, Level};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{Destination as _, assert_lanes_in_order, claimed, deliver};
use postrider_testkit::{Broker as _, Consumer};

use super::{EXCHANGE, Rabbit, sink};
use crate::sinks::answers::{deliver_a_long_lane_in_parts, deliver_one, delivered, failed, has, lane, template};

const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Delivers until it is taken, as the relay would.
async fn until_delivered(sink: &dyn Sink, message: &Claimed) {
    let trying = async {
        while !delivered(&deliver_one(sink, message).await) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(PATIENCE, trying).await.expect("it is taken within a minute");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pika_reads_the_same_properties() {
    let rabbit = Rabbit::start().await;
    let mut message = claimed("orders.placed", "{}");
    message.headers.insert("x-grüße".to_owned(), "ü \u{1F40E}".to_owned());
    assert!(delivered(&deliver_one(&*rabbit.sink().await, &message).await));
    let arrival = rabbit.arrivals(1).await.remove(0);
    let seconds = message.occurred_at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs().to_string();
    assert_eq!(arrival.subject, "orders.placed", "the routing key");
    for (name, value) in [
        ("amqp.message_id", message.message_id.to_string().as_str()),
        ("amqp.content_type", "application/json"),
        ("amqp.delivery_mode", "2"),
        ("amqp.app_id", "postrider"),
        ("amqp.timestamp", &seconds),
        ("x-grüße", "ü \u{1F40E}"),
    ] {
        assert_eq!(arrival.header(name), Some(value), "{name}");
    }
}

/// The library hands a return to whichever confirmation it sees next, and the server confirms many with one word. To a
/// queue in memory it confirms as fast as it returns: then many would get their neighbour's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_mixed_batch_each_gets_its_own_answer() {
    let rabbit = Rabbit::start().await;
    let (url, properties) = (rabbit.server.url(), lapin::ConnectionProperties::default());
    let connection = lapin::Connection::connect(&url, properties).await.expect("a connection");
    let channel = connection.create_channel().await.expect("a channel");
    let queue = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("memory".into(), queue, FieldTable::default()).await.expect("a queue");
    let binding = QueueBindOptions::default();
    channel
        .queue_bind("memory".into(), EXCHANGE.into(), "memory".into(), binding, FieldTable::default())
        .await
        .expect("a binding");
    let topic = |number: usize| if number.is_multiple_of(3) { "nobody" } else { "memory" };
    let messages: Vec<Claimed> = (0..900).map(|number| claimed(topic(number), "1")).collect();
    let sink = rabbit.sink().await;
    for _ in 0..5 {
        let verdicts = deliver(&*sink, &messages).await;
        for (number, verdict) in verdicts.iter().enumerate() {
            match topic(number) {
                "memory" => assert!(delivered(verdict), "{number}: {verdict:?}"),
                _ => assert_eq!(failed(verdict), ("AMQP_NO_ROUTE", FailureClass::Retryable), "{number}"),
            }
        }
        let Verdict::Failed(returned) = &verdicts[0] else { panic!() };
        assert_eq!(returned.reply_code.as_deref(), Some("312"));
    }
    let kept = channel.queue_declare("memory".into(), queue, FieldTable::default()).await.expect("the queue");
    assert_eq!(kept.message_count(), 5 * 600, "each once");
}

/// What an operator can cure is tried again, and goes with the same sink when it is cured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_or_forbidden_goes_when_it_is_there() {
    let rabbit = Rabbit::start().await;
    let later = sink(rabbit.options().exchange(Some(template("later"))));
    let batch: Vec<Claimed> = (0..100).map(|_| claimed("orders", "1")).collect();
    for verdict in deliver(&*later, &batch).await {
        assert_eq!(failed(&verdict), ("AMQP_NOT_FOUND", FailureClass::Retryable));
    }
    let mut consumer = Consumer::rabbitmq(&rabbit.server.url(), "later", "topic", "#", "later").await;
    assert!(deliver(&*later, &batch).await.iter().all(delivered), "once the exchange is there");
    assert_eq!(consumer.take(100).await.len(), 100);

    rabbit.server.rabbitmqctl(&["add_user", "relay", "secret"]).await;
    let url = Secret::from(rabbit.server.url_as("relay", "secret", "%2f").as_str());
    let relay = sink(rabbit.options().url(url));
    let verdict = deliver_one(&*relay, &batch[0]).await;
    assert_eq!(failed(&verdict), ("AMQP_NOT_ALLOWED", FailureClass::Retryable), "not into the virtual host");
    rabbit.server.rabbitmqctl(&["set_permissions", "relay", "", "nothing", ""]).await;
    for verdict in deliver(&*relay, &batch).await {
        assert_eq!(failed(&verdict), (SinkFailure::UNAUTHORIZED, FailureClass::Retryable), "may not write");
    }
    rabbit.server.rabbitmqctl(&["set_permissions", "relay", "", EXCHANGE, ""]).await;
    until_delivered(&*relay, &batch[0]).await;
}

/// The server closes the channel over one message and does not say which; the others are delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_that_closes_the_channel_harms_no_other() {
    let rabbit = Rabbit::start_with(&[("max_message_size", "5000")]).await;
    let ctl = async |arguments: &[&str]| rabbit.server.rabbitmqctl(arguments).await;
    ctl(&["add_user", "relay", "secret"]).await;
    ctl(&["set_permissions", "relay", "", ".*", ""]).await;
    ctl(&["set_topic_permissions", "relay", EXCHANGE, "^orders\\.public$", ""]).await;
    let url = Secret::from(rabbit.server.url_as("relay", "secret", "%2f").as_str());
    let sink = sink(rabbit.options().url(url));
    let mut batch: Vec<Claimed> = (0..50).map(|_| claimed("orders.public", "1")).collect();
    batch[17] = claimed("orders.public", &format!("\"{}\"", "x".repeat(6_000)));
    "orders.secret".clone_into(&mut batch[30].topic);
    for (number, message) in batch.iter_mut().enumerate() {
        message.lane = (number % 2 == 0).then(|| format!("lane-{}", number % 10));
        message.sequence_id = message.lane.is_some().then(|| i64::try_from(number / 10 + 1).expect("small"));
    }
    let verdicts = deliver(&*sink, &batch).await;
    for (number, verdict) in verdicts.iter().enumerate() {
        match number {
            17 => assert_eq!(failed(verdict), ("AMQP_PRECONDITION_FAILED", FailureClass::Terminal)),
            30 => assert_eq!(failed(verdict), (SinkFailure::UNAUTHORIZED, FailureClass::Retryable)),
            40 => assert_eq!(*verdict, Verdict::NotSent, "behind 30 in its lane"),
            _ => assert!(delivered(verdict), "{number}: {verdict:?}"),
        }
    }
    let arrived = rabbit.arrived(47).await;
    let refused = [17, 30, 40].map(|number: usize| batch[number].message_id.to_string());
    assert!(arrived.iter().all(|message| !refused.contains(&message.message_id)));
}

/// A queue that refuses more says so with a nack, and the messages behind it in the lane are not sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_keeps_the_prefix_of_a_lane() {
    let rabbit = Rabbit::start().await;
    let full = r#"{"max-length":2,"overflow":"reject-publish"}"#;
    rabbit.server.rabbitmqctl(&["set_policy", "full", "^full$", full, "--apply-to", "queues"]).await;
    drop(Consumer::rabbitmq(&rabbit.server.url(), EXCHANGE, "topic", "full.#", "full").await);
    let sink = rabbit.sink().await;
    let mut messages = lane("a", 10);
    for message in &mut messages {
        "full".clone_into(&mut message.topic);
    }
    let verdicts = deliver(&*sink, &messages).await;
    let taken = verdicts.iter().take_while(|verdict| delivered(verdict)).count();
    assert!(taken >= 2, "{verdicts:?}");
    assert_eq!(failed(&verdicts[taken]), ("AMQP_NACK", FailureClass::Retryable));
    assert!(verdicts[taken + 1..].iter().all(|verdict| *verdict == Verdict::NotSent), "{verdicts:?}");
    let mut consumer = Consumer::rabbitmq(&rabbit.server.url(), EXCHANGE, "topic", "full.#", "full").await;
    let came: Vec<String> = consumer.take(taken).await.into_iter().map(|arrival| arrival.id).collect();
    let expected: Vec<String> = messages[..taken].iter().map(|message| message.message_id.to_string()).collect();
    assert_eq!(came, expected);
}

/// While the server has no memory it reads nothing: the sink says so at once, sends nothing more, and goes on after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_alarm_is_busy_and_passes() {
    let rabbit = Rabbit::start().await;
    let sink = sink(rabbit.options().timeout(PATIENCE * 2));
    until_delivered(&*sink, &claimed("orders", "0")).await;
    rabbit.server.rabbitmqctl(&["set_vm_memory_high_watermark", "0"]).await;
    let busy = ("AMQP_BLOCKED", FailureClass::Retryable);
    let on_the_wire = claimed("orders", "1");
    // The alarm comes a moment after the setting.
    let alarmed = Instant::now();
    let mut before = 1;
    while delivered(&deliver_one(&*sink, &on_the_wire).await) {
        before += 1;
        assert!(alarmed.elapsed() < PATIENCE, "the alarm did not come");
    }
    let held_back = claimed("orders", "2");
    for _ in 0..20 {
        assert_eq!(failed(&deliver_one(&*sink, &held_back).await), busy, "{before} were sent before the alarm");
    }
    let found = sink.check().await;
    assert!(has(&found, Level::Broken, "blocked"), "{found:?}");
    rabbit.server.rabbitmqctl(&["set_vm_memory_high_watermark", "0.8"]).await;
    until_delivered(&*sink, &held_back).await;
    let arrived = rabbit.arrived(3).await;
    let id = held_back.message_id.to_string();
    let times = arrived.iter().filter(|message| message.message_id == id).count();
    assert_eq!(times, 1, "what was answered with busy at once was not sent");
}

/// Deliveries to a server that stands still are dropped again and again: connections and their threads end with them. So
/// do those that the server closes, and the next delivery makes a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_connections_leave_nothing_behind() {
    let rabbit = Rabbit::start().await;
    let sink = rabbit.sink().await;
    let message = claimed("orders", "1");
    rabbit.server.stall();
    for _ in 0..10 {
        let cut_off = tokio::time::timeout(Duration::from_millis(100), deliver_one(&*sink, &message)).await;
        assert!(cut_off.is_err(), "{cut_off:?}");
    }
    let ending = async {
        while threads_of_the_library() > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::time::timeout(PATIENCE, ending).await.expect("no thread waits for a server that stands still");
    rabbit.server.resume();
    until_delivered(&*sink, &message).await;
    for _ in 0..3 {
        rabbit.server.rabbitmqctl(&["close_all_connections", "a test"]).await;
        until_delivered(&*sink, &message).await;
    }
    assert!(threads_of_the_library() <= 2, "{} threads", threads_of_the_library());
}

fn threads_of_the_library() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads can be listed");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lapin-io-loop")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_tells_what_is_missing() {
    let rabbit = Rabbit::start().await;
    let worst = |found: &[Finding]| found.iter().map(|finding| finding.level).max();
    let look = async |options: RabbitmqOptions| RabbitmqSink::new(options).expect("options").check().await;
    let fine = look(rabbit.options()).await;
    assert_eq!(worst(&fine), Some(Level::Weak), "AMQP does not tell what is durable: {fine:?}");
    let nowhere = look(rabbit.options().exchange(Some(template("nowhere")))).await;
    assert_eq!(worst(&nowhere), Some(Level::Broken), "{nowhere:?}");
    let queue = rabbit.options().exchange(None).routing_key(template("reader"));
    assert_eq!(worst(&look(queue).await), Some(Level::Weak));
    let queue = rabbit.options().exchange(None).routing_key(template("nowhere"));
    assert_eq!(worst(&look(queue).await), Some(Level::Broken));
    let wrong = look(rabbit.options().password(Some(Secret::from("hunter2")))).await;
    assert_eq!(worst(&wrong), Some(Level::Broken));
    assert!(!format!("{wrong:?}").contains("hunter2"));
    let away = Arc::new(RabbitmqSink::new(rabbit.options()).expect("options"));
    rabbit.server.kill();
    assert_eq!(worst(&away.check().await), Some(Level::Broken));
}

/// A lane that takes longer than the timeout is not sent to its end: the rest is handed back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_lane_is_handed_back_in_part() {
    let rabbit = Rabbit::start().await;
    let options = rabbit.options();
    deliver_a_long_lane_in_parts(&*sink(options.timeout(Duration::from_millis(250)))).await;
    assert_lanes_in_order(&rabbit.arrived(1_000).await);
}
