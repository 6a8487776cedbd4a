//! What can go wrong while a private server is prepared. The public helpers turn it into a panic, because a test has
//! nothing better to do with it; inside the crate it stays a value so that a port clash can be tried again.

use std::{error::Error as _, fmt::Write as _, io, path::PathBuf};

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{program} was not found; install it with ./scripts/setup{hint}")]
    Missing { program: &'static str, hint: &'static str },

    #[error("could not {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },

    #[error("could not run {program}")]
    Spawn { program: String, source: io::Error },

    #[error("{what}; the end of its log:\n{log}")]
    Server { what: String, log: String },

    #[error("the port {port} of 127.0.0.1 is in use")]
    PortInUse { port: u16 },

    #[error("could not {doing}")]
    Postgres { doing: &'static str, source: tokio_postgres::Error },

    #[error("could not migrate the template database; fix the migration, the template is then built anew")]
    Migrate { source: postrider::Error },
}

/// Ends the test with the whole chain of causes.
#[track_caller]
pub(crate) fn or_panic<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| {
        let mut message = format!("postrider-testkit: {error}");
        let mut cause = error.source();
        while let Some(source) = cause {
            let _ = write!(message, ": {source}");
            cause = source.source();
        }
        panic!("{message}")
    })
}
