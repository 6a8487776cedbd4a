//! A message as MQTT 5 says it: a topic, user properties and a payload. What the protocol has no room for is refused here:
//! a server hangs up on it, and on all that are with it.

use bytes::Bytes;
use postrider::lifecycle::Claimed;
use rumqttc::{Publish, PublishProperties, QoS};

use crate::sink::destinations::Destinations;
use crate::sink::template::Template;
use crate::sink::{SinkFailure, envelope};

/// Every text of MQTT has two bytes for its length.
const MAX_TEXT_BYTES: usize = 65_535;
/// Two bytes of an acknowledged publish that are not counted until it has them.
const PACKET_ID_BYTES: usize = 2;

/// How the server's own topics begin: `$SYS` tells of it, `$CONTROL` changes it.
const OWN: [&str; 1] = ["$"];

pub(super) struct Publication {
    pub(super) topic: String,
    pub(super) payload: Bytes,
    pub(super) properties: PublishProperties,
    /// Of the whole packet.
    size: usize,
}

impl Publication {
    pub(super) fn new(
        message: &Claimed,
        template: &Template,
        destinations: &Destinations,
        qos: QoS,
    ) -> Result<Self, SinkFailure> {
        let topic = template.render(message)?;
        if !is_text(&topic) || topic.is_empty() || topic.contains(['+', '#']) {
            let words = format!("{topic:?} is no topic: it must not be empty, nor hold +, # or control characters");
            return Err(SinkFailure::terminal(SinkFailure::NO_ADDRESS, words));
        }
        destinations.admit(template, &topic, &OWN)?;
        let mut user_properties = Vec::new();
        for (name, value) in envelope::headers(message) {
            if !is_text(name) || !is_text(&value) {
                let words = format!("the header {name:?} holds a control character or has over {MAX_TEXT_BYTES} bytes");
                return Err(SinkFailure::terminal(SinkFailure::INVALID_HEADER, words));
            }
            user_properties.push((name.to_owned(), value.into_owned()));
        }
        let content_type = Some(envelope::content_type(message).to_owned());
        let properties = PublishProperties { user_properties, content_type, ..PublishProperties::default() };
        let payload = Bytes::copy_from_slice(message.content.as_bytes());
        let packet = Publish::new(topic.as_str(), qos, payload, Some(properties));
        let size = packet.size() + PACKET_ID_BYTES;
        let Publish { payload, properties, .. } = packet;
        Ok(Self { topic, payload, properties: properties.unwrap_or_default(), size })
    }

    /// The server said, when it let us in, how large a packet may be.
    pub(super) fn fits(&self, max_packet_size: Option<u32>) -> Result<(), SinkFailure> {
        match max_packet_size.and_then(|most| usize::try_from(most).ok()) {
            Some(most) if self.size > most => {
                let words = format!("its packet has {} bytes, and the server takes {most}", self.size);
                Err(SinkFailure::terminal(SinkFailure::TOO_LARGE, words))
            }
            _ => Ok(()),
        }
    }
}

/// Servers may take a control character for a malformed packet, and some do.
fn is_text(text: &str) -> bool {
    let allowed = |letter: char| !letter.is_control() && !matches!(u32::from(letter) & 0xffff, 0xfffe | 0xffff);
    text.len() <= MAX_TEXT_BYTES && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_what_every_server_takes() {
        assert!(is_text("konto ü/\u{1F40E}") && is_text(""));
        for wrong in ["\0", "a\nb", "\u{85}", "\u{ffff}", "\u{1fffe}"] {
            assert!(!is_text(wrong), "{wrong:?}");
        }
        assert!(!is_text(&"x".repeat(65_536)));
    }
}
