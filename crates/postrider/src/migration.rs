//! The files of `sql/` by name, as `build.rs` lists them, and the migrations among them: both stores have the same versions by the
//! same names, each in the SQL of its store. One that is released is never edited.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

include!(concat!(env!("OUT_DIR"), "/sql.rs"));

pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The migrations of a store, oldest first: each file's name begins with its number.
pub(crate) fn migrations(files: &'static [(&str, &str)]) -> impl DoubleEndedIterator<Item = Migration> {
    files.iter().map(|(file, sql)| {
        let (number, name) = file.split_once('_').unwrap_or((file, file));
        Migration { version: number.parse().unwrap_or(0), name, sql }
    })
}

/// A hash of texts, in hexadecimal digits.
pub(crate) fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update(text.len().to_le_bytes());
        hasher.update(text);
    }
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
