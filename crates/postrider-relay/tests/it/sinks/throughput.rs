//! How fast a sink is beside a loop of the same client library that does nothing else. Both run in turn against the same
//! server, so that what the machine does besides hits both; the best of each counts. Without `POSTRIDER_TEST_THROUGHPUT`
//! it is a short run that only shows that both work.

use std::sync::Arc;
use std::time::Instant;

use postrider::lifecycle::{Claimed, Content};
use postrider_relay::{Sink, Verdict};
use postrider_testkit::sink_contract::claimed;

const BATCH: usize = 1_000;
const BODY_BYTES: usize = 200;
const LANES: [usize; 2] = [0, 100];
/// What a sink must reach of the bare loop.
const LEAST_RATIO: f64 = 0.5;

/// Runs both and prints their rates. `bare` sends a batch and waits until the server has confirmed it.
pub(super) async fn beside_a_bare_loop(name: &str, sink: &dyn Sink, mut bare: impl AsyncFnMut(&[Arc<Claimed>])) {
    let measured = std::env::var_os("POSTRIDER_TEST_THROUGHPUT").is_some();
    let (batches, rounds) = if measured { (50, 3) } else { (2, 1) };
    for lanes in LANES {
        let (mut bare_rate, mut sink_rate) = (0.0_f64, 0.0_f64);
        for _ in 0..rounds {
            bare_rate = bare_rate.max(rate(batches, lanes, &mut bare).await);
            sink_rate =
                sink_rate.max(rate(batches, lanes, async |batch: &[Arc<Claimed>]| through(sink, batch).await).await);
        }
        let ratio = sink_rate / bare_rate;
        println!("{name}, {lanes} lanes: bare {bare_rate:.0}/s, sink {sink_rate:.0}/s, ratio {ratio:.2}");
        assert!(!measured || ratio >= LEAST_RATIO, "{name}, {lanes} lanes: only {ratio:.2} of a bare loop");
    }
}

fn per_second(messages: usize, started: Instant) -> f64 {
    f64::from(u32::try_from(messages).expect("a small number")) / started.elapsed().as_secs_f64()
}

async fn through(sink: &dyn Sink, batch: &[Arc<Claimed>]) {
    let verdicts = sink.deliver(batch).await;
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{:?}", verdicts.first());
}

/// Messages per second. New ones each time, for some servers know those that they have seen.
async fn rate(batches: usize, lanes: usize, mut send: impl AsyncFnMut(&[Arc<Claimed>])) -> f64 {
    let batches: Vec<Vec<Arc<Claimed>>> = (0..batches).map(|_| batch(lanes)).collect();
    let started = Instant::now();
    for batch in &batches {
        send(batch).await;
    }
    let messages: usize = batches.iter().map(Vec::len).sum();
    per_second(messages, started)
}

fn batch(lanes: usize) -> Vec<Arc<Claimed>> {
    let message = |number: usize| {
        let mut message = claimed("orders", "0");
        message.content = Content::Bytes(vec![b'x'; BODY_BYTES]);
        if lanes > 0 {
            message.lane = Some(format!("lane-{:03}", number % lanes));
            message.sequence_id = Some(i64::try_from(number / lanes + 1).expect("a small number"));
        }
        Arc::new(message)
    };
    (0..BATCH).map(message).collect()
}
