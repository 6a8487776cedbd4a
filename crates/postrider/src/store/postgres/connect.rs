//! Finds a server of the database URL that does what is asked of it, and turns a failed connection into words. Every host
//! and every address of a host has its own time to answer, from the first packet to the first query; so one that hangs
//! does not keep the next one from being tried. The URL holds a password: nothing here ever repeats it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{Stream, StreamExt as _};
use tokio_postgres::config::LoadBalanceHosts;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use uuid::Uuid;

use super::hosts::{self, At, Host};
use super::tls;
use super::url::Settings;
use crate::error::{Cause, Error, words_and_causes};

/// How long one address may take until it answers a query, if the URL does not say; and if there are several hosts, for
/// another may answer at once.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT_OF_SEVERAL: Duration = Duration::from_secs(3);
/// A connection whose other end is gone without a word is noticed after this long, and asked this often from then on.
const DEAD_AFTER: Duration = Duration::from_secs(30);
const ASK_THE_DEAD_EVERY: Duration = Duration::from_secs(5);

/// What a connection hears besides answers. It must be polled for anything to happen on the connection.
pub(super) type Messages = Pin<Box<dyn Stream<Item = Result<AsyncMessage, tokio_postgres::Error>> + Send>>;

/// Where the servers are and how they are spoken to: enough to make a connection.
pub(super) struct Connector {
    /// Everything but the hosts.
    config: Config,
    tls: Option<MakeRustlsConnect>,
    hosts: Vec<Host>,
    wanted: Wanted,
    /// For each address.
    timeout: Duration,
    /// Where the next search begins: at the host that answered last, or after the one that did not.
    first: AtomicUsize,
    /// `host:port,host:port/database`.
    target: String,
}

/// libpq's `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

impl Connector {
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let mut settings = Settings::read(url)?;
        let tls = tls::Mode::take_from(&mut settings)?;
        let hosts = hosts::take_from(&mut settings)?;
        let wanted = match settings.take("target_session_attrs").as_deref() {
            // An outbox is written to. Whoever gives one host means that one, to look at a standby, for instance.
            None if hosts.len() > 1 => Wanted::ReadWrite,
            None | Some("any") => Wanted::Any,
            Some("read-write") => Wanted::ReadWrite,
            Some("read-only") => Wanted::ReadOnly,
            Some("primary") => Wanted::Primary,
            Some("standby") => Wanted::Standby,
            Some("prefer-standby") => Wanted::PreferStandby,
            Some(_) => {
                return Err(bad_url(
                    "target_session_attrs is not known: use read-write, primary, any, read-only, standby or \
                     prefer-standby"
                        .to_owned(),
                ));
            }
        };
        let several = hosts.len() > 1;
        // Zero means for ever to libpq; for ever is no help to anybody here.
        let timeout = match settings.take_number("connect_timeout")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ if several => CONNECT_TIMEOUT_OF_SEVERAL,
            _ => CONNECT_TIMEOUT,
        };
        let config = config(settings)?.ssl_mode(tls.ssl_mode()).to_owned();
        let labels: Vec<String> = hosts.iter().map(Host::label).collect();
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        let target = format!("{}/{database}", labels.join(","));
        Ok(Self { tls: tls.connector()?, config, hosts, wanted, timeout, first: AtomicUsize::new(0), target })
    }

    /// Hosts, ports and database, for people.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// The first server that answers and is what is wanted.
    pub(super) async fn connect(&self) -> Result<(Client, Messages), Error> {
        let mut failures = Vec::new();
        let wanted: &[Wanted] = match &self.wanted {
            Wanted::PreferStandby => &[Wanted::Standby, Wanted::Any],
            one => std::slice::from_ref(one),
        };
        for wanted in wanted {
            failures.clear();
            for index in self.order() {
                let host = &self.hosts[index];
                // On the heap: it is far larger than what waits for it.
                match Box::pin(self.connect_host(host, *wanted)).await {
                    Ok(connection) => {
                        self.first.store(index, Ordering::Relaxed);
                        return Ok(connection);
                    }
                    Err(reason) => {
                        self.first.store((index + 1) % self.hosts.len(), Ordering::Relaxed);
                        failures.push((index, reason));
                    }
                }
            }
        }
        failures.sort_by_key(|(index, _)| *index);
        let reasons: Vec<String> = match &failures[..] {
            [(_, reason)] => vec![reason.clone()],
            several => several.iter().map(|(index, why)| format!("{}: {why}", self.hosts[*index].label())).collect(),
        };
        Err(Error::from(Cause::Connect { target: self.target.clone(), reason: reasons.join("; ") }))
    }

    /// The hosts' places, in the order they are tried.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.hosts.len()).collect();
        if self.config.get_load_balance_hosts() == LoadBalanceHosts::Random {
            order.sort_by_cached_key(|_| Uuid::new_v4());
        } else {
            order.rotate_left(self.first.load(Ordering::Relaxed));
        }
        order
    }

    async fn connect_host(&self, host: &Host, wanted: Wanted) -> Result<(Client, Messages), String> {
        let (name, addresses) = match &host.at {
            At::Socket(path) => {
                let config = self.config.clone().host_path(path).port(host.port).to_owned();
                return self.connect_within(&config, wanted).await;
            }
            At::Tcp(name, Some(address)) => (name, vec![*address]),
            At::Tcp(name, None) => {
                let found = tokio::time::timeout(self.timeout, tokio::net::lookup_host((name.as_str(), host.port)));
                match found.await {
                    Ok(Ok(found)) => (name, found.map(|address: SocketAddr| address.ip()).collect()),
                    Ok(Err(error)) => return Err(format!("its name cannot be looked up: {error}")),
                    Err(_) => {
                        return Err(format!("its name was not looked up within {} seconds", self.timeout.as_secs()));
                    }
                }
            }
        };
        if addresses.is_empty() {
            return Err("its name stands for no address".to_owned());
        }
        let mut failures = Vec::new();
        let several = addresses.len() > 1;
        for address in addresses {
            // The name is what a certificate is for.
            let config = self.config.clone().host(name).hostaddr(address).port(host.port).to_owned();
            match self.connect_within(&config, wanted).await {
                Ok(connection) => return Ok(connection),
                Err(reason) if several => failures.push(format!("{address}: {reason}")),
                Err(reason) => failures.push(reason),
            }
        }
        // Each was waited for, one after the other.
        Err(failures.join("; "))
    }

    async fn connect_within(&self, config: &Config, wanted: Wanted) -> Result<(Client, Messages), String> {
        let made = async {
            let (client, mut messages) = match &self.tls {
                Some(tls) => config.connect(tls.clone()).await.map(|(client, driver)| (client, messages(driver))),
                None => config.connect(NoTls).await.map(|(client, driver)| (client, messages(driver))),
            }
            .map_err(|error| reason(&error))?;
            wanted.check(&client, &mut messages).await?;
            Ok((client, messages))
        };
        match tokio::time::timeout(self.timeout, made).await {
            Ok(made) => made,
            Err(_) => Err(format!("no answer within {} seconds", self.timeout.as_secs())),
        }
    }
}

