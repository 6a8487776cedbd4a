//! Appends messages to Redis streams with XADD. A batch is one pipeline on a connection that nobody else uses meanwhile: a
//! message alone is a plain XADD, and messages of one lane are one script, `redis/append.lua`, which Redis runs without
//! interruption and which stops at the first that is refused. So whatever fails, the stream holds a prefix of the lane;
//! nothing else is relied on. When a delivery is dropped or goes wrong, so is its connection, with all that it had not
//! yet written.

mod check;
mod encode;
mod failure;
mod options;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo as _, Pipeline, RedisResult,
    ServerErrorKind, Value,
};

use self::encode::{Append, entry};
use self::failure::unreachable_after;
pub use self::options::RedisOptions;
use super::destinations::Destinations;
use super::idle::Idle;
use super::lanes::runs;
use super::template::Template;
use super::{Batching, Finding, Sink, SinkFailure, Verdict};
use crate::error::Error;
use crate::tls;

/// Messages of one call.
const MAX_MESSAGES: usize = 1_000;
/// Bytes of one call. Redis serves nobody else while it runs the script of a lane, and a script of this size takes it some
/// tens of milliseconds.
const MAX_BYTES: usize = 16 * 1024 * 1024;
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
        let certificates = options::certificates(&options)?;
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
    fn plan<'a>(&self, batch: &'a [Arc<Claimed>], verdicts: &mut [Verdict]) -> Vec<Append<'a>> {
        let mut appends = Vec::new();
        for mut run in runs(batch) {
            let mut entries = Vec::with_capacity(run.len());
            for &place in &run {
                match entry(self, &batch[place]) {
                    Ok(entry) => entries.push(entry),
                    Err(failure) => {
                        verdicts[place] = Verdict::Failed(failure);
                        break;
                    }
                }
            }
            run.truncate(entries.len());
            if !run.is_empty() {
                appends.push(Append { run, entries });
            }
        }
        appends
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

fn holds_error(answer: &Value) -> bool {
    match answer {
        Value::ServerError(_) => true,
        Value::Array(answers) => answers.iter().any(holds_error),
        _ => false,
    }
}

#[async_trait]
impl Sink for RedisSink {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn batching(&self) -> Batching {
        Batching::ordered(MAX_MESSAGES).max_bytes(MAX_BYTES)
    }

    fn longest(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        // What gets no other answer stands behind a failure of its lane.
        let mut verdicts = vec![Verdict::NotSent; batch.len()];
        let appends = self.plan(batch, &mut verdicts);
        if appends.is_empty() {
            return verdicts;
        }
        let mut pipeline = Pipeline::with_capacity(appends.len());
        pipeline.ignore_errors();
        for append in &appends {
            pipeline.add_command(append.command());
        }
        match self.send(&pipeline).await {
            Ok(answers) => {
                for (append, answer) in appends.iter().zip(answers) {
                    append.settle(answer, &self.address, &mut verdicts);
                }
            }
            Err(failure) => {
                for append in &appends {
                    verdicts[append.run[0]] = Verdict::Failed(failure.clone());
                }
            }
        }
        verdicts
    }

    async fn check(&self) -> Vec<Finding> {
        let mut findings = check::findings(self).await;
        findings.extend(self.destinations.finding(&self.stream, "stream"));
        findings
    }
}
