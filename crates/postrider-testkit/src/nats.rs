//! A private NATS server with JetStream on files, which are synced before a publish is acknowledged. The tests of the
//! NATS sink start it; further settings are top-level entries of its configuration file.

use crate::{
    binaries::nats_program,
    error::{Result, or_panic},
    server::{Broker, Recipe, Server, lines, write_settings},
};

/// A private NATS server with JetStream; it ends when dropped.
#[derive(Debug)]
pub struct Nats {
    server: Server,
}

impl Nats {
    /// Starts a server that asks for no password.
    ///
    /// # Panics
    /// When NATS is not installed or does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings: `("max_payload", "64KB")`,
    /// `("authorization", "{ user: relay, password: secret }")`.
    ///
    /// # Panics
    /// When NATS is not installed or does not start.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        or_panic(Self::try_start(settings).await)
    }

    async fn try_start(settings: &[(&str, &str)]) -> Result<Self> {
        let program = nats_program()?;
        let settings = lines(settings, ": ");
        let command = move |port, directory: &std::path::Path| {
            let path = directory.join("nats.conf");
            let store = directory.join("jetstream");
            let text = format!(
                "listen: \"127.0.0.1:{port}\"\n\
                 jetstream {{ store_dir: \"{}\", sync_interval: always }}\n\
                 {settings}",
                store.display()
            );
            write_settings(&path, &text)?;
            Ok(vec![program.clone().into(), "-c".into(), path.into()])
        };
        let recipe = Recipe { name: "NATS", ready: "Server is ready", command: Box::new(command) };
        Ok(Self { server: Server::start(recipe).await? })
    }

    /// The address for a client without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }

    /// The address for a user.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("nats://{user}:{password}@127.0.0.1:{}", self.server.port())
    }
}

impl Broker for Nats {
    fn server(&self) -> &Server {
        &self.server
    }
}
