//! A secret in every place that can hold one is shown by no command, no error and no log. What is served is asked in
//! `admin/secrets.rs`.

use std::fs;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Ran, command, finish};

pub(crate) const SECRET: &str = "hunter2planted";
/// A key of NATS has a form of its own.
const SEED: &str = "SUAGQ5LOORSXEMTQNRQW45DFMQWWS3RNMFXC23TLMV4S233GFVXGC5ANJE";
/// Every sink of the planted configuration.
pub(crate) const SINKS: &[&str] = &[
    "bearer",
    "basic",
    "webhook",
    "mqtt",
    "mqtt2",
    "nats",
    "nats2",
    "nats3",
    "nats4",
    "nats5",
    "rabbitmq",
    "redis",
    #[cfg(feature = "kafka")]
    "kafka",
];

/// Every sink with a secret in every field that takes one. Nobody listens on the port. `cloud` is another outbox.
pub(crate) fn planted(port: u16, outbox: &str, cloud: &str) -> String {
    let place = format!("127.0.0.1:{port}");
    let login = format!("user:{SECRET}@{place}");
    let kafka = if cfg!(feature = "kafka") {
        format!(
            "[sinks.kafka.kafka]\nbrokers = \"{place}\"\ntimeout = \"1s\"\nproperties = {{ \"sasl.password\" = \"{SECRET}\" }}\n"
        )
    } else {
        String::new()
    };
    format!(
        r#"
        [databases.here]
        url = "sqlite:{outbox}"
        [databases.cloud]
        url = "{cloud}"
        [admin]
        token = "{SECRET}-a"
        tokens = [{{ name = "ops", token = "{SECRET}-b", role = "operate" }}]
        [sinks.bearer.http]
        url = "http://{place}/{SECRET}/{{topic}}?key={SECRET}"
        bearer = "{SECRET}"
        headers = {{ "x-api-key" = "{SECRET}", env = "{SECRET}" }}
        timeout = "1s"
        [sinks.basic.http]
        url = "http://{place}/"
        basic = {{ user = "user", password = "{SECRET}" }}
        headers = {{ cookie = "{SECRET}" }}
        timeout = "1s"
        [sinks.webhook.http]
        url = "http://{place}/"
        guard = false
        webhook = {{ secrets = ["whsec_aHVudGVyMnBsYW50ZWRodW50ZXIycGxhbnRlZA=="] }}
        timeout = "1s"
        [sinks.mqtt.mqtt]
        url = "mqtt://{login}"
        timeout = "1s"
        [sinks.mqtt2.mqtt]
        url = "mqtt://{place}"
        user = "user"
        password = "{SECRET}"
        timeout = "1s"
        [sinks.nats.nats]
        servers = ["nats://{login}"]
        timeout = "1s"
        [sinks.nats2.nats]
        servers = "nats://{place}"
        user = "user"
        password = "{SECRET}"
        timeout = "1s"
        [sinks.nats3.nats]
        servers = "nats://{place}"
        token = "{SECRET}"
        timeout = "1s"
        [sinks.nats4.nats]
        servers = "nats://{place}"
        nkey = "{SEED}"
        timeout = "1s"
        [sinks.nats5.nats]
        servers = "nats://{place}"
        credentials = "-----BEGIN NATS USER JWT-----\n{SECRET}.jwt\n------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        timeout = "1s"
        [sinks.rabbitmq.rabbitmq]
        url = "amqp://{login}/%2f"
        password = "{SECRET}"
        timeout = "1s"
        [sinks.redis.redis]
        url = "redis://{login}/0"
        password = "{SECRET}"
        timeout = "1s"
        {kafka}
        [[routes]]
        topic = "*"
        sinks = {SINKS:?}
        "#
    )
}

/// Secrets that cannot be used, each for another reason.
fn unusable(port: u16) -> String {
    let place = format!("127.0.0.1:{port}");
    format!(
        r#"
        [sinks.login.http]
        url = "http://user:{SECRET}@{place}/"
        [sinks.credentials.nats]
        servers = "nats://{place}"
        credentials = "{SECRET}"
        [sinks.signature.http]
        url = "http://{place}/"
        webhook = {{ secrets = ["{SECRET}"] }}
        [sinks.scheme.redis]
        url = "user:{SECRET}@{place}"
        [sinks.address.mqtt]
        url = "http://user:{SECRET}@{place}"
        [sinks.path.rabbitmq]
        url = "{SECRET}"
        "#
    )
}

