//! `postrider top` in a terminal of its own, and the walk of a message as monitoring sees it, with real processes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Outbox, command, finish, outboxes, run_at};

/// How long a state may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

struct Top {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    screen: Screen,
}

impl Top {
    fn start(url: &str) -> Self {
        let mut script = Command::new("script");
        let call = format!("stty rows {ROWS} cols {COLUMNS}; exec {} top", env!("CARGO_BIN_EXE_postrider"));
        script.args(["-qec", &call, "/dev/null"]);
        script.env("DATABASE_URL", url).env("TERM", "xterm-256color").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, stdin, stdout, screen: Screen::default() }
    }

    /// Until these words stand on the screen. It draws at least the time anew every second.
    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = [0; 4096];
        while !self.screen.text().contains(words) {
            assert!(Instant::now() < deadline, "{words:?} does not come: {}", self.screen.text());
            let read = self.stdout.read(&mut bytes).unwrap();
            assert!(read > 0, "it ended without {words:?}: {}", self.screen.text());
            self.screen.take(&bytes[..read]);
        }
    }

    fn press(&mut self, keys: &str) {
        self.stdin.write_all(keys.as_bytes()).unwrap();
    }

    /// Its exit code, and what it drew last.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), String::from_utf8_lossy(&rest).into_owned())
    }
}

const ROWS: usize = 24;
const COLUMNS: usize = 100;

/// As much of a terminal as `top` needs: it moves the cursor, and draws only what has changed.
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// What came of an escape sequence, or of a character, that has not ended yet.
    open: Vec<u8>,
}

impl Default for Screen {
    fn default() -> Self {
        Self { cells: vec![vec![' '; COLUMNS]; ROWS], row: 0, column: 0, open: Vec::new() }
    }
}

impl Screen {
    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }

    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.open.push(*byte);
            match self.open[0] {
                0x1b => {
                    if self.open.len() > 2 && (0x40..=0x7e).contains(byte) {
                        self.escape();
                    }
                }
                _ => self.character(),
            }
        }
    }

    fn escape(&mut self) {
        let sequence = String::from_utf8_lossy(&std::mem::take(&mut self.open)).into_owned();
        let numbers: Vec<usize> =
            sequence[2..sequence.len() - 1].split(';').map(|number| number.parse().unwrap_or(1)).collect();
        match sequence.chars().last() {
            Some('H') => (self.row, self.column) = (numbers[0] - 1, numbers.get(1).map_or(0, |column| column - 1)),
            Some('J') => self.cells = Self::default().cells,
            _ => {}
        }
    }

    fn character(&mut self) {
        let Ok(text) = std::str::from_utf8(&self.open) else { return };
        let character = text.chars().next().unwrap();
        self.open.clear();
        if !character.is_control()
            && let Some(cell) = self.cells.get_mut(self.row).and_then(|row| row.get_mut(self.column))
        {
            *cell = character;
            self.column += 1;
        }
    }
}

const LEAVES_THE_ALTERNATE_SCREEN: &str = "\u{1b}[?1049l";

#[tokio::test]
async fn it_draws_the_sinks_pauses_one_and_leaves_the_terminal_as_it_was() {
    for Outbox { url, .. } in &outboxes().await {
        let mut top = Top::start(url);
        top.wait_for("default");
        top.press("p");
        top.wait_for("paused sink default");
        let paused = || run_at(url, &["status", "--json"]).json()["items"][0]["paused"] == true;
        assert!(paused(), "the store knows, too");
        top.press("?");
        top.wait_for("pause the selected sink");
        top.press("q");
        let (code, rest) = top.end();
        assert_eq!(code, Some(0), "{rest}");
        assert!(rest.contains(LEAVES_THE_ALTERNATE_SCREEN), "{rest:?}");
        let entry = run_at(url, &["audit", "--json"]).json()["items"][0].clone();
        assert_eq!((&entry["action"], entry["actor"].as_str().unwrap().contains('@')), (&"pause".into(), true));
    }
}

