//! The Redis sink against a real Redis, read by redis-py and redis-cli.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use postrider::lifecycle::{Claimed, Content};
use postrider_relay::secret::Secret;
use postrider_relay::sink::Level;
use postrider_relay::sink::redis::{RedisOptions, RedisSink};
use postrider_relay::{FailureClass, Sink, SinkFailure, Verdict};
use postrider_testkit::sink_contract::{Destination, Refusal, assert_lanes_in_order, claimed, deliver, until_arrived};
use postrider_testkit::{Broker as _, Consumer, Redis, Server};
use tokio::process::Command;

use super::answers::{assert_delivered, failed, failure, has, in_lane, lane, template};
use super::throughput::beside_a_bare_loop;

/// A key that is taken by something that is no stream.
const OCCUPIED: &str = "occupied";

struct RedisDestination {
    redis: Redis,
    consumer: Consumer,
}

#[async_trait]
impl Destination for RedisDestination {
    async fn start() -> Self {
        let redis = Redis::start().await;
        cli(&redis, &["SET", OCCUPIED, "a string"]).await;
        let consumer = Consumer::redis(&redis.url(), &["orders"]).await;
        Self { redis, consumer }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(sink(options(&self.redis)))
    }

    fn server(&self) -> &Server {
        self.redis.server()
    }

    fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    async fn refusals(&self) -> Vec<Refusal> {
        let plain = || sink(options(&self.redis));
        let small = sink(options(&self.redis).max_message_bytes(10));
        let by_tenant = sink(options(&self.redis).stream(template("{tenant_id}")));
        let listed = sink(options(&self.redis).destinations(["orders"].into_iter().collect()));
        let mut crowded = claimed("orders", "1");
        crowded.headers = (0..3_600).map(|n| (format!("x-{n}"), n.to_string())).collect();
        let large = claimed("orders", "\"0123456789\"");
        let forbidden = SinkFailure::FORBIDDEN_DESTINATION;
        vec![
            Refusal::terminal("more headers than an entry takes", plain(), crowded, SinkFailure::INVALID_HEADER),
            Refusal::retryable("its key holds a string", plain(), claimed(OCCUPIED, "1"), "REDIS_WRONGTYPE"),
            Refusal::terminal("more bytes than the server is said to take", small, large, SinkFailure::TOO_LARGE),
            Refusal::terminal("it has no tenant", by_tenant, claimed("orders", "1"), SinkFailure::NO_ADDRESS),
            Refusal::terminal("a stream that is not listed", listed, claimed("sessions", "1"), forbidden),
        ]
    }

    fn spoil(&self, message: &mut Claimed) {
        OCCUPIED.clone_into(&mut message.topic);
    }
}

postrider_testkit::sink_contract!(RedisDestination);

fn options(redis: &Redis) -> RedisOptions {
    RedisOptions::new(&redis.url())
}

fn sink(options: RedisOptions) -> RedisSink {
    RedisSink::new(options).expect("options that work")
}

/// What redis-cli prints.
async fn cli(redis: &Redis, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &redis.port().to_string()]).args(arguments).kill_on_drop(true);
    let output = command.output().await.expect("redis-cli can be run");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn reference(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Delivered(receipt) => receipt.reference.as_deref().expect("a reference"),
        other => panic!("not delivered: {other:?}"),
    }
}

#[tokio::test]
async fn redis_cli_reads_the_same_bytes_under_the_reference() {
    let redis = Redis::start().await;
    let mut message = claimed("orders", "{ \"a\" : 1.0 }");
    message.headers = BTreeMap::from([("body".to_owned(), "not the body".to_owned())]);
    message.headers.insert("header:body".to_owned(), "nor this".to_owned());
    let verdicts = deliver(&sink(options(&redis)), std::slice::from_ref(&message)).await;
    let id = reference(&verdicts[0]);
    let printed = cli(&redis, &["--raw", "XRANGE", "orders", id, id]).await;
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!(lines[0], id);
    let fields: BTreeMap<&str, &str> = lines[1..].chunks(2).map(|pair| (pair[0], pair[1])).collect();
    assert_eq!(fields["body"], "{ \"a\" : 1.0 }");
    assert_eq!(fields["header:body"], "not the body");
    assert_eq!(fields["header:header:body"], "nor this");
    assert_eq!(fields["postrider-message-id"], message.message_id.to_string());
}

