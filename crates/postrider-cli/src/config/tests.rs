//! The configuration as a whole: the defaults, what stands above what, what is refused and how, what is shown.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use figment::Figment;
use figment::error::Kind as Fault;
use figment::value::{Dict, Value};
use postrider_relay::sink::http::{BasicAuth, WebhookOptions};
use postrider_relay::sink::registry::SinkKind;
use postrider_relay::{CodeTable, FailureClass, RelayOptions, SinkOptions};
use serde::de::DeserializeOwned;

use super::admin::{AdminSection, TokenSection};
use super::layers::{DEFAULTS, Layer, every_key, find, read_toml};
use super::receive::{ReceiveSection, SenderSection};
use super::sections::{DatabaseConfig, LogConfig, RelayConfig, RouteConfig};
use super::sink::{BreakerConfig, CodesConfig, RetryConfig, SinkConfig};
use super::*;
use crate::failure::Failure;

fn layers(text: &str, variables: &[(&str, &str)], mut flags: Flags) -> Result<Layers> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("postrider.toml");
    std::fs::write(&file, text).expect("written");
    flags.config = (!text.is_empty()).then_some(file);
    let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Layers::read(&flags, &Environment::of(variables)?)
}

fn read(text: &str, variables: &[(&str, &str)]) -> Result<Config> {
    layers(text, variables, Flags::default())?.config()
}

fn good(text: &str, variables: &[(&str, &str)]) -> Config {
    read(text, variables).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn words<T>(result: Result<T>) -> String {
    match result {
        Err(Failure::Report(report)) => report.message,
        _ => String::new(),
    }
}

#[test]
fn the_defaults_are_the_librarys() {
    let config = good("", &[]);
    let relay = config.relay.options(0);
    assert_eq!(relay, RelayOptions::default().worker_id(relay.worker_id.clone()));
    assert_eq!(config.sinks.keys().collect::<Vec<_>>(), ["default"]);
    assert_eq!(config.sinks["default"].options(), SinkOptions::default());
    assert_eq!(config.sink_defaults.options(), SinkOptions::default());
}

/// Proves P12: the bound of the process is the one that was set. Without one the sinks' own bounds hold.
#[test]
fn the_concurrency_of_the_process_is_the_one_that_was_set() {
    let unset = good("", &[]).relay;
    assert_eq!([0, 300].map(|sinks| unset.options(sinks).concurrency), [256, 300]);
    let set = good("[relay]\nconcurrency = 4\n[sinks.default.stdout]\n", &[]).relay;
    assert_eq!([0, 300].map(|sinks| set.options(sinks).concurrency), [4, 4]);
}

/// The defaults with every example in them: what is behind a `#` without a space.
fn every_example() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(example) if example.starts_with(|c: char| c.is_ascii_alphabetic() || "[\"".contains(c)) => {
            example.to_owned()
        }
        _ => line.to_owned(),
    };
    every_key().lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The keys of a table, as the type itself names them when it refuses one.
pub(super) fn known<T: DeserializeOwned>() -> BTreeSet<String> {
    let refused = Figment::from(Layer::one("a test", &["\u{1}"], 1)).extract::<T>().err().map(|error| error.kind);
    match refused {
        Some(Fault::UnknownField(_, known)) => known.iter().map(|key| (*key).to_owned()).collect(),
        other => panic!("{}: {other:?}", std::any::type_name::<T>()),
    }
}

/// What a kind of sink reads from this, in Rust's own notation.
pub(super) fn options_of(kind: &str, options: &Figment) -> std::result::Result<String, Fault> {
    let defaults = Figment::from(Layer::new("a test", read_toml(DEFAULTS, "a test").expect("TOML")));
    let options = options.extract::<Dict>().expect("a table");
    let sink = Figment::from(Layer::new("a test", defaults.extract_inner("sink_defaults").expect("a table")))
        .merge(Layer::one("a test", &[kind], options));
    let read = sink.extract_lossy::<SinkConfig>().map_err(|error| error.kind)?;
    Ok(format!("{:?}", read.kind(kind)))
}

