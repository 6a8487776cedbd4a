//! Several databases in one configuration: one process delivers from all of them, and other commands choose.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use postrider_testkit::Cluster;

use crate::support::{Ran, command, finish, outboxes};

struct Running {
    child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    said: Vec<String>,
}

impl Running {
    fn start(config: &str) -> Self {
        let mut run = command(&["run", "--config", config, "--listen", "none"]);
        let mut child = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, stderr, said: Vec::new() }
    }

    /// Until all of this was said in one line.
    #[track_caller]
    fn wait_for(&mut self, words: &[&str]) {
        while !self.said.iter().any(|line| words.iter().all(|word| line.contains(word))) {
            match self.stderr.next() {
                Some(line) => self.said.push(line.unwrap()),
                None => panic!("it ended without {words:?}: {:#?}", self.said),
            }
        }
    }

    fn stop(mut self) -> Vec<String> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        self.said.extend(self.stderr.map_while(Result::ok));
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{:#?}", self.said);
        self.said
    }
}

fn with_config(config: &str, args: &[&str]) -> Ran {
    finish(command(&[args, &["--config", config]].concat()), b"")
}

fn count(file: &PathBuf) -> usize {
    fs::read_to_string(file).unwrap_or_default().lines().count()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..1_200 {
        if done() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{what} did not come about within a minute");
}

/// One process, one signal, one account for each; a sink may be for one database alone.
#[tokio::test]
async fn one_process_delivers_from_all_databases() {
    let [postgres, sqlite] = outboxes().await;
    let directory = tempfile::tempdir().unwrap();
    let [file, all, few] = ["postrider.toml", "all.ndjson", "few.ndjson"].map(|name| directory.path().join(name));
    let text = format!(
        "[databases.shop]\nurl = {:?}\n[databases.site]\nurl = {:?}\n[sinks.default.file]\npath = {all:?}\n\
         [sinks.few]\ndatabases = [\"site\"]\n[sinks.few.file]\npath = {few:?}\n[[routes]]\ntopic = \"few\"\nsinks = [\"few\"]\n",
        postgres.url, sqlite.url
    );
    fs::write(&file, text).unwrap();
    let config = file.to_str().unwrap();
    let mut relay = Running::start(config);
    relay.wait_for(&["delivering", "database=\"shop\"", "sinks=\"default (file)\""]);
    relay.wait_for(&["delivering", "database=\"site\"", "default (file), few (file)"]);
    for database in ["shop", "site"] {
        with_config(config, &["enqueue", "--topic", "t", "--payload", "1", "--database", database]).ok();
    }
    with_config(config, &["enqueue", "--topic", "few", "--payload", "1", "--database", "site"]).ok();
    until("three deliveries", || count(&all) == 2 && count(&few) == 1).await;
    let said = relay.stop();
    for (database, account) in [("shop", "stopped: delivered 1,"), ("site", "stopped: delivered 2,")] {
        let line = said.iter().find(|line| line.contains(account) && line.contains(database));
        assert!(line.is_some(), "{database}: {said:#?}");
    }
    let routes = with_config(config, &["routes", "--database", "shop"]).ok();
    assert!(routes.starts_with("no routes"), "a route to a sink of another database: {routes}");

    let which = with_config(config, &["status"]);
    assert_eq!(which.code, 2);
    assert!(which.stderr.contains("--database shop, or --database site"), "{}", which.stderr);
    let unknown = with_config(config, &["status", "--database", "shpo"]);
    assert!(unknown.code == 2 && unknown.stderr.contains("it has: shop, site"), "{}", unknown.stderr);
    let checked = with_config(config, &["check"]).stdout;
    assert!(checked.contains("(database shop)") && checked.contains("(database site)"), "{checked}");
    // A URL stands in place of all of them, a name above a variable.
    let mut status = command(&["status", "--config", config, "--json"]);
    status.env("DATABASE_URL", &sqlite.url);
    finish(status, b"").json();
    let mut status = command(&["status", "--config", config, "--database", "shop"]);
    status.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/x");
    finish(status, b"").ok();
}

/// At the start every database must be there; later the others go on without one that is away.
#[tokio::test]
async fn one_that_goes_away_stops_none_of_the_others() {
    let cluster = Cluster::start().await;
    let away = cluster.database().await;
    let [_, site] = outboxes().await;
    let directory = tempfile::tempdir().unwrap();
    let [file, out] = ["postrider.toml", "out.ndjson"].map(|name| directory.path().join(name));
    let text = |url: &str| {
        format!(
            "[databases.cloud]\nurl = {url:?}\n[databases.site]\nurl = {:?}\n[sinks.default.file]\npath = {out:?}\n",
            site.url
        )
    };
    fs::write(&file, text("postgres://app:hunter2@127.0.0.1:1/app")).unwrap();
    let config = file.to_str().unwrap();
    let refused = with_config(config, &["run", "--listen", "none"]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("database \"cloud\": ") && !refused.stderr.contains("hunter2"),
        "{}",
        refused.stderr
    );

    fs::write(&file, text(&away.url())).unwrap();
    let mut relay = Running::start(config);
    relay.wait_for(&["delivering", "site"]);
    cluster.kill9();
    with_config(config, &["enqueue", "--topic", "t", "--payload", "1", "--database", "site"]).ok();
    until("a delivery", || count(&out) == 1).await;
    let said = relay.stop();
    assert!(said.iter().any(|line| line.contains("stopped: delivered 1,") && line.contains("site")), "{said:#?}");
}
