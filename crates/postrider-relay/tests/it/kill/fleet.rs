//! Several relay processes on one outbox, and what is done to them: killed and started again, stopped and continued.
//! What is to happen later is remembered here and done by `tick`.

use std::time::{Duration, Instant};

use super::child::{Orders, RelayProcess};

/// Relays that are always there, unless they are down for a while.
pub(super) struct Fleet {
    orders: Box<dyn Fn(usize, usize) -> Orders + Send>,
    places: Vec<Place>,
    /// What the processes that were killed had logged.
    logs: String,
}

struct Place {
    process: Option<RelayProcess>,
    /// Processes started here.
    started: usize,
    stopped: bool,
    /// When a killed one is started again, or a stopped one goes on.
    back_at: Option<Instant>,
}

impl Fleet {
    /// Starts `size` relays; `orders` is asked for each process, by place and by how many were started there before.
    pub(super) fn start(size: usize, orders: impl Fn(usize, usize) -> Orders + Send + 'static) -> Self {
        let place = |_| Place { process: None, started: 0, stopped: false, back_at: Some(Instant::now()) };
        let mut fleet = Self { orders: Box::new(orders), places: (0..size).map(place).collect(), logs: String::new() };
        fleet.tick();
        fleet
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// SIGKILL, and a new process after a while. False: it is down.
    pub(super) fn kill(&mut self, place: usize, down_for: Duration) -> bool {
        let place = &mut self.places[place];
        let Some(process) = place.process.take() else { return false };
        process.kill();
        self.logs.push_str(&process.log());
        place.stopped = false;
        place.back_at = Some(Instant::now() + down_for);
        true
    }

    /// SIGSTOP, and SIGCONT after a while. False: it is down, or stands still already.
    pub(super) fn stop(&mut self, place: usize, still_for: Duration) -> bool {
        let place = &mut self.places[place];
        let Some(process) = place.process.as_ref().filter(|_| !place.stopped) else { return false };
        process.stop();
        place.stopped = true;
        place.back_at = Some(Instant::now() + still_for);
        true
    }

    /// Does what is due. Also looks whether one has ended by itself, which none may.
    pub(super) fn tick(&mut self) {
        self.bring_back(|back_at| back_at <= Instant::now());
        for process in self.places.iter().filter_map(|place| place.process.as_ref()) {
            assert!(!process.has_ended(), "a relay ended by itself: {}", process.log());
        }
    }

    /// Does all that is still to be done.
    pub(super) fn all_back(&mut self) {
        self.bring_back(|_| true);
    }

    fn bring_back(&mut self, due: impl Fn(Instant) -> bool) {
        for (index, place) in self.places.iter_mut().enumerate() {
            if !place.back_at.is_some_and(&due) {
                continue;
            }
            place.back_at = None;
            if let Some(process) = &place.process {
                process.go_on();
                place.stopped = false;
            } else {
                place.process = Some(RelayProcess::start(&(self.orders)(index, place.started)));
                place.started += 1;
            }
        }
    }

    /// The last lines that each relay has logged.
    pub(super) fn last_words(&self) -> String {
        let logs = self.places.iter().filter_map(|place| place.process.as_ref()).map(RelayProcess::log);
        let tails = logs.map(|log| {
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        });
        tails.collect::<Vec<_>>().join("\n--\n")
    }

    /// Asks all to end, and waits until they have. Returns all that was logged.
    pub(super) async fn end(mut self) -> String {
        for process in self.places.iter_mut().filter_map(|place| place.process.take()) {
            self.logs.push_str(&process.end().await);
        }
        self.logs
    }
}
