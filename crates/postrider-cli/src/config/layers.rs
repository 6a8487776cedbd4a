//! Where every value comes from: the defaults, the file, the environment, the options of the command line, each above the
//! one before. The commands ask here for what holds; nothing is connected to and no secret is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use figment::providers::{Format as _, Toml};
use figment::value::{Dict, Map, Tag, Value};
use figment::{Figment, Metadata, Profile, Provider};
use postrider_relay::sink::registry::SinkKind;
use serde::de::DeserializeOwned;

use super::environment::{self, Environment};
use super::receive::ReceiveSection;
use super::{Config, DatabaseConfig, LogConfig, edge_limits, fault};
use crate::failure::{Failure, Result};

/// The lowest layer, and the documentation.
pub(crate) const DEFAULTS: &str = include_str!("../../config.default.toml");

/// The lowest layer, and behind it an example of each kind of sink. Examples have a `#` before each key.
pub(crate) fn every_key() -> String {
    let commented = |line: &str| if line.starts_with('#') { format!("{line}\n") } else { format!("#{line}\n") };
    let examples = SinkKind::ALL.iter().map(|kind| kind.example.lines().map(commented).collect::<String>());
    std::iter::once(DEFAULTS.to_owned()).chain(examples).collect::<Vec<_>>().join("\n")
}

/// What the lowest layer is called.
pub(crate) const DEFAULT: &str = "default";

/// The name of a database that stands alone, and of the sink of messages without a route.
pub(crate) const ONLY: &str = "default";

/// Values that come from one place.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    source: String,
    values: Dict,
}

impl Layer {
    pub(crate) fn new(source: impl Into<String>, values: Dict) -> Self {
        Self { source: source.into(), values }
    }

    /// One value under its path.
    pub(crate) fn one(source: impl Into<String>, path: &[&str], value: impl Into<Value>) -> Self {
        let under = |value: Value, key: &&str| Value::from(Dict::from([((*key).to_owned(), value)]));
        let nested = path.iter().rev().fold(value.into(), under);
        Self::new(source, nested.into_dict().unwrap_or_default())
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> figment::error::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::Default, self.values.clone())]))
    }
}

/// What was given on the command line.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) config: Option<PathBuf>,
    pub(crate) database_url: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) cloud: Option<String>,
    /// To stdout, if no sink is configured.
    pub(crate) stdout: bool,
    /// Names that are to be served; without a configuration, all of the same kind.
    pub(crate) sinks: Vec<String>,
    /// Values of the configuration.
    pub(crate) values: Vec<Layer>,
    /// Values of every sink: the option, the path within the sink, the value.
    pub(crate) every_sink: Vec<(&'static str, &'static [&'static str], Value)>,
}

impl Flags {
    /// An option that stands above a value, if it was given.
    pub(crate) fn set(&mut self, option: &str, path: &[&str], value: Option<impl Into<Value>>) {
        self.values.extend(value.map(|value| Layer::one(format!("option {option}"), path, value)));
    }

    /// An option that stands above the value of every sink.
    pub(crate) fn set_sinks(
        &mut self,
        option: &'static str,
        path: &'static [&'static str],
        value: Option<impl Into<Value>>,
    ) {
        self.every_sink.extend(value.map(|value| (option, path, value.into())));
    }
}

/// All layers, merged.
pub(crate) struct Layers {
    pub(super) figment: Figment,
    directory: PathBuf,
    /// One database was named by its URL, whatever the file has.
    one_url: bool,
}

