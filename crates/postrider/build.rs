//! Lists the files of `sql/`, so that a new function, view or migration is a file and nothing else. Run by cargo before this
//! crate is compiled; `src/migration.rs` includes what it writes. It reads names only and decides nothing: an order that
//! matters is in the names.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// Store and folder.
const FOLDERS: [(&str, &str); 5] = [
    ("postgres", "migrations"),
    ("postgres", "functions"),
    ("postgres", "views"),
    ("sqlite", "migrations"),
    ("sqlite", "views"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut code = String::new();
    for (store, folder) in FOLDERS {
        let path = format!("sql/{store}/{folder}");
        println!("cargo::rerun-if-changed={path}");
        let mut names = Vec::new();
        for entry in fs::read_dir(&path)? {
            names.extend(entry?.file_name().to_str().and_then(|name| name.strip_suffix(".sql")).map(str::to_owned));
        }
        names.sort();
        let list = format!("{store}_{folder}").to_uppercase();
        writeln!(code, "#[cfg(feature = {store:?})]\npub(crate) const {list}: &[(&str, &str)] = &[")?;
        for name in names {
            let file = format!("/{path}/{name}.sql");
            writeln!(code, "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {file:?}))),")?;
        }
        writeln!(code, "];")?;
    }
    fs::write(Path::new(&env::var("OUT_DIR")?).join("sql.rs"), code)?;
    Ok(())
}
