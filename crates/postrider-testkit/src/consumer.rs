//! A consumer in another language: a Python process with the client library that its field uses, which reads what a sink
//! delivered. It starts from the beginning, gets over a broker that is killed and restarted, and tells of every message
//! in the order of arrival. Tests of sinks call it; the programs are in the folder `python`.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, PipeReader},
    path::Path,
    process::Stdio,
    thread,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;
use tokio::{
    process::{Child, ChildStdin},
    sync::watch,
    time::timeout,
};

use crate::python;

/// Where the programs are.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
/// A broker that has to recover, on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Of what a consumer says besides, a failing test shows the beginning.
const MOST_REMARKS: usize = 50;

/// One message, as the client library handed it over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The topic, subject, stream or routing key.
    pub subject: String,
    /// Kafka's key, or the field `key` of a Redis entry.
    pub key: Option<Vec<u8>>,
    /// Headers, user properties or fields. What AMQP and MQTT call properties is here too, with `amqp.` (`amqp.message_id`)
    /// or `mqtt.` (`mqtt.ContentType`) before the name.
    pub headers: BTreeMap<String, Vec<u8>>,
    /// The body; of a Redis entry, the field `body`.
    pub body: Vec<u8>,
    /// Kafka's partition.
    pub partition: Option<i32>,
    /// What the broker knows it by: the offset, the stream's sequence, the entry's id; for RabbitMQ the message id (or else
    /// the delivery tag), for MQTT the packet id.
    pub id: String,
}

impl Arrival {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| std::str::from_utf8(value).expect("the header is not UTF-8"))
    }
}

/// A running consumer; it ends when dropped, and when the test process does.
#[derive(Debug)]
pub struct Consumer {
    heard: watch::Receiver<Heard>,
    taken: usize,
    _process: Child,
    // Its end is what ends the process when nobody is left to kill it.
    _input: ChildStdin,
}

#[derive(Debug, Default)]
struct Heard {
    ready: bool,
    arrivals: Vec<Arrival>,
    remarks: Vec<String>,
    ended: bool,
}

impl Consumer {
    /// Reads these topics, which must exist, by confluent-kafka; the address is that of [`crate::Kafka::address`].
    pub async fn kafka(address: &str, topics: &[&str]) -> Self {
        Self::start("consume_kafka.py", &[&[address], topics].concat()).await
    }

    /// Reads a stream by nats-py. With subjects, the stream is made of them, on files, unless it exists.
    pub async fn nats(url: &str, stream: &str, subjects: &[&str]) -> Self {
        Self::start("consume_nats.py", &[&[url, stream], subjects].concat()).await
    }

    /// Reads a queue by pika. The exchange (`kind` is `topic`, `direct`, `fanout` or `headers`), the queue and the binding
    /// are declared, all durable; a second consumer of the same queue goes on where the first left off.
    pub async fn rabbitmq(url: &str, exchange: &str, kind: &str, binding_key: &str, queue: &str) -> Self {
        Self::start("consume_rabbitmq.py", &[url, exchange, kind, binding_key, queue]).await
    }

    /// Reads these streams by redis-py; they need not exist yet.
    pub async fn redis(url: &str, streams: &[&str]) -> Self {
        Self::start("consume_redis.py", &[&[url], streams].concat()).await
    }

    /// Reads what is published under a topic filter by paho-mqtt, MQTT 5, from now on. The session is persistent: under
    /// the same client id, a later consumer gets what came meanwhile.
    pub async fn mqtt(url: &str, client_id: &str, filter: &str) -> Self {
        Self::start("consume_mqtt.py", &[url, client_id, filter]).await
    }

