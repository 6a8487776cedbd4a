//! What an operator watches: pages of a search that looks at a bounded number, lanes, samples, relays that report, and
//! why a message is where it is.

use std::time::Duration;

use postrider::explain::{Explanation, ReasonCode, Remedy};
use postrider::inspect::{
    DeliveryState, LaneFilter, LaneState, ListFilter, MAX_LOOKED_AT, PageRequest, RelayReport, Sample, SinkReport,
};
use postrider::{Message, Route};
use uuid::Uuid;

use super::hand::{Hand, by_outcome, message};

/// Longer than any sample ends before it is taken.
const LAG: Duration = Duration::from_secs(2);
/// What lies between two samples at least, unless somebody changed the settings.
const BETWEEN_SAMPLES: Duration = Duration::from_secs(9);
/// Reports of a relay in a hurry: it is soon missed.
const HURRY: Duration = Duration::from_millis(20);

const HUNDRED: PageRequest = PageRequest { after: None, limit: 100 };

fn any() -> ListFilter {
    ListFilter::default()
}

fn before(id: Uuid) -> PageRequest {
    PageRequest { after: Some(id.into()), ..HUNDRED }
}

async fn found(hand: &Hand, filter: &ListFilter, page: &PageRequest) -> Vec<Uuid> {
    hand.list(filter, page).await.expect("list").items.iter().map(|line| line.message_id).collect()
}

/// A namespace and a time narrow a list, in every state.
pub async fn a_list_is_narrowed_by_namespace_and_time(hand: Hand) {
    let old = hand.put(message("t").namespace("n")).await.message_id;
    // A list is exact to the millisecond.
    let between = hand.clock().await + Duration::from_millis(5);
    hand.until(between + Duration::from_millis(5)).await;
    let new = hand.put(message("t")).await.message_id;
    for state in ["pending", "dead"] {
        if state == "dead" {
            hand.fail(&hand.take(10).await).await;
        }
        let wanted = if state == "dead" { DeliveryState::Dead } else { DeliveryState::Pending };
        for state in [None, Some(wanted), Some(DeliveryState::Delivered)] {
            let all = ListFilter { state, ..any() };
            let here = |ids: &[Uuid]| if state == Some(DeliveryState::Delivered) { Vec::new() } else { ids.to_vec() };
            let namespace = ListFilter { namespace: Some("n".to_owned()), ..all.clone() };
            assert_eq!(found(&hand, &namespace, &HUNDRED).await, here(&[old]), "{state:?}");
            let from = ListFilter { from: Some(between), ..all.clone() };
            assert_eq!(found(&hand, &from, &HUNDRED).await, here(&[new]), "{state:?}");
            let to = ListFilter { to: Some(between), ..all.clone() };
            assert_eq!(found(&hand, &to, &HUNDRED).await, here(&[old]), "{state:?}");
            assert_eq!(found(&hand, &to, &before(new)).await, here(&[old]), "the nearer bound counts");
            assert_eq!(found(&hand, &all, &before(old)).await, here(&[]));
        }
    }
}