/// The options of a kind of sink.
pub(super) fn keys_of(kind: &str) -> BTreeSet<String> {
    match options_of(kind, &Figment::from(Layer::one("a test", &["\u{1}"], 1))) {
        Err(Fault::UnknownField(_, known)) => known.iter().map(|key| (*key).to_owned()).collect(),
        other => panic!("{kind}: {other:?}"),
    }
}

fn without(mut keys: BTreeSet<String>, taken: &[&str]) -> BTreeSet<String> {
    keys.retain(|key| !taken.contains(&key.as_str()));
    keys
}

#[test]
fn every_key_is_in_the_defaults_and_every_key_there_is_known() {
    let text = every_example();
    good(&text, &[]);
    let values = read_toml(&text, "a test").unwrap_or_else(|failure| panic!("{failure:?}"));
    let treatment = known::<SinkConfig>();
    let tables: Vec<(&[&str], BTreeSet<String>)> = vec![
        (&[], known::<Config>()),
        (&["relay"], known::<RelayConfig>()),
        (&["sink_defaults"], without(treatment.clone(), &["tenant_id", "databases"])),
        (&["sink_defaults", "retry"], known::<RetryConfig>()),
        (&["sink_defaults", "breaker"], known::<BreakerConfig>()),
        (&["sink_defaults", "codes"], known::<CodesConfig>()),
        (&["admin"], known::<AdminSection>()),
        (&["receive"], known::<ReceiveSection>()),
        (&["log"], known::<LogConfig>()),
        (&["databases", "shop"], known::<DatabaseConfig>()),
        (&["sinks", "lines"], treatment.into_iter().chain(["stdout".to_owned()]).collect()),
        (&["sinks", "lines", "retry"], known::<RetryConfig>()),
        (&["sinks", "lines", "breaker"], known::<BreakerConfig>()),
        (&["sinks", "lines", "codes"], known::<CodesConfig>()),
        (&["sinks", "cloud", "http", "basic"], known::<BasicAuth>()),
        (&["sinks", "cloud", "http", "webhook"], known::<WebhookOptions>()),
    ];
    for SinkKind { name, .. } in SinkKind::ALL.iter().filter(|kind| kind.is_built_in) {
        let sinks = values.get("sinks").and_then(Value::as_dict).into_iter().flat_map(Dict::values);
        let written = sinks.filter_map(|sink| sink.as_dict()?.get(*name)?.as_dict()).flat_map(Dict::keys);
        assert_eq!(written.cloned().collect::<BTreeSet<_>>(), keys_of(name), "the example of {name}");
    }
    for (path, known) in tables {
        let table = if path.is_empty() { Some(&values) } else { find(&values, path).and_then(Value::as_dict) };
        let written: BTreeSet<String> = table.into_iter().flat_map(Dict::keys).cloned().collect();
        assert_eq!(written, known, "{path:?}");
    }
    for (list, known) in [
        (&["routes"][..], known::<RouteConfig>()),
        (&["admin", "tokens"], known::<TokenSection>()),
        (&["receive", "tokens"], known::<SenderSection>()),
    ] {
        let Some(Value::Array(_, items)) = find(&values, list) else { panic!("{list:?}") };
        let written: BTreeSet<String> = items.iter().filter_map(Value::as_dict).flat_map(Dict::keys).cloned().collect();
        assert_eq!(written, known, "{list:?}");
    }
}

#[test]
fn each_layer_stands_above_the_one_before() {
    let file = "[relay]\nlease = \"1m\"\n[sink_defaults]\nbatch_size = 7\n[sinks.a.stdout]\n[sinks.b]\nbatch_size = 8\n\
                [sinks.b.stdout]\n";
    let seen = |variables: &[(&str, &str)], flags: Flags| {
        let config = layers(file, variables, flags).and_then(|layers| layers.config());
        let config = config.unwrap_or_else(|failure| panic!("{failure:?}"));
        let batches = ["a", "b"].map(|sink| config.sinks[sink].options().batch_size);
        (config.relay.lease.as_secs(), batches)
    };
    let document = [("OUTBOX_LEASE_SECONDS", "90"), ("OUTBOX_BATCH_SIZE", "9")];
    let nested = [("POSTRIDER__RELAY__LEASE", "2m"), ("POSTRIDER__SINKS__B__BATCH_SIZE", "10")];
    assert_eq!(seen(&[], Flags::default()), (60, [7, 8]), "a sink's own stands above sink_defaults");
    assert_eq!(seen(&document, Flags::default()), (90, [9, 8]));
    let both = [document, nested].concat();
    assert_eq!(seen(&both, Flags::default()), (120, [9, 10]), "POSTRIDER__ wins: it is the more specific");
    let mut flags = Flags::default();
    flags.set("--lease", &["relay", "lease"], Some("150s"));
    flags.set_sinks("--batch-size", &["batch_size"], Some(11));
    assert_eq!(seen(&both, flags), (150, [11, 11]));
}