/// Redis runs out of memory in the middle of a lane and gets some again: what is stored is a prefix, and nothing is lost.
#[tokio::test]
async fn a_full_memory_is_waited_out_in_order() {
    let redis = Redis::start_with(&[("maxmemory", "4mb"), ("maxmemory-policy", "noeviction")]).await;
    let consumer = Consumer::redis(&redis.url(), &["orders"]).await;
    let sink = sink(options(&redis));
    let messages: Vec<Claimed> = (1..=100)
        .map(|number| {
            let mut message = in_lane("a", number);
            message.content = Content::Bytes(vec![b'x'; 50_000]);
            message
        })
        .collect();
    let mut waiting = messages.as_slice();
    let mut was_full = 0;
    for batch in [30, 30, 30, 10].iter().cycle() {
        if waiting.is_empty() {
            break;
        }
        let verdicts = deliver(&sink, &waiting[..(*batch).min(waiting.len())]).await;
        let stored = verdicts.iter().take_while(|verdict| matches!(verdict, Verdict::Delivered(_))).count();
        if let Some(refused) = verdicts.get(stored) {
            let refused = failure(std::slice::from_ref(refused));
            assert_eq!((refused.code.as_str(), refused.class), ("REDIS_OOM", FailureClass::Retryable), "{refused:?}");
            assert_eq!(refused.reply_code.as_deref(), Some("OOM"));
            assert!(verdicts[stored + 1..].iter().all(|verdict| *verdict == Verdict::NotSent), "{verdicts:?}");
            was_full += 1;
            assert!(was_full < 10, "more memory helps");
            cli(&redis, &["CONFIG", "SET", "maxmemory", &format!("{}mb", 4 + 2 * was_full)]).await;
        }
        waiting = &waiting[stored..];
    }
    assert!(was_full > 0, "the memory was never full");
    let arrived = until_arrived(&consumer, messages.len()).await;
    assert_eq!(arrived.len(), messages.len(), "each once");
    assert_lanes_in_order(&arrived);
}

#[tokio::test]
async fn a_wrong_password_may_be_tried_again_and_is_not_told() {
    let redis = Redis::start_with(&[("requirepass", "hunter2")]).await;
    let message = [claimed("orders", "1")];
    for (url, password, code) in [
        (redis.url(), None, "UNAUTHORIZED"),
        (redis.url_as("default", "hunter3"), None, "UNAUTHORIZED"),
        (redis.url_as("default", "hunter3"), Some("hunter2"), "delivered"),
        (redis.url_as("default", "hunter2"), None, "delivered"),
    ] {
        let options = RedisOptions::new(&url).password(password.map(Secret::from));
        let verdicts = deliver(&sink(options), &message).await;
        if code == "delivered" {
            assert_delivered(&verdicts);
            continue;
        }
        let refused = failure(&verdicts);
        assert_eq!((refused.code.as_str(), refused.class), (code, FailureClass::Retryable), "{refused:?}");
        assert!(!refused.message.contains("hunter"), "{refused:?}");
    }
}

/// A user who may append and not run scripts: single messages go, and a lane that comes together is told why it does not.
#[tokio::test]
async fn what_the_user_may_not_do_is_told() {
    let redis = Redis::start_with(&[("user", "relay on >secret ~orders +xadd")]).await;
    let sink = sink(RedisOptions::new(&redis.url_as("relay", "secret")));
    let verdicts = deliver(&sink, &[claimed("orders", "1")]).await;
    assert_delivered(&verdicts);
    let verdicts = deliver(&sink, &[claimed("invoices", "1")]).await;
    assert_eq!(failure(&verdicts).code, SinkFailure::UNAUTHORIZED);
    let verdicts = deliver(&sink, &[in_lane("a", 1), in_lane("a", 2)]).await;
    let refused = failure(&verdicts[..1]);
    assert_eq!((refused.code.as_str(), refused.reply_code.as_deref()), (SinkFailure::UNAUTHORIZED, Some("NOPERM")));
    assert!(refused.message.contains("+eval"), "{refused:?}");
    assert_eq!(verdicts[1], Verdict::NotSent);
    cli(&redis, &["ACL", "SETUSER", "relay", "+eval"]).await;
    let verdicts = deliver(&sink, &[in_lane("a", 1), in_lane("a", 2)]).await;
    assert_delivered(&verdicts);
}

