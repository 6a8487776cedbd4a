//! A private Kafka-compatible broker that keeps its log in a SQLite file, so that it survives a kill; or, if
//! `POSTRIDER_TEST_KAFKA` names one as `host:port`, a Kafka or Redpanda of yours, which is neither started nor stopped.
//! The tests of the Kafka sink start it.

use std::{env, path::Path};

use uuid::Uuid;

use crate::{
    binaries::nisshi_program,
    error::{Result, or_panic},
    python::python,
    server::{Broker, Recipe, Server},
};

/// Names a broker to use instead of a private one.
const VARIABLE: &str = "POSTRIDER_TEST_KAFKA";
const CREATE_TOPIC: &str = include_str!("../python/create_topic.py");

/// A Kafka broker; a private one ends when dropped.
#[derive(Debug)]
pub struct Kafka {
    /// `None` for one that is not ours.
    server: Option<Server>,
    address: String,
}

impl Kafka {
    /// Starts a broker, or takes the one that `POSTRIDER_TEST_KAFKA` names.
    ///
    /// # Panics
    /// When nisshi is not installed or does not start.
    pub async fn start() -> Self {
        match env::var(VARIABLE) {
            Ok(address) => Self { server: None, address },
            Err(_) => or_panic(Self::try_start().await),
        }
    }

    async fn try_start() -> Result<Self> {
        let program = nisshi_program()?;
        let command = move |port, directory: &Path| {
            let address = format!("tcp://127.0.0.1:{port}");
            let storage = format!("sqlite://{}", directory.join("kafka.db").display());
            Ok(vec![
                program.clone().into(),
                "--listener-url".into(),
                address.clone().into(),
                "--advertised-listener-url".into(),
                address.into(),
                "--storage-engine".into(),
                storage.into(),
            ])
        };
        let recipe = Recipe { name: "Kafka (nisshi)", ready: "ready in ", command: Box::new(command) };
        let server = Server::start(recipe).await?;
        Ok(Self { address: format!("127.0.0.1:{}", server.port()), server: Some(server) })
    }

    /// Whether it can be killed, stalled and restarted; a broker of yours cannot.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.server.is_some()
    }

    /// For `bootstrap.servers`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Creates a topic that nobody else uses and returns its name, which begins with the given one.
    ///
    /// # Panics
    /// When the broker refuses.
    pub async fn topic(&self, name: &str, partitions: u32) -> String {
        let id = Uuid::new_v4().simple().to_string();
        let topic = format!("{name}-{}", &id[..12]);
        let output = python(CREATE_TOPIC, &[&self.address, &topic, &partitions.to_string()], b"").await;
        assert!(output.status.success(), "could not create the topic {topic}: {}", output.stderr);
        topic
    }
}

impl Broker for Kafka {
    fn server(&self) -> &Server {
        self.server.as_ref().unwrap_or_else(|| {
            panic!("this test kills or stalls its broker: unset {VARIABLE}, or leave the test out with a filter")
        })
    }
}
