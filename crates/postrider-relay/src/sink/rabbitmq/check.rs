//! Looks at RabbitMQ for `postrider check`, without a message: whether it lets us in, and whether what is addressed exists.
//! Whether a queue is bound, or whether something is durable, AMQP tells nobody who does not send or declare.

use std::time::Duration;

use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};
use tokio::time::timeout;

use super::connection::{Connection, ConnectionPool};
use super::encode::Encoder;
use super::failure;
use crate::sink::template::Template;
use crate::sink::{Finding, SinkFailure};

pub(super) async fn findings(connections: &ConnectionPool, encoder: &Encoder) -> Vec<Finding> {
    let target = connections.target();
    let asking = async {
        let connection = match Connection::open(target).await {
            Ok(connection) => connection,
            Err(error) => return vec![not_let_in(&error)],
        };
        let uri = &target.uri;
        let mut findings = vec![Finding::works(format!(
            "RabbitMQ at {}:{} lets us into the virtual host {:?} and confirms what is published",
            uri.authority.host, uri.authority.port, uri.vhost
        ))];
        findings.extend(of_the_exchange(&connection.channel, encoder).await);
        if let Some(reason) = connections.blocked() {
            findings.push(Finding::broken(
                format!("the server has blocked its publishers: {reason}"),
                "give it memory or disk: `rabbitmq-diagnostics alarms` tells which",
            ));
        }
        findings
    };
    timeout(target.timeout, asking).await.unwrap_or_else(|_| vec![silent(target.timeout)])
}

async fn of_the_exchange(channel: &Channel, encoder: &Encoder) -> Option<Finding> {
    let (exchange, routing_key) = (encoder.exchange.as_ref(), &encoder.routing_key);
    match (exchange.map(Template::fixed), routing_key.fixed()) {
        (Some(Some(name)), _) => {
            let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
            let name = ShortString::try_new(name).ok()?;
            let found =
                channel.exchange_declare(name.clone(), ExchangeKind::Topic, options, FieldTable::default()).await;
            Some(match found {
                Ok(()) => Finding::weak(
                    format!(
                        "the exchange {name:?} exists; AMQP does not tell whether it and the queues behind it are durable"
                    ),
                    "see `rabbitmqctl list_exchanges name durable` and `rabbitmqctl list_queues name durable`",
                ),
                Err(error) => missing(&format!("the exchange {name:?}"), &error),
            })
        }
        (None, Some(name)) => {
            let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let name = ShortString::try_new(name).ok()?;
            let found = channel.queue_declare(name.clone(), options, FieldTable::default()).await;
            Some(match found {
                Ok(_) => Finding::weak(
                    format!("the queue {name:?} exists; AMQP does not tell whether it is durable"),
                    "see `rabbitmqctl list_queues name durable`",
                ),
                Err(error) => missing(&format!("the queue {name:?}"), &error),
            })
        }
        _ => Some(Finding::works(
            "where a message goes depends on the message, so that is not looked at: one without a route fails and is \
                 tried again",
        )),
    }
}

fn missing(what: &str, error: &lapin::Error) -> Finding {
    Finding::broken(
        format!("{what} cannot be used: {}", failure::of(error).message),
        "declare it, durable, before anything is sent; it is never declared from here",
    )
}

fn not_let_in(error: &lapin::Error) -> Finding {
    let failure = failure::of(error);
    let fix = match failure.code.as_str() {
        SinkFailure::UNAUTHORIZED => "check the user, the password and `rabbitmqctl list_permissions`",
        SinkFailure::UNREACHABLE => "check the host, the port, and whether the server runs",
        _ => "check the virtual host, and `rabbitmqctl list_vhosts`",
    };
    Finding::broken(format!("no connection: {}", failure.message), fix)
}

fn silent(timeout: Duration) -> Finding {
    Finding::broken(failure::silent(timeout).message, "check the host, the port, and whether the server is well")
}
