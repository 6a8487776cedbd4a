//! Appends messages to Redis streams with XADD. A batch is one pipeline on a connection that nobody else uses meanwhile: a
//! message alone is a plain XADD, and messages of one lane are one script, `redis/append.lua`, which Redis runs without
//! interruption and which stops at the first that is refused. So whatever fails, the stream holds a prefix of the lane;
//! nothing else is relied on. When a delivery is dropped or goes wrong, so is its connection, with all that it had not
//! yet written.

mod check;
mod failure;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::Claimed;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, Pipeline,
    RedisResult, ServerErrorKind, TlsCertificates, Value,
};
use serde::Deserialize;

use self::failure::{refused, unreachable_after, unreadable};
use super::destinations::Destinations;
use super::idle::Idle;
use super::lanes::{Run, runs};
use super::registry::BuildSink;
use super::template::Template;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict, envelope};
use crate::error::Error;
use crate::options::setters;
use crate::secret::Secret;
use crate::tls;

/// A script of Redis hands on at most some 8,000 values at once, two for each header.
const MAX_HEADERS: usize = 3_500;
/// Messages of one call.
const MAX_MESSAGES: usize = 1_000;
/// Bytes of one call. Redis serves nobody else while it runs the script of a lane, and a script of this size takes it some
/// tens of milliseconds.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The field that holds the content.
const BODY: &str = "body";
/// Stands before the name of a header that would be taken for something else.
const HEADER: &str = "header:";
/// Appends the messages of one lane and stops at the first that is refused.
const APPEND: &str = include_str!("redis/append.lua");

/// How to send to Redis.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Where it is: `redis://user:password@host:6379/0`, `rediss://…` for TLS, `unix:///path`. Not printed, for it may hold
    /// a password; `{ env = "NAME" }` and `{ file = "/path" }` are read as well.
    pub url: Secret,
    /// The password, where it does not stand in the URL. Wins over one that does. Default: none.
    #[serde(default)]
    pub password: Option<Secret>,
    /// A file of PEM certificates to trust instead of those of the system. Default: none.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// A file with our own certificate in PEM, for servers that ask for one; `client_key` goes with it. Default: none.
    #[serde(default)]
    pub client_cert: Option<PathBuf>,
    /// The key of `client_cert`, a PEM file.
    #[serde(default)]
    pub client_key: Option<PathBuf>,
    /// The stream's key. Default `{topic}`.
    #[serde(default = "Template::topic")]
    pub stream: Template,
    /// Which streams messages may name: `["orders:*"]`. By default every key that the login may write to.
    #[serde(default)]
    pub destinations: Destinations,
    /// About how many entries a stream keeps (`MAXLEN ~`): older ones go, whether they were read or not. Default: all of
    /// them, because only the readers know what has been read.
    #[serde(default)]
    pub max_len: Option<u64>,
    /// The longest content, in bytes. Default 512 MiB, which is the server's own limit (`proto-max-bulk-len`) unless it was
    /// changed there: beyond it Redis hangs up without a word about which message it was.
    #[serde(default = "max_message_bytes")]
    pub max_message_bytes: usize,
    /// How long connecting and answering may take together. Default 10 s.
    #[serde(default = "timeout", with = "jiff::fmt::serde::unsigned_duration::friendly::compact::required")]
    pub timeout: Duration,
}

setters! { RedisOptions:
    url: Secret, password: Option<Secret>, ca: Option<PathBuf>, client_cert: Option<PathBuf>,
    client_key: Option<PathBuf>, stream: Template, destinations: Destinations, max_len: Option<u64>,
    max_message_bytes: usize, timeout: Duration,
}

impl RedisOptions {
    pub(crate) const PUBLIC_KEYS: &'static [&'static str] =
        &["url", "ca", "client_cert", "client_key", "stream", "destinations", "timeout"];
}

impl BuildSink for RedisOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(RedisSink::new(self.clone())?))
    }
}

fn max_message_bytes() -> usize {
    512 * 1024 * 1024
}

fn timeout() -> Duration {
    Duration::from_secs(10)
}

impl RedisOptions {
    /// To the server at this address, with the defaults.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self {
            url: Secret::from(url),
            password: None,
            ca: None,
            client_cert: None,
            client_key: None,
            stream: Template::topic(),
            destinations: Destinations::default(),
            max_len: None,
            max_message_bytes: max_message_bytes(),
            timeout: timeout(),
        }
    }
}

/// The files that are named; `None` if none is.
fn certificates(options: &RedisOptions) -> Result<Option<TlsCertificates>, Error> {
    let wrong = |reason: String| Error::options(format!("a Redis sink: {reason}"));
    let file = |path: &PathBuf| {
        std::fs::read(path).map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))
    };
    let client_tls = match (&options.client_cert, &options.client_key) {
        (Some(cert), Some(key)) => Some(ClientTlsConfig { client_cert: file(cert)?, client_key: file(key)? }),
        (None, None) => None,
        _ => return Err(wrong("`client_cert` and `client_key` go together".to_owned())),
    };
    let root_cert = options.ca.as_ref().map(file).transpose()?;
    Ok((client_tls.is_some() || root_cert.is_some()).then_some(TlsCertificates { client_tls, root_cert }))
}

