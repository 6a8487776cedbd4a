//! How fast a sink is beside a bare loop over its library, in the same run and on the same server. It says the rates, and
//! judges them only when it is asked to: a loaded machine would judge wrongly.

use std::sync::Arc;
use std::time::Instant;

use postrider::{Claimed, Content};
use postrider_relay::{Sink, Verdict};
use postrider_testkit::sink_contract::claimed;

const BATCH: usize = 1_000;
const LANES: usize = 100;
const ROUNDS: usize = 3;
/// At least so much of the bare library's rate.
const SHARE: f64 = 0.5;

/// Sends through the sink without lanes, with a hundred, and through `bare` (so many messages in batches of so many), in
/// turn, and compares the best of each.
pub(super) async fn compare(sink: &dyn Sink, bare: impl AsyncFn(usize, usize)) {
    let judging = std::env::var_os("POSTRIDER_TEST_THROUGHPUT").is_some();
    let messages = if judging { 50 * BATCH } else { 2 * BATCH };
    let [mut plain, mut laned, mut best] = [0.0_f64; 3];
    for _ in 0..ROUNDS {
        plain = plain.max(rate(messages, through(sink, messages, 0)).await);
        laned = laned.max(rate(messages, through(sink, messages, LANES)).await);
        best = best.max(rate(messages, bare(messages, BATCH)).await);
    }
    println!("sink {plain:.0}/s, with {LANES} lanes {laned:.0}/s, bare library {best:.0}/s");
    println!("shares {:.2} and {:.2}", plain / best, laned / best);
    assert!(!judging || plain.min(laned) >= SHARE * best, "slower than {SHARE} of the bare library");
}

async fn rate(messages: usize, sending: impl Future<Output = ()>) -> f64 {
    let began = Instant::now();
    sending.await;
    f64::from(u32::try_from(messages).expect("few")) / began.elapsed().as_secs_f64()
}

async fn through(sink: &dyn Sink, messages: usize, lanes: usize) {
    for batch in 0..messages / BATCH {
        let batch: Vec<Arc<Claimed>> =
            (0..BATCH).map(|number| Arc::new(message(batch * BATCH + number, lanes))).collect();
        let verdicts = sink.deliver(&batch).await;
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Delivered(_))), "{:?}", verdicts.first());
    }
}

fn message(number: usize, lanes: usize) -> Claimed {
    let mut message = claimed("orders", "1");
    message.content = Content::Bytes(vec![b'x'; 200]);
    if lanes > 0 {
        message.lane = Some(format!("lane-{:03}", number % lanes));
        message.sequence_id = i64::try_from(number / lanes + 1).ok();
    }
    message
}
