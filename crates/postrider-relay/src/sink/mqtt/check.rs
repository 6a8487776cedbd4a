//! Connects to an MQTT server for `postrider check`, without a message, and reads what it says when it lets us in.

use rumqttc::{ConnAckProperties, QoS};
use tokio::time::timeout;

use super::connection::Connection;
use super::{MqttSink, failure};
use crate::sink::{Finding, SinkFailure};

pub(super) async fn findings(sink: &MqttSink) -> Vec<Finding> {
    // Under an id of its own: that of a running relay would throw it out.
    let mut options = sink.connections.options(0);
    options.set_client_id(format!("postrider-check-{}", uuid::Uuid::new_v4().simple()));
    match timeout(sink.timeout, Connection::open(options)).await {
        Ok(Ok(connection)) => of_terms(sink, &connection.terms),
        Ok(Err(error)) => {
            let failure = failure::of(&error);
            let fix = match failure.code.as_str() {
                SinkFailure::UNAUTHORIZED => "check the user, the password and the server's list of who may do what",
                _ => "check the host, the port, whether the server runs and whether it speaks MQTT 5",
            };
            vec![Finding::broken(format!("no connection: {}", failure.message), fix)]
        }
        Err(_) => {
            let words = failure::silent(sink.timeout).message;
            vec![Finding::broken(words, "check the host, the port, and whether the server is well")]
        }
    }
}

/// What the server said when it let us in.
fn of_terms(sink: &MqttSink, terms: &ConnAckProperties) -> Vec<Finding> {
    let most = |limit: Option<u32>| limit.map_or("any number of".to_owned(), |limit| limit.to_string());
    let mut findings = vec![Finding::works(format!(
        "the server lets us in; it takes {} messages without an answer and packets of {} bytes",
        most(terms.receive_max.map(u32::from)),
        most(terms.max_packet_size)
    ))];
    if terms.max_qos.is_some_and(|max_qos| max_qos < sink.qos as u8) {
        let words =
            format!("the server takes quality {:?} at most, and the sink asks for {:?}", terms.max_qos, sink.qos);
        findings.push(Finding::broken(words, "lower `qos`, or let the server take more"));
    }
    if sink.retain && terms.retain_available == Some(0) {
        findings.push(Finding::broken("the server keeps no retained messages", "set retain = false"));
    }
    if sink.require_subscriber && !sink.retain && sink.qos == QoS::ExactlyOnce {
        let words = "at quality 2 it is not seen when nobody subscribes to a topic, and such a message is lost";
        findings.push(Finding::weak(words, "set qos = 1"));
    }
    findings.extend(sink.destinations.finding(&sink.topic, "topic"));
    findings.push(Finding::weak(
        "an acknowledgement says that the server has the message, not that it will still have it after a crash, and MQTT \
         does not tell",
        "let the server write sessions to disk, and subscribers use sessions that stay",
    ));
    findings
}
