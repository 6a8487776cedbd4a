//! The far end of the demo: takes messages and keeps books, but has bad days. Now and then it fails, is slow, refuses a
//! message for good, takes one without answering, or is down for some seconds. Called by the relay as its sink.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::lifecycle::Claimed;
use postrider_relay::{Receipt, SinkFailure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::sleep;

use super::DEADLINE;
use super::world::{LaneState, Tone, World, lock};

/// How often out of a thousand it does this.
const FAILS: u32 = 40;
const IS_SLOW: u32 = 15;
const REFUSES: u32 = 4;
const FORGETS_TO_ANSWER: u32 = 4;

/// Of a usual delivery, in milliseconds.
const LATENCY_MS: std::ops::Range<u64> = 4..40;
const SLOW_MS: std::ops::Range<u64> = 300..1_500;
/// Until the first outage and between two, and how long one lasts, in milliseconds.
const FIRST_OUTAGE_MS: std::ops::Range<u64> = 5_000..7_000;
const BETWEEN_OUTAGES_MS: std::ops::Range<u64> = 12_000..20_000;
const OUTAGE_MS: std::ops::Range<u64> = 3_000..5_000;

pub(super) struct Receiver {
    world: Arc<World>,
    dice: Mutex<StdRng>,
    /// Down by itself.
    outage: AtomicBool,
    /// Down because somebody pressed d.
    taken_down: AtomicBool,
}

/// What it does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    IsSlow,
    Fails,
    Refuses,
    /// Takes it, and never says so.
    ForgetsToAnswer,
}

impl Receiver {
    pub(super) fn new(world: Arc<World>) -> Self {
        let dice = Mutex::new(StdRng::seed_from_u64(world.seed ^ 0x7265_6365_6976_6572));
        Self { world, dice, outage: AtomicBool::new(false), taken_down: AtomicBool::new(false) }
    }

    pub(super) fn is_down(&self) -> bool {
        self.outage.load(Ordering::Relaxed) || self.taken_down.load(Ordering::Relaxed)
    }

    /// Takes it down by hand, or lets it come back.
    pub(super) fn toggle(&self) {
        let down = !self.taken_down.fetch_not(Ordering::Relaxed);
        if down {
            self.world.say(Tone::Bad, "you took the receiver down");
        } else {
            self.world.say(Tone::Good, "you let the receiver come back");
        }
    }

    /// Goes down from time to time, for ever.
    pub(super) async fn weather(self: Arc<Self>) {
        let mut pause = self.roll(FIRST_OUTAGE_MS);
        loop {
            sleep(pause).await;
            let outage = self.roll(OUTAGE_MS);
            self.outage.store(true, Ordering::Relaxed);
            let told = !self.taken_down.load(Ordering::Relaxed);
            if told {
                self.world.say(Tone::Bad, format!("the receiver is down for {:.1} seconds", outage.as_secs_f64()));
            }
            sleep(outage).await;
            self.outage.store(false, Ordering::Relaxed);
            if told && !self.is_down() {
                self.world.say(Tone::Good, "the receiver is up again");
            }
            pause = self.roll(BETWEEN_OUTAGES_MS);
        }
    }

    /// One message comes in.
    pub(super) async fn take(&self, message: &Claimed) -> Result<Receipt, SinkFailure> {
        if self.is_down() {
            self.note(message, LaneState::Retrying);
            return Err(SinkFailure::retryable("UNREACHABLE", "connection refused"));
        }
        let mood = self.mood(message.attempt_no);
        sleep(self.roll(if mood == Mood::IsSlow { SLOW_MS } else { LATENCY_MS })).await;
        match mood {
            Mood::Takes | Mood::IsSlow => Ok(self.keep(message)),
            Mood::Fails => {
                self.note(message, LaneState::Retrying);
                Err(SinkFailure::retryable("HTTP_503", "service unavailable"))
            }
            Mood::Refuses => {
                self.note(message, LaneState::Parked);
                let what = message.lane.as_deref().unwrap_or(&message.topic);
                self.world.say(Tone::Bad, format!("the receiver refused {what}: a person must look at it"));
                Err(SinkFailure::terminal("HTTP_422", "unprocessable"))
            }
            Mood::ForgetsToAnswer => {
                self.keep(message);
                self.world.say(Tone::Warning, "the receiver took a message and did not answer: it will come twice");
                sleep(DEADLINE * 2).await;
                Ok(Receipt::default())
            }
        }
    }

    fn keep(&self, message: &Claimed) -> Receipt {
        let lane = message.lane.as_deref().zip(message.sequence_id);
        let new = self.world.ledger().take(message.message_id, lane);
        self.note(message, LaneState::Moving);
        let code = if new { "201" } else { "200" };
        Receipt::default().code(code.to_owned())
    }

    fn note(&self, message: &Claimed, state: LaneState) {
        if let (Some(lane), Some(sequence)) = (&message.lane, message.sequence_id) {
            self.world.lane_delivered(lane, u64::try_from(sequence).unwrap_or(0), state);
        }
    }

    /// Refuses at the first sight only, so that a redrive gets through.
    fn mood(&self, attempt_no: i32) -> Mood {
        let rolled = lock(&self.dice).random_range(0..1_000);
        let moods = [
            (FAILS, Mood::Fails),
            (IS_SLOW, Mood::IsSlow),
            (FORGETS_TO_ANSWER, Mood::ForgetsToAnswer),
            (if attempt_no == 1 { REFUSES } else { 0 }, Mood::Refuses),
        ];
        let mut below = 0;
        for (share, mood) in moods {
            below += share;
            if rolled < below {
                return mood;
            }
        }
        Mood::Takes
    }

    fn roll(&self, range_ms: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(lock(&self.dice).random_range(range_ms))
    }
}
