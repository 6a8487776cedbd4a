//! Where messages go: the contract every sink keeps, and the words it answers in. Sinks sit under `sink/`. A sink never
//! sees the store: it says what happened, and the relay records it.

pub mod checked;
#[cfg(feature = "_network")]
pub mod destinations;
#[cfg(feature = "_network")]
mod envelope;
pub mod file;
pub mod handler;
#[cfg(feature = "http")]
pub mod http;
#[cfg(any(feature = "nats", feature = "redis"))]
mod idle;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod lanes;
#[cfg(feature = "mqtt")]
pub mod mqtt;
#[cfg(feature = "nats")]
pub mod nats;
mod ndjson;
#[cfg(any(feature = "_network", feature = "schema"))]
mod pattern;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis")]
pub mod redis;
pub mod registry;
#[cfg(feature = "schema")]
pub mod schema;
pub mod stdout;
#[cfg(feature = "_network")]
pub mod template;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use postrider::lifecycle::Claimed;

use crate::policy::FailureClass;

registry::kinds! {
    "stdout" => stdout::StdoutOptions;
    "file" => file::FileOptions;
    "http" ("http") => http::HttpOptions;
    "kafka" ("kafka") => kafka::KafkaOptions;
    "mqtt" ("mqtt") => mqtt::MqttOptions;
    "nats" ("nats") => nats::NatsOptions;
    "rabbitmq" ("rabbitmq") => rabbitmq::RabbitmqOptions;
    "redis" ("redis") => redis::RedisOptions;
}

/// Takes messages to one destination.
///
/// **Order.** A batch is in delivery order. Messages of one lane stand in it by sequence, and the relay never has two
/// batches with messages of one lane on their way at once, in this process or any other. Unless
/// [`Batching::ordered`] is set, a batch holds at most one message of a lane. If it is set, the sink keeps the order
/// of each lane at the destination, and when one message of a lane fails it answers [`Verdict::NotSent`] for the later
/// ones of that lane and does not send them.
///
/// **Answer.** One verdict for each message, in the order of the batch. `Delivered` only when the destination has
/// confirmed that it keeps the message. A missing answer counts as a retryable failure of that message.
///
/// **Duplicates.** The relay may deliver a message again whose answer was lost, by crash or by timeout. The message id
/// is the same each time, and so is the place in the lane: destinations deduplicate by them.
///
/// **Deadline and cancellation.** When the deadline passes, the relay shuts down at once, or the lease cannot be kept,
/// the future is dropped. It must not leave work behind that still sends: what it started it must stop when dropped.
///
/// **Concurrency.** `deliver` is called from several tasks at once, up to the sink's concurrency.
///
/// **Panics** are caught and count as a retryable failure of every message of the batch. A sink must not block its
/// thread: blocking work goes to `tokio::task::spawn_blocking`.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// What it is, for people who look at a relay: `http`, `kafka`.
    fn kind(&self) -> &'static str {
        "custom"
    }

    /// How the sink wants its batches. Asked once, at start.
    fn batching(&self) -> Batching {
        Batching::one_by_one()
    }

    /// The longest that a delivery takes by the sink's own limits; `None` if it has none. The relay's deadline should be
    /// later: a delivery that it cuts off may have arrived in part.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// Delivers a batch and says what became of each message.
    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict>;

    /// Looks at the destination without sending a message: whether it answers, whether what is needed there exists, and
    /// what about it is weak. Asked by an operator, never while delivering. It must come to an end by itself.
    async fn check(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// One sink under several names.
#[async_trait]
impl<S: Sink + ?Sized> Sink for Arc<S> {
    fn kind(&self) -> &'static str {
        (**self).kind()
    }

    fn batching(&self) -> Batching {
        (**self).batching()
    }

    fn longest(&self) -> Option<Duration> {
        (**self).longest()
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        (**self).deliver(batch).await
    }

    async fn check(&self) -> Vec<Finding> {
        (**self).check().await
    }
}

/// How a sink wants its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batching {
    /// At most this many messages.
    pub max_messages: usize,
    /// At most this many bytes of content, unless one message alone has more.
    pub max_bytes: usize,
    /// Whether several messages of one lane may stand in one batch: the sink keeps their order.
    pub ordered: bool,
}

impl Batching {
    /// One message at a time.
    #[must_use]
    pub fn one_by_one() -> Self {
        Self { max_messages: 1, max_bytes: usize::MAX, ordered: false }
    }

    /// Up to so many messages at once, each lane in order.
    #[must_use]
    pub fn ordered(max_messages: usize) -> Self {
        Self { max_messages, max_bytes: usize::MAX, ordered: true }
    }

    /// Up to so many messages at once, at most one of each lane.
    #[must_use]
    pub fn unordered(max_messages: usize) -> Self {
        Self { max_messages, max_bytes: usize::MAX, ordered: false }
    }

    /// At most this many bytes of content, unless one message alone has more.
    #[must_use]
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }
}

/// What became of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The destination keeps it.
    Delivered(Receipt),
    /// It does not, or did not say so.
    Failed(SinkFailure),
    /// It was not sent at all: handed back, as if it had not been claimed.
    NotSent,
}

/// What the destination said about a message it took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Its reference: an offset, a receipt number.
    pub reference: Option<String>,
    /// Its code, such as an HTTP status.
    pub code: Option<String>,
}

impl Receipt {
    /// Sets the destination's reference.
    #[must_use]
    pub fn reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Sets the destination's code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }
}

