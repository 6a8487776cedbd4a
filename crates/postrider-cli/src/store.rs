//! Which store a command works on: the URL it is given, read without touching anything, and then opened. A PostgreSQL
//! schema must be there and current; an SQLite file is made by the commands that write. The URL may hold a password:
//! only the place it names is ever shown.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use postrider::{Error, ErrorKind, Message, Outbox, PostgresStore, Schema, SqliteStore, Store, migrate, sqlite};

use crate::config::DatabaseConfig;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// The outbox of whoever gives no URL, in the current directory.
pub(crate) const DEFAULT_FILE: &str = "postrider.db";

const SCHEMES: &str = "write it as postgres://user:password@host:5432/database (reserved characters as %XX), or as \
                       sqlite:FILE";

/// Where an outbox is.
#[derive(Clone)]
pub(crate) enum Address {
    Postgres {
        store: Box<PostgresStore>,
        place: String,
    },
    Sqlite {
        file: PathBuf,
        /// Nobody named it: it is the default.
        unasked: bool,
    },
}

/// An outbox with its name in the configuration.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) address: Address,
}

impl Database {
    /// Reads its URL, which may be a secret. `named`: there are others, so that an error must say which it is.
    pub(crate) fn read(name: String, config: &DatabaseConfig, named: bool) -> Result<Self> {
        let url = config.url.reveal("the URL").map_err(|error| Failure::usage(error.to_string()));
        let address = url.and_then(|url| Address::read(Some(&url), &config.schema));
        match address {
            Ok(address) => Ok(Self { name, address }),
            Err(failure) if named => Err(failure.of_database(&name)),
            Err(failure) => Err(failure),
        }
    }
}

/// What to do about an SQLite file that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

/// An outbox that can be used.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// What to call it; without a password.
    pub(crate) place: String,
    /// Its SQLite file was made just now.
    pub(crate) created: bool,
    at: At,
}

enum At {
    Postgres(Box<PostgresStore>),
    Sqlite(PathBuf),
}

impl Address {
    /// Reads a URL; without one it is the default file.
    pub(crate) fn read(url: Option<&str>, schema: &Schema) -> Result<Self> {
        let Some(url) = url.map(str::trim) else {
            return Ok(Self::Sqlite { file: PathBuf::from(DEFAULT_FILE), unasked: true });
        };
        if url.is_empty() {
            return Err(Failure::usage("the database URL is empty").hint(format!("{SCHEMES}; see DATABASE_URL")));
        }
        if let Some(file) = sqlite_file(url) {
            return Ok(Self::Sqlite { file: file?, unasked: false });
        }
        match url.split_once("://") {
            Some(("postgres" | "postgresql", _)) | None => {}
            Some((other, _)) => {
                let other: String = other.chars().filter(char::is_ascii_alphanumeric).take(20).collect();
                let reason =
                    format!("the database URL is not usable: it begins with {other}://, not postgres:// or sqlite:");
                return Err(Failure::from(Error::new(ErrorKind::BadUrl, reason)));
            }
        }
        let store = Box::new(PostgresStore::open(url, schema.clone())?);
        let place = postgres_place(&store);
        Ok(Self::Postgres { store, place })
    }

    /// Opens it, and checks that it is one this build understands.
    pub(crate) async fn open(self, missing: Missing) -> Result<Opened> {
        match self {
            Self::Postgres { store, place } => {
                check(&store).await?;
                Ok(Opened {
                    store: Arc::new(PostgresStore::clone(&store)),
                    place,
                    created: false,
                    at: At::Postgres(store),
                })
            }
            Self::Sqlite { file, unasked } => {
                let there = file.exists();
                match missing {
                    Missing::Refuse if !there => return Err(not_there(&file, unasked)),
                    // What cannot be told is told when it is opened.
                    Missing::Refuse if sqlite::holds_outbox(&file).is_ok_and(|holds| !holds) => {
                        return Err(no_outbox_in(&file));
                    }
                    Missing::Refuse | Missing::Create => {}
                }
                let store = SqliteStore::open(&file)?;
                let place = format!("sqlite:{}", file.display());
                Ok(Opened { store: Arc::new(store), place, created: !there, at: At::Sqlite(file) })
            }
        }
    }
}

impl Opened {
    /// Whether the store would take these messages. Everything is rolled back.
    pub(crate) async fn try_out(&self, messages: &[Message]) -> std::result::Result<(), Error> {
        match &self.at {
            At::Postgres(store) => {
                let mut connection = store.connection().await?;
                let tx = connection.transaction().await?;
                Outbox::new(store.schema().clone()).enqueue_many(&tx, messages).await?;
                tx.rollback().await?;
            }
            At::Sqlite(file) => {
                sqlite::try_enqueue(file, messages)?;
            }
        }
        Ok(())
    }