#[track_caller]
pub(crate) fn silent(said: &[&str], what: &str) {
    // The secret itself, and as it stands in a webhook's or in a header of basic authentication.
    for secret in [SECRET, SEED, "aHVudGVyMnBsYW50ZWR", "dXNlcjpodW50ZXIycGxhbnRlZA"] {
        for text in said {
            assert!(!text.contains(secret), "{what} shows {secret}:\n{text}");
        }
    }
}

#[test]
fn no_command_shows_a_secret_of_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let outbox = directory.path().join("outbox.db");
    let file = directory.path().join("postrider.toml");
    let cloud = format!("postgres://user:{SECRET}@127.0.0.1:{port}/app?application_name={SECRET}");
    let text = planted(port, outbox.to_str().unwrap(), &cloud);
    fs::write(&file, &text).unwrap();
    let config = file.to_str().unwrap();
    let look = |args: &[&str]| -> Ran {
        let ran = finish(command(&[args, &["--config", config]].concat()), b"");
        silent(&[&ran.stdout, &ran.stderr], &format!("{args:?}"));
        ran
    };
    look(&["config", "check"]).ok();
    let printed = look(&["config", "print"]).ok();
    for part in ["bearer = \"***\"", "url = \"postgres://***@127.0.0.1", "user = \"user\"", "token = \"***\""] {
        assert!(printed.contains(part), "{part}:\n{printed}");
    }
    look(&["config", "print", "--json"]).json();
    look(&["config", "check", "--json"]).json();
    let checked = look(&["check"]);
    assert_eq!(checked.code, 8, "{}", checked.stderr);
    look(&["check", "--json"]);
    look(&["run"]);
    look(&["status", "--database", "cloud"]);

    fs::write(&file, format!("{text}{}", unusable(port))).unwrap();
    let refused = look(&["config", "check"]);
    assert_eq!(refused.code, 2, "{}", refused.stdout);
    for sink in ["login", "credentials", "signature", "scheme", "address", "path"] {
        assert!(refused.stderr.contains(&format!("the sink {sink:?}")), "{sink}: {}", refused.stderr);
    }
    for args in [&["config", "print"][..], &["config", "check", "--json"], &["check"], &["run"], &["drain"]] {
        look(args);
    }

    // Broken at every line: whatever is told about it is told without what stands there.
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate().filter(|(_, line)| line.contains(SECRET)) {
        let key = line.split('=').next().unwrap_or_default();
        for broken in [line.trim_end_matches(['"', ']', '}', ' ']).to_owned(), line.replacen(key, "unknown ", 1)] {
            let mut lines = lines.clone();
            lines[number] = &broken;
            fs::write(&file, lines.join("\n")).unwrap();
            let refused = look(&["config", "check"]);
            assert_eq!(refused.code, 2, "line {number}: {broken}: {}", refused.stdout);
        }
    }
}

/// The log of a relay whose sinks all fail, at every level.
#[test]
fn no_log_line_shows_a_secret() {
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let outbox = directory.path().join("outbox.db");
    let file = directory.path().join("postrider.toml");
    fs::write(&file, planted(port, outbox.to_str().unwrap(), "postgres://nobody@127.0.0.1:1/x")).unwrap();
    let config = file.to_str().unwrap();
    let chosen: Vec<&str> = SINKS.iter().flat_map(|sink| ["--sink", *sink]).collect();
    let here = ["--config", config, "--database", "here"];
    // Makes the file, and adds the routes.
    finish(command(&[&["drain"], &here[..], &chosen].concat()), b"").ok_with_words();
    finish(command(&[&["enqueue", "--topic", "t", "--payload", "1"], &here[..]].concat()), b"").ok();
    let drain = [&["drain", "--log", "trace", "--max-attempts", "1"], &here[..], &chosen].concat();
    let mut child = command(&drain).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert!(said.contains(&format!("delivered 0, retried 0, dead {},", SINKS.len())), "every sink was tried:\n{said}");
    silent(&[&said], "the log");
    let listed = finish(command(&[&["list", "--json"], &here[..]].concat()), b"").json();
    let id = listed["items"][0]["message_id"].as_str().unwrap().to_owned();
    let story = finish(command(&[&["show", &id, "--json"], &here[..]].concat()), b"").ok();
    silent(&[&story], "the story of a message");
}