impl From<()> for Receipt {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// Why a message was not delivered. Codes are for machines, the message is for people.
///
/// Any error becomes a retryable failure with the code [`SinkFailure::ERROR`], so `?` works in a handler; what must not
/// be retried is said with [`SinkFailure::terminal`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkFailure {
    /// A short stable code: `HTTP_503`. Decides, in the sink's table of codes, whether trying again can help.
    pub code: String,
    /// What happened.
    pub message: String,
    /// Whether trying again can help, unless the table of codes says otherwise.
    pub class: FailureClass,
    /// How long the destination asks to be left alone.
    pub retry_after: Option<Duration>,
    /// The destination's own code, such as a field of its reply. The table of codes is asked for it before it is asked
    /// for [`SinkFailure::code`]; it stands beside the attempt.
    pub reply_code: Option<String>,
    /// What the destination answered, or the first part of it: it stands beside the attempt, for people.
    pub answer: Option<String>,
    /// The destination says that it wants nothing more: the sink is to be paused until a person resumes it.
    pub pause: bool,
}

impl SinkFailure {
    /// A handler returned an error without a code.
    pub const ERROR: &'static str = "ERROR";
    /// The delivery was not finished at its deadline.
    pub const TIMEOUT: &'static str = "TIMEOUT";
    /// The relay ended, and its grace period with it, before the destination answered.
    pub const CUT_SHORT: &'static str = "CUT_SHORT";
    /// The sink panicked.
    pub const PANIC: &'static str = "PANIC";
    /// The payload cannot be what the receiver expects.
    pub const INVALID_PAYLOAD: &'static str = "INVALID_PAYLOAD";
    /// A header's name or value cannot be sent to this destination.
    pub const INVALID_HEADER: &'static str = "INVALID_HEADER";
    /// The message cannot be addressed: the sink's template asks for what it does not have.
    pub const NO_ADDRESS: &'static str = "NO_ADDRESS";
    /// The message asks for a destination that the sink does not let producers choose.
    pub const FORBIDDEN_DESTINATION: &'static str = "FORBIDDEN_DESTINATION";
    /// The message is larger than the destination takes.
    pub const TOO_LARGE: &'static str = "TOO_LARGE";
    /// The store cannot hand the message out.
    pub const UNREADABLE: &'static str = "UNREADABLE";
    /// The destination cannot be reached, or the connection broke before it answered.
    pub const UNREACHABLE: &'static str = "UNREACHABLE";
    /// The destination does not let us in, or not do this.
    pub const UNAUTHORIZED: &'static str = "UNAUTHORIZED";
    /// The sink gave no answer for a message of its batch.
    pub const NO_ANSWER: &'static str = "NO_ANSWER";

    /// Whether it was refused on this side, before a byte was sent: it says nothing about the destination.
    pub(crate) fn is_refused_here(&self) -> bool {
        let here = [
            Self::INVALID_PAYLOAD,
            Self::INVALID_HEADER,
            Self::NO_ADDRESS,
            Self::FORBIDDEN_DESTINATION,
            Self::TOO_LARGE,
        ];
        here.contains(&self.code.as_str())
    }

    /// What may stand in a log: the words of our own sinks. An error or a panic of a handler may repeat the message.
    pub(crate) fn words_for_the_log(&self) -> Option<&str> {
        let others = [Self::ERROR, Self::PANIC].contains(&self.code.as_str());
        (!others).then_some(self.message.as_str())
    }

    pub(crate) fn no_answer() -> Self {
        Self::retryable(Self::NO_ANSWER, "the sink gave no answer for this message")
    }

    /// A failure that another try may cure.
    #[must_use]
    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Retryable, code, message)
    }

    /// A failure that no other try can cure.
    #[must_use]
    pub fn terminal(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(FailureClass::Terminal, code, message)
    }

    /// A failure of this class.
    #[must_use]
    pub fn new(class: FailureClass, code: impl Into<String>, message: impl Into<String>) -> Self {
        let (code, message) = (code.into(), message.into());
        Self { code, message, class, retry_after: None, reply_code: None, answer: None, pause: false }
    }

    /// The destination asks to be left alone for this long.
    #[must_use]
    pub fn retry_after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }

    /// The destination's own code.
    #[must_use]
    pub fn reply_code(mut self, reply_code: impl Into<String>) -> Self {
        self.reply_code = Some(reply_code.into());
        self
    }

    /// What the destination answered. The store cuts it at 8,192 characters.
    #[must_use]
    pub fn answer(mut self, answer: impl Into<String>) -> Self {
        self.answer = Some(answer.into());
        self
    }

    /// The sink is to be paused: nothing more is sent there until a person resumes it.
    #[must_use]
    pub fn pausing(mut self) -> Self {
        self.pause = true;
        self
    }
}

/// One thing that a look at a destination found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How it is.
    pub level: Level,
    /// What was found.
    pub what: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How good something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It works.
    Works,
    /// It works, and messages can be lost, doubled or misled there.
    Weak,
    /// Nothing can be delivered like this.
    Broken,
}

impl Finding {
    /// Something that works.
    #[must_use]
    pub fn works(what: impl Into<String>) -> Self {
        Self { level: Level::Works, what: what.into(), fix: None }
    }

    /// Something that works, and not as well as it could.
    #[must_use]
    pub fn weak(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Weak, what: what.into(), fix: Some(fix.into()) }
    }

    /// Something that does not work.
    #[must_use]
    pub fn broken(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { level: Level::Broken, what: what.into(), fix: Some(fix.into()) }
    }
}

/// `SinkFailure` itself is no `std::error::Error`, so that this can be for all that are.
impl<E: std::error::Error> From<E> for SinkFailure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self::retryable(Self::ERROR, message)
    }
}

pub(crate) fn rfc3339(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map(|time| time.to_string()).unwrap_or_default()
}
