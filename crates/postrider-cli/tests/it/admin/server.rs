//! A `postrider run` or `postrider serve` that listens on a port of its own, and how it is asked.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider::lifecycle::{Claim, Claimed, Failure, Outcome};
use postrider::{Message, PostgresStore, Schema, SqliteStore, Store};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Outbox, command};

/// What a test waits for at most: for a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) const OPERATE: &str = "hunter2-may-operate";
pub(crate) const READ: &str = "hunter3-may-look";

/// A process that serves the admin API.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    client: Client,
    /// What those who look have to send, if it was started with these tests' tokens.
    token: Option<&'static str>,
    lines: Receiver<String>,
    said: Arc<Mutex<String>>,
    _directory: TempDir,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {} {}", self.status, self.text))
    }

    /// The document of an answer that is yes.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!(matches!(self.status, 200 | 201), "{} {}", self.status, self.text);
        self.json()
    }

    /// The code of an answer that is no.
    #[track_caller]
    pub(crate) fn refused(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let document = self.json();
        assert!(document["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{document}");
        document["error"]["code"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// The tokens of these tests, as a configuration.
pub(crate) fn tokens() -> String {
    format!(
        "[admin]\nhosts = [\"outbox.example\"]\ntokens = [{{ name = \"ops\", token = \"{OPERATE}\", role = \"operate\" }},\n\
         {{ name = \"grafana\", token = \"{READ}\", role = \"read\" }}]\n"
    )
}

impl Server {
    /// `postrider serve` with both tokens.
    pub(crate) fn serve(outbox: &Outbox) -> Self {
        Self::start(outbox, &["serve", "--listen", "127.0.0.1:0"], &tokens())
    }

    /// Without any token.
    pub(crate) fn open(outbox: &Outbox) -> Self {
        Self::start(outbox, &["serve", "--listen", "127.0.0.1:0"], "")
    }

    /// `postrider run` with both tokens.
    pub(crate) fn run(outbox: &Outbox, args: &[&str]) -> Self {
        let config = format!("{}[sinks.default.stdout]\n", tokens());
        Self::start(outbox, &[&["run", "--listen", "127.0.0.1:0"], args].concat(), &config)
    }

    /// Started with this configuration, and listening.
    pub(crate) fn start(outbox: &Outbox, args: &[&str], config: &str) -> Self {
        let mut command = command(args);
        command.env("DATABASE_URL", &outbox.url);
        Self::spawn(command, config)
    }

    pub(crate) fn spawn(mut command: Command, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file: PathBuf = directory.path().join("postrider.toml");
        std::fs::write(&file, config).unwrap();
        command.arg("--config").arg(&file).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (tell, lines) = channel();
        let said = Arc::new(Mutex::new(String::new()));
        let all = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                writeln!(all.lock().unwrap(), "{line}").unwrap();
                // After the test has heard enough, nobody waits for the rest.
                drop(tell.send(line));
            }
        });
        let token = config.contains(READ).then_some(READ);
        let mut server =
            Self { child, url: String::new(), client: client(), token, lines, said, _directory: directory };
        let line = server.hear("http://");
        let (_, address) = line.split_once("http://").unwrap();
        server.url = format!("http://{}", address.split_whitespace().next().unwrap()).replace("0.0.0.0", "127.0.0.1");
        server
    }

    /// The next line with this in it.
    pub(crate) fn hear(&self, words: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("{words:?} was never said:\n{}", self.said()));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Everything it has said.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).timeout(PATIENCE)
    }

    /// As somebody who may look: with the token for it, where there is one.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        let request = self.request(Method::GET, path);
        send(self.token.into_iter().fold(request, RequestBuilder::bearer_auth)).await
    }

    /// Without any token.
    pub(crate) async fn stranger(&self, path: &str) -> Reply {
        send(self.request(Method::GET, path)).await
    }

    /// With the token that may look.
    pub(crate) async fn look(&self, path: &str) -> Reply {
        send(self.request(Method::GET, path).bearer_auth(READ)).await
    }

    /// With the token that may operate.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        send(self.request(Method::POST, path).bearer_auth(OPERATE).json(&body)).await
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// What it keeps in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        resident.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// Stops it in good order; everything it said.
    pub(crate) fn stop(mut self) -> String {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        // The end of its stderr.
        while self.lines.recv_timeout(PATIENCE).is_ok() {}
        self.said()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended, or a test that failed: nothing is left behind.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) async fn send(request: RequestBuilder) -> Reply {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Reply { status, headers, text: response.text().await.unwrap() }
}

fn client() -> Client {
    // The second time it is there already.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder().build().unwrap()
}

/// The outbox itself, for what only a worker does.
pub(crate) fn store(outbox: &Outbox) -> Arc<dyn Store> {
    match outbox.url.strip_prefix("sqlite:") {
        Some(file) => Arc::new(SqliteStore::open(file).unwrap()),
        None => Arc::new(PostgresStore::open(&outbox.url, Schema::default()).unwrap()),
    }
}

pub(crate) fn message(topic: &str, n: usize) -> Message {
    Message::json(topic, &json!({"n": n})).unwrap()
}

/// Claims what is due, as a worker that is called `hand`.
pub(crate) async fn claim(store: &dyn Store) -> Vec<Claimed> {
    store.claim(&Claim::new("hand").thorough(true)).await.unwrap()
}

/// Enqueues messages and lets each die with this code; their ids.
pub(crate) async fn kill(store: &dyn Store, messages: &[Message], code: &str) -> Vec<String> {
    store.enqueue(messages).await.unwrap();
    let mut ids = Vec::new();
    loop {
        let claimed = claim(store).await;
        if claimed.is_empty() {
            return ids;
        }
        for one in claimed {
            let failure = Failure::new(code, "the destination said no");
            store.finish("hand", &one, Outcome::Failed(failure)).await.unwrap();
            ids.push(one.message_id.to_string());
        }
    }
}

/// Asks until the answer is as wanted.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "it never came to that: {what}");
}
