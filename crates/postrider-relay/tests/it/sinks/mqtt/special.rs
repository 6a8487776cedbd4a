//! What MQTT alone can do to a publisher: throw a message away for want of subscribers, forbid a topic, refuse a size.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use postrider::lifecycle::Claimed;
use postrider_relay::secret::Secret;
use postrider_relay::sink::mqtt::{MqttOptions, MqttSink};
use postrider_relay::sink::{Finding, Level};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{Destination as _, assert_lanes_in_order, claimed, deliver};
use postrider_testkit::{Broker as _, Consumer, Mosquitto};

use super::{Mqtt, NO_LIMIT, sink};
use crate::sinks::answers::{deliver_a_long_lane_in_parts, deliver_one, delivered, failed, has, template};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paho_reads_the_same_properties() {
    let mqtt = Mqtt::start().await;
    for (qos, different) in [(1, 1), (2, 2)] {
        let mut message = claimed("placed", "{}");
        message.headers.insert("x-grüße".to_owned(), "ü \u{1F40E}".to_owned());
        let sink = sink(mqtt.options().qos(qos).topic(template("orders/{topic}")));
        assert!(delivered(&deliver_one(&*sink, &message).await), "at quality {qos}");
        let arrival = mqtt.arrivals(different).await.pop().expect("it arrived");
        assert_eq!(arrival.subject, "orders/placed");
        assert_eq!(arrival.header("mqtt.ContentType"), Some("application/json"));
        assert_eq!(arrival.header("x-grüße"), Some("ü \u{1F40E}"));
        assert_eq!(arrival.header("postrider-message-id"), Some(message.message_id.to_string().as_str()));
    }
}

/// A subscriber whose session stays gets what came while it was away; a topic that nobody ever subscribed to loses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_gets_is_not_delivered() {
    let mqtt = Mqtt::start().await;
    let message = claimed("later", "1");
    let no_subscribers = ("MQTT_NO_SUBSCRIBERS", FailureClass::Retryable);
    assert_eq!(failed(&deliver_one(&*mqtt.sink().await, &message).await), no_subscribers);
    let careless = sink(mqtt.options().require_subscriber(false));
    let Verdict::Delivered(receipt) = deliver_one(&*careless, &message).await else { panic!() };
    assert_eq!(receipt.code.as_deref(), Some("0x10"), "the receipt says so");
    drop(Consumer::mqtt(&mqtt.server.url(), "away", "later").await);
    assert!(delivered(&deliver_one(&*mqtt.sink().await, &message).await), "the session is there");
    let mut consumer = Consumer::mqtt(&mqtt.server.url(), "away", "later").await;
    assert_eq!(consumer.take(1).await[0].body, b"1");
    let retained = sink(mqtt.options().retain(true));
    assert!(delivered(&deliver_one(&*retained, &claimed("kept", "2")).await), "the server keeps it");
    let mut consumer = Consumer::mqtt(&mqtt.server.url(), "late", "kept").await;
    assert_eq!(consumer.take(1).await[0].body, b"2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_is_told_and_tried_again() {
    let rules = tempfile::NamedTempFile::new().expect("a file");
    let text = "user relay\ntopic write orders/public\nuser reader\ntopic read orders/#\n";
    std::fs::write(rules.path(), text).expect("it can be written");
    std::fs::set_permissions(rules.path(), std::fs::Permissions::from_mode(0o644)).expect("the server may read it");
    let users = [("relay", "secret"), ("reader", "secret")];
    let rules = rules.path().to_str().expect("a path").to_owned();
    let server = Mosquitto::start_with(&users, &[NO_LIMIT, ("acl_file", &rules)]).await;
    let mut consumer = Consumer::mqtt(&server.url_as("reader", "secret"), "reader", "orders/#").await;
    let unauthorized = (SinkFailure::UNAUTHORIZED, FailureClass::Retryable);
    let options = MqttOptions::default().url(Secret::from(server.url().as_str()));
    let message = claimed("orders/public", "1");
    assert_eq!(failed(&deliver_one(&*sink(options.clone()), &message).await), unauthorized, "without a name");
    let named = |password: &str| {
        let password = Some(Secret::from(password));
        sink(options.clone().user(Some("relay".to_owned())).password(password))
    };
    assert_eq!(failed(&deliver_one(&*named("hunter2"), &message).await), unauthorized, "with a wrong password");
    let sink = named("secret");
    let mut batch: Vec<Claimed> = (0..50).map(|_| claimed("orders/public", "1")).collect();
    "orders/secret".clone_into(&mut batch[20].topic);
    let verdicts = deliver(&*sink, &batch).await;
    for (number, verdict) in verdicts.iter().enumerate() {
        match number {
            20 => assert_eq!(failed(verdict), unauthorized),
            _ => assert!(delivered(verdict), "{number}: {verdict:?}"),
        }
    }
    assert_eq!(consumer.take(49).await.len(), 49);
}