#[test]
fn a_variable_reaches_every_key() {
    let variables = [
        ("POSTRIDER__SINKS__MY_ORDERS__RETRY__MAX_ATTEMPTS", "3"),
        ("POSTRIDER__SINKS__MY_ORDERS__CODES__TERMINAL", "[\"WRITE\"]"),
        ("POSTRIDER__SINKS__NEW__FILE__PATH", "0012345"),
        ("POSTRIDER__SINKS__NEW__FILE__SYNC", "never"),
        ("POSTRIDER__SINKS__HOOK", "{ rate = 5, http = { url = \"http://h\", gzip = true } }"),
        ("POSTRIDER__SINKS__HOOK__HTTP__BEARER", "00123"),
        ("POSTRIDER__SINKS__HOOK__HTTP__GUARD", "true"),
        ("POSTRIDER__ROUTES", "[{ topic = \"order.*\", sinks = [\"my-orders\", \"hook\"] }]"),
        ("POSTRIDER__DATABASES__SHOP__URL", "sqlite:shop.db"),
        ("POSTRIDER__RELAY__MAX_MEMORY_BYTES", "1MiB"),
        ("POSTRIDER__RELAY__MAX_MEMORY_MESSAGES", "50"),
    ];
    let config = good("[sinks.my-orders.stdout]\n", &variables);
    let orders = config.sinks["my-orders"].options();
    assert_eq!(
        (orders.retry.max_attempts, orders.codes),
        (3, CodeTable::default().with("WRITE", FailureClass::Terminal))
    );
    let options = |sink: &str| format!("{:?}", config.sinks[sink].kind(sink));
    assert!(options("new").contains("path: \"0012345\""), "a text stays a text: {}", options("new"));
    for said in ["gzip: true", "guard: Some(true)", "bearer: Some([REDACTED])"] {
        assert!(options("hook").contains(said), "{}", options("hook"));
    }
    assert_eq!(config.sinks["hook"].options().rate.map(u32::from), Some(5));
    assert_eq!(config.routes().count(), 2);
    assert_eq!(config.databases.keys().collect::<Vec<_>>(), ["shop"]);
    let relay = config.relay.options(0);
    assert_eq!((relay.max_bytes, relay.max_messages), (1 << 20, 50));
}

