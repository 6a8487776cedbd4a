//! A private Redis that writes every change to its append-only file before it answers, so that what was acknowledged
//! survives a kill. The tests of the Redis sink start it; further settings are lines of `redis.conf`.

use crate::{
    binaries::redis_program,
    error::{Result, or_panic},
    server::{Broker, Recipe, Server, lines, write_settings},
};

/// `*` would listen for everybody; `save` would write a second copy.
const SETTINGS: &[(&str, &str)] =
    &[("bind", "127.0.0.1"), ("appendonly", "yes"), ("appendfsync", "always"), ("save", "\"\"")];

/// A private Redis; it ends when dropped.
#[derive(Debug)]
pub struct Redis {
    server: Server,
}

impl Redis {
    /// Starts a server that asks for no password.
    ///
    /// # Panics
    /// When Redis is not installed or does not start.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings, which win over the usual ones: `("maxmemory", "4mb")`,
    /// `("requirepass", "secret")`, `("user", "relay on >secret ~orders* +xadd")`.
    ///
    /// # Panics
    /// When Redis is not installed or does not start.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        or_panic(Self::try_start(settings).await)
    }

    async fn try_start(settings: &[(&str, &str)]) -> Result<Self> {
        let program = redis_program()?;
        let settings = lines(&[SETTINGS, settings].concat(), " ");
        let command = move |port, directory: &std::path::Path| {
            let path = directory.join("redis.conf");
            write_settings(&path, &format!("port {port}\ndir {}\n{settings}", directory.display()))?;
            Ok(vec![program.clone().into(), path.into()])
        };
        let recipe = Recipe { name: "Redis", ready: "Ready to accept connections", command: Box::new(command) };
        Ok(Self { server: Server::start(recipe).await? })
    }

    /// The address for a client without a password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port())
    }

    /// The address for a user; the one of `requirepass` is called `default`.
    #[must_use]
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.server.port())
    }
}

impl Broker for Redis {
    fn server(&self) -> &Server {
        &self.server
    }
}