#[tokio::test]
async fn dead_letters_are_redriven_after_a_question() {
    for Outbox { url, .. } in &outboxes().await {
        for _ in 0..2 {
            run_at(url, &["enqueue", "--topic", "order.placed", "--payload", "1"]).ok();
        }
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut drain = command(&["drain", "--cloud-url", &format!("http://{closed}/"), "--max-attempts", "1"]);
        drain.env("DATABASE_URL", url);
        assert_eq!(finish(drain, b"").code, 0);
        let mut top = Top::start(url);
        top.wait_for("order.placed");
        top.press("\tr");
        top.wait_for("redrive 2 dead letters of sink default, topic order.placed?");
        top.press("y");
        top.wait_for("redriven 2 dead letters");
        top.press("q");
        assert_eq!(top.end().0, Some(0));
        let status = run_at(url, &["status", "--json"]).json();
        assert_eq!((&status["items"][0]["dead"], &status["items"][0]["pending"]), (&0.into(), &2.into()));
    }
}

#[tokio::test]
async fn a_signal_restores_the_terminal_and_without_one_it_says_so() {
    let [Outbox { url, .. }, _] = &outboxes().await;
    let mut top = Top::start(url);
    top.wait_for("default");
    // `script` ran a shell that became the program: its child.
    let pid = Command::new("ps").args(["-o", "pid=", "--ppid", &top.child.id().to_string()]).output().unwrap();
    let pid = String::from_utf8(pid.stdout).unwrap().trim().to_owned();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, rest) = top.end();
    assert_eq!(code, Some(143), "{rest}");
    assert!(rest.contains(LEAVES_THE_ALTERNATE_SCREEN), "{rest:?}");

    let piped = run_at(url, &["top"]);
    assert_eq!((piped.code, piped.stdout.as_str()), (2, ""));
    assert!(piped.stderr.contains("needs a terminal") && piped.stderr.contains("postrider status"), "{}", piped.stderr);
}

fn sink(url: &str) -> Value {
    run_at(url, &["status", "--json"]).json()["items"][0].clone()
}

#[track_caller]
fn wait_until(url: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = sink(url);
        if is(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "not {what}: {seen}");
    }
}

/// Proves M8: pending, processing, delivered and dead are each visible to monitoring while a real relay works; delivered
/// and dead are final until an operator redrives.
#[tokio::test]
async fn monitoring_sees_a_message_pending_then_leased_then_delivered_or_dead() {
    for Outbox { url, .. } in &outboxes().await {
        let id = run_at(url, &["enqueue", "--topic", "t", "--payload", "1", "--json"]).json()["message_id"].clone();
        let id = id.as_str().unwrap();
        let state = |id: &str| {
            let list = run_at(url, &["list", "--json"]).json();
            let of = |one: &&Value| one["message_id"] == id;
            list["items"].as_array().unwrap().iter().find(of).unwrap()["state"].as_str().unwrap().to_owned()
        };
        assert_eq!((state(id), sink(url)["pending"].as_u64()), ("pending".to_owned(), Some(1)));

        // A destination that answers when the test lets it.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let mut relay = command(&["run", "--cloud-url", &address, "--max-attempts", "1"]);
        relay.env("DATABASE_URL", url).stdout(Stdio::null()).stderr(Stdio::null());
        let mut relay = relay.spawn().unwrap();
        let (held, _) = listener.accept().unwrap();
        wait_until(url, "leased", |sink| sink["leased"] == 1);
        assert_eq!(state(id), "leased");
        answer(held, id);
        wait_until(url, "delivered", |sink| sink["leased"] == 0 && sink["pending"] == 0);
        assert_eq!(state(id), "delivered");

        let dead = run_at(url, &["enqueue", "--topic", "t", "--payload", "2", "--json"]).json()["message_id"].clone();
        let dead = dead.as_str().unwrap();
        drop(listener);
        let seen = wait_until(url, "dead", |sink| sink["dead"] == 1);
        assert_eq!((seen["pending"].as_u64(), seen["leased"].as_u64()), (Some(0), Some(0)));
        assert_eq!((state(dead), state(id)), ("dead".to_owned(), "delivered".to_owned()));
        assert!(Command::new("kill").args(["-TERM", &relay.id().to_string()]).status().unwrap().success());
        assert_eq!(relay.wait().unwrap().code(), Some(0));
        run_at(url, &["dlq", "redrive", dead]).ok();
        assert_eq!(state(dead), "pending", "an operator gives it a new start");
    }
}

/// Reads one request to its end and takes everything in it.
fn answer(stream: std::net::TcpStream, id: &str) {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    assert!(String::from_utf8_lossy(&body).contains(id), "{}", String::from_utf8_lossy(&body));
    let reply = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(reply.as_bytes()).unwrap();
}
