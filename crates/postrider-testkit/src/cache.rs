//! The directory where things that are slow to make are kept between test runs: cluster templates, and the servers
//! that `scripts/setup` fetches (which chooses the directory by the same rule). Called by the template
//! and by whoever looks for such a server.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    account::own_uid,
    error::{Error, Result},
};

/// Names another directory; `scripts/setup` reads it as well.
const CACHE_VARIABLE: &str = "POSTRIDER_TEST_CACHE";
/// Root's own home is closed to the account that runs its servers, so root's cache is here.
const ROOT_CACHE: &str = "/var/cache/postrider";

/// Makes and returns a subdirectory of the cache that every account may enter.
pub(crate) fn subdirectory(name: &str) -> Result<PathBuf> {
    let cache = location()?;
    let directory = cache.join(name);
    fs::create_dir_all(&directory).map_err(|source| Error::File {
        doing: "make the cache directory (POSTRIDER_TEST_CACHE names another)",
        path: directory.clone(),
        source,
    })?;
    open_to_all(&cache)?;
    open_to_all(&directory)?;
    Ok(directory)
}

pub(crate) fn location() -> Result<PathBuf> {
    if let Some(named) = env::var_os(CACHE_VARIABLE) {
        return Ok(named.into());
    }
    if own_uid()? == 0 {
        return Ok(ROOT_CACHE.into());
    }
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))
        .map(|base| base.join("postrider"))
        .ok_or(Error::Missing { program: "a home directory for the cache", hint: ", or set POSTRIDER_TEST_CACHE" })
}

fn open_to_all(directory: &Path) -> Result<()> {
    let failed = |source| Error::File { doing: "open to other accounts", path: directory.to_owned(), source };
    let mode = fs::metadata(directory).map_err(failed)?.permissions().mode();
    if mode & 0o755 == 0o755 {
        return Ok(());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).map_err(failed)
}