/// Proves E3: the document's variables, with its defaults where its cloud is what is forwarded to, and ours elsewhere.
#[test]
fn the_variables_of_the_document() {
    let cloud = ("CLOUD_INGESTION_URL", "http://cloud-ingestion:3000/api/v1/edge/batch");
    let config = good("", &[cloud]);
    let sink = config.sinks["default"].options();
    assert_eq!((sink.batch_size, sink.retry.max_attempts), (100, 10));
    assert_eq!((sink.retry.backoff.max, config.relay.poll), (Duration::from_mins(5), Duration::from_mins(1)));
    assert_eq!((config.relay.lease, sink.breaker.failures), (Duration::from_mins(2), 0));
    assert_eq!(config.sinks["default"].kind("default").expect("a sink").kind, "http");
    let (interval, lease) = (("SYNC_INTERVAL_MS", "60000"), ("OUTBOX_LEASE_SECONDS", "120"));
    for (said, lease_s, reap_s) in [
        (&[][..], 120, Some(40)),
        (&[interval], 120, Some(40)),
        (&[interval, lease], 120, Some(40)),
        (&[lease], 120, Some(40)),
        (&[("OUTBOX_LEASE_SECONDS", "30")], 30, Some(10)),
        (&[("OUTBOX_LEASE_SECONDS", "180")], 180, None),
        (&[("POSTRIDER__RELAY__REAP_EVERY", "5s")], 120, Some(5)),
    ] {
        let relay = good("", &[&[cloud], said].concat()).relay.options(0);
        assert_eq!((relay.poll.as_secs(), relay.lease.as_secs()), (60, lease_s), "{said:?}");
        assert_eq!(relay.reap_every.map(|every| every.as_secs()), reap_s, "{said:?}");
        assert!(relay.check().is_ok(), "{said:?}");
    }

    let all = [
        ("OUTBOX_BATCH_SIZE", "50"),
        ("OUTBOX_LEASE_SECONDS", "15"),
        ("OUTBOX_MAX_ATTEMPTS", "4"),
        ("OUTBOX_BACKOFF_CAP_SECONDS", "20"),
        ("SYNC_INTERVAL_MS", "2500"),
        ("INSTANCE_ID", "7"),
        ("HOSTNAME", "pod"),
        ("INTERNAL_ADMIN_ENABLED", "true"),
        ("POSTRIDER_ADMIN_TOKEN", "00700"),
    ];
    for text in ["", "[sinks.default.stdout]\n"] {
        let config = good(text, &all);
        let (sink, relay) = (config.sinks["default"].options(), config.relay.options(0));
        assert_eq!((sink.batch_size, sink.retry.max_attempts), (50, 4));
        assert_eq!((sink.retry.backoff.max, relay.lease), (Duration::from_secs(20), Duration::from_secs(15)));
        assert_eq!((relay.poll, relay.worker_id.as_str()), (Duration::from_millis(2_500), "7"));
        assert!(sink.check("default", &relay).is_ok(), "a default deadline fits into the document's lease");
        let admin = config.admin.read(false).unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!((admin.enabled, admin.tokens[0].secret.as_str()), (Some(true), "00700"));
    }
    let ours = good("", &[("OUTBOX_MAX_ATTEMPTS", "4")]);
    assert_eq!(ours.sinks["default"].options().batch_size, SinkOptions::default().batch_size);
    assert_eq!(ours.relay.poll, RelayOptions::default().poll);
    assert_eq!(good("", &[("HOSTNAME", "pod")]).relay.options(0).worker_id, "pod");
    let named = good("[relay]\nworker_id = \"mail\"\n", &[("HOSTNAME", "pod")]);
    assert_eq!(named.relay.options(0).worker_id, "mail", "every container has a host name");
}

