//! The JSON Schemas that a configuration names, put in front of its sinks.

use std::sync::Arc;

use postrider_relay::Sink;

use crate::config::{Config, Layers};
use crate::failure::{Failure, Result};

/// Schemas of payloads, by topic.
pub(crate) struct PayloadSchemas(#[cfg(feature = "schema")] postrider_relay::sink::schema::Schemas);

#[cfg(feature = "schema")]
impl PayloadSchemas {
    /// Reads the files that a configuration names.
    pub(crate) fn read(config: &Config, layers: &Layers) -> Result<Self> {
        let mut schemas = postrider_relay::sink::schema::Schemas::default();
        for (topic, file) in config.schema_files(layers) {
            let wrong = |reason: String| {
                let file = file.display();
                Failure::usage(format!("the schema {file} for topic {topic:?} cannot be used: {reason}"))
            };
            let text = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
            let schema = serde_json::from_slice(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
            schemas = schemas.with(topic, &schema).map_err(|error| wrong(error.to_string()))?;
        }
        Ok(Self(schemas))
    }

    /// The same sink, which now refuses what does not fit.
    pub(crate) fn guard(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        if self.0.is_empty() { sink } else { Arc::new(self.0.clone().guard(sink)) }
    }
}

#[cfg(not(feature = "schema"))]
#[expect(clippy::unused_self, reason = "the same calls with and without the feature")]
impl PayloadSchemas {
    pub(crate) fn read(config: &Config, layers: &Layers) -> Result<Self> {
        if config.schema_files(layers).is_empty() {
            return Ok(Self());
        }
        Err(Failure::usage("the configuration has [schemas], and this postrider was built without JSON Schemas")
            .hint("build it with `cargo build --release -p postrider-cli --features schema`"))
    }

    pub(crate) fn guard(&self, sink: Arc<dyn Sink>) -> Arc<dyn Sink> {
        sink
    }
}
