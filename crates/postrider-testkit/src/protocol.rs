//! As much of PostgreSQL's protocol version 3 as a proxy needs: the start-up without encryption, and where one message
//! of a stream ends and the next begins. Used by the proxies of this crate; it changes nothing and keeps no more of a
//! message than its head.

use std::io;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// One read at a time in each direction of a connection.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;
/// Query, Sync, `FunctionCall`: each is answered with one `ReadyForQuery`.
pub(crate) const REQUESTS: [u8; 3] = *b"QSF";
/// What a client asks for before its start-up message: TLS, or encryption by GSSAPI.
const ENCRYPTION_REQUESTS: [u32; 2] = [80_877_103, 80_877_104];
/// PostgreSQL's own limit for a start-up packet.
const MAX_STARTUP_BYTES: u32 = 10_000;
const HEADER_BYTES: usize = 5;
const LENGTH_BYTES: usize = 4;
/// As much of a body as is kept: a statement's name and the function it calls are in it.
const HEAD_BYTES: usize = 1024;

/// Where a proxy takes its clients.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port of 127.0.0.1 is free");
    let port = listener.local_addr().expect("a listener has an address").port();
    (listener, port)
}

/// Answers requests for encryption with no, and returns the message that follows.
pub(crate) async fn startup_message(client: &mut TcpStream) -> io::Result<Vec<u8>> {
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

/// Where a stream of messages stands: a type byte, a length that counts itself, and a body.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    header: Vec<u8>,
    body_left: usize,
    head: Vec<u8>,
}

/// A message that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    /// The beginning of its body.
    pub(crate) head: Vec<u8>,
}

impl Frames {
    /// Goes on to the end of the next message in `bytes`, and says how far that is. `None`: it has not ended yet, and
    /// all bytes are taken.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Option<(Frame, usize)> {
        let mut taken = 0;
        if self.header.len() < HEADER_BYTES {
            taken = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..taken]);
            let [_, a, b, c, d] = self.header[..] else { return None };
            self.body_left = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(LENGTH_BYTES);
        }
        let body = &bytes[taken..][..self.body_left.min(bytes.len() - taken)];
        self.head.extend(body.iter().take(HEAD_BYTES - self.head.len()));
        self.body_left -= body.len();
        taken += body.len();
        if self.body_left > 0 {
            return None;
        }
        let kind = self.header[0];
        self.header.clear();
        Some((Frame { kind, head: std::mem::take(&mut self.head) }, taken))
    }

    /// The messages that end in `bytes`.
    pub(crate) fn all(&mut self, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some((frame, length)) = self.next(bytes) {
            frames.push(frame);
            bytes = &bytes[length..];
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::Frames;

    const STREAM: &[u8] = b"P\0\0\0\x09SSSSSS\0\0\0\x04B\0\0\0\x04Q\0\0\0\x05QX\0\0\0\x04";

    #[test]
    fn finds_messages_wherever_the_stream_is_cut() {
        for size in 1..=STREAM.len() {
            let mut frames = Frames::default();
            let found: Vec<(u8, Vec<u8>)> =
                STREAM.chunks(size).flat_map(|chunk| frames.all(chunk)).map(|frame| (frame.kind, frame.head)).collect();
            let expected: [(u8, &[u8]); 5] = [(b'P', b"SSSSS"), (b'S', b""), (b'B', b""), (b'Q', b"Q"), (b'X', b"")];
            assert_eq!(found, expected.map(|(kind, head)| (kind, head.to_vec())), "in chunks of {size}");
        }
    }

    #[test]
    fn keeps_the_head_of_a_long_body_only() {
        let mut stream = b"D\0\0\x10\0".to_vec();
        stream.resize(0x1000 + 1, b'x');
        stream.extend(b"Z\0\0\0\x05I");
        let found = Frames::default().all(&stream);
        assert_eq!(
            found.iter().map(|frame| (frame.kind, frame.head.len())).collect::<Vec<_>>(),
            [(b'D', 1024), (b'Z', 1)]
        );
    }
}
