//! Cuts an input into batches of checked messages, in order, in bounded memory. Runs on a thread of its own, ahead of
//! the database by one batch; it knows nothing of the database. The first bad line ends it.

use std::io::{self, BufRead, Read as _};

use postrider::Message;

use super::line;
use crate::exit_code::ExitCode;
use crate::format;

/// The longest line. A body of 16 MiB is 22 MiB in base64; the rest is room for the other fields.
pub(super) const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// A batch ends early at this size: PostgreSQL takes at most 1 GiB in one message, and memory is bounded here too.
const MAX_BATCH_BYTES: usize = 64 * 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Messages for one transaction, and where they came from.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) messages: Vec<Message>,
    /// The line of each message, from 1.
    pub(super) lines: Vec<u64>,
    /// How much of the input is used up after this batch.
    pub(super) end_bytes: u64,
}

/// Why there are no more batches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    pub(super) line: u64,
    pub(super) code: ExitCode,
    pub(super) message: String,
}

/// Hands over batches until the input ends, a line is bad, or nobody takes them any more (`false`).
pub(super) fn read(
    mut input: impl BufRead,
    batch_size: usize,
    mut hand_over: impl FnMut(Result<Batch, BadLine>) -> bool,
) {
    let mut batch = Batch::default();
    let mut batch_bytes = 0;
    let mut end_bytes = 0;
    let mut bytes = Vec::new();
    for number in 1.. {
        let message = match read_line(&mut input, &mut bytes) {
            Ok(false) => break,
            Ok(true) => parse_line(&bytes, number),
            Err(error) => Err((ExitCode::Failure, format!("cannot read the input: {error}"))),
        };
        let message = match message {
            Ok(message) => message,
            Err((code, message)) => {
                hand_over(Err(BadLine { line: number, code, message }));
                return;
            }
        };
        end_bytes += bytes.len() as u64;
        if let Some(message) = message {
            batch.messages.push(message);
            batch.lines.push(number);
            batch_bytes += bytes.len();
        }
        batch.end_bytes = end_bytes;
        if batch.messages.len() >= batch_size || batch_bytes >= MAX_BATCH_BYTES {
            batch_bytes = 0;
            if !hand_over(Ok(std::mem::take(&mut batch))) {
                return;
            }
        }
    }
    if !batch.messages.is_empty() {
        hand_over(Ok(batch));
    }
}

/// Reads one line with its end, but never more than the limit and one byte. `false` at the end of the input.
fn read_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    bytes.shrink_to(MAX_BATCH_BYTES / 64);
    input.take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', bytes)?;
    Ok(!bytes.is_empty())
}

fn parse_line(bytes: &[u8], number: u64) -> Result<Option<Message>, (ExitCode, String)> {
    let invalid = |message: String| (ExitCode::InvalidInput, format!("line {number}: {message}"));
    if bytes.len() > MAX_LINE_BYTES {
        return Err(invalid(format!("longer than {}", format::size(MAX_LINE_BYTES))));
    }
    let bytes = if number == 1 { bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes) } else { bytes };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    line::parse(bytes).map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(input: &[u8], batch_size: usize) -> Vec<Result<(Vec<u64>, u64), BadLine>> {
        let mut seen = Vec::new();
        read(input, batch_size, |batch| {
            seen.push(batch.map(|batch| (batch.lines, batch.end_bytes)));
            true
        });
        seen
    }

    const GOOD: &str = "{\"topic\": \"t\", \"payload\": 1}\n";

    #[test]
    fn blank_lines_are_counted_and_skipped() {
        let input = format!("\u{feff}{GOOD}\n  \r\n{GOOD}{}", GOOD.trim_end());
        let bytes = input.len() as u64;
        let first_two = bytes - GOOD.len() as u64 + 1;
        assert_eq!(collect(input.as_bytes(), 2), [Ok((vec![1, 4], first_two)), Ok((vec![5], bytes))]);
    }

    #[test]
    fn nothing_in_nothing_out() {
        assert_eq!(collect(b"", 2), []);
        assert_eq!(collect(b"\n\n", 2), []);
    }

    #[test]
    fn a_bad_line_ends_it_and_takes_its_batch_along() {
        let input = format!("{GOOD}{GOOD}{GOOD}{{}}\n{GOOD}");
        let bad = BadLine { line: 4, code: ExitCode::InvalidInput, message: "line 4: topic is missing".to_owned() };
        assert_eq!(collect(input.as_bytes(), 2), [Ok((vec![1, 2], 2 * GOOD.len() as u64)), Err(bad)]);
    }

    #[test]
    fn a_line_without_end_is_refused_in_bounded_memory() {
        let mut seen = Vec::new();
        read(io::BufReader::new(io::repeat(b'x')), 2, |batch| {
            seen.push(batch.map(drop));
            true
        });
        let message = "line 1: longer than 32.0 MiB".to_owned();
        assert_eq!(seen, [Err(BadLine { line: 1, code: ExitCode::InvalidInput, message })]);
    }

    #[test]
    fn it_stops_when_nobody_takes_more() {
        let mut count = 0;
        read(io::BufReader::new(GOOD.repeat(10).as_bytes()), 2, |_| {
            count += 1;
            false
        });
        assert_eq!(count, 1);
    }
}
