//! A private NATS server with JetStream on files, which are synced before a publish is acknowledged. The tests of the
//! NATS sink start it; further settings are top-level entries of its configuration file.

use crate::binaries::find;
use crate::cache;
use crate::server::{Broker, Server, lines, write_settings};

/// A private NATS server with JetStream; it ends when dropped.
#[derive(Debug)]
pub struct Nats(Server);

impl Nats {
    /// Starts a server that asks for no password.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings: `("max_payload", "64KB")`,
    /// `("authorization", "{ user: relay, password: secret }")`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let settings = lines(settings, ": ");
        let command = move |port, directory: &std::path::Path| {
            let path = directory.join("nats.conf");
            let store = directory.join("jetstream");
            let text = format!(
                "listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n{settings}",
                store.display()
            );
            write_settings(&path, &text)?;
            // PyPI's, newer than Debian's.
            let program = find("nats-server", Some(cache::location()?.join("python/bin")))?;
            Ok(vec![program.into(), "-c".into(), path.into()])
        };
        Self(Server::start("NATS", "Server is ready", command).await)
    }
}

impl Broker for Nats {
    const SCHEME: &'static str = "nats";

    fn server(&self) -> &Server {
        &self.0
    }
}
