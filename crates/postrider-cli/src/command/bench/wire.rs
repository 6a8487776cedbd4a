//! A proxy before a PostgreSQL server that counts round trips: every request that a client ends and waits for. It passes every
//! byte on unchanged and cannot look into TLS. Used for one measurement alone, because it costs time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub(super) const HOST: &str = "127.0.0.1";
const BUFFER_BYTES: usize = 64 * 1024;
/// Type and length of a message.
const HEADER_BYTES: usize = 5;
/// The end of an extended query, and a simple query.
const REQUESTS: [u8; 2] = [b'S', b'Q'];

pub(super) struct Wire {
    port: u16,
    count: Arc<AtomicU64>,
    _accepting: AbortOnDropHandle<()>,
}

impl Wire {
    /// Before the server at `target`: `host:port`, or a directory of sockets and `:port`.
    pub(super) async fn start(target: String) -> io::Result<Self> {
        let listener = TcpListener::bind((HOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let count = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, target, Arc::clone(&count)));
        Ok(Self { port, count, _accepting: AbortOnDropHandle::new(accepting) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }
}

async fn accept(listener: TcpListener, target: String, count: Arc<AtomicU64>) {
    // Dropped with this task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(connect(client, target.clone(), Arc::clone(&count)));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, target: String, count: Arc<AtomicU64>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (host, port) = target.rsplit_once(':').unwrap_or((&target, "5432"));
    if host.starts_with('/') {
        let (from, to) = UnixStream::connect(format!("{host}/.s.PGSQL.{port}")).await?.into_split();
        return pass(client, from, to, &count).await;
    }
    let host = host.trim_matches(['[', ']']);
    let server = TcpStream::connect((host, port.parse().map_err(io::Error::other)?)).await?;
    server.set_nodelay(true)?;
    let (from, to) = server.into_split();
    pass(client, from, to, &count).await
}

async fn pass(
    mut client: TcpStream,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
) -> io::Result<()> {
    let (mut from_client, mut to_client) = client.split();
    // The first message has no type; the driver asks for no TLS, so there is one alone.
    let length = from_client.read_u32().await?;
    let mut startup = vec![0; (length as usize).clamp(4, 10_000) - 4];
    from_client.read_exact(&mut startup).await?;
    to.write_u32(length).await?;
    to.write_all(&startup).await?;
    let requests = async {
        let (mut buffer, mut frames) = (vec![0; BUFFER_BYTES], Frames::default());
        loop {
            let length = from_client.read(&mut buffer).await?;
            if length == 0 {
                return to.shutdown().await;
            }
            count.fetch_add(frames.requests(&buffer[..length]), Ordering::Relaxed);
            to.write_all(&buffer[..length]).await?;
        }
    };
    tokio::try_join!(requests, tokio::io::copy(&mut from, &mut to_client))?;
    Ok(())
}

/// Takes the client's bytes apart, as they come.
#[derive(Default)]
struct Frames {
    header: Vec<u8>,
    /// Bytes of the present message that are still to come.
    rest: usize,
}

impl Frames {
    fn requests(&mut self, mut bytes: &[u8]) -> u64 {
        let mut requests = 0;
        loop {
            let skipped = self.rest.min(bytes.len());
            (self.rest, bytes) = (self.rest - skipped, &bytes[skipped..]);
            let missing = HEADER_BYTES - self.header.len();
            if bytes.len() < missing {
                self.header.extend_from_slice(bytes);
                return requests;
            }
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            requests += u64::from(REQUESTS.contains(&self.header[0]));
            let length = self.header[1..].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            self.rest = length.saturating_sub(HEADER_BYTES - 1);
            self.header.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_however_the_bytes_come() {
        let bytes = b"P\0\0\0\x08quryS\0\0\0\x04Q\0\0\0\x06ok";
        assert_eq!(Frames::default().requests(bytes), 2);
        let mut frames = Frames::default();
        assert_eq!(bytes.iter().map(|byte| frames.requests(&[*byte])).sum::<u64>(), 2);
    }
}