/// A sink that appends to Redis streams.
pub struct RedisSink {
    stream: Template,
    destinations: Destinations,
    max_len: Option<u64>,
    max_message_bytes: usize,
    timeout: Duration,
    /// Where the server is, without user and password.
    address: String,
    client: Client,
    idle: Idle<MultiplexedConnection>,
}

impl RedisSink {
    /// Reads the options. Connects when there is something to send.
    pub fn new(options: RedisOptions) -> Result<Self, Error> {
        let url = options.url.reveal("the URL of a Redis sink")?;
        let mut info = url.into_connection_info().map_err(|error| {
            Error::options(format!(
                "the URL of a Redis sink cannot be read: {error}; it looks like redis://host:6379 or rediss://host:6379"
            ))
        })?;
        if let Some(password) = &options.password {
            let settings = info.redis_settings().clone().set_password(password.reveal("the password of a Redis sink")?);
            info = info.set_redis_settings(settings);
        }
        if options.max_len == Some(0) {
            return Err(Error::options("max_len = 0 would drop every message as it comes; leave it out, or say more"));
        }
        if options.timeout.is_zero() {
            return Err(Error::options("the timeout of a Redis sink is zero: nothing could ever answer in time"));
        }
        options.destinations.check(&options.stream)?;
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            tls::ensure_provider();
        }
        let address = info.addr().to_string();
        let certificates = certificates(&options)?;
        if !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) && certificates.is_some() {
            return Err(Error::options("a Redis sink has certificates, and its URL asks for no TLS: write rediss://"));
        }
        let client = match certificates {
            Some(certificates) => Client::build_with_tls(info, certificates),
            None => Client::open(info),
        };
        let client = client.map_err(|error| Error::options(format!("a Redis sink for {address}: {error}")))?;
        Ok(Self {
            stream: options.stream,
            destinations: options.destinations,
            max_len: options.max_len,
            max_message_bytes: options.max_message_bytes,
            timeout: options.timeout,
            address,
            client,
            idle: Idle::default(),
        })
    }

    /// What there is to send of a batch, and a verdict for what cannot be sent at all.
    fn plan<'a>(&self, batch: &'a [Arc<Claimed>], verdicts: &mut [Verdict]) -> Vec<Flight<'a>> {
        let mut flights = Vec::new();
        for mut run in runs(batch) {
            let mut entries = Vec::with_capacity(run.len());
            for &place in &run {
                match self.entry(&batch[place]) {
                    Ok(entry) => entries.push(entry),
                    Err(failure) => {
                        verdicts[place] = Verdict::Failed(failure);
                        break;
                    }
                }
            }
            run.truncate(entries.len());
            if !run.is_empty() {
                flights.push(Flight { run, entries });
            }
        }
        flights
    }

    fn entry<'a>(&self, message: &'a Claimed) -> Result<Entry<'a>, SinkFailure> {
        let stream = self.stream.render(message)?;
        self.destinations.admit(&self.stream, &stream, &[])?;
        let body = message.content.as_bytes();
        if body.len() > self.max_message_bytes {
            let words =
                format!("the message has {} bytes, and max_message_bytes is {}", body.len(), self.max_message_bytes);
            return Err(SinkFailure::terminal(SinkFailure::TOO_LARGE, words));
        }
        let headers = envelope::headers(message);
        if headers.len() > MAX_HEADERS {
            let words = format!("it has {} headers, and an entry takes at most {MAX_HEADERS}", headers.len());
            return Err(SinkFailure::terminal(SinkFailure::INVALID_HEADER, words));
        }
        Ok(Entry { stream, max_len: self.max_len, headers, body })
    }

    /// Sends the pipeline and waits for its answers. The connection is kept only if all of them are good: after any other
    /// one it is uncertain who is at its end, and a new one resolves the name again.
    async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, SinkFailure> {
        let sent = async {
            let mut connection = match self.idle.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let answers: Vec<Value> = pipeline.query_async(&mut connection).await?;
            Ok((connection, answers))
        };
        let failure = match tokio::time::timeout(self.timeout, sent).await {
            Ok(Ok((connection, answers))) => {
                if answers.iter().any(holds_error) {
                    self.idle.forget();
                } else {
                    self.idle.give_back(connection);
                }
                return Ok(answers);
            }
            Ok(Err(error)) => failure::of(&error, &self.address),
            Err(_) => unreachable_after(self.timeout, &self.address),
        };
        self.idle.forget();
        Err(failure)
    }

    /// Asks something small first: to whoever has not said a password, Redis answers a command as long as ours with a
    /// broken connection.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        // Connecting and answering are bounded together.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        match redis::cmd("PING").exec_async(&mut connection).await {
            Err(error) if error.kind() != ErrorKind::Server(ServerErrorKind::NoPerm) => Err(error),
            _ => Ok(connection),
        }
    }
}

/// The messages of one lane, or one without: one command.
struct Flight<'a> {
    run: Run,
    entries: Vec<Entry<'a>>,
}

