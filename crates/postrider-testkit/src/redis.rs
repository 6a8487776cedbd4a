//! A private Redis that writes every change to its append-only file before it answers, so that what was acknowledged
//! survives a kill. The tests of the Redis sink start it; further settings are lines of `redis.conf`.

use crate::binaries::find;
use crate::server::{Broker, Server, lines, write_settings};

/// `*` would listen for everybody; `save` would write a second copy.
const SETTINGS: &[(&str, &str)] =
    &[("bind", "127.0.0.1"), ("appendonly", "yes"), ("appendfsync", "always"), ("save", "\"\"")];

/// A private Redis; it ends when dropped.
#[derive(Debug)]
pub struct Redis(Server);

impl Redis {
    /// Starts a server that asks for no password.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings, which win over the usual ones: `("maxmemory", "4mb")`,
    /// `("requirepass", "secret")`, `("user", "relay on >secret ~orders* +xadd")`. The user of `requirepass` is `default`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let settings = lines(&[SETTINGS, settings].concat(), " ");
        let command = move |port, directory: &std::path::Path| {
            let path = directory.join("redis.conf");
            write_settings(&path, &format!("port {port}\ndir {}\n{settings}", directory.display()))?;
            Ok(vec![find("redis-server", None)?.into(), path.into()])
        };
        Self(Server::start("Redis", "Ready to accept connections", command).await)
    }
}

impl Broker for Redis {
    const SCHEME: &'static str = "redis";

    fn server(&self) -> &Server {
        &self.0
    }
}
