//! How many requests a batch costs a real broker, counted on the wire between the two. The proxy changes nothing; it looks at
//! the beginning of each request for its kind, and keeps those that produce.

use std::io;
use std::sync::{Arc, Mutex};

use postrider::lifecycle::Claimed;
use postrider_relay::sink::kafka::{KafkaProperty, KafkaSink};
use postrider_testkit::sink_contract::{claimed, deliver};
use postrider_testkit::{Broker as _, Consumer, Kafka};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::{TcpListener, TcpStream};

use super::support::{all_delivered, options};

/// The key of a request that produces, at its beginning.
const PRODUCE: [u8; 2] = [0, 0];
const TOPICS: usize = 3;
const OF_EACH: usize = 100;

type Requests = Arc<Mutex<Vec<Vec<u8>>>>;

async fn pass_on(client: TcpStream, broker: u16, requests: Requests) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_broker, mut to_broker) = TcpStream::connect(("127.0.0.1", broker)).await?.into_split();
    tokio::spawn(async move { copy(&mut from_broker, &mut to_client).await });
    loop {
        let length = from_client.read_u32().await?;
        let mut request = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        from_client.read_exact(&mut request).await?;
        to_broker.write_u32(length).await?;
        to_broker.write_all(&request).await?;
        if request.starts_with(&PRODUCE) {
            requests.lock().expect("no panic").push(request);
        }
    }
}

fn times(words: &str, request: &[u8]) -> usize {
    request.windows(words.len()).filter(|window| *window == words.as_bytes()).count()
}

/// Proves H9: however the messages of a batch are mixed, the broker gets one request for each topic, with all of its messages.
#[tokio::test]
async fn a_real_broker_gets_one_request_for_each_topic() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let kafka = Kafka::start_behind(listener.local_addr().expect("an address").port()).await;
    let (broker, requests) = (kafka.port(), Requests::default());
    let proxied = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_on(client, broker, Arc::clone(&proxied)));
        }
    });
    let mut topics = Vec::new();
    for name in ["blue", "green", "red"] {
        topics.push(kafka.topic(name, 1).await);
    }
    let mut options = options(kafka.address(), "{topic}");
    // Longer than it takes to hand over the messages, on any machine.
    options.properties.insert("linger.ms".to_owned(), KafkaProperty::Number(1_000));
    let sink = KafkaSink::new(options).expect("a sink");
    let messages: Vec<Claimed> =
        (0..TOPICS * OF_EACH).map(|number| claimed(&topics[number % TOPICS], &number.to_string())).collect();
    assert!(all_delivered(&deliver(&sink, &messages).await));

    let requests = std::mem::take(&mut *requests.lock().expect("no panic"));
    assert_eq!(requests.len(), TOPICS);
    for topic in &topics {
        let of_it: Vec<_> = requests.iter().filter(|request| times(topic, request) > 0).collect();
        assert_eq!(of_it.len(), 1, "{topic} has a request of its own");
        assert_eq!(times("postrider-message-id", of_it[0]), OF_EACH, "{topic}");
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    Consumer::kafka(kafka.address(), &names).await.take(messages.len()).await;
}