#[test]
fn what_is_set_to_nothing_is_not_set() {
    let empty = ["OUTBOX_BATCH_SIZE", "INSTANCE_ID", "INTERNAL_ADMIN_ENABLED", "POSTRIDER_ADMIN_TOKEN", "RUST_LOG"];
    let config = good("", &empty.map(|name| (name, "")));
    assert_eq!(config.sinks["default"].options(), SinkOptions::default());
    // But for those without which messages would go to another place than was meant.
    assert!(words(read("", &[("POSTRIDER_CONFIG", "")])).contains("there is no such file"));
    assert!(words(read("", &[("CLOUD_INGESTION_URL", "")])).contains("variable CLOUD_INGESTION_URL: "));
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_its_key() {
    for (text, variables, said) in [
        ("[sinks.a]\ndeadlin = \"1s\"\n", &[][..], "sinks.a.deadlin: unknown key; did you mean `deadline`?"),
        (
            "[sinks.a.http]\nurl = \"http://h\"\ntiemout = 1\n",
            &[],
            "a.http.tiemout: unknown key; did you mean `timeout`?",
        ),
        ("[sinks.a]\ndeadline = \"soon\"\n", &[], "sinks.a.deadline: expected a duration such as 500ms"),
        ("[sinks.a]\nconcurrency = \"many\"\n", &[], "sinks.a.concurrency: expected a whole number, found a text"),
        ("[sinks.a.file]\n", &[], "sinks.a.file.path: is missing"),
        ("[sinks.a.htpp]\nurl = \"http://h\"\n", &[], "sinks.a.htpp: unknown key; did you mean `http`?"),
        ("[sink.a]\n", &[], "sink: unknown key; did you mean `sinks`?"),
        ("[colours]\n", &[], "colours: unknown key; there are relay, sink_defaults"),
        ("nonsense", &[], "TOML parse error at line 1, column 9: "),
        ("[[routes]]\ntopic = \"a\"\nsinks = [\"b\"]\n", &[], "leads to the sink \"b\""),
        ("[sink_defaults.stdout]\n", &[], "sink_defaults: says what a sink is"),
        ("[databases.a]\nurl = \"sqlite:a\"\nschema = \"a b\"\n", &[], "databases.a.schema: "),
        ("[relay]\nmax_memory_bytes = \"64MB\"\n", &[], "relay.max_memory_bytes: expected a size such as"),
        ("[log]\nformat = \"xml\"\n", &[], "log.format: expected one of pretty, json"),
        (
            "",
            &[("POSTRIDER__RELAY__LEAS", "1s")],
            "variable POSTRIDER__RELAY__LEAS: relay.leas: unknown key; did you mean",
        ),
        ("", &[("POSTRIDER__RELAY__LEASE", "x")], "variable POSTRIDER__RELAY__LEASE: relay.lease: expected a duration"),
        ("", &[("OUTBOX_BATCH_SIZE", "0")], "variable OUTBOX_BATCH_SIZE: expected a number from 1 to 10000"),
        ("", &[("INTERNAL_ADMIN_ENABLED", "maybe")], "variable INTERNAL_ADMIN_ENABLED: expected true or false"),
        ("", &[("POSTRIDER__ADMIN__LISTEN", "here")], "admin.listen: expected an address and a port"),
    ] {
        let message = words(read(text, variables));
        assert!(message.contains(said), "{text}{variables:?}: {message}");
        assert!(
            text.is_empty()
                || text.contains("sink_defaults")
                || text.contains("routes")
                || message.contains("postrider.toml")
        );
    }
    good("", &[("POSTRIDER_RECEIVE_TOKEN", "x"), ("POSTRIDER_OF_OTHERS", "x")]);
}

/// A value may be a secret, or one under a wrong key.
#[test]
fn no_value_is_repeated() {
    for text in [
        "[sinks.a.http]\nurl = \"https://h/{topic}\"\nbearer = \"hunter2\n",
        "[sinks.a.http]\nurl = \"https://user:hunter2@h/{topci}\"\n",
        "[sinks.a.http]\nurl = \"https://h\"\nwebhook = \"hunter2\"\n",
        "[sinks.a.http]\nurl = \"https://h\"\npasswrod = \"hunter2\"\n",
        "[sinks.a.http]\nurl = \"https://h\"\nheaders = \"hunter2\"\n",
        "[sinks.a.http]\nurl = \"https://h\"\nbody = \"hunter2\"\n",
        "[sinks.a.http]\nurl = \"https://h\"\ntimeout = \"hunter2\"\n",
        "[sinks.a.http]\nurl = [\"hunter2\"]\n",
        "[sinks.a]\ntenant_id = [\"hunter2\"]\n",
        "[admin]\ntokens = [\"hunter2\"]\n",
        "[admin]\ntokens = \"hunter2\"\n",
        "[admin]\nenabled = \"hunter2\"\n",
        "[receive]\ntokens = [\"hunter2\"]\n",
        "[receive]\ntokens = [{ name = \"a\", token = \"hunter2\", sources = [], tenants = [\"*hunter2\"] }]\n",
        "[receive]\nheaders = [\"hunter2*x\"]\n",
        "[databases]\nshop = \"postgres://a:hunter2@h/x\"\n",
        "[databases.shop]\nurl = { envv = \"hunter2\" }\n",
        "sinks = \"hunter2\"\n",
    ] {
        let message = words(read(text, &[]));
        assert!(!message.is_empty() && !message.contains("hunter2"), "{text}: {message}");
    }
}

#[test]
fn a_sink_is_one_thing() {
    for (text, said) in [
        ("[sinks.a]\n", "no table says what it is"),
        ("[sinks.a.stdout]\n[sinks.a.file]\npath = \"x\"\n", "two tables say what it is"),
        ("[sinks.a.stdout]\n[sinks.a.codes]\nterminal = [\"X\"]\nretryable = [\"X\"]\n", "both terminal and retryable"),
    ] {
        let message = words(good(text, &[]).sinks["a"].kind("a"));
        assert!(message.contains(said), "{text}: {message}");
    }
}

#[test]
fn a_sink_that_was_left_out_of_the_build_names_its_feature() {
    for SinkKind { name, feature, .. } in SinkKind::ALL.iter().filter(|kind| !kind.is_built_in) {
        let config = good(&format!("[sinks.a.{name}]\nwhatever = 1\n"), &[]);
        let Err(Failure::Report(report)) = config.sinks["a"].kind("a") else { panic!("{name} is there") };
        assert!(report.message.contains(&format!("built without {name} sinks")), "{}", report.message);
        let hint = report.hint.unwrap_or_default();
        assert!(hint.contains(&format!("--features {}", feature.expect("a feature"))), "{hint}");
    }
}

/// What is printed can be read again, and says the same.
#[test]
fn what_is_printed_is_a_configuration() {
    let read = layers(&every_example(), &[("OUTBOX_BATCH_SIZE", "9")], Flags::default());
    let read = read.unwrap_or_else(|failure| panic!("{failure:?}"));
    let printed = print::toml(&read).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(
        printed.contains("batch_size = 9                               # variable OUTBOX_BATCH_SIZE\n"),
        "{printed}"
    );
    let again = layers(&printed, &[], Flags::default()).unwrap_or_else(|failure| panic!("{failure:?}\n{printed}"));
    let json = |layers: &Layers| print::json(layers).map(|mut json| json["config"].take()).ok();
    assert_eq!(json(&again), json(&read));
}

/// Every page shows configurations that work as pasted.
#[test]
fn the_configurations_of_the_pages_are_accepted() {
    fn pages(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("a directory of pages") {
            let path = entry.expect("a page").path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = vec![root.join("README.md")];
    pages(&root.join("docs"), &mut found);
    let mut sinks = 0;
    for page in &found {
        let text = std::fs::read_to_string(page).expect("a page");
        let blocks = text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
        // Those of an application, and mappings of an import, are others.
        for block in blocks.filter(|block| !block.contains("dependencies]") && !block.contains("\n[message]\n")) {
            let config = read(block, &[]).unwrap_or_else(|failure| panic!("{}: {failure:?}\n{block}", page.display()));
            for (name, sink) in &config.sinks {
                let kind = sink.kind(name);
                let left_out = words(sink.kind(name)).contains("built without");
                assert!(kind.is_ok() || left_out, "{}: {:?}\n{block}", page.display(), kind.err());
                sinks += 1;
            }
        }
    }
    assert!(sinks >= SinkKind::ALL.len(), "only {sinks} sinks are shown");
}

#[test]
fn every_fault_is_told_and_not_only_the_first() {
    let said = words(read(
        "[relay]\nlease = \"soon\"\npol = \"1s\"\n[log]\nformat = \"xml\"\n[sinks.a.http]\nurl = \"http://x/\"\ntiemout = 1\n\
         connect_timeout = \"x\"\n[sinks.b.http]\n[sinks.c.stdout]\n[[routes]]\ntopic = \"t\"\nsinks = [\"c\", \"d\"]\n",
        &[],
    ));
    for fault in [
        "relay.lease: expected a duration",
        "relay.pol: unknown key; did you mean `poll`?",
        "log.format: ",
        "sinks.a.http.tiemout: unknown key",
        "sinks.a.http.connect_timeout: expected a duration",
        "sinks.b.http.url: is missing",
        "the route of topic \"t\" leads to the sink \"d\", and there are only: a, b, c",
    ] {
        assert!(said.contains(fault), "{fault:?} is not in: {said}");
    }
    // Seven faults, two of which have a semicolon of their own.
    assert_eq!(said.matches("; ").count(), 6 + 2, "nothing is told that is not so: {said}");
}
