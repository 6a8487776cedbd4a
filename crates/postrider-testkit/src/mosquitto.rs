//! A private Mosquitto that keeps sessions and their messages over a restart. The tests of the MQTT sink start it.
//!
//! What it cannot do: Mosquitto has no log of changes. It rewrites its whole file after each round of its loop that
//! changed something, which is after the acknowledgements of that round were sent. A message that was acknowledged within
//! the last moment before a kill may therefore be lost, and a message without a session that waits for it always is. A
//! clean [`Server::restart`] loses nothing.

use crate::binaries::find;
use crate::error::{Error, Result, or_panic};
use crate::server::{Broker, Server, lines, write_settings};

/// As often as it can save, and as many waiting messages as a test may send.
const SETTINGS: &[(&str, &str)] = &[
    ("persistence", "true"),
    ("autosave_on_changes", "true"),
    ("autosave_interval", "1"),
    ("max_queued_messages", "0"),
    ("log_dest", "stderr"),
];

/// A private Mosquitto; it ends when dropped.
#[derive(Debug)]
pub struct Mosquitto(Server);

impl Mosquitto {
    /// Starts a server that lets everybody in.
    pub async fn start() -> Self {
        Self::start_with(&[], &[]).await
    }

    /// Starts a server that lets only these users with their passwords in (everybody, if there are none), with further
    /// settings: `("message_size_limit", "1000")`, `("max_packet_size", "2000")`.
    pub async fn start_with(users: &[(&str, &str)], settings: &[(&str, &str)]) -> Self {
        let hashed = or_panic(hashed(users));
        let settings = lines(&[SETTINGS, settings].concat(), " ");
        let command = move |port, directory: &std::path::Path| {
            let (path, passwords) = (directory.join("mosquitto.conf"), directory.join("passwords"));
            let who = if hashed.is_empty() {
                "allow_anonymous true".to_owned()
            } else {
                write_settings(&passwords, &hashed)?;
                format!("allow_anonymous false\npassword_file {}", passwords.display())
            };
            let text =
                format!("listener {port} 127.0.0.1\n{who}\npersistence_location {}/\n{settings}", directory.display());
            write_settings(&path, &text)?;
            Ok(vec![find("mosquitto", Some("/usr/sbin".into()))?.into(), "-c".into(), path.into()])
        };
        // Its first line ends with `starting`, this one with `running`.
        Self(Server::start("Mosquitto", " running\n", command).await)
    }
}

impl Broker for Mosquitto {
    const SCHEME: &'static str = "mqtt";

    fn server(&self) -> &Server {
        &self.0
    }
}

/// The lines of a password file.
fn hashed(users: &[(&str, &str)]) -> Result<String> {
    if users.is_empty() {
        return Ok(String::new());
    }
    let file = tempfile::NamedTempFile::new().map_err(|source| Error::File {
        doing: "make a file in",
        path: std::env::temp_dir(),
        source,
    })?;
    write_settings(file.path(), &lines(users, ":"))?;
    let program = find("mosquitto_passwd", None)?;
    let failed = |source| Error::Spawn { program: program.display().to_string(), source };
    let status = std::process::Command::new(&program).arg("-U").arg(file.path()).status().map_err(failed)?;
    if !status.success() {
        return Err(failed(std::io::Error::other(status.to_string())));
    }
    std::fs::read_to_string(file.path()).map_err(|source| Error::File {
        doing: "read",
        path: file.path().to_owned(),
        source,
    })
}