/// What one XADD says.
struct Entry<'a> {
    stream: String,
    max_len: Option<u64>,
    headers: Vec<(&'a str, Cow<'a, str>)>,
    body: &'a [u8],
}

impl Entry<'_> {
    /// How many arguments come after the stream's name.
    fn count(&self) -> usize {
        let trimming = if self.max_len.is_some() { 3 } else { 0 };
        trimming + 1 + 2 * (self.headers.len() + 1)
    }

    fn write(&self, command: &mut Cmd) {
        if let Some(max_len) = self.max_len {
            command.arg("MAXLEN").arg("~").arg(max_len);
        }
        command.arg("*");
        for (name, value) in &self.headers {
            command.arg(&*field(name)).arg(&**value);
        }
        command.arg(BODY).arg(self.body);
    }
}

impl Flight<'_> {
    fn command(&self) -> Cmd {
        if let [entry] = self.entries.as_slice() {
            let mut command = redis::cmd("XADD");
            command.arg(&entry.stream);
            entry.write(&mut command);
            return command;
        }
        let mut command = redis::cmd("EVAL");
        command.arg(APPEND).arg(self.entries.len());
        for entry in &self.entries {
            command.arg(&entry.stream);
        }
        for entry in &self.entries {
            command.arg(entry.count());
            entry.write(&mut command);
        }
        command
    }

    /// Reads what Redis said: the id of a single entry, or a list of ids with perhaps an error at its end.
    fn settle(&self, answer: Value, address: &str, verdicts: &mut [Verdict]) {
        let answers = match answer {
            Value::Array(answers) => answers,
            single => vec![single],
        };
        for (&place, answer) in self.run.iter().zip(answers) {
            let verdict = match answer {
                Value::BulkString(id) => delivered(&id),
                Value::SimpleString(id) => delivered(id.as_bytes()),
                Value::ServerError(error) => Verdict::Failed(refused(&error, address)),
                _ => Verdict::Failed(unreadable(address)),
            };
            let failed = matches!(verdict, Verdict::Failed(_));
            verdicts[place] = verdict;
            if failed {
                break;
            }
        }
    }
}

fn delivered(id: &[u8]) -> Verdict {
    Verdict::Delivered(Receipt { reference: Some(String::from_utf8_lossy(id).into_owned()), code: None })
}

fn holds_error(answer: &Value) -> bool {
    match answer {
        Value::ServerError(_) => true,
        Value::Array(answers) => answers.iter().any(holds_error),
        _ => false,
    }
}

/// The field of a header. `body` is the content's, so a header of that name, or one that looks like what we make of it,
/// gets a prefix; no two headers get the same field.
fn field(header: &str) -> Cow<'_, str> {
    if header == BODY || header.starts_with(HEADER) { format!("{HEADER}{header}").into() } else { header.into() }
}

#[async_trait]
impl Sink for RedisSink {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn batching(&self) -> Batching {
        Batching { max_bytes: MAX_BYTES, ..Batching::ordered(MAX_MESSAGES) }
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        // What gets no other answer stands behind a failure of its lane.
        let mut verdicts = vec![Verdict::NotSent; batch.len()];
        let flights = self.plan(batch, &mut verdicts);
        if flights.is_empty() {
            return verdicts;
        }
        let mut pipeline = Pipeline::with_capacity(flights.len());
        pipeline.ignore_errors();
        for flight in &flights {
            pipeline.add_command(flight.command());
        }
        match self.send(&pipeline).await {
            Ok(answers) => {
                for (flight, answer) in flights.iter().zip(answers) {
                    flight.settle(answer, &self.address, &mut verdicts);
                }
            }
            Err(failure) => {
                for flight in &flights {
                    verdicts[flight.run[0]] = Verdict::Failed(failure.clone());
                }
            }
        }
        verdicts
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::look(self).await;
        findings.extend(self.destinations.finding(&self.stream, "stream"));
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_headers_share_a_field() {
        let headers = ["body", "header:body", "header:header:body", "x-body", "Body", "header:"];
        let fields = headers.map(field);
        assert_eq!(
            fields,
            ["header:body", "header:header:body", "header:header:header:body", "x-body", "Body", "header:header:"]
        );
    }

    #[test]
    fn a_url_with_a_password_is_not_printed() {
        let options = RedisOptions::new("redis://relay:hunter2@127.0.0.1:1/0");
        assert!(!format!("{options:?}").contains("hunter2"));
        let error = RedisSink::new(RedisOptions::new("rdis://relay:hunter2@host")).err().expect("no such scheme");
        assert!(!error.to_string().contains("hunter2") && error.to_string().contains("redis://"), "{error}");
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        for wrong in ["{ \"url\": \"redis://h\", \"max_length\": 1 }", "{}"] {
            assert!(serde_json::from_str::<RedisOptions>(wrong).is_err(), "{wrong}");
        }
        for (wrong, reason) in [("\"max_len\": 0", "max_len"), ("\"timeout\": \"0s\"", "timeout")] {
            let options = format!("{{ \"url\": \"redis://h\", {wrong} }}");
            let options: RedisOptions = serde_json::from_str(&options).expect("options");
            let error = RedisSink::new(options).err().expect("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