/// A limit that the server does not tell beforehand: it is found out which message it is, and the others are delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_that_the_server_dislikes_harms_no_other() {
    let mqtt = Mqtt::start_with(&[("message_size_limit", "1000")]).await;
    let mut batch: Vec<Claimed> = (0..50).map(|_| claimed("orders", "1")).collect();
    batch[20] = claimed("orders", &format!("\"{}\"", "x".repeat(2_000)));
    let verdicts = deliver(&*mqtt.sink().await, &batch).await;
    for (number, verdict) in verdicts.iter().enumerate() {
        match number {
            // It answers with a reason that MQTT 5 does not know there.
            20 => assert_eq!(failed(verdict), ("MQTT_MALFORMED", FailureClass::Retryable)),
            _ => assert!(delivered(verdict), "{number}: {verdict:?}"),
        }
    }
    let arrived = mqtt.arrived(49).await;
    let refused = batch[20].message_id.to_string();
    assert!(arrived.iter().all(|message| message.message_id != refused));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_tells_what_the_server_said() {
    let worst = |found: &[Finding]| found.iter().map(|finding| finding.level).max();
    let look = async |options: MqttOptions| MqttSink::new(options).expect("options").check().await;
    let server = Mosquitto::start_with(&[("relay", "secret")], &[("max_packet_size", "2000"), ("max_qos", "1")]).await;
    let url = Secret::from(server.url_as("relay", "secret").as_str());
    let options = MqttOptions::default().url(url);
    let fine = look(options.clone()).await;
    assert_eq!(worst(&fine), Some(Level::Weak), "MQTT does not tell what is kept: {fine:?}");
    assert!(fine[0].what.contains("2000"), "{fine:?}");
    let exactly_once = look(options.clone().qos(2)).await;
    assert_eq!(worst(&exactly_once), Some(Level::Broken), "{exactly_once:?}");
    let wrong = look(options.clone().password(Some(Secret::from("hunter2")))).await;
    assert_eq!(worst(&wrong), Some(Level::Broken));
    assert!(!format!("{wrong:?}").contains("hunter2"));
    server.kill();
    assert_eq!(worst(&look(options).await), Some(Level::Broken));
}

/// A lane that takes longer than the timeout is not sent to its end: the rest is handed back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_lane_is_handed_back_in_part() {
    let mqtt = Mqtt::start().await;
    let options = mqtt.options();
    deliver_a_long_lane_in_parts(&*sink(options.timeout(Duration::from_millis(250)))).await;
    assert_lanes_in_order(&mqtt.arrived(1_000).await);
}

/// `$CONTROL` changes the server itself. Only the configuration names such a topic, and a list says what else is not meant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_chooses_no_topic_of_the_servers_own() {
    let mqtt = Mqtt::start().await;
    let forbidden = (SinkFailure::FORBIDDEN_DESTINATION, FailureClass::Terminal);
    let careless = mqtt.options().require_subscriber(false);
    for topic in ["$CONTROL/dynamic-security/v1", "$SYS/broker/x", "$x"] {
        let verdict = deliver_one(&*sink(careless.clone()), &claimed(topic, "1")).await;
        assert_eq!(failed(&verdict), forbidden, "{topic}");
    }
    let meant = sink(careless.clone().topic(template("$x/{topic}")));
    let verdict = deliver_one(&*meant, &claimed("y", "1")).await;
    assert!(!matches!(&verdict, Verdict::Failed(failure) if failure.code == forbidden.0), "{verdict:?}");
    let listed = careless.clone().destinations(["orders/*"].into_iter().collect());
    assert!(delivered(&deliver_one(&*sink(listed.clone()), &claimed("orders/1", "1")).await));
    assert_eq!(failed(&deliver_one(&*sink(listed.clone()), &claimed("users/1", "1")).await), forbidden);
    let told = async |options: MqttOptions| {
        let findings = MqttSink::new(options).expect("options").check().await;
        has(&findings, Level::Weak, "choose any destination")
    };
    assert!(told(careless.clone()).await && !told(listed).await);
    assert!(!told(careless.topic(template("shop/{topic}"))).await);
}