impl Layers {
    /// Reads the file and puts everything on top of one another.
    pub(crate) fn read(flags: &Flags, environment: &Environment) -> Result<Self> {
        let path = flags.config.clone().or_else(|| environment.config().map(PathBuf::from));
        let mut file = path.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let url = flags.database_url.clone().map(|url| ("option --database-url", url));
        let url = url.or_else(|| environment.database_url(flags.database.is_some()));
        let one_url = url.is_some();
        if one_url {
            file.remove("databases");
        }
        let named_sinks = file.get("sinks").and_then(Value::as_dict).is_some_and(|sinks| !sinks.is_empty());
        let configured = named_sinks || environment.names_sinks();
        let cloud = flags.cloud.clone().map(|url| ("option --cloud-url", url)).or_else(|| environment.cloud());
        let cloud = cloud.filter(|_| !configured && !flags.stdout);
        if flags.stdout && configured {
            return Err(fault::wrong("option --stdout: sinks are configured, so messages go there"));
        }

        let mut figment = Figment::from(Layer::new(DEFAULT, read_toml(DEFAULTS, "the defaults")?));
        if cloud.is_some() {
            figment = environment::edge_defaults().into_iter().fold(figment, Figment::merge);
        }
        figment = environment.host().into_iter().fold(figment, Figment::merge);
        if let Some(path) = &path {
            figment = figment.merge(Layer::new(format!("file {}", path.display()), file));
        }
        if let Some((source, url)) = url {
            figment = figment.merge(Layer::one(source, &["databases", ONLY, "url"], url));
        }
        for layer in environment.documents()? {
            figment = figment.merge(layer);
        }
        for variable in environment.nested() {
            let layer = variable.layer(&merged(&figment)?);
            figment = figment.merge(layer);
        }
        if !configured {
            let to_stdout = flags.stdout || (path.is_none() && only_sqlite(&merged(&figment)?));
            figment = unconfigured(figment, &flags.sinks, cloud.as_ref(), to_stdout);
        }
        figment = flags.values.iter().cloned().fold(figment, Figment::merge);
        let directory = path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let mut layers = Self { figment, directory, one_url };
        edge_limits::poll(&mut layers)?;
        edge_limits::deadline(&mut layers)?;
        layers.hand_down(flags)?;
        Ok(layers)
    }

    /// What holds for every sink goes into each, and what was asked for every database.
    fn hand_down(&mut self, flags: &Flags) -> Result<()> {
        let values = self.values()?;
        let mut figment = self.figment.clone();
        let mut defaults = Vec::new();
        if let Some(treatment) = values.get("sink_defaults").and_then(Value::as_dict) {
            leaves(treatment, &mut Vec::new(), &mut defaults);
        }
        for sink in names(&values, "sinks") {
            for (path, value) in &defaults {
                let path: Vec<&str> = ["sinks", &sink].into_iter().chain(path.iter().map(String::as_str)).collect();
                figment = figment.join(Layer::one(self.source_of(value.tag()), &path, value.clone()));
            }
            for (option, path, value) in &flags.every_sink {
                let path: Vec<&str> = ["sinks", &sink].into_iter().chain(path.iter().copied()).collect();
                figment = figment.merge(Layer::one(format!("option {option}"), &path, value.clone()));
            }
        }
        if let Some(schema) = &flags.schema {
            for database in names(&values, "databases") {
                let path = ["databases", &database, "schema"];
                figment = figment.merge(Layer::one("option --schema, or POSTRIDER_SCHEMA", &path, schema.as_str()));
            }
        }
        self.figment = figment;
        Ok(())
    }

    /// Everything, checked.
    pub(crate) fn config(&self) -> Result<Config> {
        let config = self.extract(None).map_err(|first: Failure| match fault::every(self) {
            all if all.len() > 1 => fault::wrong(&all.join("; ")),
            _ => first,
        });
        let config: Config = config?;
        match config.faults(&names(&self.values()?, "sinks")) {
            none if none.is_empty() => Ok(config),
            all => Err(fault::wrong(&all.join("; "))),
        }
    }

    /// The databases alone: whoever only needs these does not care what else is wrong.
    pub(crate) fn databases(&self) -> Result<BTreeMap<String, DatabaseConfig>> {
        if self.values()?.contains_key("databases") { self.extract(Some("databases")) } else { Ok(BTreeMap::new()) }
    }

    /// The log alone.
    pub(crate) fn log(&self) -> Result<LogConfig> {
        self.extract(Some("log"))
    }

    /// Who may send to `postrider receive`, alone.
    pub(crate) fn receive(&self) -> Result<ReceiveSection> {
        self.extract(Some("receive"))
    }

