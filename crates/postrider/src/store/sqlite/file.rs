//! The file that was opened, and what lies beside it: whether it is still the one at its path, and how long its log is. A
//! file that is deleted or replaced lives on for whoever has it open, and nobody else sees what is written there. Asked by
//! `session.rs` and `listen.rs`; reads no content.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Cause, Error};

/// A file, as it was when it was opened.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    log: PathBuf,
    identity: Option<Identity>,
}

/// Device and number of the file: no two have the same at one time.
type Identity = (u64, u64);

impl OpenFile {
    /// For a file that has just been opened.
    pub(super) fn new(path: &Path) -> Self {
        // The process may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // SQLite follows a symbolic link and keeps the log beside the file itself.
        let mut log = fs::canonicalize(&path).unwrap_or_else(|_| path.clone()).into_os_string();
        log.push("-wal");
        let identity = fs::metadata(&path).ok().and_then(|found| identity(&found));
        Self { path, log: log.into(), identity }
    }

    /// Fails if the file is no longer at its path. What cannot be looked at is taken for the same.
    pub(super) fn check(&self) -> Result<(), Error> {
        let gone = match fs::metadata(&self.path) {
            Ok(found) => self.identity.is_some() && identity(&found) != self.identity,
            Err(error) => error.kind() == ErrorKind::NotFound,
        };
        if gone { Err(Error::from(Cause::SqliteFileGone { path: self.path.display().to_string() })) } else { Ok(()) }
    }

    /// How long its write-ahead log is, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |log| log.len())
    }
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems do not tell")]
fn identity(found: &fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Option<Identity> {
    None
}
