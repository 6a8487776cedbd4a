//! Migrations, as both stores have them: the same versions by the same names, each in the SQL of its store.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The migrations of a store, oldest first. One that is released is never edited.
macro_rules! migrations {
    ($store:literal) => {
        $crate::migration::migrations!($store, 1 "0001_" "outbox", 2 "0002_" "inbox", 3 "0003_" "audit", 4 "0004_" "watch",
            5 "0005_" "import")
    };
    ($store:literal, $($version:literal $number:literal $name:literal),*) => {
        &[$($crate::migration::Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"), "/sql/", $store, "/migrations/", $number, $name, ".sql"
            )),
        }),*]
    };
}
pub(crate) use migrations;

/// What the files of a folder make, by name, in the order they are given: each after what it needs.
macro_rules! files {
    ($folder:literal, $prefix:literal: $($name:ident)*) => {
        &[$((
            concat!($prefix, stringify!($name)),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $folder, stringify!($name), ".sql")),
        )),*]
    };
}
pub(crate) use files;

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