    /// The words about a file that was just made.
    pub(crate) fn created_words(&self) -> Option<String> {
        self.created.then(|| format!("created {}", self.place))
    }
}

/// Connects, and checks that the schema is one this build understands.
async fn check(store: &PostgresStore) -> Result<()> {
    let connection = store.connection().await?;
    Ok(migrate::check(&*connection, store.schema()).await?)
}

/// The file of `sqlite:FILE` or `sqlite://FILE`; `None` if it is another kind of URL.
fn sqlite_file(url: &str) -> Option<Result<PathBuf>> {
    let rest = url.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("sqlite:")).map(|_| &url[7..])?;
    let file = rest.strip_prefix("//").unwrap_or(rest);
    let refuse = |reason: &str| {
        let wrong = format!("the database URL is not usable: {reason}");
        Some(Err(Failure::usage(wrong).hint("write it as sqlite:FILE, such as sqlite:postrider.db")))
    };
    match file {
        "" => refuse("sqlite: names no file"),
        ":memory:" => refuse("an outbox in memory would be gone when the command ends"),
        // Others' URLs have settings there; a file of that name would be a surprise.
        _ if file.contains('?') => refuse("an SQLite URL is a file name and has no settings after a question mark"),
        _ => Some(Ok(PathBuf::from(file))),
    }
}

fn no_outbox_in(file: &Path) -> Failure {
    Failure::new(ExitCode::SchemaNotCurrent, format!("there is no outbox in sqlite:{}", file.display()))
        .hint("is it another file? `postrider enqueue` and `postrider run` make the tables in this one")
}

fn not_there(file: &Path, unasked: bool) -> Failure {
    let (file, missing) = (file.display(), "there is no outbox");
    if unasked {
        Failure::new(ExitCode::Unreachable, format!("{missing} {file} in this directory, and no database was given"))
            .hint(
                "set DATABASE_URL=postgres://user:password@host:5432/database or DATABASE_URL=sqlite:FILE, or give \
                 --database-url URL; `postrider enqueue` and `postrider run` make an SQLite file",
            )
    } else {
        Failure::new(ExitCode::Unreachable, format!("{missing} sqlite:{file}: the file does not exist"))
            .hint("`postrider enqueue` and `postrider run` make it; is the path right?")
    }
}

/// `postgres://host:port/database`, with every host.
fn postgres_place(store: &PostgresStore) -> String {
    let schema = store.schema();
    let schema = if *schema == Schema::default() { String::new() } else { format!(" (schema {schema})") };
    format!("postgres://{}{schema}", store.place())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> String {
        match Address::read(Some(url), &Schema::default()) {
            Ok(Address::Postgres { place, .. }) => place,
            Ok(Address::Sqlite { file, .. }) => format!("file {}", file.display()),
            Err(Failure::Report(report)) => report.message,
            Err(Failure::Silent(_)) => String::new(),
        }
    }

    #[test]
    fn a_url_names_a_store() {
        let refused = "the database URL is not usable";
        for (url, said) in [
            ("sqlite:postrider.db", "file postrider.db"),
            ("sqlite://postrider.db", "file postrider.db"),
            ("sqlite:./a b/c.db", "file ./a b/c.db"),
            ("sqlite:/var/lib/outbox.db", "file /var/lib/outbox.db"),
            ("sqlite:///var/lib/outbox.db", "file /var/lib/outbox.db"),
            ("SQLite:x.db", "file x.db"),
            ("postgres://app:hunter2@db.example:6432/shop?sslmode=disable", "postgres://db.example:6432/shop"),
            ("postgresql://app@localhost", "postgres://localhost:5432/app"),
            ("postgres://app:hunter2@a:1,b/shop", "postgres://a:1,b:5432/shop"),
            ("host=a,b password=hunter2 dbname=shop", "postgres://a:5432,b:5432/shop"),
            ("", "the database URL is empty"),
            (" ", "the database URL is empty"),
            ("sqlite:", refused),
            ("sqlite::memory:", refused),
            ("sqlite:a.db?mode=rwc", refused),
            ("mysql://app:hunter2@localhost/app", "the database URL is not usable: it begins with mysql://"),
            ("postrider.db", refused),
        ] {
            let place = place(url);
            assert!(place.starts_with(said), "{url}: {place}");
            assert!(!place.contains("hunter2"), "{place}");
        }
    }
}
