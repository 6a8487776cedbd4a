//! Finds the servers' programs by looking, so that the tests run with whatever a machine has. `POSTRIDER_TEST_PG_BIN`
//! names another directory of PostgreSQL's; `scripts/test-matrix` sets it once for each version. Nothing is installed
//! here.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cache,
    error::{Error, Result},
};

/// The variable that overrides the search.
const BIN_VARIABLE: &str = "POSTRIDER_TEST_PG_BIN";
/// Where Debian keeps each installed major version.
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

#[derive(Clone, Debug)]
pub(crate) struct Binaries {
    pub(crate) dir: PathBuf,
    /// What `postgres --version` says, with the packager's own numbers.
    pub(crate) version_text: String,
    pub(crate) major: u32,
}

impl Binaries {
    pub(crate) fn find() -> Result<Self> {
        let dir = match env::var_os(BIN_VARIABLE) {
            Some(named) if has(Path::new(&named), "postgres") => PathBuf::from(named),
            Some(_) => {
                return Err(Error::Missing {
                    program: "postgres, in the directory that POSTRIDER_TEST_PG_BIN names,",
                    hint: " --postgres VERSION, or unset the variable",
                });
            }
            None => newest_of_debian("initdb")
                .or_else(from_pg_config)
                .or_else(|| on_path("initdb"))
                .ok_or(Error::Missing { program: "the PostgreSQL server (postgres, initdb)", hint: "" })?,
        };
        let program = dir.join("postgres");
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .map_err(|source| Error::Spawn { program: program.display().to_string(), source })?;
        let version_text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let major = major_of(&version_text).ok_or_else(|| Error::Server {
            what: format!("{} --version did not name a version", program.display()),
            log: format!("{version_text}{}", String::from_utf8_lossy(&output.stderr)),
        })?;
        Ok(Self { dir, version_text, major })
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// psql may live elsewhere: the bundles of other versions carry the server alone.
pub(crate) fn psql_program(server: &Path) -> Result<PathBuf> {
    Some(server.to_owned())
        .filter(|dir| has(dir, "psql"))
        .or_else(|| newest_of_debian("psql"))
        .or_else(|| on_path("psql"))
        .map(|dir| dir.join("psql"))
        .ok_or(Error::Missing { program: "psql", hint: "" })
}

/// The one with the libraries; another on the PATH would lack them.
pub(crate) fn python_program() -> Result<PathBuf> {
    let dir = cache::location()?.join("python/bin");
    if has(&dir, "python") {
        return Ok(dir.join("python"));
    }
    Err(Error::Missing { program: "the tests' Python with the brokers' client libraries", hint: "" })
}

/// What drives the browser, in the directory that holds its library.
pub(crate) fn browser_modules() -> Result<PathBuf> {
    let dir = cache::location()?.join("browser");
    if dir.join("node_modules/playwright-core").is_dir() {
        return Ok(dir);
    }
    Err(Error::Missing { program: "playwright-core, which drives the browser,", hint: "" })
}

/// First where `scripts/setup` puts it (or Debian, which has some in sbin), then wherever else the machine has it.
pub(crate) fn find(program: &'static str, preferred: Option<PathBuf>) -> Result<PathBuf> {
    preferred
        .filter(|dir| has(dir, program))
        .or_else(|| on_path(program))
        .map(|dir| dir.join(program))
        .ok_or(Error::Missing { program, hint: "" })
}

fn has(dir: &Path, program: &str) -> bool {
    dir.join(program).is_file()
}

fn newest_of_debian(program: &str) -> Option<PathBuf> {
    fs::read_dir(DEBIAN_ROOT)
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let major: u32 = entry.file_name().to_str()?.parse().ok()?;
            let bin = entry.path().join("bin");
            has(&bin, program).then_some((major, bin))
        })
        .max()
        .map(|(_, bin)| bin)
}

fn from_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let dir = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    has(&dir, "initdb").then_some(dir)
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).find(|dir| has(dir, program))
}

/// `postgres (PostgreSQL) 15.18 (Debian …)` → 15; `… 19devel` → 19.
fn major_of(version_text: &str) -> Option<u32> {
    let number = version_text.split_once("(PostgreSQL) ")?.1;
    let digits = number.find(|c: char| !c.is_ascii_digit()).map_or(number, |end| &number[..end]);
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major_of;

    #[test]
    fn reads_the_major_version() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 19devel"), Some(19));
        assert_eq!(major_of("postgres (PostgreSQL) 18"), Some(18));
        assert_eq!(major_of("pg_ctl: no"), None);
    }
}
