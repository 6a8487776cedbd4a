//! A proxy in front of a PostgreSQL server that counts round trips, for the tests that promise how many a call takes.
//! It reads just enough of protocol version 3 to find what the server answers with `ReadyForQuery`, passes every byte
//! on unchanged, and keeps no more than one buffer a direction. It cannot look into TLS, so it declines it.

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

/// One read at a time in each direction of a connection.
const BUFFER_BYTES: usize = 16 * 1024;
/// What a client asks for before its start-up message: TLS, or encryption by GSSAPI.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// PostgreSQL's own limit for a start-up packet.
const MAX_STARTUP_BYTES: u32 = 10_000;

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
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start(target_port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port of 127.0.0.1 is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let counts = Arc::new(Counts::default());
        let accepting = tokio::spawn(accept(listener, target_port, Arc::clone(&counts)));
        Self { port, counts, accepting }
    }

    /// The port to connect to instead of the server's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of a database through this proxy, for the superuser.
    #[must_use]
    pub fn url(&self, database: &crate::Database) -> String {
        crate::database::url(self.port, "postgres", database.name())
    }

    /// How many times the clients have asked for an answer and the server's `ReadyForQuery` after it: a simple query,
    /// or the end of an extended one. Start-up is not counted. A request is counted before the server sees it, so the
    /// number is exact when a call returns, also with an error. A prepared statement that is dropped makes one more,
    /// at a time of its own, for which nobody waits.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::SeqCst)
    }

    /// How many connections were made, cancel requests among them.
    #[must_use]
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
    let mut requests = Requests::default();
    // Not counted by the answers: an error reaches the client before the `ReadyForQuery` that belongs to it, and a
    // test would read the count in between.
    let up = pass_on(&mut from_client, &mut to_server, |bytes| {
        counts.round_trips.fetch_add(requests.count(bytes), Ordering::SeqCst);
    });
    let down = pass_on(&mut from_server, &mut to_client, |_| ());
    tokio::try_join!(up, down)?;
    Ok(())
}

/// Answers requests for encryption with no, and returns the message that follows.
async fn startup_message(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    loop {
        let length = client.read_u32().await?;
        if !(8..=MAX_STARTUP_BYTES).contains(&length) {
            return Err(io::Error::other("not a PostgreSQL start-up message"));
        }
        let code = client.read_u32().await?;
        if ENCRYPTION_REQUESTS.contains(&code) {
            client.write_all(b"N").await?;
            continue;
        }
        let mut message = [length.to_be_bytes(), code.to_be_bytes()].concat();
        let rest = u64::from(length - 8);
        client.take(rest).read_to_end(&mut message).await?;
        return Ok(message);
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

/// Where a client's stream of messages stands: a type byte, a length that counts itself, and a body to skip.
#[derive(Debug, Default)]
struct Requests {
    header: Vec<u8>,
    body_left: usize,
}

impl Requests {
    const HEADER_BYTES: usize = 5;
    const LENGTH_BYTES: usize = 4;
    /// Query, Sync, `FunctionCall`: each is answered with one `ReadyForQuery`.
    const COUNTED: [u8; 3] = *b"QSF";

    fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut counted = 0;
        while !bytes.is_empty() {
            let skipped = self.body_left.min(bytes.len());
            self.body_left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (Self::HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [kind, a, b, c, d] = self.header[..] {
                self.body_left = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(Self::LENGTH_BYTES);
                counted += u64::from(Self::COUNTED.contains(&kind));
                self.header.clear();
            }
        }
        counted
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    const STREAM: &[u8] = b"P\0\0\0\x09SSSSSS\0\0\0\x04B\0\0\0\x04Q\0\0\0\x05QX\0\0\0\x04";

    #[test]
    fn counts_requests_wherever_the_stream_is_cut() {
        assert_eq!(Requests::default().count(STREAM), 2);
        for size in 1..STREAM.len() {
            let mut requests = Requests::default();
            let counted: u64 = STREAM.chunks(size).map(|chunk| requests.count(chunk)).sum();
            assert_eq!(counted, 2, "in chunks of {size}");
        }
    }
}