    async fn start(program: &'static str, arguments: &[&str]) -> Self {
        let (output, writer) = std::io::pipe().expect("a pipe can be made");
        let errors = writer.try_clone().expect("a pipe can be shared");
        let mut command = python::command();
        command.arg(Path::new(FOLDER).join(program)).args(arguments);
        command.stdin(Stdio::piped()).stdout(writer).stderr(errors);
        let mut process = command.spawn().unwrap_or_else(|error| panic!("could not run {program}: {error}"));
        // It holds our copies of the pipe's other end, and the end of the output would never come.
        drop(command);
        let input = process.stdin.take().expect("stdin was asked to be piped");
        let (tell, heard) = watch::channel(Heard::default());
        thread::spawn(move || listen(output, &tell));
        let mut consumer = Self { heard, taken: 0, _process: process, _input: input };
        consumer.wait(&format!("{program} to be ready"), |heard| heard.ready).await;
        consumer
    }

    /// The next `count` messages in the order of arrival, waiting for them a minute.
    pub async fn take(&mut self, count: usize) -> Vec<Arrival> {
        let (from, to) = (self.taken, self.taken + count);
        self.wait(&format!("{count} messages"), |heard| heard.arrivals.len() >= to).await;
        self.taken = to;
        self.heard.borrow().arrivals[from..to].to_vec()
    }

    /// Everything that has come, whether taken or not.
    pub fn arrived_so_far(&self) -> Vec<Arrival> {
        self.heard.borrow().arrivals.clone()
    }

    /// What it said besides, for the reader of a failed test.
    pub fn remarks(&self) -> String {
        let heard = self.heard.borrow();
        let state = if heard.ended { "the consumer ended" } else { "the consumer runs" };
        format!("{state}, and said:\n{}", heard.remarks.join("\n"))
    }

    async fn wait(&mut self, what: &str, reached: impl Fn(&Heard) -> bool) {
        // Its result only says that the wait is over; what was heard decides.
        drop(timeout(PATIENCE, self.heard.wait_for(|heard| reached(heard) || heard.ended)).await);
        let heard = self.heard.borrow();
        if reached(&heard) {
            return;
        }
        let came: Vec<String> = heard.arrivals[self.taken..].iter().map(in_short).collect();
        panic!(
            "waited for {what}; {}, {} messages came before and these since:\n{}\nit said:\n{}",
            if heard.ended { "the consumer ended" } else { "a minute was not enough" },
            self.taken,
            came.join("\n"),
            heard.remarks.join("\n"),
        );
    }
}

fn in_short(arrival: &Arrival) -> String {
    let Arrival { subject, id, body, .. } = arrival;
    format!("  {subject} {id}: {}", String::from_utf8_lossy(&body[..body.len().min(60)]))
}

fn listen(output: PipeReader, tell: &watch::Sender<Heard>) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        let line: Line = read(&line);
        tell.send_modify(|heard| match line {
            Line::Ready => heard.ready = true,
            Line::Arrival(arrival) => heard.arrivals.push(arrival),
            Line::Remark(remark) if heard.remarks.len() < MOST_REMARKS => heard.remarks.push(remark),
            Line::Remark(_) => {}
        });
    }
    tell.send_modify(|heard| heard.ended = true);
}

enum Line {
    Ready,
    Arrival(Arrival),
    Remark(String),
}

fn read(line: &str) -> Line {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else { return Line::Remark(line.to_owned()) };
    if fields.contains_key("ready") {
        return Line::Ready;
    }
    arrival(&Value::Object(fields)).map_or_else(|| Line::Remark(line.to_owned()), Line::Arrival)
}

fn arrival(line: &Value) -> Option<Arrival> {
    let bytes = |value: &Value| BASE64_STANDARD.decode(value.as_str()?).ok();
    let headers = line["headers"].as_object()?;
    Some(Arrival {
        subject: line["subject"].as_str()?.to_owned(),
        key: bytes(&line["key_base64"]),
        headers: headers.iter().map(|(name, value)| Some((name.clone(), bytes(value)?))).collect::<Option<_>>()?,
        body: bytes(&line["body_base64"])?,
        partition: line["partition"].as_i64().and_then(|partition| partition.try_into().ok()),
        id: line["id"].as_str()?.to_owned(),
    })
}
