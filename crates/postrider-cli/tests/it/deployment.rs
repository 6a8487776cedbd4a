//! What `deploy/` promises, tried with the programs that read it: units by systemd, manifests by their schemas, every command
//! line by the binary itself. Then what it is for: a service manager is told, and an update one by one delivers nothing twice.

use std::collections::HashMap;
use std::fs::Permissions;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use postrider_testkit::{Cluster, python};
use serde_json::{Value, json};

use crate::support::{command, run, sql};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap()
}

/// With the binary of this build, which is where the units expect the installed one.
fn unit(directory: &Path, name: &str) -> PathBuf {
    let text = read(&format!("systemd/{name}")).replace("/usr/local/bin/postrider", env!("CARGO_BIN_EXE_postrider"));
    let copy = directory.join(name);
    std::fs::write(&copy, text).unwrap();
    copy
}

#[test]
fn systemd_takes_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let units = ["postrider.service", "postrider-drain.service", "postrider-drain.timer"]
        .map(|name| unit(directory.path(), name));
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output();
    let verified = verified.unwrap_or_else(|error| panic!("systemd-analyze: {error}; install it with ./scripts/setup"));
    let said = String::from_utf8_lossy(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}

/// A service that is taken over can do little: systemd's own score, from 0 (nothing) to 10 (everything).
#[test]
fn both_services_run_with_few_rights() {
    const MOST: &str = "20"; // 2.0
    let directory = tempfile::tempdir().unwrap();
    for name in ["postrider.service", "postrider-drain.service"] {
        let scored = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold", MOST])
            .arg(unit(directory.path(), name))
            .output()
            .unwrap_or_else(|error| panic!("systemd-analyze: {error}; install it with ./scripts/setup"));
        assert!(scored.status.success(), "{name}: {}", String::from_utf8_lossy(&scored.stdout));
    }
}

#[tokio::test]
async fn kubernetes_takes_the_manifests() {
    let program = "
import pathlib, sys, yaml, kubernetes_validate
folder = pathlib.Path(sys.argv[1])
named = yaml.safe_load((folder / 'kustomization.yaml').read_text())
files = {file.name for file in folder.glob('*.yaml')} - {'kustomization.yaml'}
assert set(named['resources']) == files, (named['resources'], files)
for generator in named['configMapGenerator']:
    for file in generator['files']:
        assert (folder / file).is_file(), file
for file in sorted(files):
    for document in yaml.safe_load_all((folder / file).read_text()):
        for version in ('1.28', '1.33'):
            kubernetes_validate.validate(document, version, strict=True)
        print(document['kind'])
";
    let ran = python(program, &[deploy("kubernetes").to_str().unwrap()], b"").await;
    assert!(ran.status.success(), "{}", ran.stderr);
    assert_eq!(ran.stdout.lines().filter(|kind| *kind == "Deployment").count(), 1, "{}", ran.stdout);
}

/// Who may call a relay over the network is said beside it: the pods that are meant, the port that it listens on, and
/// never everybody.
#[tokio::test]
async fn kubernetes_lets_only_some_call_the_relays() {
    let program = "
import json, pathlib, sys, yaml
folder = pathlib.Path(sys.argv[1])
documents = [document for file in sorted(folder.glob('*.yaml')) for document in yaml.safe_load_all(file.read_text())]
print(json.dumps({kind: [one['spec'] for one in documents if one['kind'] == kind] for kind in ('Deployment', 'NetworkPolicy')}))
";
    let ran = python(program, &[deploy("kubernetes").to_str().unwrap()], b"").await;
    assert!(ran.status.success(), "{}", ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let (deployment, policies) = (&found["Deployment"][0], found["NetworkPolicy"].as_array().unwrap());
    assert_eq!(policies.len(), 1, "{policies:?}");
    let policy = &policies[0];
    assert_eq!(policy["podSelector"]["matchLabels"], deployment["selector"]["matchLabels"]);
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let port = &deployment["template"]["spec"]["containers"][0]["ports"][0]["name"];
    for rule in policy["ingress"].as_array().unwrap() {
        assert!(rule["from"].as_array().is_some_and(|from| !from.is_empty()), "everybody may call: {rule}");
        assert!(rule["ports"].as_array().unwrap().iter().all(|one| one["port"] == *port), "{rule}");
    }
}

/// A token that stands in a file for everybody to read opens nothing: where there is one, the program refuses it, and
/// compose has none.
#[tokio::test]
async fn no_token_of_an_example_is_accepted() {
    let secret = read("kubernetes/secret.yaml");
    let token = secret.lines().find_map(|line| line.trim().strip_prefix("POSTRIDER_ADMIN_TOKEN: ")).unwrap();
    let mut relay = command(&["serve", "--listen", "0.0.0.0:0"]);
    let refused = relay.env("POSTRIDER_ADMIN_TOKEN", token).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("openssl rand -hex 32"));

    let compose = read("compose.yaml");
    let tokens = compose.lines().filter(|line| line.contains("_TOKEN:") || line.contains("BEARER:"));
    let tokens: Vec<&str> = tokens.collect();
    assert_eq!(tokens.len(), 3, "{tokens:?}");
    for token in tokens {
        assert!(token.contains(":?"), "it has a default: {token}");
    }
}