#[tokio::test]
async fn a_stream_is_trimmed_to_about_its_length() {
    let redis = Redis::start().await;
    let sink = sink(options(&redis).max_len(Some(200)));
    let alone: Vec<Claimed> = (0..1_000).map(|number| claimed("orders", &number.to_string())).collect();
    let together = lane("a", 1_000);
    for messages in [alone, together] {
        let verdicts = deliver(&sink, &messages).await;
        assert_delivered(&verdicts);
        let kept: usize = cli(&redis, &["XLEN", "orders"]).await.trim().parse().expect("a number");
        assert!((200..500).contains(&kept), "{kept} entries are kept");
    }
}

/// A failover: the master becomes a replica, and another takes its place.
#[tokio::test]
async fn a_master_that_became_a_replica_is_left_alone_until_it_is_one_again() {
    let redis = Redis::start().await;
    let sink = sink(options(&redis));
    let messages = [in_lane("a", 1), in_lane("a", 2)];
    deliver(&sink, &[claimed("orders", "0")]).await;
    let master = Redis::start().await;
    cli(&redis, &["REPLICAOF", "127.0.0.1", &master.port().to_string()]).await;
    let verdicts = deliver(&sink, &messages).await;
    assert_eq!(failed(&verdicts[0]), ("REDIS_READONLY", FailureClass::Retryable));
    assert_eq!(verdicts[1], Verdict::NotSent);
    let findings = sink.check().await;
    assert!(has(&findings, Level::Broken, "replica"), "{findings:?}");
    cli(&redis, &["REPLICAOF", "NO", "ONE"]).await;
    let verdicts = deliver(&sink, &messages).await;
    assert_delivered(&verdicts);
}

/// A lane that goes to several streams: one of them is refused in the middle, and nothing after it arrives anywhere.
#[tokio::test]
async fn a_lane_over_several_streams_stops_at_the_first_refusal() {
    let redis = Redis::start().await;
    cli(&redis, &["SET", OCCUPIED, "a string"]).await;
    let mut messages = lane("a", 4);
    OCCUPIED.clone_into(&mut messages[1].topic);
    "invoices".clone_into(&mut messages[2].topic);
    let verdicts = deliver(&sink(options(&redis)), &messages).await;
    assert!(matches!(verdicts[0], Verdict::Delivered(_)), "{verdicts:?}");
    assert_eq!(failure(&verdicts[1..2]).code, "REDIS_WRONGTYPE");
    assert_eq!(verdicts[2..], [Verdict::NotSent, Verdict::NotSent]);
    assert_eq!(cli(&redis, &["XLEN", "orders"]).await.trim(), "1");
    assert_eq!(cli(&redis, &["XLEN", "invoices"]).await.trim(), "0");
}

/// A server that stands still while a large batch is being written: when the delivery is dropped, most of it is still on
/// this side, and stays there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_written_when_a_delivery_is_dropped_is_never_sent() {
    let redis = Redis::start().await;
    let sink = sink(options(&redis));
    deliver(&sink, &[claimed("warm", "0")]).await;
    redis.stall();
    let large: Vec<Claimed> = (0..64)
        .map(|_| {
            let mut message = claimed("orders", "0");
            message.content = Content::Bytes(vec![b'x'; 1_000_000]);
            message
        })
        .collect();
    let cut_off = tokio::time::timeout(Duration::from_secs(2), deliver(&sink, &large)).await;
    assert!(cut_off.is_err(), "{cut_off:?}");
    redis.resume();
    let verdicts = deliver(&sink, &[claimed("warm", "1")]).await;
    assert_delivered(&verdicts);
    // The one that was just used and redis-cli's own: the server has come to the end of the dropped one.
    let until = Instant::now() + Duration::from_mins(1);
    while cli(&redis, &["CLIENT", "LIST"]).await.lines().filter(|line| !line.is_empty()).count() > 2 {
        assert!(Instant::now() < until, "the dropped connection is still open");
    }
    let arrived: usize = cli(&redis, &["XLEN", "orders"]).await.trim().parse().expect("a number");
    assert!(arrived < large.len() / 2, "{arrived} of {} came although the delivery was dropped", large.len());
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_left_after_the_timeout() {
    let redis = Redis::start().await;
    let sink = sink(options(&redis).timeout(Duration::from_millis(200)));
    redis.stall();
    let verdicts = deliver(&sink, &[claimed("orders", "1")]).await;
    let refused = failure(&verdicts);
    assert_eq!((refused.code.as_str(), refused.class), (SinkFailure::UNREACHABLE, FailureClass::Retryable));
    assert!(refused.message.contains("200ms"), "{refused:?}");
    let findings = sink.check().await;
    assert!(has(&findings, Level::Broken, "did not answer"), "{findings:?}");
}

