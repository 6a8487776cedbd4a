//! Publishes a wave on one channel, then collects the answers and says of which message they make what certain.
//! Called by the sink for each wave; it decides nothing about what goes next.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_util::future::{FusedFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::protocol::AMQPErrorKind;
use lapin::{Channel, Confirmation, ErrorKind};
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::encode::Publication;
use super::failure;
use crate::sink::{Receipt, Verdict};

/// A message of a wave.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) place: usize,
    pub(super) publication: &'a Publication,
    pub(super) body: &'a [u8],
}

impl Outgoing<'_> {
    fn message_id(&self) -> &str {
        self.publication.properties.message_id().as_ref().map_or("", |id| id.as_str())
    }
}

/// What became of a wave.
pub(super) struct Published {
    /// The verdict of each message of which the answers make it certain.
    pub(super) certain: Vec<Option<Verdict>>,
    pub(super) end: End,
}

pub(super) enum End {
    /// Every message has its answer.
    Answered,
    /// The deadline passed.
    Late,
    /// The server blocks publishers.
    Blocked(String),
    /// The channel or the connection was closed.
    Broken(lapin::Error),
}

/// Sends them all and waits for the answers. Unless all are answered the connection is in doubt: dropping it ends it.
pub(super) async fn publish(connection: &mut Connection, outgoing: &[Outgoing<'_>], deadline: Instant) -> Published {
    connection.begin();
    let channel = connection.channel.clone();
    let mut pending: FuturesUnordered<_> =
        (0..outgoing.len()).map(|at| publish_one(&channel, at, outgoing[at]).fuse()).collect();
    let mut answers = Answers { confirmed: outgoing.iter().map(|_| None).collect(), broken: None };
    let mut late = pin!(sleep_until(deadline));
    let mut end = loop {
        tokio::select! {
            biased;
            answer = pending.next() => match answer {
                Some((at, answer)) => answers.note(at, answer),
                None => break End::Answered,
            },
            reason = connection.until_blocked() => break End::Blocked(reason),
            () = &mut late => break End::Late,
        }
    };
    answers.sweep(Pin::new(&mut pending));
    if let Some(error) = answers.broken {
        end = End::Broken(error);
    }
    let certain = certain(outgoing, &answers.confirmed, matches!(end, End::Answered));
    Published { certain, end }
}

async fn publish_one(channel: &Channel, at: usize, one: Outgoing<'_>) -> (usize, Result<Confirmation, lapin::Error>) {
    let Publication { exchange, routing_key, properties, .. } = one.publication;
    let options = BasicPublishOptions { mandatory: true, immediate: false };
    let publishing =
        channel.basic_publish(exchange.clone(), routing_key.clone(), options, one.body, properties.clone());
    let answer = match publishing.await {
        Ok(confirm) => confirm.await,
        Err(error) => Err(error),
    };
    (at, answer)
}

struct Answers {
    confirmed: Vec<Option<Confirmation>>,
    broken: Option<lapin::Error>,
}

impl Answers {
    fn note(&mut self, at: usize, answer: Result<Confirmation, lapin::Error>) {
        match answer {
            Ok(confirmation) => self.confirmed[at] = Some(confirmation),
            // What the server said explains what the library says of the rest.
            Err(error) if self.broken.is_none() || error.is_amqp_error() => self.broken = Some(error),
            Err(_) => {}
        }
    }

    /// Takes every answer that is there. When a round finds none, no return is overlooked that belongs to a confirmation
    /// already seen: the library sets them one after the other, and a return never later than its own confirmation unless
    /// that carries another one's.
    fn sweep<F>(&mut self, mut pending: Pin<&mut FuturesUnordered<F>>)
    where
        F: FusedFuture<Output = (usize, Result<Confirmation, lapin::Error>)>,
    {
        let mut context = Context::from_waker(Waker::noop());
        let mut found = true;
        while std::mem::take(&mut found) {
            for mut future in pending.as_mut().iter_pin_mut().filter(|future| !future.is_terminated()) {
                if let Poll::Ready((at, answer)) = future.as_mut().poll(&mut context) {
                    self.note(at, answer);
                    found = true;
                }
            }
        }
    }
}

/// What the answers say. A return is known by the message id it carries, not by the confirmation that carries it.
fn certain(outgoing: &[Outgoing<'_>], answers: &[Option<Confirmation>], complete: bool) -> Vec<Option<Verdict>> {
    let returned: HashMap<&str, &BasicReturnMessage> = answers
        .iter()
        .flatten()
        .filter_map(carried)
        .filter_map(|message| Some((message.properties.message_id().as_ref()?.as_str(), message)))
        .collect();
    let verdict = |(one, answer): (&Outgoing<'_>, &Option<Confirmation>)| {
        let answer = answer.as_ref()?;
        if let Some(message) = returned.get(one.message_id()) {
            return Some(Verdict::Failed(failure::refused(message.reply_code, message.reply_text.as_str())));
        }
        match answer {
            Confirmation::Nack(_) => Some(Verdict::Failed(failure::nack())),
            // It carries the return of another, and its own may be still to come.
            Confirmation::Ack(Some(_)) if !complete => None,
            Confirmation::Ack(_) => Some(Verdict::Delivered(Receipt::default())),
            Confirmation::NotRequested => None,
        }
    };
    outgoing.iter().zip(answers).map(verdict).collect()
}

fn carried(confirmation: &Confirmation) -> Option<&BasicReturnMessage> {
    match confirmation {
        Confirmation::Ack(message) | Confirmation::Nack(message) => message.as_ref(),
        Confirmation::NotRequested => None,
    }
}

/// Whether one of these closed the channel, and it is not known which.
pub(super) fn may_be_of_one(error: &lapin::Error, left: &[Outgoing<'_>]) -> bool {
    let ErrorKind::ProtocolError(said) = error.kind() else { return false };
    let same = |same: fn(&Publication, &Publication) -> bool| {
        left.windows(2).all(|two| same(two[0].publication, two[1].publication))
    };
    let of_all = match said.get_id() {
        // The exchange is missing.
        404 => same(|one, other| one.exchange == other.exchange),
        // We may not write there, or not with this routing key.
        403 => same(|one, other| one.exchange == other.exchange && one.routing_key == other.routing_key),
        _ => left.len() < 2,
    };
    matches!(said.kind(), AMQPErrorKind::Soft(_)) && !of_all
}
