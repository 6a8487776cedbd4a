//! The relay processes, and what is done to them: killed at any instruction or at one that is chosen, stopped and
//! continued, given a clock that is wrong. A place is never empty for long. What is to happen later is remembered here
//! and done by `tick`, which is called every few milliseconds.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_testkit::{Database, FaultProxy};
use rand::Rng as _;
use rand::rngs::StdRng;
use rustix::process::{Pid, Signal, kill_process};

use crate::books::Books;
use crate::faults::{Fault, Injected};
use crate::receiver::Receiver;
use crate::relay::{self, Orders};

/// Between two relays at one place.
const DOWN_MS: std::ops::Range<u64> = 0..300;
/// After this a trap that nothing ran into is taken back.
const TRAP_PATIENCE: Duration = Duration::from_millis(1_500);
/// Debian's place for it, with the architecture's name in between.
const FAKETIME: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"];
/// One relay in so many has a wrong clock.
const WRONG_CLOCKS: u32 = 5;
const END_DEADLINE: Duration = Duration::from_secs(40);

/// A statement of the completer, and one of a claimer, as they go over the wire.
pub(crate) const COMPLETE: &str = "outbox\".complete_many";
pub(crate) const CLAIM: &str = "outbox\".claim(";

/// What all relays of a round share.
pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) directory: PathBuf,
    pub(crate) books: Arc<Books>,
    pub(crate) injected: Arc<Injected>,
    pub(crate) receiver: Receiver,
    pub(crate) lease: Duration,
    pub(crate) max_held: u32,
}

pub(crate) struct Fleet {
    site: Arc<Site>,
    places: Vec<Place>,
    rng: StdRng,
    /// When each worker was killed or stopped.
    pub(crate) ended: HashMap<String, Duration>,
}

struct Place {
    proxy: Arc<FaultProxy>,
    process: Option<Process>,
    started: u32,
    stopped: bool,
    back_at: Option<Instant>,
    trap: Option<Trap>,
}

/// Where a relay is to be killed.
struct Trap {
    fault: Fault,
    held_before: u64,
    over_at: Instant,
}

struct Process {
    worker: String,
    child: Child,
    input: Option<ChildStdin>,
}

impl Fleet {
    /// One relay behind each proxy.
    pub(crate) fn start(site: Arc<Site>, proxies: &[Arc<FaultProxy>], rng: StdRng) -> Self {
        let places = proxies.iter().map(|proxy| Place {
            proxy: Arc::clone(proxy),
            process: None,
            started: 0,
            stopped: false,
            back_at: Some(Instant::now()),
            trap: None,
        });
        let mut fleet = Self { site, places: places.collect(), rng, ended: HashMap::new() };
        fleet.tick();
        fleet
    }

    /// Injects a fault at one of the places. False: that one is down, or waits for another already.
    pub(crate) fn strike(&mut self, fault: Fault) -> bool {
        let index = self.rng.random_range(0..self.places.len());
        let place = &mut self.places[index];
        if place.process.is_none() || place.trap.is_some() || place.stopped {
            return false;
        }
        match fault {
            Fault::RelayKilled => self.kill(index, fault),
            Fault::RelayStopped => {
                let still_for = self.site.lease + Duration::from_millis(self.rng.random_range(100..1_500));
                if let Some(process) = &place.process {
                    process.signal(Signal::STOP);
                    self.ended.insert(process.worker.clone(), self.site.books.now());
                }
                place.stopped = true;
                place.back_at = Some(Instant::now() + still_for);
                self.site.injected.count(fault);
            }
            _ => place.set_trap(fault, &self.site.receiver),
        }
        true
    }

    /// Does what is due. Also looks whether a relay has ended by itself, which none may.
    pub(crate) fn tick(&mut self) {
        for index in 0..self.places.len() {
            self.spring(index);
            let place = &mut self.places[index];
            if let Some(process) = &mut place.process
                && let Ok(Some(status)) = process.child.try_wait()
            {
                let what = format!("a relay ended by itself ({status}): {}", self.site.last_words(&process.worker));
                self.site.books.violation(what);
                place.process = None;
                place.back_at = Some(Instant::now());
            }
            if place.back_at.is_some_and(|back_at| back_at <= Instant::now()) {
                self.bring_back(index);
            }
        }
    }

    fn spring(&mut self, index: usize) {
        let place = &mut self.places[index];
        let (Some(trap), Some(process)) = (&place.trap, &place.process) else { return };
        let sprung = match trap.fault {
            Fault::RelayKilledAfterSend => self.site.receiver.has_kept_answer(&process.worker),
            _ => place.proxy.counts().held > trap.held_before,
        };
        if sprung {
            let fault = trap.fault;
            self.kill(index, fault);
        } else if trap.over_at < Instant::now() {
            place.proxy.take_back();
            self.site.receiver.answer_again(&process.worker);
            place.trap = None;
            // It may have sprung just now.
            if place.proxy.counts().held > 0 {
                place.proxy.cut_all();
            }
        }
    }

