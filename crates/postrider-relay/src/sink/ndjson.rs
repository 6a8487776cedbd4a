//! A message as one line of JSON, and how lines are written: whole, in writes that a pipe takes in one piece, so several
//! relays may share one pipe or one file opened for appending. Used by the sinks for stdout and for files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider::lifecycle::{Claimed, Content};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::rfc3339;

/// What a pipe takes in one piece (`PIPE_BUF` on Linux). A longer line goes alone.
const WRITE_BYTES: usize = 4_096;

/// A batch as lines, in its order.
pub(super) fn lines(batch: &[Arc<Claimed>]) -> Result<Vec<Vec<u8>>, serde_json::Error> {
    batch.iter().map(|message| line(message)).collect()
}

/// Writes lines in whole pieces, until it is given up.
pub(super) fn write(file: &mut File, lines: &[Vec<u8>], given_up: &CancellationToken) -> io::Result<()> {
    let mut write = |piece: &[u8]| {
        if given_up.is_cancelled() { Err(io::ErrorKind::TimedOut.into()) } else { file.write_all(piece) }
    };
    let mut piece: Vec<u8> = Vec::with_capacity(WRITE_BYTES);
    for line in lines {
        if !piece.is_empty() && piece.len() + line.len() > WRITE_BYTES {
            write(&piece)?;
            piece.clear();
        }
        piece.extend_from_slice(line);
    }
    write(&piece)?;
    file.flush()
}

/// A message as its line says it. Fields that are not there are left out.
#[derive(Serialize)]
struct Line<'a> {
    message_id: Uuid,
    namespace: &'a str,
    topic: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<&'a str>,
    priority: i32,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    /// Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    occurred_at: String,
    attempt_no: i32,
}

fn line(message: &Claimed) -> Result<Vec<u8>, serde_json::Error> {
    let (payload, body) = match &message.content {
        Content::Json(payload) => (Some(&**payload), None),
        Content::Bytes(body) => (None, Some(STANDARD.encode(body))),
    };
    let mut line = serde_json::to_vec(&Line {
        message_id: message.message_id,
        namespace: &message.namespace,
        topic: &message.topic,
        tenant_id: message.tenant_id.as_deref(),
        lane: message.lane.as_deref(),
        sequence_id: message.sequence_id,
        dedupe_key: message.dedupe_key.as_deref(),
        priority: message.priority,
        headers: &message.headers,
        payload,
        body,
        content_type: message.content_type.as_deref(),
        occurred_at: rfc3339(message.occurred_at),
        attempt_no: message.attempt_no,
    })?;
    // A payload keeps its producer's spelling, and JSON may be spelled over several lines.
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    Ok(line)
}
