//! How `postrider run` ends: a first signal, a second one, a reader that goes away. Real processes, real signals; the
//! tests wait for what the process says, never for a time.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use crate::support::{Outbox, command, finish, outboxes, run_at};

struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: Lines<BufReader<ChildStderr>>,
    /// What it has said on stderr.
    said: Vec<String>,
}

impl Running {
    /// Started, and past its first line.
    fn start(outbox: &Outbox, args: &[&str]) -> Self {
        let mut command = command(&[&["run", "--stdout"], args].concat());
        command.env("DATABASE_URL", &outbox.url).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut running = Self { child, stdout, stderr, said: Vec::new() };
        running.wait_for("delivering");
        running
    }

    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        while self.said.last().is_none_or(|line| !line.contains(words)) {
            match self.stderr.next() {
                Some(line) => self.said.push(line.unwrap()),
                None => panic!("it ended without {words:?}: {:#?}", self.said),
            }
        }
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Its exit code, once it has ended; what was left on stdout is counted as lines.
    fn end(mut self) -> (Option<i32>, usize) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest.lines().count())
    }
}

fn enqueue(outbox: &Outbox, count: usize, payload_bytes: usize) {
    let line = format!("{{\"topic\": \"t\", \"payload\": \"{}\"}}\n", "x".repeat(payload_bytes));
    let mut enqueue = command(&["enqueue"]);
    enqueue.env("DATABASE_URL", &outbox.url);
    assert_eq!(finish(enqueue, line.repeat(count).as_bytes()).code, 0);
}

/// Pending and leased.
fn standing(outbox: &Outbox) -> (u64, u64) {
    let status = run_at(&outbox.url, &["status", "--json"]).json();
    let sink = &status["items"][0];
    (sink["pending"].as_u64().unwrap(), sink["leased"].as_u64().unwrap())
}

#[tokio::test]
async fn the_first_signal_ends_it_in_good_order() {
    for outbox in outboxes().await {
        for signal in ["-INT", "-TERM"] {
            let mut running = Running::start(&outbox, &["--rate", "1", "--worker-id", "site-7"]);
            let first = &running.said[running.said.len() - 1];
            for part in
                ["sinks=\"default (stdout)\"", "lease=\"2m 00s\"", "poll=\"500ms\"", "listening", "worker=\"site-7\""]
            {
                assert!(first.contains(part), "{part} is not in: {first}");
            }
            assert!(first.contains("store=\"sqlite:") || first.contains("store=\"postgres://127.0.0.1:"), "{first}");
            // It claims what it can send in a second: some wait in its hands when the signal comes.
            enqueue(&outbox, 40, 10);
            assert_eq!(running.line()["attempt_no"], 1);
            running.signal(signal);
            running.wait_for("stopped: delivered ");
            let (code, more) = running.end();
            assert_eq!(code, Some(0));
            let (pending, leased) = standing(&outbox);
            assert_eq!(leased, 0, "nothing is left in its hands");
            assert_eq!(pending + 1 + more as u64, 40);
            assert!(run_at(&outbox.url, &["drain"]).code == 0);
        }
    }
}

#[tokio::test]
async fn the_second_signal_ends_it_at_once() {
    for outbox in outboxes().await {
        for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
            // More than a pipe holds: with nobody reading, a write never ends.
            enqueue(&outbox, 400, 1_000);
            let mut running = Running::start(&outbox, &["--grace", "1h"]);
            running.line();
            running.signal("-TERM");
            running.wait_for("stopping in good order; a second signal ends at once");
            running.signal(signal);
            assert_eq!(running.child.wait().unwrap().code(), Some(code));
            let (_, leased) = standing(&outbox);
            assert!(leased > 0, "what it held is still leased, until the lease ends");
        }
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_it_in_good_order() {
    for outbox in outboxes().await {
        let mut running = Running::start(&outbox, &[]);
        enqueue(&outbox, 1, 10);
        running.line();
        let Running { mut child, stdout, stderr, .. } = running;
        // Nothing is due: it must notice without writing.
        drop(stdout);
        let said: Vec<String> = stderr.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{said:#?}");
        assert!(said.iter().any(|line| line.contains("nobody reads stdout any more")), "{said:#?}");
        assert!(said.iter().any(|line| line.contains("stopped: delivered 1, ")), "{said:#?}");
    }
}

/// Some lines are read, then the pipe is closed while it writes: what was not taken is handed back and counted nowhere.
#[tokio::test]
async fn a_closed_pipe_hands_back_what_was_not_written() {
    for outbox in outboxes().await {
        enqueue(&outbox, 2_000, 200);
        let mut running = Running::start(&outbox, &["--batch-size", "100"]);
        running.line();
        let Running { mut child, stdout, stderr, .. } = running;
        drop(stdout);
        let said: Vec<String> = stderr.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{said:#?}");
        let (pending, leased) = standing(&outbox);
        assert!(pending > 0 && leased == 0, "{pending} pending, {leased} leased");
        let again = run_at(&outbox.url, &["drain"]);
        assert_eq!(again.stdout.lines().count() as u64, pending);
        assert!(again.stdout.lines().all(|line| line.ends_with("\"attempt_no\":1}")), "no attempt was spent");
    }
}

#[tokio::test]
async fn logs_can_be_json_and_stay_off_stdout() {
    for outbox in outboxes().await {
        enqueue(&outbox, 1, 10);
        let mut running = Running::start(&outbox, &["--log-format", "json", "--log", "info"]);
        running.line();
        running.signal("-TERM");
        running.wait_for("stopped: delivered 1, retried 0, dead 0, handed back 0");
        for line in &running.said {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
            assert!(!line.to_string().contains("xxxxxxxxxx"), "a payload is in the log: {line}");
        }
        assert_eq!(running.end(), (Some(0), 0));
    }
}