/// An option that was renamed would be found by whoever deploys.
#[tokio::test]
async fn every_command_line_is_one_the_binary_knows() {
    let program = "
import json, pathlib, sys, yaml
folder = pathlib.Path(sys.argv[1])
lines = []
def walk(value):
    if isinstance(value, dict):
        for key in ('args', 'command'):
            if isinstance(value.get(key), list):
                lines.append(value[key])
        for child in value.values():
            walk(child)
    elif isinstance(value, list):
        for child in value:
            walk(child)
for file in [folder / 'compose.yaml', *sorted((folder / 'kubernetes').glob('*.yaml'))]:
    for document in yaml.safe_load_all(file.read_text()):
        walk(document)
for file in sorted((folder / 'systemd').glob('*.service')):
    for line in file.read_text().splitlines():
        if line.startswith('ExecStart='):
            lines.append(line.split()[1:])
print(json.dumps(lines))
";
    let ran = python(program, &[deploy("").to_str().unwrap()], b"").await;
    assert!(ran.status.success(), "{}", ran.stderr);
    let lines: Vec<Vec<String>> = serde_json::from_str(&ran.stdout).unwrap();
    assert!(lines.len() >= 7, "{lines:?}");
    for line in lines {
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let known = command(&line).arg("--help").output().unwrap();
        assert!(known.status.success(), "{line:?}: {}", String::from_utf8_lossy(&known.stderr));
    }
}

