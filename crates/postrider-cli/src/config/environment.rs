//! The environment as a layer: `POSTRIDER__SECTION__KEY` for every key of the configuration, and the variables that the edge
//! forwarder's document has, under its names. Of two that say the same, `POSTRIDER__…` wins. Values are never repeated in an
//! error, for any of them may be a secret.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::time::Duration;

use figment::value::{Dict, Value};

use super::layers::{Layer, read_toml};
use super::{fault, friendly};
use crate::failure::Result;

const NESTED: &str = "POSTRIDER__";
const CONFIG: &str = "POSTRIDER_CONFIG";
const DATABASE_URL: &str = "DATABASE_URL";
const CLOUD_INGESTION_URL: &str = "CLOUD_INGESTION_URL";
const ADMIN_ENABLED: &str = "INTERNAL_ADMIN_ENABLED";
const ADMIN_TOKEN: &str = "POSTRIDER_ADMIN_TOKEN";
const RECEIVE_TOKEN: &str = "POSTRIDER_RECEIVE_TOKEN";
const INSTANCE_ID: &str = "INSTANCE_ID";
const HOSTNAME: &str = "HOSTNAME";
const LOG_FILTER: &str = "RUST_LOG";

/// What the layer of [`edge_defaults`] is called.
pub(super) const EDGE_DEFAULT: &str = "default with CLOUD_INGESTION_URL";
/// Where the interval of the document comes from.
pub(super) const SYNC_INTERVAL: &str = "variable SYNC_INTERVAL_MS";
/// Where the lease of the document comes from.
pub(super) const LEASE_SECONDS: &str = "variable OUTBOX_LEASE_SECONDS";

/// The numbers of the document: name, what it is here, unit, what it may be, the document's default.
const NUMBERS: [Number; 5] = [
    Number {
        name: "OUTBOX_BATCH_SIZE",
        path: &["sink_defaults", "batch_size"],
        unit: None,
        range: 1..=10_000,
        default: 100,
    },
    Number {
        name: "OUTBOX_LEASE_SECONDS",
        path: &["relay", "lease"],
        unit: Some(Duration::from_secs(1)),
        range: 1..=86_400,
        default: 120,
    },
    Number {
        name: "OUTBOX_MAX_ATTEMPTS",
        path: &["sink_defaults", "retry", "max_attempts"],
        unit: None,
        range: 1..=1_000_000,
        default: 10,
    },
    Number {
        name: "OUTBOX_BACKOFF_CAP_SECONDS",
        path: &["sink_defaults", "retry", "max"],
        unit: Some(Duration::from_secs(1)),
        range: 1..=31_536_000,
        default: 300,
    },
    Number {
        name: "SYNC_INTERVAL_MS",
        path: &["relay", "poll"],
        unit: Some(Duration::from_millis(1)),
        range: 1..=86_400_000,
        default: 60_000,
    },
];

struct Number {
    name: &'static str,
    path: &'static [&'static str],
    unit: Option<Duration>,
    range: RangeInclusive<u32>,
    default: u32,
}

impl Number {
    fn value(&self, number: u32) -> Value {
        self.unit.map_or_else(|| Value::from(number), |unit| Value::from(friendly(unit * number)))
    }

    fn layer(&self, text: &str) -> Result<Layer> {
        let number = text.trim().parse().ok().filter(|number| self.range.contains(number));
        let source = format!("variable {}", self.name);
        let (least, most) = (self.range.start(), self.range.end());
        let number =
            number.ok_or_else(|| fault::wrong(&format!("{source}: expected a number from {least} to {most}")))?;
        Ok(Layer::one(source, self.path, self.value(number)))
    }
}

/// What the document says for what is left out. It holds where its cloud is what is forwarded to.
pub(super) fn edge_defaults() -> Vec<Layer> {
    // Its messages are dead after so many attempts, however long the cloud is away: a breaker that is open spends none.
    let no_breaker = Layer::one(EDGE_DEFAULT, &["sink_defaults", "breaker", "failures"], 0);
    let numbers = NUMBERS.iter().map(|number| Layer::one(EDGE_DEFAULT, number.path, number.value(number.default)));
    numbers.chain([no_breaker]).collect()
}

