//! A message as AMQP says it: an exchange, a routing key and properties. What AMQP cannot say is refused here, before it
//! closes a channel that others use; the body is sent as it is.

use std::time::UNIX_EPOCH;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use postrider::lifecycle::Claimed;

use crate::sink::destinations::Destinations;
use crate::sink::template::Template;
use crate::sink::{Finding, SinkFailure, envelope};

const PERSISTENT: u8 = 2;
const APP_ID: &str = "postrider";
/// A header's length bytes and type.
const HEADER_OVERHEAD: usize = 6;
/// All of a content header besides the headers and the content type, generously.
const PROPERTIES_OVERHEAD: usize = 256;
/// RabbitMQ reads more addresses from these, and closes the channel unless they are lists: a header is text.
const RESERVED: [&str; 2] = ["CC", "BCC"];

/// How the server's own exchanges and queues begin, the one for replies among them.
const OWN: [&str; 1] = ["amq."];

/// Everything but the body.
#[derive(Clone)]
pub(super) struct Publication {
    pub(super) exchange: ShortString,
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    /// How much of one frame the properties take.
    pub(super) header_bytes: usize,
}

/// Where messages go, and how large they may be.
pub(super) struct Encoder {
    pub(super) exchange: Option<Template>,
    pub(super) routing_key: Template,
    pub(super) destinations: Destinations,
    pub(super) max_message_size: usize,
}

impl Encoder {
    /// Exchange and routing key. Without an exchange of its own, the routing key is the name of a queue.
    fn address(&self, message: &Claimed) -> Result<(String, String), SinkFailure> {
        let routing_key = self.routing_key.render(message)?;
        let Some(template) = &self.exchange else {
            self.destinations.admit(&self.routing_key, &routing_key, &OWN)?;
            return Ok((String::new(), routing_key));
        };
        let exchange = template.render(message)?;
        if exchange.is_empty() {
            let words = "the message's exchange would have no name, and so be the server's default one";
            return Err(SinkFailure::terminal(SinkFailure::NO_ADDRESS, words));
        }
        self.destinations.admit(template, &format!("{exchange}/{routing_key}"), &OWN)?;
        Ok((exchange, routing_key))
    }

    /// What is weak about it. Behind an exchange of the operator's, bindings decide on the queue.
    pub(super) fn finding(&self) -> Option<Finding> {
        match &self.exchange {
            Some(exchange) => self.destinations.finding(exchange, "exchange"),
            None => self.destinations.finding(&self.routing_key, "routing_key"),
        }
    }

    pub(super) fn encode(&self, message: &Claimed) -> Result<Publication, SinkFailure> {
        let size = message.content.as_bytes().len();
        if size > self.max_message_size {
            let words = format!("{size} bytes are more than the sink's max_message_size, {}", self.max_message_size);
            return Err(SinkFailure::terminal(SinkFailure::TOO_LARGE, words));
        }
        let (exchange, routing_key) = self.address(message)?;
        let (headers, header_bytes) = headers(message)?;
        let content_type = envelope::content_type(message);
        let mut properties = BasicProperties::default()
            .with_delivery_mode(PERSISTENT)
            .with_message_id(message.message_id.to_string().into())
            .with_app_id(APP_ID.into())
            .with_content_type(short(content_type, "content type", SinkFailure::INVALID_HEADER)?)
            .with_headers(headers);
        if let Ok(since) = message.occurred_at.duration_since(UNIX_EPOCH) {
            properties = properties.with_timestamp(since.as_secs());
        }
        Ok(Publication {
            exchange: short(&exchange, "exchange", SinkFailure::NO_ADDRESS)?,
            routing_key: short(&routing_key, "routing key", SinkFailure::NO_ADDRESS)?,
            properties,
            header_bytes: header_bytes + content_type.len() + PROPERTIES_OVERHEAD,
        })
    }
}

impl Publication {
    /// Properties must fit into one frame; a larger one closes the connection.
    pub(super) fn fits(&self, frame_max: usize) -> Result<(), SinkFailure> {
        if frame_max == 0 || self.header_bytes <= frame_max {
            return Ok(());
        }
        let words = format!("its headers take {} bytes, and a frame of this server {frame_max}", self.header_bytes);
        Err(SinkFailure::terminal(SinkFailure::INVALID_HEADER, words))
    }
}

fn headers(message: &Claimed) -> Result<(FieldTable, usize), SinkFailure> {
    let mut table = FieldTable::default();
    let mut bytes = 0;
    for (name, value) in envelope::headers(message) {
        if RESERVED.contains(&name) {
            let words = format!("RabbitMQ takes the header {name} for a list of addresses; give it another name");
            return Err(SinkFailure::terminal(SinkFailure::INVALID_HEADER, words));
        }
        bytes += name.len() + value.len() + HEADER_OVERHEAD;
        let name = short(name, "name of a header", SinkFailure::INVALID_HEADER)?;
        table.insert(name, AMQPValue::LongString(LongString::from(value.into_owned())));
    }
    Ok((table, bytes))
}

fn short(text: &str, what: &str, code: &'static str) -> Result<ShortString, SinkFailure> {
    ShortString::try_new(text)
        .map_err(|_| SinkFailure::terminal(code, format!("its {what} has {} bytes, and AMQP takes 255", text.len())))
}
