//! Appends each message to a file as one line of JSON: an archive, or what a log shipper reads. Whoever rotates the file may
//! rename or remove it at any time; the next batch goes to a new one under the same name. Lines are whole: what a crash or
//! a full disk tore off ends in a line of its own, and its message is written again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use rustix::fs::OFlags;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::ndjson::{lines, write};
use super::registry::BuildSink;
use super::{Batching, Finding, Receipt, Sink, SinkFailure, Verdict};
use crate::error::Error;
use crate::options::setters;

/// Messages of one call: one write to the disk for all of them.
const MAX_MESSAGES: usize = 1_000;

/// A new file is for the relay's user alone: messages are nobody else's to read.
const MODE: u32 = 0o600;
/// What others than the owner may do with a file.
const OTHERS: u32 = 0o077;

/// How a [`FileSink`] writes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct FileOptions {
    /// The file. It is made if it is not there, for the relay's user alone; its directory is not. A symbolic link in its
    /// place is refused.
    pub path: PathBuf,
    /// When a line counts as written. `batch` by default.
    #[serde(default)]
    pub sync: FileSync,
}

setters! { FileOptions:
    path: PathBuf, sync: FileSync,
}

impl FileOptions {
    /// To this file, each batch synced.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), sync: FileSync::default() }
    }

    pub(crate) const PUBLIC_KEYS: &'static [&'static str] = &["path", "sync"];
}

impl BuildSink for FileOptions {
    fn build(&self) -> Result<Arc<dyn Sink>, Error> {
        Ok(Arc::new(FileSink::new(self.clone())))
    }
}

/// When a line counts as written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FileSync {
    /// When it is on the disk: one fsync for each batch. Survives a power failure.
    #[default]
    Batch,
    /// When the operating system has it. Survives a crash of the relay, not of the machine.
    Never,
}

/// A sink that appends lines to a file.
pub struct FileSink {
    options: FileOptions,
    open: Arc<Mutex<Option<File>>>,
}

impl FileSink {
    /// A sink for this file, which is opened when the first message comes.
    #[must_use]
    pub fn new(options: FileOptions) -> Self {
        Self { options, open: Arc::default() }
    }
}

#[async_trait]
impl Sink for FileSink {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn batching(&self) -> Batching {
        Batching::ordered(MAX_MESSAGES)
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let lines = match lines(batch) {
            Ok(lines) => lines,
            Err(error) => return vec![Verdict::Failed(error.into()); batch.len()],
        };
        let mut open = Arc::clone(&self.open).lock_owned().await;
        let options = self.options.clone();
        // A write that hangs cannot be called back, but what is still to be written can.
        let given_up = CancellationToken::new();
        let _when_dropped = given_up.clone().drop_guard();
        let written = tokio::task::spawn_blocking(move || append(&mut open, &options, &lines, &given_up)).await;
        let verdict = match written {
            Ok(Ok(())) => Verdict::Delivered(Receipt::default()),
            Ok(Err(failure)) => Verdict::Failed(failure),
            Err(error) => Verdict::Failed(error.into()),
        };
        vec![verdict; batch.len()]
    }

    async fn check(&self) -> Vec<Finding> {
        let path = self.options.path.clone();
        let mut findings = match tokio::task::spawn_blocking(move || open_file(&path)).await {
            Ok(Ok(file)) => {
                let mut findings = vec![Finding::works(format!("{} can be appended to", self.options.path.display()))];
                findings.extend(open_to_others(&file, &self.options.path));
                findings
            }
            Ok(Err(error)) => vec![Finding::broken(
                format!("{} cannot be opened: {error}", self.options.path.display()),
                "make its directory, and let the relay's user write there",
            )],
            Err(error) => vec![Finding::broken(error.to_string(), "look at the relay's log")],
        };
        if self.options.sync == FileSync::Never {
            findings.push(Finding::weak(
                "lines are not synced to the disk: a power failure can lose them",
                "sync = \"batch\"",
            ));
        }
        findings
    }
}

/// Opens the file if it is not open or is no longer the one of that name, and appends.
fn append(
    open: &mut Option<File>,
    options: &FileOptions,
    lines: &[Vec<u8>],
    given_up: &CancellationToken,
) -> Result<(), SinkFailure> {
    let path = &options.path;
    if !open.as_ref().is_some_and(|file| is_the_one_named(file, path)) {
        let opened = open_file(path).map_err(|error| {
            let words = format!("{} cannot be opened: {error}", path.display());
            SinkFailure::retryable(SinkFailure::UNREACHABLE, words)
        })?;
        *open = Some(opened);
    }
    let Some(file) = open else { return Err(SinkFailure::no_answer()) };
    let written = write(file, lines, given_up).and_then(|()| match options.sync {
        FileSync::Batch => file.sync_data(),
        FileSync::Never => Ok(()),
    });
    written.map_err(|error| {
        // Whatever is torn, opening again ends its line.
        *open = None;
        SinkFailure::retryable("WRITE", format!("{} cannot be written: {error}", path.display()))
    })
}

fn is_the_one_named(file: &File, path: &Path) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    // Not followed: a link that was put in its place is not the file, even if it leads there.
    matches!((file.metadata(), fs::symlink_metadata(path)), (Ok(open), Ok(named)) if same(&open, &named))
}

/// An older file may have been made with other rights.
fn open_to_others(file: &File, path: &Path) -> Option<Finding> {
    let metadata = file.metadata().ok().filter(fs::Metadata::is_file)?;
    (metadata.mode() & OTHERS != 0).then(|| {
        let words =
            format!("{} can be read or written by others: its mode is {:o}", path.display(), metadata.mode() & 0o777);
        Finding::weak(words, "chmod 600, unless whoever reads it needs more")
    })
}

/// Opens for appending, and ends a line that was torn off.
fn open_file(path: &Path) -> io::Result<File> {
    let is_new = fs::symlink_metadata(path).is_err();
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = OpenOptions::new().create(true).append(true).read(true).mode(MODE).custom_flags(flags).open(path);
    if file.is_err() && fs::symlink_metadata(path).is_ok_and(|named| named.is_symlink()) {
        let words = "it is a symbolic link, and links are not followed: name the file itself";
        file = Err(io::Error::other(words));
    }
    let mut file = file?;
    if is_new && let Some(directory) = path.parent() {
        // A file that is on the disk under no name would be lost with the power.
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        File::open(directory)?.sync_all()?;
    }
    if file.metadata()?.is_file() && file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}