#[test]
fn the_example_configuration_is_good() {
    let file = deploy("kubernetes/postrider.toml");
    let checked = command(&["config", "check", "--config", file.to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn the_image_is_made_of_what_is_there() {
    let text = read("Dockerfile");
    let copied = text.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--from"));
    let sources = copied.flat_map(|line| line.split(' ').rev().skip(1).collect::<Vec<_>>());
    let mut found = 0;
    for source in sources {
        assert!(deploy("..").join(source).exists(), "{source}");
        assert!(
            read("Dockerfile.dockerignore").lines().any(|line| line == format!("!{source}")),
            "{source} is ignored"
        );
        found += 1;
    }
    assert_eq!(found, 3);
    assert!(text.contains("\nUSER 10001"), "it runs without rights");
}

/// Proves H6, H8: every job of the `pg_cron` recipe is a statement that this outbox takes.
#[tokio::test]
async fn every_scheduled_statement_works() {
    let database = postrider_testkit::database().await;
    let recipe = read("pg_cron.sql");
    let jobs: Vec<&str> = recipe
        .lines()
        .filter(|line| line.starts_with("select cron.schedule"))
        .filter_map(|line| line.split("'select ").nth(1)?.strip_suffix("');"))
        .collect();
    assert_eq!(jobs.len(), 4, "{jobs:?}");
    for job in jobs {
        sql(&database, &format!("select {job}")).await;
    }
}

/// Proves H6: the recipe as it stands, with a real `pg_cron` (whose shortest interval is a minute): what a dead worker held comes
/// back, and a drain is started that delivers what is due.
#[tokio::test]
async fn heavy_slow_pg_cron_repairs_and_drains() {
    let cluster = Cluster::start().await;
    let database = cluster.database().await;
    let available = "select count(*) from pg_available_extensions where name = 'pg_cron'";
    assert_eq!(sql(&database, available).await, "1", "pg_cron is missing: install it with ./scripts/setup");
    let settings = [("shared_preload_libraries", "pg_cron"), ("cron.database_name", database.name())];
    cluster.reconfigure(&settings).await;
    cluster.restart().await;

    // The server starts the program, as its own user.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let [program, config, file] = ["postrider", "postrider.toml", "messages"].map(|name| directory.path().join(name));
    std::fs::copy(env!("CARGO_BIN_EXE_postrider"), &program).unwrap();
    let configured =
        format!("[databases.default]\nurl = {:?}\n[sinks.default.file]\npath = {file:?}\n", database.url());
    std::fs::write(&config, configured).unwrap();
    let recipe = read("pg_cron.sql");
    let (housekeeping, optional) = recipe.split_once("\n--select").unwrap();
    let drain = optional.split_once(";\n").unwrap().0.replace("\n--", "\n");
    let drain = drain.replace("/usr/local/bin/postrider", program.to_str().unwrap());
    let drain = drain.replace("/etc/postrider/postrider.toml", config.to_str().unwrap());
    let hold = "insert into outbox.route (namespace, topic, sink) values ('*', 'held', 'other'); \
                select from outbox.enqueue('held', '1'); select from outbox.claim('dead', 1, 0.001, sink => 'other'); \
                select from outbox.enqueue_many(array_fill('t'::text, array[100]), array_fill('1'::jsonb, array[100]))";
    sql(&database, hold).await;
    sql(&database, &format!("{housekeeping};\nselect{drain};")).await;

    let done = "select string_agg(distinct sink || ' ' || state, ', ') from outbox.attempts";
    let both = async {
        while sql(&database, done).await != "default DISPATCHED, other ZOMBIE_REQUEUE" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let in_time = tokio::time::timeout(2 * PATIENCE, both).await.is_ok();
    assert!(in_time, "{}", sql(&database, "select jobid, status, return_message from cron.job_run_details").await);
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 100);
    assert_eq!(sql(&database, "select count(*) from cron.job where active").await, "6");
}

/// A service manager that asked is told when it delivers and when it stops.
#[tokio::test]
async fn a_service_manager_is_told() {
    let database = postrider_testkit::database().await;
    let directory = tempfile::tempdir().unwrap();
    let address = directory.path().join("notify");
    let socket = UnixDatagram::bind(&address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut words = [0; 4096];
        let length = socket.recv(&mut words).unwrap();
        String::from_utf8(words[..length].to_vec()).unwrap()
    };
    let mut relay = command(&["run", "--stdout", "--listen", "none"]);
    relay.env("DATABASE_URL", database.url()).env("NOTIFY_SOCKET", &address);
    let mut relay = relay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ready = heard();
    assert!(ready.lines().any(|line| line == "READY=1"), "{ready}");
    terminate(&relay);
    let stopping = heard();
    assert!(stopping.lines().any(|line| line == "STOPPING=1"), "{stopping}");
    assert!(relay.wait().unwrap().success());
}

fn terminate(child: &Child) {
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
}

/// A relay whose lines of stdout are what it delivered.
fn relay(url: &str, name: &str) -> Child {
    let mut command = command(&["run", "--stdout", "--listen", "none", "--worker-id", name, "--batch-size", "20"]);
    let mut child = command.env("DATABASE_URL", url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = said.skip_while(|line| !line.contains("delivering"));
    assert!(said.next().is_some(), "{name} did not start");
    std::thread::spawn(move || said.for_each(drop));
    child
}

/// What a deployment does: a new one first, then an old one is told to stop, until all are new. Under load every message
/// arrives exactly once.
#[tokio::test]
async fn an_update_one_by_one_delivers_nothing_twice() {
    const MESSAGES: usize = 6_000;
    let database = postrider_testkit::database().await;
    let url = database.url();
    let (arrived, arrivals) = std::sync::mpsc::channel::<String>();
    let start = |name: &str| {
        let mut child = relay(&url, name);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let arrived = arrived.clone();
        std::thread::spawn(move || lines.for_each(|line| drop(arrived.send(line))));
        child
    };
    let mut old: Vec<Child> = (1..=3).map(|n| start(&format!("old-{n}"))).collect();
    let enqueue = format!(
        "select count(*) from generate_series(1, {}) as n, lateral outbox.enqueue('t', to_jsonb(n), lane => 'lane-' || n % 50)",
        MESSAGES / 3
    );
    let mut new = Vec::new();
    let mut times: HashMap<String, usize> = HashMap::new();
    let mut note = |line: String| {
        let message: serde_json::Value = serde_json::from_str(&line).unwrap();
        *times.entry(message["message_id"].as_str().unwrap().to_owned()).or_default() += 1;
        times.len()
    };
    for n in 1..=3 {
        sql(&database, &enqueue).await;
        new.push(start(&format!("new-{n}")));
        // In the middle of the work.
        note(arrivals.recv_timeout(PATIENCE).unwrap());
        let mut leaving = old.remove(0);
        terminate(&leaving);
        assert!(leaving.wait().unwrap().success());
    }
    while note(arrivals.recv_timeout(PATIENCE).unwrap()) < MESSAGES {}
    for child in &mut new {
        terminate(child);
        assert!(child.wait().unwrap().success());
    }
    drop(arrived);
    for line in arrivals {
        note(line);
    }
    assert_eq!(times.values().filter(|times| **times > 1).count(), 0, "nothing came twice");
    assert_eq!(run(&database, &["status", "--json"]).json()["items"][0]["pending"], 0);
}