/// What was given up is not called delivered: by the list, by its filters, for each sink, and line by line.
pub async fn what_was_given_up_is_listed_so(hand: Hand) {
    for sink in ["one", "two"] {
        hand.add_route(&Route::new("both", sink)).await.expect("add_route");
    }
    let well = hand.put(message("t")).await.message_id;
    hand.deliver(&hand.take(1).await).await;
    let given_up = hand.put(message("t")).await.message_id;
    hand.fail(&hand.take(1).await).await;
    let half = hand.put(message("both")).await.message_id;
    hand.deliver(&hand.take_from("one", 1).await).await;
    hand.fail(&hand.take_from("two", 1).await).await;
    // Tried again and delivered: how it ended counts.
    let after_all = hand.put(message("t")).await.message_id;
    hand.retry(&hand.take(1).await, Duration::ZERO).await;
    hand.deliver(&hand.take(1).await).await;
    let discarded = hand.discard(&[given_up, half], None).await.expect("discard");
    assert_eq!(discarded, 2);
    let standing = async |filter: ListFilter| {
        let page = hand.list(&filter, &HUNDRED).await.expect("list");
        page.items.into_iter().map(|line| (line.message_id, line.state, line.sink)).collect::<Vec<_>>()
    };
    let line = |id: Uuid, state: &str| (id, state.parse::<DeliveryState>().expect("a state"), None);
    let ended = [line(after_all, "delivered"), line(half, "discarded"), line(given_up, "discarded")];
    assert_eq!(standing(any()).await, [&ended[..], &[line(well, "delivered")]].concat());
    let by_state = |state| ListFilter { state: Some(state), ..any() };
    assert_eq!(standing(by_state(DeliveryState::Discarded)).await, ended[1..]);
    assert_eq!(
        standing(by_state(DeliveryState::Delivered)).await,
        [line(after_all, "delivered"), line(well, "delivered")]
    );
    let by_sink = |sink: &str| ListFilter { sink: Some(sink.to_owned()), ..any() };
    assert_eq!(standing(by_sink("one")).await, [line(half, "delivered")], "it went well for this one");
    assert_eq!(standing(by_sink("two")).await, [line(half, "discarded")]);
    assert_eq!(standing(by_sink("three")).await, []);
    let entries = hand.entries(&[well, given_up, half, Uuid::nil()]).await.expect("entries");
    let told: Vec<_> = entries.iter().map(|entry| (entry.message_id, entry.state, entry.sink.clone())).collect();
    assert_eq!(told, [line(well, "delivered"), line(given_up, "discarded"), line(half, "discarded")]);
    assert_eq!(entries[1].error_code.as_deref(), Some("REFUSED"), "and why is still told");
    assert_eq!((entries[0].attempt_count, entries[2].attempt_count), (1, 2));
}

/// A search for what is rare ends after a bounded look, says where to go on, and comes to the end that way.
pub async fn a_search_goes_on_where_it_stopped(hand: Hand) {
    let rare = hand.put(message("rare").namespace("n")).await.message_id;
    for _ in 0..2 {
        let many: Vec<Message> =
            (0..postrider::MAX_BATCH_MESSAGES.min(MAX_LOOKED_AT as usize)).map(|_| message("t")).collect();
        hand.put_all(&many).await;
    }
    for state in [None, Some(DeliveryState::Pending)] {
        for by_topic in [true, false] {
            let mut filter = ListFilter { state, ..any() };
            if by_topic {
                filter.topic = Some("rare".to_owned());
            } else {
                filter.namespace = Some("n".to_owned());
            }
            let (mut pages, mut request) = (0, HUNDRED);
            loop {
                let page = hand.list(&filter, &request).await.expect("list");
                pages += 1;
                match page.next {
                    Some(next) if page.items.is_empty() => request.after = Some(next),
                    next => {
                        let lines: Vec<_> = page.items.iter().map(|line| line.message_id).collect();
                        assert_eq!((lines, next), (vec![rare], None));
                        break;
                    }
                }
            }
            assert_eq!(pages, 3, "{state:?}: two bounded looks, and the rest");
        }
    }
    let full = hand.list(&any(), &PageRequest::first(2)).await.expect("list");
    assert_eq!(
        (full.items.len(), full.next),
        (2, Some(full.items[1].message_id.into())),
        "a full page has its last as next"
    );
}

