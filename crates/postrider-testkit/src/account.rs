//! The account that private servers run under. PostgreSQL and pgbouncer refuse to run as root, so a test process of
//! root hands them to another account; any other user runs them as itself. Called wherever a process is started.

use std::{fs, os::unix::fs::MetadataExt, os::unix::process::CommandExt, process::Command};

use crate::error::{Error, Result};

/// In this order: the account of Debian's package, then the one that every system has.
const PREFERRED: [&str; 2] = ["postgres", "nobody"];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    drop_to: Option<u32>,
}

impl Account {
    pub(crate) fn choose() -> Result<Self> {
        let uid = own_uid()?;
        if uid != 0 {
            return Ok(Self { uid, drop_to: None });
        }
        let passwd = fs::read_to_string("/etc/passwd").map_err(|source| Error::File {
            doing: "read",
            path: "/etc/passwd".into(),
            source,
        })?;
        PREFERRED
            .iter()
            .find_map(|name| lookup(&passwd, name))
            .map(|(uid, gid)| Self { uid, drop_to: Some(gid) })
            .ok_or(Error::Missing { program: "an account named postgres or nobody", hint: "" })
    }

    /// The environment is emptied as well: a stray `PGPORT` or `PGDATA` must not reach a private server.
    pub(crate) fn apply(self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        command.env_clear().env("PATH", path).env("LC_ALL", "C").current_dir("/");
        if let Some(gid) = self.drop_to {
            command.uid(self.uid).gid(gid);
        }
    }
}

pub(crate) fn own_uid() -> Result<u32> {
    fs::metadata("/proc/self").map(|metadata| metadata.uid()).map_err(|source| Error::File {
        doing: "read",
        path: "/proc/self".into(),
        source,
    })
}

fn lookup(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((uid, gid))
    })
}

#[cfg(test)]
mod tests {
    use super::lookup;

    #[test]
    fn finds_an_account_by_its_whole_name() {
        let passwd = "postgresql:x:1:2::/:/bin/sh\npostgres:x:101:104:admin,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(lookup(passwd, "postgres"), Some((101, 104)));
        assert_eq!(lookup(passwd, "nobody"), None);
    }
}