#[tokio::test]
async fn a_look_finds_what_is_weak() {
    let strong = Redis::start().await;
    let findings = sink(options(&strong)).check().await;
    assert!(has(&findings, Level::Weak, "choose any destination"), "{findings:?}");
    let listed = options(&strong).destinations(["orders*"].into_iter().collect());
    let findings = sink(listed).check().await;
    assert!(findings.iter().all(|finding| finding.level == Level::Works), "{findings:?}");
    assert!(has(&findings, Level::Works, "on disk before it is acknowledged"), "{findings:?}");
    for (settings, what) in [
        (vec![("appendfsync", "everysec")], "every second"),
        (vec![("appendfsync", "no")], "when the system likes"),
        (vec![("appendonly", "no")], "nothing on disk"),
        (vec![("appendonly", "no"), ("save", "3600 1")], "snapshots"),
        (vec![("maxmemory-policy", "allkeys-lru")], "throws away whole streams"),
    ] {
        let weak = Redis::start_with(&settings).await;
        let findings = sink(options(&weak)).check().await;
        assert!(has(&findings, Level::Weak, what), "{settings:?}: {findings:?}");
        assert!(findings.iter().all(|finding| (finding.level == Level::Works) == finding.fix.is_none()));
    }
}

#[tokio::test]
async fn a_look_finds_what_is_in_the_way() {
    let redis = Redis::start_with(&[("user", "relay on >secret ~* +xadd +ping")]).await;
    cli(&redis, &["SET", OCCUPIED, "a string"]).await;
    let findings = sink(RedisOptions::new(&redis.url_as("relay", "secret"))).check().await;
    assert!(has(&findings, Level::Weak, "may not ask INFO"), "{findings:?}");
    assert!(has(&findings, Level::Broken, "cannot be sent together"), "{findings:?}");
    let occupied = options(&redis).stream(template(OCCUPIED)).max_len(Some(9));
    let findings = sink(occupied).check().await;
    assert!(has(&findings, Level::Broken, "holds a string"), "{findings:?}");
    assert!(has(&findings, Level::Weak, "about 9 entries"), "{findings:?}");
    redis.kill();
    let findings = sink(options(&redis)).check().await;
    assert!(has(&findings, Level::Broken, "Redis at"), "{findings:?}");
    assert!(findings.iter().all(|finding| finding.level != Level::Works), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_throughput_beside_a_bare_loop() {
    let redis = Redis::start_with(&[("appendfsync", "everysec")]).await;
    let client = redis::Client::open(redis.url()).expect("a URL");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
    let bare = async |batch: &[Arc<Claimed>]| {
        let mut pipeline = redis::Pipeline::with_capacity(batch.len());
        for message in batch {
            pipeline.add_command(xadd(message));
        }
        let ids: Vec<String> = pipeline.query_async(&mut connection).await.expect("a pipeline");
        assert_eq!(ids.len(), batch.len());
    };
    beside_a_bare_loop("Redis", &sink(options(&redis)), bare).await;
}

/// The command with the same fields.
fn xadd(message: &Claimed) -> redis::Cmd {
    let mut command = redis::cmd("XADD");
    command.arg("orders").arg("*").arg("content-type").arg("application/octet-stream");
    command.arg("postrider-message-id").arg(message.message_id.to_string());
    command.arg("postrider-namespace").arg(&message.namespace).arg("postrider-topic").arg(&message.topic);
    if let Some((lane, sequence)) = message.lane.as_ref().zip(message.sequence_id) {
        command.arg("postrider-lane").arg(lane).arg("postrider-sequence-id").arg(sequence);
    }
    command.arg("postrider-occurred-at").arg("2026-11-16T00:00:00.000000Z").arg("body").arg(message.content.as_bytes());
    command
}