/// An id is found by its end, wherever its message stands, and however many messages came after one that is undelivered.
pub async fn a_message_is_found_by_the_end_of_its_id(hand: Hand) {
    let [waiting, dead, sent] = hand.put_plain(3).await[..] else { panic!("three were put") };
    let held = hand.take(3).await;
    hand.retry(&held[..1], Duration::from_hours(1)).await;
    hand.fail(&held[1..2]).await;
    hand.deliver(&held[2..]).await;
    let by_tail = |id: Uuid, digits: usize| {
        let text = id.simple().to_string();
        ListFilter { id: Some(text[text.len() - digits..].parse().expect("digits")), ..any() }
    };
    for (id, state) in [(waiting, "pending"), (dead, "dead"), (sent, "delivered")] {
        for digits in [12, 32] {
            let page = hand.list(&by_tail(id, digits), &HUNDRED).await.expect("list");
            let found: Vec<_> = page.items.iter().map(|line| (line.message_id, line.state.as_str())).collect();
            assert_eq!((found, page.next), (vec![(id, state)], None), "{digits} digits");
        }
    }
    let elsewhere = ListFilter { sink: Some("elsewhere".to_owned()), ..by_tail(waiting, 12) };
    assert_eq!(hand.list(&elsewhere, &HUNDRED).await.expect("list").items, [], "the other filters still count");
    let dead_only = |id| ListFilter { state: Some(DeliveryState::Dead), ..by_tail(id, 12) };
    assert_eq!(hand.list(&dead_only(waiting), &HUNDRED).await.expect("list").items, []);
    assert_eq!(hand.list(&dead_only(dead), &HUNDRED).await.expect("list").items.len(), 1);
    assert_eq!(hand.list(&by_tail(waiting, 12), &before(waiting)).await.expect("list").items, []);
    let unknown = ListFilter { id: Some("0000000000000000".parse().expect("digits")), ..any() };
    assert_eq!(hand.list(&unknown, &HUNDRED).await.expect("list").items, []);
}

/// A dedupe key is found with its namespace and topic, with one of them, and without; what came later does not hide it.
pub async fn a_message_is_found_by_its_dedupe_key(hand: Hand) {
    let keyed = |namespace: &str, topic: &str, key: &str| message(topic).namespace(namespace).dedupe_key(key);
    let mut ids = Vec::new();
    for (namespace, topic, key) in
        [("a", "x", "k"), ("a", "y", "k"), ("b", "x", "k"), ("b", "x", "other"), ("c", "z.1", "other")]
    {
        ids.push(hand.put(keyed(namespace, topic, key)).await.message_id);
    }
    let found = async |namespace: Option<&str>, topic: Option<&str>, key: &str| {
        let filter = ListFilter {
            namespace: namespace.map(str::to_owned),
            topic: topic.map(str::to_owned),
            dedupe_key: Some(key.to_owned()),
            ..any()
        };
        let page = hand.list(&filter, &HUNDRED).await.expect("list");
        assert_eq!(page.next, None);
        page.items.into_iter().map(|line| line.message_id).collect::<Vec<_>>()
    };
    assert_eq!(found(Some("a"), Some("x"), "k").await, [ids[0]]);
    assert_eq!(found(Some("a"), None, "k").await, [ids[1], ids[0]], "newest first");
    assert_eq!(found(None, Some("x"), "k").await, [ids[2], ids[0]]);
    assert_eq!(found(None, None, "k").await, [ids[2], ids[1], ids[0]]);
    assert_eq!(found(None, Some("z.*"), "other").await, [ids[4]]);
    assert!(found(None, None, "nothing").await.is_empty());
    let uuid = Uuid::from_u128(7);
    let (hyphens, digits) = (uuid.to_string(), uuid.simple().to_string());
    for (tenant, key) in [
        ("tenant-1", "tenant-1/k".to_owned()),
        ("grüße/b", "grüße/b/k/".to_owned()),
        (&hyphens, format!("{hyphens}/k")),
        (&hyphens, format!("{digits}/k")),
        (&digits, format!("{digits}/l")),
    ] {
        let id = hand.put(keyed("a", "x", &key).tenant(tenant)).await.message_id;
        assert_eq!((found(None, None, &key).await, found(Some("a"), Some("x"), &key).await), (vec![id], vec![id]));
    }
    hand.deliver(&hand.take(10).await).await;
    assert_eq!(found(None, None, "other").await, [ids[4], ids[3]], "after delivery, too");
}

