//! A private RabbitMQ with a node name, a cookie and a port mapper of its own, so that neither it nor its tools ever meet
//! a RabbitMQ of the machine. The tests of the RabbitMQ sink start it. Durable queues with persistent messages survive a
//! kill once they are confirmed; it takes some seconds to start, as RabbitMQ does.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::account::Account;
use crate::binaries::find;
use crate::cluster::{blocking, free_port};
use crate::error::{Error, Result, or_panic};
use crate::server::{Broker, Server, lines, write_settings};

/// Little, so that a rather full disk of the machine does not block publishers.
const SETTINGS: &[(&str, &str)] = &[("disk_free_limit.absolute", "1MB")];

/// A private RabbitMQ; it ends when dropped.
#[derive(Debug)]
pub struct RabbitMq {
    // Declared first: the node goes before the port mapper that knows it.
    server: Server,
    port_mapper: Server,
}

impl RabbitMq {
    /// Starts a node with the user `guest` in the virtual host `/`.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a node with further settings, which are lines of `rabbitmq.conf`: `("max_message_size", "1000")`. Users,
    /// virtual hosts and their limits are made with [`RabbitMq::rabbitmqctl`].
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        let port_mapper = start_port_mapper().await;
        let mapper_port = port_mapper.port();
        let settings = lines(&[SETTINGS, settings].concat(), " = ");
        let command = move |port, directory: &Path| {
            write_settings(&directory.join("rabbitmq.conf"), &settings)?;
            let mut argv = environment(directory, mapper_port);
            argv.push(format!("RABBITMQ_NODE_PORT={port}").into());
            argv.push(format!("RABBITMQ_DIST_PORT={}", free_port()?).into());
            argv.push(program("rabbitmq-server")?.into());
            Ok(argv)
        };
        Self { server: Server::start("RabbitMQ", "Server startup complete", command).await, port_mapper }
    }

    /// The address for `guest` in the virtual host `/`.
    pub fn url(&self) -> String {
        self.url_as("guest", "guest", "%2f")
    }

    /// The address for a user in a virtual host, whose name is percent-encoded.
    pub fn url_as(&self, user: &str, password: &str, vhost: &str) -> String {
        format!("amqp://{user}:{password}@127.0.0.1:{}/{vhost}", self.server.port())
    }

    /// Runs `rabbitmqctl` against this node and returns what it printed: `&["add_user", "relay", "secret"]`,
    /// `&["set_vhost_limits", "-p", "/", r#"{"max-connections": 0}"#]`.
    pub async fn rabbitmqctl(&self, arguments: &[&str]) -> String {
        or_panic(self.try_rabbitmqctl(arguments).await)
    }

    async fn try_rabbitmqctl(&self, arguments: &[&str]) -> Result<String> {
        let mut argv = environment(&self.server.directory(), self.port_mapper.port());
        argv.push(program("rabbitmqctl")?.into());
        argv.push("--quiet".into());
        argv.extend(arguments.iter().map(OsString::from));
        let what = format!("rabbitmqctl {}", arguments.first().unwrap_or(&""));
        let account = Account::choose()?;
        blocking(move || {
            let mut command = Command::new(&argv[0]);
            account.apply(&mut command);
            let output = command
                .args(&argv[1..])
                .stdin(Stdio::null())
                .output()
                .map_err(|source| Error::Spawn { program: what.clone(), source })?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if output.status.success() {
                return Ok(text(&output.stdout));
            }
            Err(Error::Server { what: format!("{what} failed"), log: text(&output.stdout) + &text(&output.stderr) })
        })
        .await
    }
}

impl Broker for RabbitMq {
    const SCHEME: &'static str = "amqp";

    fn server(&self) -> &Server {
        &self.server
    }
}

/// The scripts themselves: Debian's on the PATH would become the account of the machine's own server.
fn program(name: &'static str) -> Result<PathBuf> {
    find(name, Some("/usr/lib/rabbitmq/bin".into()))
}

/// Erlang's own, in the foreground: left to itself a node would start one that outlives it.
async fn start_port_mapper() -> Server {
    let command = move |port: u16, _: &Path| {
        let port = port.to_string();
        let arguments = ["-d", "-d", "-address", "127.0.0.1", "-port", &port];
        Ok([find("epmd", None)?.into()].into_iter().chain(arguments.map(OsString::from)).collect())
    };
    Server::start("epmd", "entering the main select() loop", command).await
}

/// `env` with everything that the node and its tools would otherwise look for in the machine's own places.
fn environment(directory: &Path, mapper_port: u16) -> Vec<OsString> {
    let within = |name: &str| -> PathBuf { directory.join(name) };
    let paths = [
        // The cookie is made there.
        ("HOME", directory.to_owned()),
        ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
        ("RABBITMQ_CONFIG_FILE", within("rabbitmq.conf")),
        ("RABBITMQ_ADVANCED_CONFIG_FILE", within("advanced.config")),
        ("RABBITMQ_GENERATED_CONFIG_DIR", within("generated")),
        ("RABBITMQ_SCHEMA_DIR", within("schema")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", within("enabled_plugins")),
        ("RABBITMQ_MNESIA_BASE", within("mnesia")),
        ("RABBITMQ_LOG_BASE", within("logs")),
    ];
    let mut argv: Vec<OsString> = vec!["env".into()];
    argv.extend(paths.map(|(name, path)| format!("{name}={}", path.display()).into()));
    let others = [
        // To its output, which is our log.
        "RABBITMQ_LOGS=-",
        // The script then becomes the node instead of watching over it.
        "RUNNING_UNDER_SYSTEMD=1",
        "RABBITMQ_NODENAME=postrider@localhost",
        "RABBITMQ_NODE_IP_ADDRESS=127.0.0.1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_ADDRESS=127.0.0.1",
    ];
    argv.extend(others.map(OsString::from));
    argv.push(format!("ERL_EPMD_PORT={mapper_port}").into());
    argv
}