impl Wanted {
    /// Why the server is not what is wanted.
    async fn check(self, client: &Client, messages: &mut Messages) -> Result<(), String> {
        if self == Self::Any {
            return Ok(());
        }
        let sql = "select pg_catalog.pg_is_in_recovery()::text, pg_catalog.current_setting('transaction_read_only')";
        let answer = driven("", messages, client.simple_query(sql), |_| ()).await;
        let answer = answer.map_err(|error| match error.cause() {
            Cause::Connect { reason, .. } => reason.clone(),
            _ => error.in_short(),
        })?;
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0) == Some("true"), row.get(1) == Some("on"))),
            _ => None,
        });
        let (standby, read_only) = row.unwrap_or_default();
        match self {
            Self::ReadWrite | Self::Primary if standby => Err("it is a standby".to_owned()),
            Self::ReadWrite if read_only => Err("it is read-only".to_owned()),
            Self::ReadOnly if !read_only => Err("it is not read-only".to_owned()),
            Self::Standby if !standby => Err("it is not a standby".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Runs a command while its connection is driven. `heard` gets what else comes.
pub(super) async fn driven<T>(
    target: &str,
    messages: &mut Messages,
    command: impl Future<Output = Result<T, tokio_postgres::Error>>,
    mut heard: impl FnMut(AsyncMessage),
) -> Result<T, Error> {
    let mut command = pin!(command);
    loop {
        match select(command, messages.next()).await {
            Either::Left((result, _)) => return Ok(result?),
            Either::Right((message, rest)) => {
                command = rest;
                match message {
                    Some(message) => heard(message?),
                    None => return Err(closed(target)),
                }
            }
        }
    }
}

/// The connection ended without a word.
pub(super) fn closed(target: &str) -> Error {
    Error::from(Cause::Connect { target: target.to_owned(), reason: "the connection was closed".to_owned() })
}

fn messages<S, T>(mut driver: Connection<S, T>) -> Messages
where
    Connection<S, T>: Future + Unpin + Send + 'static,
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(futures_util::stream::poll_fn(move |context| driver.poll_message(context)))
}

/// What the driver knows by itself, with libpq's meaning where the two differ.
fn config(mut settings: Settings) -> Result<Config, Error> {
    let fallback_name = settings.take("fallback_application_name");
    let idle_given = settings.has("keepalives_idle");
    let interval_given = settings.has("keepalives_interval");
    let retries = settings.take_number("keepalives_count")?;
    // Milliseconds to libpq, seconds to the driver.
    let user_timeout = settings.take_number("tcp_user_timeout")?.filter(|milliseconds| *milliseconds > 0);
    match settings.take("client_encoding").map(|encoding| encoding.to_ascii_lowercase().replace('-', "")).as_deref() {
        None | Some("auto" | "utf8" | "unicode") => {}
        Some(_) => return Err(bad_url("client_encoding can only be UTF8 here".to_owned())),
    }
    if settings.take("gssencmode").is_some_and(|mode| mode == "require") {
        return Err(bad_url("gssencmode=require cannot be had here: use sslmode=require".to_owned()));
    }
    let mut config = settings.into_config()?;
    if config.get_application_name().is_none() {
        config.application_name(fallback_name.as_deref().unwrap_or("postrider"));
    }
    if !idle_given {
        config.keepalives_idle(DEAD_AFTER);
    }
    if !interval_given {
        config.keepalives_interval(ASK_THE_DEAD_EVERY);
    }
    if let Some(retries) = retries.and_then(|retries| u32::try_from(retries).ok()).filter(|retries| *retries > 0) {
        config.keepalives_retries(retries);
    }
    config.tcp_user_timeout(user_timeout.map_or(DEAD_AFTER, Duration::from_millis));
    Ok(config)
}

pub(super) fn bad_url(reason: String) -> Error {
    Error::from(Cause::BadUrl { reason })
}

/// Why there is no connection, and what to do about it.
fn reason(error: &tokio_postgres::Error) -> String {
    match error.as_db_error().map(|db| (db.code().code(), db.message())) {
        Some(("28P01" | "28000", message)) => format!("{message} (check user and password in the database URL)"),
        Some(("3D000", message)) => format!("{message} (create it, or check the name in the database URL)"),
        Some((_, message)) => message.to_owned(),
        // The driver's own text alone is just "error connecting to server".
        None => words_and_causes(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(url: &str) -> String {
        match Connector::new(url) {
            Ok(made) => format!("{} {:?} {:?}", made.target, made.wanted, made.timeout),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_url_names_every_host() {
        for (url, made) in [
            ("postgres://u:hunter2@h/d", "h:5432/d Any 10s"),
            ("postgres://u@a:1,b:2/d", "a:1,b:2/d ReadWrite 3s"),
            ("postgres://a,b/d?target_session_attrs=any&connect_timeout=7", "a:5432,b:5432/d Any 7s"),
            ("postgres://h/d?target_session_attrs=primary", "h:5432/d Primary 10s"),
            ("postgres://h/d?target_session_attrs=prefer-standby", "h:5432/d PreferStandby 10s"),
            ("postgres://[::1]:5433,%2Frun/d", "[::1]:5433,/run:5432/d ReadWrite 3s"),
            ("postgres://u@/?host=a,b&port=6000", "a:6000,b:6000/u ReadWrite 3s"),
            ("host=a hostaddr=10.0.0.1 dbname=d tcp_user_timeout=1500 keepalives_count=3", "a:5432/d Any 10s"),
            (
                "hostaddr=10.0.0.1 dbname=d connect_timeout=0 client_encoding=UTF8 gssencmode=prefer",
                "10.0.0.1:5432/d Any 10s",
            ),
        ] {
            assert_eq!(described(url), made, "{url}");
        }
        for (url, why) in [
            ("postgres:///d", "it names no host"),
            ("postgres://a,b,c/d?port=1,2", "it has 3 hosts and 2 ports"),
            ("postgres://a,b/d?hostaddr=10.0.0.1", "it has 2 hosts and 1 addresses"),
            ("postgres://a,,b/d", "host number 2 is empty"),
            ("postgres://a:port/d", "a port is not a number"),
            ("postgres://a/d?hostaddr=b", "a hostaddr is not an IP address"),
            ("postgres://a/d?target_session_attrs=x", "target_session_attrs is not known"),
            ("postgres://a/d?connect_timeout=x", "connect_timeout is not a whole number"),
            ("postgres://a/d?nonsense=1", "unknown option `nonsense`"),
            ("postgres://a/d?client_encoding=latin1", "client_encoding can only be UTF8"),
            ("postgres://a/d?sslmode=allow", "sslmode=allow is not known"),
        ] {
            let said = described(url);
            assert!(said.contains(why), "{url}: {said}");
        }
    }
}