/// In a topic `*` stands for any characters, as in a route, and nothing else does.
pub async fn a_topic_is_matched_as_in_a_route(hand: Hand) {
    for topic in ["order.placed", "order.paid", "ordered", "Order.placed", "100%_[x]?\\"] {
        hand.put(message(topic)).await;
    }
    for state in [None, Some(DeliveryState::Pending)] {
        for (pattern, topics) in [
            ("order.*", &["order.paid", "order.placed"][..]),
            ("order*", &["ordered", "order.paid", "order.placed"]),
            ("*placed", &["Order.placed", "order.placed"]),
            ("order.p*d", &["order.paid", "order.placed"]),
            ("order.paid", &["order.paid"]),
            ("order", &[]),
            ("order.%", &[]),
            ("order_paid", &[]),
            ("order.pai?", &[]),
            ("1*%_[x]?\\", &["100%_[x]?\\"]),
            ("100%_[x]?\\", &["100%_[x]?\\"]),
        ] {
            let filter = ListFilter { state, topic: Some(pattern.to_owned()), ..any() };
            let page = hand.list(&filter, &HUNDRED).await.expect("list");
            let found: Vec<&str> = page.items.iter().map(|line| line.topic.as_str()).collect();
            assert_eq!(found, topics, "{pattern}");
        }
    }
}

/// Lanes that wait for a person, then those whose head failed, then the deepest; each with its head and its last error.
pub async fn lanes_stand_in_order_of_need(hand: Hand) {
    for (lane, depth) in [("parked", 2), ("failed", 3)] {
        hand.put_lane(lane, depth).await;
        let head = hand.take(1).await;
        if lane == "parked" { hand.fail(&head).await } else { hand.retry(&head, Duration::from_hours(1)).await }
    }
    hand.put_lane("held", 2).await;
    assert_eq!(hand.take(10).await.len(), 2);
    hand.put_lane("deep", 7).await;
    hand.put(message("t").lane("later").delay(Duration::from_hours(1))).await;
    let all = LaneFilter::default();
    let lanes = hand.lanes(&all, &PageRequest::first(10)).await.expect("lanes").items;
    let shown: Vec<_> = lanes
        .iter()
        .map(|lane| {
            (lane.lane.as_str(), lane.state, lane.depth, lane.head_attempt_count, lane.head_error_code.as_deref())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("parked", LaneState::Parked, 2, 1, Some("REFUSED")),
            ("failed", LaneState::Waiting, 3, 1, Some("BUSY")),
            ("deep", LaneState::Due, 7, 0, None),
            ("held", LaneState::Leased, 2, 1, None),
            ("later", LaneState::Waiting, 1, 0, None),
        ]
    );
    assert!(lanes[0].head_due_at.is_none() && lanes[1].head_due_at > Some(hand.clock().await));
    assert_eq!((lanes[0].sink.as_str(), lanes[0].head_sequence_id), ("default", 1));
    assert_eq!(lanes[0].head_error_message.as_deref(), Some("no"));
    let head = hand.shown(lanes[2].head_message_id).await;
    assert_eq!((head.lane.as_deref(), head.sequence_id), (Some("deep"), Some(1)));
    // However long the pages are, the last one says so by leading nowhere.
    let names = async |filter: LaneFilter, limit| {
        let (mut names, mut page) = (Vec::new(), PageRequest::first(limit));
        loop {
            let lanes = hand.lanes(&filter, &page).await.expect("lanes");
            assert!(lanes.items.len() <= limit as usize);
            names.extend(lanes.items.into_iter().map(|lane| lane.lane));
            page.after = lanes.next;
            if page.after.is_none() {
                return names;
            }
        }
    };
    for limit in [1, 2, 3, 10] {
        assert_eq!(names(all.clone(), limit).await, ["parked", "failed", "deep", "held", "later"], "{limit}");
    }
    assert_eq!(names(LaneFilter { state: Some(LaneState::Waiting), ..all.clone() }, 1).await, ["failed", "later"]);
    assert_eq!(names(LaneFilter { lane: Some("held".to_owned()), ..all.clone() }, 10).await, ["held"]);
    assert_eq!(names(LaneFilter { sink: Some("elsewhere".to_owned()), ..all }, 10).await, [""; 0]);
}

