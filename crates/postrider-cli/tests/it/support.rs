//! Runs the binary, and takes out of its output what differs from run to run.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use postrider_testkit::{Cluster, Database, psql};
use serde_json::Value;
use tempfile::TempDir;

/// What the binary left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{}", self.stdout);
        self.stdout
    }

    /// Of a drain, which says on stderr what it did.
    #[track_caller]
    pub(crate) fn ok_with_words(self) -> String {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self.stderr
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let stdout = self.ok();
        assert_eq!(stdout.matches('\n').count(), 1, "one document, one line: {stdout}");
        serde_json::from_str(&stdout).unwrap()
    }

    /// The error document of `--json`.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        assert_eq!(self.stdout, "", "a failure prints nothing to stdout");
        let document: Value = serde_json::from_str(&self.stderr).unwrap();
        document.get("error").unwrap().clone()
    }
}

/// The binary without any of our environment.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
    let ours =
        std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("POSTRIDER_"));
    for variable in ours {
        command.env_remove(variable);
    }
    for variable in [
        "DATABASE_URL",
        "CLOUD_INGESTION_URL",
        "OUTBOX_BATCH_SIZE",
        "OUTBOX_LEASE_SECONDS",
        "OUTBOX_MAX_ATTEMPTS",
        "OUTBOX_BACKOFF_CAP_SECONDS",
        "SYNC_INTERVAL_MS",
        "INTERNAL_ADMIN_ENABLED",
        "INSTANCE_ID",
        "HOSTNAME",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "NO_COLOR",
        "COLUMNS",
        "CLICOLOR_FORCE",
        "RUST_LOG",
    ] {
        command.env_remove(variable);
    }
    // Many of them run at once, and all would want the same port.
    command.env("POSTRIDER__ADMIN__LISTEN", "none");
    command.args(args).stdin(Stdio::null());
    command
}

pub(crate) fn finish(mut command: Command, input: &[u8]) -> Ran {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // A run that fails early closes its end; what it says tells why.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs against a URL. A relay that is not told where to deliver writes to stdout, whatever the store.
pub(crate) fn run_at(url: &str, args: &[&str]) -> Ran {
    let delivers = ["run", "drain"].iter().any(|verb| args.first() == Some(verb));
    let is_told = ["--config", "--cloud-url", "--stdout"].iter().any(|option| args.contains(option));
    let stdout: &[&str] = if delivers && !is_told { &["--stdout"] } else { &[] };
    let mut command = command(&[args, stdout].concat());
    command.env("DATABASE_URL", url);
    finish(command, b"")
}

pub(crate) fn run(database: &Database, args: &[&str]) -> Ran {
    run_at(&database.url(), args)
}

pub(crate) fn run_with_input(database: &Database, args: &[&str], input: &str) -> Ran {
    let mut command = command(args);
    command.env("DATABASE_URL", database.url());
    finish(command, input.as_bytes())
}

/// Runs an example's script, as a reader does, but on an empty database and with this binary. It ends well only if everything is
/// as it says. What it said.
pub(crate) async fn run_example(name: &str) -> String {
    let database = Cluster::start().await.empty_database().await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let programs = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let mut script = tokio::process::Command::new(examples.join(name).join("run"));
    script.env("EXAMPLE_BIN", programs).env("EXAMPLE_DATABASE_URL", database.url());
    let ran = script.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let [said, wrong] = [&ran.stdout, &ran.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(ran.status.success() && said.ends_with("\nEverything adds up.\n"), "{said}\n{wrong}");
    said
}

/// An outbox of either kind, as a URL; gone with this value.
pub(crate) struct Outbox {
    pub(crate) url: String,
    postgres: Option<Database>,
    _sqlite: Option<TempDir>,
}

impl Outbox {
    /// The answer of a query, of an outbox in PostgreSQL.
    pub(crate) async fn sql(&self, query: &str) -> String {
        sql(self.postgres.as_ref().unwrap(), query).await
    }

    pub(crate) fn of(database: Database) -> Self {
        Self { url: database.url(), postgres: Some(database), _sqlite: None }
    }
}

/// One of each kind, both empty.
pub(crate) async fn outboxes() -> [Outbox; 2] {
    let database = postrider_testkit::database().await;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/outbox.db", directory.path().display());
    // Made beforehand, so that no test sees the note about it.
    assert_eq!(run_at(&url, &["drain"]).code, 0);
    [Outbox::of(database), Outbox { url, postgres: None, _sqlite: Some(directory) }]
}

/// The answer of a query, as psql prints it.
pub(crate) async fn sql(database: &Database, query: &str) -> String {
    let output = psql(database, query).await;
    assert!(output.status.success(), "{}", output.stderr);
    output.stdout.trim_end().to_owned()
}

/// Ids and times differ from run to run; the same number of characters takes their place.
pub(crate) fn filters() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(
        "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}",
        "<the id of the message, a UUIDv7>...",
    );
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", "<time>");
    settings.add_filter(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z \((now|\d+s ago)\)", "<time> (<ago>)");
    settings
}
