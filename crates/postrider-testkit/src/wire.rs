//! A proxy in front of a PostgreSQL server that counts round trips, for the tests that promise how many a call takes.
//! It passes every byte on unchanged and keeps no more than one buffer a direction. It cannot look into TLS, so it
//! declines it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::protocol::{BUFFER_BYTES, Frames, REQUESTS, listen, startup_message};

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    round_trips: AtomicU64,
}

/// A counting proxy; it ends, with its connections, when dropped.
#[derive(Debug)]
pub struct WireCounter {
    port: u16,
    counts: Arc<Counts>,
    accepting: JoinHandle<()>,
}

impl WireCounter {
    /// Listens on a free port of 127.0.0.1 and connects each client to `target_port`.
    pub async fn start(target_port: u16) -> Self {
        let (listener, port) = listen().await;
        let counts = Arc::new(Counts::default());
        let accepting = tokio::spawn(accept(listener, target_port, Arc::clone(&counts)));
        Self { port, counts, accepting }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database through this proxy, for the superuser.
    pub fn url(&self, database: &crate::Database) -> String {
        crate::database::url(self.port, "postgres", database.name())
    }

    /// How many times the clients have asked and waited: a request is a simple query, or the end of an extended one, and
    /// requests that are sent before the answer to an earlier one has come are one round trip. Start-up is not counted. A
    /// request is counted before the server sees it, so the number is exact when a call returns, also with an error. A
    /// prepared statement that is dropped makes one more, at a time of its own, for which nobody waits.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::SeqCst)
    }

    /// How many connections were made, cancel requests among them.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// Starts both counts at zero again.
    pub fn reset(&self) {
        self.counts.round_trips.store(0, Ordering::SeqCst);
        self.counts.connections.store(0, Ordering::SeqCst);
    }
}

impl Drop for WireCounter {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, target_port: u16, counts: Arc<Counts>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        counts.connections.fetch_add(1, Ordering::SeqCst);
        connections.spawn(relay(client, target_port, Arc::clone(&counts)));
    }
}

async fn relay(mut client: TcpStream, target_port: u16, counts: Arc<Counts>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", target_port)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let startup = startup_message(&mut client).await?;
    server.write_all(&startup).await?;
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    // The answer that ends the start-up is the first to come.
    let unanswered = AtomicU64::new(1);
    let mut requests = Requests::default();
    // Not counted by the answers: an error reaches the client before the `ReadyForQuery` that belongs to it, and a
    // test would read the count in between.
    let up = pass_on(&mut from_client, &mut to_server, |bytes| {
        counts.round_trips.fetch_add(requests.round_trips(bytes, &unanswered), Ordering::SeqCst);
    });
    let mut answers = Frames::default();
    let down = pass_on(&mut from_server, &mut to_client, |bytes| {
        let ready = answers.all(bytes).iter().filter(|frame| frame.kind == b'Z').count();
        unanswered.fetch_sub(ready as u64, Ordering::SeqCst);
    });
    tokio::try_join!(up, down)?;
    Ok(())
}

/// The client's side of a connection.
#[derive(Debug, Default)]
struct Requests {
    frames: Frames,
    /// Some of a request has been sent; whether nothing was unanswered when it began.
    begun: Option<bool>,
}

impl Requests {
    /// How many round trips begin with the requests that end in `bytes`. What counts is when a request began: a long one
    /// that was sent with the one before it ends long after that is answered.
    fn round_trips(&mut self, mut bytes: &[u8], unanswered: &AtomicU64) -> u64 {
        let mut trips = 0;
        while !bytes.is_empty() {
            let alone = *self.begun.get_or_insert_with(|| unanswered.load(Ordering::SeqCst) == 0);
            let Some((frame, length)) = self.frames.next(bytes) else { break };
            bytes = &bytes[length..];
            if REQUESTS.contains(&frame.kind) {
                trips += u64::from(alone);
                unanswered.fetch_add(1, Ordering::SeqCst);
                self.begun = None;
            }
        }
        trips
    }
}

/// The end of one direction is passed on as well, and the other may still have something to say.
async fn pass_on(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut seen: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        seen(&buffer[..length]);
        to.write_all(&buffer[..length]).await?;
    }
}
