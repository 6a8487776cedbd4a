//! How connections are kept: one after the other goes over the same, and one on which the receiver hung up costs no attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_relay::sink::http::HttpOptions;
use postrider_testkit::sink_contract::claimed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{delivered, sink};

const DELIVERIES: usize = 10;
/// The runtime looks at its sockets at least once in so many turns of a task.
const TURNS: usize = 200;

/// Answers the requests of a connection, each with 200, up to so many; then hangs up.
async fn answer(mut connection: TcpStream, most: usize) {
    let mut seen = Vec::new();
    for _ in 0..most {
        // The body is the one byte behind the headers.
        while !seen.windows(5).any(|end| end.starts_with(b"\r\n\r\n")) {
            if connection.read_buf(&mut seen).await.expect("a request") == 0 {
                return;
            }
        }
        seen.clear();
        connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("an answer");
    }
}

/// How many connections it took to deliver one message after the other to a receiver that hangs up after so many.
async fn connections(most: usize) -> usize {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (hung_up, mut ends) = mpsc::unbounded_channel();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    let serving = tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await.expect("a connection");
            count.fetch_add(1, Ordering::Relaxed);
            answer(connection, most).await;
            hung_up.send(()).expect("the test goes on");
        }
    });
    let sink = sink(&HttpOptions::new(format!("http://{address}/").parse().expect("a template")));
    for delivery in 1..=DELIVERIES {
        delivered(&sink, &claimed("t", "1")).await;
        if delivery % most == 0 {
            ends.recv().await.expect("it hangs up");
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
        }
    }
    serving.abort();
    accepted.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_receiver_that_hung_up_costs_no_attempt() {
    assert_eq!(connections(1).await, DELIVERIES);
    assert_eq!(connections(DELIVERIES).await, 1);
}