/// The variables that concern us.
#[derive(Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Those of this process.
    pub(crate) fn of_process() -> Result<Self> {
        Self::of(std::env::vars_os())
    }

    /// Takes out what is ours.
    pub(crate) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        let known = [
            CONFIG,
            DATABASE_URL,
            CLOUD_INGESTION_URL,
            ADMIN_ENABLED,
            ADMIN_TOKEN,
            RECEIVE_TOKEN,
            INSTANCE_ID,
            HOSTNAME,
            LOG_FILTER,
        ];
        let ours = |name: &str| {
            name.starts_with(NESTED) || known.contains(&name) || NUMBERS.iter().any(|number| number.name == name)
        };
        let mut found = BTreeMap::new();
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| ours(name)) else { continue };
            let value =
                value.into_string().map_err(|_| fault::wrong(&format!("variable {name}: expected text in UTF-8")))?;
            found.insert(name.to_owned(), value);
        }
        Ok(Self(found))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What is set to nothing counts as not set.
    fn said(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.trim().is_empty())
    }

    /// The file. Set to nothing it is an error, not a relay that writes to stdout.
    pub(super) fn config(&self) -> Option<&str> {
        self.get(CONFIG)
    }

    /// The one database, unless another was chosen by name or is described by variables of its own.
    pub(super) fn database_url(&self, chosen: bool) -> Option<(&'static str, String)> {
        let described = self.0.keys().any(|name| name.starts_with("POSTRIDER__DATABASES"));
        self.get(DATABASE_URL).filter(|_| !chosen && !described).map(|url| ("variable DATABASE_URL", url.to_owned()))
    }

    /// Where an edge site forwards to.
    pub(super) fn cloud(&self) -> Option<(&'static str, String)> {
        self.get(CLOUD_INGESTION_URL).map(|url| ("variable CLOUD_INGESTION_URL", url.to_owned()))
    }

    pub(super) fn names_sinks(&self) -> bool {
        self.0.keys().any(|name| name.starts_with("POSTRIDER__SINKS"))
    }

    /// What the machine is called is the worker's name. Every container has it, so it stands below the file.
    pub(super) fn host(&self) -> Option<Layer> {
        self.said(HOSTNAME).map(|host| Layer::one(format!("variable {HOSTNAME}"), &["relay", "worker_id"], host.trim()))
    }

    /// The variables of the document, and the few of our own that are not nested.
    pub(super) fn documents(&self) -> Result<Vec<Layer>> {
        let mut layers = Vec::new();
        for number in &NUMBERS {
            layers.extend(self.said(number.name).map(|text| number.layer(text)).transpose()?);
        }
        if let Some(text) = self.said(ADMIN_ENABLED) {
            let enabled = Value::from(text.trim()).to_bool_lossy();
            let enabled =
                enabled.ok_or_else(|| fault::wrong(&format!("variable {ADMIN_ENABLED}: expected true or false")))?;
            layers.push(Layer::one(format!("variable {ADMIN_ENABLED}"), &["admin", "enabled"], enabled));
        }
        for (name, path) in
            [(INSTANCE_ID, ["relay", "worker_id"]), (ADMIN_TOKEN, ["admin", "token"]), (LOG_FILTER, ["log", "level"])]
        {
            layers.extend(self.said(name).map(|value| Layer::one(format!("variable {name}"), &path, value)));
        }
        // Set to nothing it is an error, not a receiver that asks nobody.
        let token = self.get(RECEIVE_TOKEN).map(|token| (format!("variable {RECEIVE_TOKEN}"), token));
        layers.extend(token.map(|(source, token)| Layer::one(source, &["receive", "token"], token)));
        Ok(layers)
    }

    /// `POSTRIDER__SECTION__KEY`, the shorter ones first: what describes a whole table stands below what describes a part.
    pub(super) fn nested(&self) -> Vec<Nested<'_>> {
        let pairs = self.0.iter().filter_map(|(name, value)| Some((name, name.strip_prefix(NESTED)?, value)));
        let nested = pairs.map(|(name, path, value)| Nested { name, path: path.split("__").collect(), value });
        let mut found: Vec<Nested<'_>> = nested.collect();
        found.sort_by_key(|variable| variable.path.len());
        found
    }
}

/// One of them.
pub(super) struct Nested<'a> {
    name: &'a str,
    path: Vec<&'a str>,
    value: &'a str,
}

impl Nested<'_> {
    /// Its value, under the key that it means. A name that is there already is found whatever its case and punctuation:
    /// `POSTRIDER__SINKS__MY_ORDERS__RATE` means the sink `my-orders`.
    pub(super) fn layer(&self, below: &Dict) -> Layer {
        let mut dict = Some(below);
        let mut path = Vec::new();
        for segment in &self.path {
            let known = dict.and_then(|dict| dict.keys().find(|key| variable_name(key) == variable_name(segment)));
            let key = known.cloned().unwrap_or_else(|| segment.to_lowercase());
            dict = dict.and_then(|dict| dict.get(&key)?.as_dict());
            path.push(key);
        }
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        Layer::one(format!("variable {}", self.name), &path, parsed(self.value))
    }
}

fn variable_name(key: &str) -> String {
    key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

/// What begins like a list, a table or a quoted text, and is one in TOML, is that; all else is text.
fn parsed(text: &str) -> Value {
    let toml = text.trim_start().starts_with(['[', '{', '"']);
    let read = toml.then(|| read_toml(&format!("value = {text}"), "a variable").ok()?.remove("value")).flatten();
    read.unwrap_or_else(|| Value::from(text))
}