/// Proves P16: what waits behind a parked or a waiting lane head is pending and not due; behind a leased one it is due.
pub async fn what_a_lane_head_holds_up_is_not_due(hand: Hand) {
    hand.put_lane("parked", 3).await;
    hand.fail(&hand.take(1).await).await;
    hand.put_lane("waiting", 3).await;
    hand.retry(&hand.take(1).await, Duration::from_hours(1)).await;
    let line = hand.status_of("default").await;
    assert_eq!((line.pending, line.due, line.parked_lanes), (5, 0, 1));
    assert!(line.oldest_due_age_seconds <= 0.0, "nothing is due");
    let long_ago = hand.clock().await - Duration::from_hours(2);
    for lane in ["old", "old"] {
        hand.put(message("t").lane(lane).due_at(long_ago)).await;
    }
    let line = hand.status_of("default").await;
    assert_eq!((line.pending, line.due, line.oldest_due_age_seconds > 7000.0), (7, 2, true));
    let claim = hand.wants(10).lane_run(1);
    assert_eq!(hand.take_as(&claim).await.len(), 1);
    let line = hand.status_of("default").await;
    assert_eq!((line.pending, line.due, line.leased, line.oldest_due_age_seconds > 7000.0), (6, 1, 1, true));
    assert_eq!(line.on_dead, postrider::OnDead::Park);
}

fn of<'a>(samples: &'a [Sample], sink: &str) -> Vec<&'a Sample> {
    samples.iter().filter(|sample| sample.sink == sink).collect()
}

async fn samples(hand: &Hand) -> Vec<Sample> {
    hand.samples(Duration::from_hours(1)).await.expect("samples")
}

/// A sample says how every sink stands, what happened since the one before, and how long delivery took.
pub async fn a_sample_counts_the_interval(hand: Hand) {
    hand.add_route(&Route::new("never", "idle")).await.expect("add_route");
    hand.put_plain(5).await;
    let held = hand.take(4).await;
    hand.deliver(&held[..2]).await;
    hand.retry(&held[2..3], Duration::from_hours(1)).await;
    hand.fail(&held[3..]).await;
    let before = hand.status_of("default").await;
    let done = hand.clock().await;
    hand.until(done + LAG).await;
    assert!(hand.measure().await.expect("measure"));
    let samples = samples(&hand).await;
    let [sample] = of(&samples, "default")[..] else { panic!("one row for a sink: {samples:?}") };
    assert_eq!((sample.pending, sample.due, sample.leased, sample.expired, sample.dead), (2, 1, 0, 0, 1));
    assert_eq!(sample.attempts, by_outcome([2, 1, 1, 0]));
    let (p50, p99) = (sample.latency_p50_ms.expect("some"), sample.latency_p99_ms.expect("some"));
    assert!(0.0 <= p50 && p50 <= p99 && p99 < 60_000.0, "{p50} {p99}");
    assert!(done <= sample.at && sample.at <= hand.clock().await && sample.seconds > 0.0);
    let [idle] = of(&samples, "idle")[..] else { panic!("an idle sink has its row: {samples:?}") };
    assert_eq!((idle.at, idle.pending, idle.attempts, idle.latency_p50_ms), (sample.at, 0, by_outcome([0; 4]), None));
    // What was counted in a sample is not counted again, and what comes after it is added.
    let after = hand.status_of("default").await;
    assert_eq!((before.recent, after.recent), (by_outcome([2, 1, 1, 0]), by_outcome([2, 1, 1, 0])));
    assert_eq!((before.last_success_at, before.last_error_at), (after.last_success_at, after.last_error_at));
    hand.deliver(&hand.take(1).await).await;
    assert_eq!(hand.status_of("default").await.recent, by_outcome([3, 1, 1, 0]));
}

