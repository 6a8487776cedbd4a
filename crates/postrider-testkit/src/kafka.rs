//! A private Kafka-compatible broker that keeps its log in a SQLite file, so that it survives a kill; or, if
//! `POSTRIDER_TEST_KAFKA` names one as `host:port`, a Kafka or Redpanda of yours, which is neither started nor stopped.
//! The tests of the Kafka sink start it.

use std::{env, ffi::OsString, path::Path};

use uuid::Uuid;

use crate::binaries::find;
use crate::cache;
use crate::python::python;
use crate::server::{Broker, Server};

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
    pub async fn start() -> Self {
        match env::var(VARIABLE) {
            Ok(address) => Self { server: None, address },
            Err(_) => Self::start_with(&[]).await,
        }
    }

    /// Starts a private broker with further arguments: `--authentication`.
    pub async fn start_with(arguments: &[&'static str]) -> Self {
        Self::launch(None, arguments).await
    }

    /// Starts a private broker that sends its clients to this port, where a proxy has to be.
    pub async fn start_behind(proxy: u16) -> Self {
        Self::launch(Some(proxy), &[]).await
    }

    async fn launch(proxy: Option<u16>, arguments: &[&'static str]) -> Self {
        let arguments = arguments.to_vec();
        let command = move |port, directory: &Path| {
            let address = format!("tcp://127.0.0.1:{port}");
            let advertised = format!("tcp://127.0.0.1:{}", proxy.unwrap_or(port));
            let storage = format!("sqlite://{}", directory.join("kafka.db").display());
            let program: OsString = find("nisshi", Some(cache::location()?.join("nisshi-0.8.1/bin")))?.into();
            let usual =
                ["--listener-url", &address, "--advertised-listener-url", &advertised, "--storage-engine", &storage];
            Ok([program].into_iter().chain(usual.iter().chain(&arguments).map(OsString::from)).collect())
        };
        let server = Server::start("Kafka (nisshi)", "ready in ", command).await;
        Self { address: format!("127.0.0.1:{}", server.port()), server: Some(server) }
    }

    /// Whether it can be killed, stalled and restarted; a broker of yours cannot.
    pub fn is_private(&self) -> bool {
        self.server.is_some()
    }

    /// For `bootstrap.servers`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Creates a topic that nobody else uses and returns its name, which begins with the given one.
    pub async fn topic(&self, name: &str, partitions: u32) -> String {
        let id = Uuid::new_v4().simple().to_string();
        let topic = format!("{name}-{}", &id[..12]);
        let output = python(CREATE_TOPIC, &[&self.address, &topic, &partitions.to_string()], b"").await;
        assert!(output.status.success(), "could not create the topic {topic}: {}", output.stderr);
        topic
    }
}

impl Broker for Kafka {
    const SCHEME: &'static str = "kafka";

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap_or_else(|| {
            panic!("this test kills or stalls its broker: unset {VARIABLE}, or leave the test out with a filter")
        })
    }
}
