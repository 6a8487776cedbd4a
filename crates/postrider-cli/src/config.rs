//! The configuration: what stands in `config.default.toml`, a file, the environment and the command line, read and checked
//! before anything is connected to. What is wrong is told with its place and its key. It may hold secrets, and shows none.

pub(crate) mod admin;
mod edge_limits;
mod environment;
mod fault;
pub(crate) mod layers;
pub(crate) mod print;
pub(crate) mod receive;
mod redact;
mod sections;
mod sink;
#[cfg(test)]
mod tests;
mod token;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use jiff::fmt::friendly::{Spacing, SpanPrinter};
use postrider::Route;
use serde::Deserialize;

pub(crate) use self::admin::{AdminConfig, Listen};
pub(crate) use self::environment::Environment;
pub(crate) use self::layers::{Flags, Layers};
pub(crate) use self::sections::{DatabaseConfig, LogConfig};
pub(crate) use self::sink::{Configured, SinkConfig};

use self::admin::AdminSection;
use self::receive::ReceiveSection;
use self::sections::{RelayConfig, RouteConfig, SchemaFiles};
use crate::failure::Result;

/// Everything that can be set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) relay: RelayConfig,
    sink_defaults: SinkConfig,
    /// By name.
    #[serde(default)]
    pub(crate) databases: BTreeMap<String, DatabaseConfig>,
    admin: AdminSection,
    pub(crate) receive: ReceiveSection,
    pub(crate) log: LogConfig,
    /// By name.
    #[serde(default)]
    pub(crate) sinks: BTreeMap<String, SinkConfig>,
    /// Which new messages go to which sinks.
    #[serde(default)]
    routes: Vec<RouteConfig>,
    /// JSON Schemas by topic (`*` stands for any characters): files, beside the configuration unless they are absolute.
    #[serde(default)]
    schemas: SchemaFiles,
}

impl Config {
    /// What no single key can be blamed for. `sinks` are the names of all that stand in the configuration.
    fn faults(&self, sinks: &[String]) -> Vec<String> {
        let mut faults = Vec::new();
        if self.sink_defaults.has_kind() {
            faults.push(
                "sink_defaults: says what a sink is, but only how it is treated may stand there: put it into a sink"
                    .to_owned(),
            );
        }
        let known = sinks.join(", ");
        for route in &self.routes {
            let unknown = route.sinks.iter().filter(|sink| !sinks.contains(sink));
            faults.extend(unknown.map(|unknown| {
                let topic = &route.topic;
                format!("the route of topic {topic:?} leads to the sink {unknown:?}, and there are only: {known}")
            }));
        }
        faults
    }

    /// How many routes it has; one may lead to several sinks.
    pub(crate) fn route_count(&self) -> usize {
        self.routes.len()
    }

    /// The routes, one for each sink.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> + '_ {
        self.routes.iter().flat_map(|route| {
            let to = |sink: &String| Route::new(&route.topic, sink).namespace(&route.namespace);
            route.sinks.iter().map(to)
        })
    }

    /// The files of the schemas, by topic.
    pub(crate) fn schema_files(&self, layers: &Layers) -> Vec<(&str, PathBuf)> {
        self.schemas.iter().map(|(topic, file)| (topic.as_str(), layers.directory().join(file))).collect()
    }

    /// The admin API, with its secrets read.
    pub(crate) fn admin(&self, layers: &Layers) -> Result<AdminConfig> {
        self.admin.read(layers.source_at(&["admin", "listen"])? != layers::DEFAULT)
    }
}

/// A duration as it would be written: `2m`, `1h 30m`.
pub(crate) fn friendly(duration: Duration) -> String {
    const PRINTER: SpanPrinter = SpanPrinter::new().spacing(Spacing::BetweenUnits);
    PRINTER.unsigned_duration_to_string(&duration)
}