    /// As text that is parsed: a variable of the environment is text, and is to be a number where one is needed.
    fn extract<T: DeserializeOwned>(&self, section: Option<&str>) -> Result<T> {
        let extracted = match section {
            None => self.figment.extract_lossy(),
            Some(name) => self.figment.extract_inner_lossy(name),
        };
        extracted.map_err(|error| fault::explain(&error, &self.values().unwrap_or_default(), section))
    }

    /// What was merged.
    pub(crate) fn values(&self) -> Result<Dict> {
        merged(&self.figment)
    }

    /// Where a value comes from.
    pub(crate) fn source_of(&self, tag: Tag) -> String {
        self.figment.get_metadata(tag).map_or_else(|| DEFAULT.to_owned(), |metadata| metadata.name.to_string())
    }

    /// Where the value under a path comes from.
    pub(crate) fn source_at(&self, path: &[&str]) -> Result<String> {
        let values = self.values()?;
        Ok(find(&values, path).map_or_else(String::new, |value| self.source_of(value.tag())))
    }

    /// Puts one value above all.
    pub(super) fn put(&mut self, source: impl Into<String>, path: &[&str], value: impl Into<Value>) {
        self.figment = std::mem::take(&mut self.figment).merge(Layer::one(source, path, value));
    }

    /// Where the files that it names are looked for.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Names in the file mean databases of the file: not when one database was named by its URL, which gets all sinks.
    pub(crate) fn one_url(&self) -> bool {
        self.one_url
    }
}

/// The value under a path.
pub(super) fn find<'a>(values: &'a Dict, path: &[&str]) -> Option<&'a Value> {
    let (last, above) = path.split_last()?;
    above.iter().try_fold(values, |dict, key| dict.get(*key)?.as_dict())?.get(*last)
}

pub(super) fn names(values: &Dict, section: &str) -> Vec<String> {
    values.get(section).and_then(Value::as_dict).map(|dict| dict.keys().cloned().collect()).unwrap_or_default()
}

/// Each value that is no table, with its path.
pub(super) fn leaves(dict: &Dict, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
    for (key, value) in dict {
        path.push(key.clone());
        match value.as_dict() {
            Some(inner) if !inner.is_empty() => leaves(inner, path, found),
            _ => found.push((path.clone(), value.clone())),
        }
        path.pop();
    }
}

fn merged(figment: &Figment) -> Result<Dict> {
    let data = figment.data().map_err(|error| fault::explain(&error, &Dict::new(), None))?;
    Ok(data.get(&Profile::Default).cloned().unwrap_or_default())
}

/// Whether every database is a file. Messages of a server are never written to stdout by mistake.
fn only_sqlite(values: &Dict) -> bool {
    let is_sqlite = |url: &str| url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("sqlite:"));
    names(values, "databases")
        .iter()
        .all(|name| find(values, &["databases", name, "url"]).and_then(Value::as_str).is_some_and(is_sqlite))
}

/// Nobody says where messages go: to the cloud, or to stdout.
fn unconfigured(figment: Figment, named: &[String], cloud: Option<&(&str, String)>, to_stdout: bool) -> Figment {
    let only = [ONLY.to_owned()];
    let named = if named.is_empty() { &only } else { named };
    named.iter().fold(figment, |figment, sink| match cloud {
        Some((source, url)) => figment
            .merge(Layer::one(*source, &["sinks", sink, "http", "url"], url.as_str()))
            .merge(Layer::one(*source, &["sinks", sink, "http", "body"], "batch")),
        None if to_stdout => figment.merge(Layer::one(DEFAULT, &["sinks", sink, "stdout"], Dict::new())),
        None => figment,
    })
}

fn read_file(path: &Path) -> Result<Dict> {
    let source = format!("file {}", path.display());
    if !path.is_file() {
        return Err(fault::wrong(&format!("{source}: there is no such file")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault::wrong(&format!("{source}: {error}")))?;
    read_toml(&text, &source)
}

/// The values of a text in TOML.
pub(super) fn read_toml(text: &str, source: &str) -> Result<Dict> {
    let data = Toml::string(text).data();
    let mut data = data.map_err(|error| -> Failure { fault::syntax(&error, source) })?;
    Ok(data.remove(&Profile::Default).unwrap_or_default())
}