/// Any number of relays measure; one does it, and not before it is time.
pub async fn one_of_many_measures(hand: Hand) {
    let other = hand.another().await;
    let (one, two, three) = tokio::join!(hand.measure(), other.measure(), hand.measure());
    let measured = [one, two, three].map(|done| done.expect("measure"));
    let again = other.measure().await.expect("measure");
    let mut times: Vec<_> = samples(&hand).await.iter().map(|sample| sample.at).collect();
    assert_eq!(times.len(), [measured.to_vec(), vec![again]].concat().iter().filter(|done| **done).count());
    assert!(!times.is_empty());
    times.sort_unstable();
    // A machine that stood still between two calls may have made it time.
    assert!(
        times.windows(2).all(|pair| pair[1].duration_since(pair[0]).expect("sorted") >= BETWEEN_SAMPLES),
        "{times:?}"
    );
}

fn reported(worker_id: &str, sink: &str, every: Duration) -> RelayReport {
    let sink = SinkReport {
        sink: sink.to_owned(),
        kind: "http".to_owned(),
        breaker: "closed".to_owned(),
        open_for: None,
        held: 3,
        rate: Some(50),
        last_error: Some("HTTP_503: later".to_owned()),
    };
    RelayReport { worker_id: worker_id.to_owned(), version: "1.2.3".to_owned(), every, sinks: vec![sink] }
}

/// Waits until a relay is missed: not before three of its intervals are over, and as soon as they are.
async fn until_silent(hand: &Hand, worker_id: &str) {
    loop {
        let before = hand.clock().await;
        let relays = hand.relays().await.expect("relays");
        let relay = relays.iter().find(|relay| relay.report.worker_id == worker_id).expect("it is there");
        let late_at = relay.reported_at + 3 * HURRY;
        if relay.silent {
            assert!(late_at <= hand.clock().await, "too early");
            return;
        }
        assert!(before <= late_at, "nobody misses it");
        hand.until(late_at).await;
    }
}

/// A relay is there as it last reported, silent when it is late, and gone when it signed off.
pub async fn relays_report_until_they_sign_off(hand: Hand) {
    let other = hand.another().await;
    assert!(hand.relays().await.expect("relays").is_empty());
    let began = hand.clock().await;
    let steady = reported("steady", "web", Duration::from_mins(10));
    hand.report(&steady).await.expect("report");
    let mut hurried = reported("hurried", "web", HURRY);
    other.report(&hurried).await.expect("report");
    until_silent(&hand, "hurried").await;
    let relays = hand.relays().await.expect("relays");
    assert_eq!(relays.iter().map(|relay| relay.report.worker_id.as_str()).collect::<Vec<_>>(), ["hurried", "steady"]);
    assert_eq!((relays[1].silent, &relays[1].report), (false, &steady));
    assert!(began <= relays[1].started_at && relays[1].started_at == relays[1].reported_at);
    "open".clone_into(&mut hurried.sinks[0].breaker);
    hurried.sinks[0].open_for = Some(Duration::from_millis(1500));
    hurried.every = Duration::from_mins(10);
    other.report(&hurried).await.expect("report");
    let again = hand.relays().await.expect("relays").remove(0);
    assert_eq!((again.silent, &again.report, again.started_at), (false, &hurried, relays[0].started_at));
    assert!(again.reported_at > relays[0].reported_at);
    other.sign_off("hurried").await.expect("sign_off");
    other.sign_off("nobody").await.expect("sign_off");
    assert_eq!(hand.relays().await.expect("relays").len(), 1);
    for wrong in [reported("", "web", HURRY), reported("w", "web", Duration::ZERO)] {
        assert!(hand.report(&wrong).await.is_err(), "{wrong:?}");
    }
}

async fn explained(hand: &Hand, message_id: Uuid) -> Vec<&'static str> {
    let told: Explanation = hand.explain(message_id).await.expect("explain").expect("it is there");
    assert_eq!(told.message_id, message_id);
    for reason in &told.deliveries {
        assert!(!reason.why.is_empty() && reason.sink == "default", "{reason:?}");
    }
    told.deliveries.iter().map(|reason| reason.code.as_str()).collect()
}