    fn kill(&mut self, index: usize, fault: Fault) {
        let place = &mut self.places[index];
        let Some(mut process) = place.process.take() else { return };
        process.end_now();
        self.ended.entry(process.worker.clone()).or_insert_with(|| self.site.books.now());
        self.site.receiver.answer_again(&process.worker);
        place.proxy.take_back();
        place.proxy.cut_all();
        place.trap = None;
        place.back_at = Some(Instant::now() + Duration::from_millis(self.rng.random_range(DOWN_MS)));
        self.site.injected.count(fault);
        drop(fs::remove_file(self.site.log(&process.worker)));
    }

    fn bring_back(&mut self, index: usize) {
        let wrong_clock = self.site.injected.is_chosen(Fault::RelayClock) && self.rng.random_ratio(1, WRONG_CLOCKS);
        let ahead = self.rng.random();
        let place = &mut self.places[index];
        place.back_at = None;
        if let Some(process) = &place.process {
            process.signal(Signal::CONT);
            place.stopped = false;
            return;
        }
        let worker = format!("relay-{index}-{}", place.started);
        place.started += 1;
        let orders = Orders {
            url: format!("{}?application_name={worker}", place.proxy.url(&self.site.database)),
            worker_id: worker.clone(),
            receiver: self.site.receiver.path().to_owned(),
            lease: self.site.lease,
            max_messages: self.site.max_held,
        };
        let clock = wrong_clock.then_some(if ahead { "+1h" } else { "-1h" });
        if let Some(process) = Process::start(&orders, &self.site.log(&worker), clock) {
            self.site.injected_clock(clock.is_some());
            place.process = Some(process);
        }
    }

    /// Ends all traps and stops: from now on all relays work.
    pub(crate) fn mend(&mut self) {
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            place.trap = None;
            place.proxy.take_back();
            place.proxy.cut_all();
            if let Some(process) = &place.process {
                self.site.receiver.answer_again(&process.worker);
            }
            if place.back_at.is_some() {
                self.bring_back(index);
            }
        }
    }

    /// The most memory that a relay has, in bytes.
    pub(crate) fn largest(&self) -> u64 {
        self.places.iter().filter_map(|place| resident(place.process.as_ref()?.child.id())).max().unwrap_or(0)
    }

    /// Asks all to end and waits until they have.
    pub(crate) async fn end(mut self) {
        for place in &mut self.places {
            let Some(mut process) = place.process.take() else { continue };
            drop(process.input.take());
            let deadline = Instant::now() + END_DEADLINE;
            loop {
                match process.child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(None) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(5)).await,
                    other => {
                        let words = self.site.last_words(&process.worker);
                        self.site
                            .books
                            .violation(format!("{} did not end in order: {other:?} {words}", process.worker));
                        break;
                    }
                }
            }
        }
    }

    /// The last lines that each relay has logged.
    pub(crate) fn last_words(&self) -> String {
        let workers = self.places.iter().filter_map(|place| place.process.as_ref());
        workers.map(|process| self.site.last_words(&process.worker)).collect::<Vec<_>>().join("\n--\n")
    }
}

impl Place {
    fn set_trap(&mut self, fault: Fault, receiver: &Receiver) {
        let held_before = self.proxy.counts().held;
        match (fault, &self.process) {
            (Fault::RelayKilledAfterClaim, _) => self.proxy.hold_after_commit(CLAIM),
            (Fault::RelayKilledBeforeComplete, _) => self.proxy.hold_before(COMPLETE),
            (_, Some(process)) => receiver.keep_answer(&process.worker),
            (_, None) => return,
        }
        self.trap = Some(Trap { fault, held_before, over_at: Instant::now() + TRAP_PATIENCE });
    }
}

impl Site {
    fn log(&self, worker: &str) -> PathBuf {
        self.directory.join(format!("{worker}.log"))
    }

    fn last_words(&self, worker: &str) -> String {
        let log = fs::read_to_string(self.log(worker)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("{worker}: {}", lines[lines.len().saturating_sub(8)..].join("\n"))
    }

    fn injected_clock(&self, wrong: bool) {
        if wrong {
            self.injected.count(Fault::RelayClock);
        }
    }
}

impl Process {
    fn start(orders: &Orders, log: &Path, clock: Option<&str>) -> Option<Self> {
        let log = File::options().create(true).append(true).open(log).ok()?;
        let mut command = Command::new(std::env::current_exe().ok()?);
        command
            .env(relay::ORDERS, serde_json::to_string(orders).ok()?)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log);
        if let Some(clock) = clock {
            // What a wrong clock of a machine is: the monotonic one goes on.
            command.env("LD_PRELOAD", faketime()?).env("FAKETIME", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            command.env("FAKETIME_DISABLE_SHM", "1");
        }
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take();
        Some(Self { worker: orders.worker_id.clone(), child, input })
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended a moment ago.
            let _ = kill_process(pid, signal);
        }
    }

    fn end_now(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        // What libfaketime makes, and takes away in a process that ends by itself only.
        for name in ["faketime_shm_", "sem.faketime_sem_"] {
            drop(fs::remove_file(format!("/dev/shm/{name}{}", self.child.id())));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end_now();
    }
}

/// The library that gives a process another clock, if it is installed.
pub(crate) fn faketime() -> Option<&'static str> {
    FAKETIME.into_iter().find(|path| Path::new(path).exists())
}

fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