/// Why a message without a lane is where it is, from its first moment to its end.
pub async fn a_message_is_explained(hand: Hand) {
    assert!(hand.explain(Uuid::new_v4()).await.expect("explain").is_none());
    let id = hand.put(message("t")).await.message_id;
    assert_eq!(explained(&hand, id).await, ["NO_RELAY"]);
    hand.report(&reported("r", "default", HURRY)).await.expect("report");
    until_silent(&hand, "r").await;
    assert_eq!(explained(&hand, id).await, ["RELAY_SILENT"]);
    let mut report = reported("r", "default", Duration::from_mins(10));
    "open".clone_into(&mut report.sinks[0].breaker);
    hand.report(&report).await.expect("report");
    assert_eq!(explained(&hand, id).await, ["BREAKER_OPEN"]);
    "half_open".clone_into(&mut report.sinks[0].breaker);
    hand.report(&report).await.expect("report");
    assert_eq!(explained(&hand, id).await, ["DUE"]);
    hand.pause("default").await.expect("pause");
    assert_eq!(explained(&hand, id).await, ["SINK_PAUSED"]);
    hand.resume("default").await.expect("resume");
    hand.lose(1).await;
    assert_eq!(explained(&hand, id).await, ["LEASE_EXPIRED"]);
    let held = hand.take_as(&hand.wants(1).max_attempts(3)).await;
    assert_eq!(explained(&hand, id).await, ["LEASED"]);
    hand.retry(&held, Duration::from_hours(1)).await;
    assert_eq!(explained(&hand, id).await, ["RETRY_LATER"]);
    let told = hand.explain(id).await.expect("explain").expect("it is there").deliveries.remove(0);
    assert!(told.why.contains("attempt 2 of 3") && told.why.ends_with("; 1 attempt is left"), "{told:?}");
    assert_eq!(told.remedy, Remedy::RetryNow, "{told:?}");
    let shown = hand.shown(id).await.deliveries.remove(0);
    assert_eq!((shown.attempt_count, shown.max_attempts), (2, Some(3)));
    let later = hand.put(message("t").delay(Duration::from_hours(1))).await.message_id;
    assert_eq!(explained(&hand, later).await, ["NOT_DUE"]);
    let [dead, sent] = hand.put_plain(2).await[..] else { panic!("two were put") };
    let held = hand.take(2).await;
    hand.fail(&held[..1]).await;
    hand.deliver(&held[1..]).await;
    assert_eq!((explained(&hand, dead).await, explained(&hand, sent).await), (vec!["DEAD"], vec!["DELIVERED"]));
    hand.discard(&[dead], None).await.expect("discard");
    assert_eq!(explained(&hand, dead).await, ["DISCARDED"]);
}

/// Why a message in a lane waits, and for which.
pub async fn a_lane_is_explained(hand: Hand) {
    hand.report(&reported("r", "default", Duration::from_mins(10))).await.expect("report");
    let ids = hand.put_lane("a", 2).await;
    assert_eq!(
        (explained(&hand, ids[0]).await, explained(&hand, ids[1]).await),
        (vec!["DUE"], vec!["BEHIND_LANE_HEAD"])
    );
    hand.retry(&hand.take(1).await, Duration::ZERO).await;
    hand.fail(&hand.take(1).await).await;
    let told = hand.explain(ids[1]).await.expect("explain").expect("it is there").deliveries.remove(0);
    assert_eq!((told.code, told.behind), (ReasonCode::LaneParked, Some(ids[0])));
    assert!(told.why.contains("REFUSED: no") && told.remedy == Remedy::RedriveHead, "{told:?}");
    assert_eq!(explained(&hand, ids[0]).await, ["DEAD"]);
    hand.discard(&ids[..1], None).await.expect("discard");
    assert_eq!(explained(&hand, ids[1]).await, ["DUE"], "the lane goes on");
}
