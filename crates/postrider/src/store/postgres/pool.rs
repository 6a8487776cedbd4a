//! The connections of one store: never more than [`MAX_CONNECTIONS`], those included whose statement was given up and that
//! the server still works on. Such a connection keeps its place until the server has answered; whatever came next on it
//! would stand behind that statement, and another connection in its place would be one more for the server.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{self, Metrics, Object, PoolError, RecycleError, RecycleResult};
use futures_util::stream::StreamExt as _;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::connect::{Connector, bad_url};
use crate::error::{Cause, Error, ErrorKind};

/// Connections of one store; a listener has one more. A relay needs few: two round trips move a whole batch.
const MAX_CONNECTIONS: usize = 8;
/// How long to wait for a free one. Shorter than a relay waits for an answer, so that it hears the reason.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement that was given up may keep its place. The server ends what a relay asks long before, and a
/// connection to a machine that is gone is closed; this is for a server that hangs, while another may have taken over. A
/// commit that waits for a standby does not notice that its connection is closed, so this is not short: eight connections
/// in this time is what a server without its standby is asked for.
const GIVEN_UP_MOST: Duration = Duration::from_mins(5);

#[derive(Clone)]
pub(super) struct Pool {
    connections: managed::Pool<Manager>,
    connector: Arc<Connector>,
    /// Connections whose statement was given up and that the server has not answered yet.
    given_up: Arc<AtomicUsize>,
}

/// A connection of a store's pool: a [`Client`] that goes back when it is dropped.
pub struct PostgresConnection(Object<Manager>);

impl Deref for PostgresConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.0.client
    }
}

impl DerefMut for PostgresConnection {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.0.client
    }
}

impl Pool {
    pub(super) fn new(connector: Connector) -> Result<Self, Error> {
        let connector = Arc::new(connector);
        // A new connection has its own limits. The one used last is used next: its session has its plans and knows where the
        // lanes' turn is, and the others are spare.
        let connections = managed::Pool::builder(Manager(Arc::clone(&connector)))
            .max_size(MAX_CONNECTIONS)
            .queue_mode(managed::QueueMode::Lifo)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_TIMEOUT))
            .build()
            .map_err(|error| bad_url(error.to_string()))?;
        Ok(Self { connections, connector, given_up: Arc::default() })
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(super) async fn get(&self) -> Result<PostgresConnection, Error> {
        self.connections.get().await.map(PostgresConnection).map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Timeout(managed::TimeoutType::Wait) => Error::from(Cause::NoFreeConnection {
                target: self.connector.target().to_owned(),
                max: MAX_CONNECTIONS,
                given_up: self.given_up.load(Ordering::Relaxed),
            }),
            other => {
                Error::from(Cause::Connect { target: self.connector.target().to_owned(), reason: other.to_string() })
            }
        })
    }

    /// A connection for one call.
    pub(super) async fn call(&self) -> Result<Call, Error> {
        Ok(Call { connection: Some(self.get().await?), pool: self.clone() })
    }

    /// The server does not take writes any more, so that connections to it are of no use. Those that are in use find out
    /// by themselves.
    fn leave_server(&self, connection: PostgresConnection) {
        drop(Object::take(connection.0));
        self.connections.retain(|_, _| false);
    }
}

/// A connection while its answer is waited for. If the waiting is given up, which is dropping this, the connection waits
/// alone and then goes back to the pool.
///
/// The server is not told to stop. A commit that waits for a standby, told so, gives up the standby and stays; and pgbouncer
/// 1.18, which many have, ends when it is asked to pass such a request on.
pub(super) struct Call {
    connection: Option<PostgresConnection>,
    pool: Pool,
}

impl Call {
    pub(super) fn client(&mut self) -> &mut Client {
        self.connection.as_deref_mut().expect("a call keeps its connection until it ends")
    }

    /// The server has answered.
    pub(super) fn end<T>(mut self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Some(connection) = self.connection.take()
            && answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnly)
        {
            self.pool.leave_server(connection);
        }
        answer
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            drop(Object::take(connection.0));
            return;
        };
        let given_up = GivenUp::new(&self.pool.given_up);
        runtime.spawn(async move {
            // It stands behind whatever was sent before.
            let answered = tokio::time::timeout(GIVEN_UP_MOST, connection.batch_execute("")).await;
            if !matches!(answered, Ok(Ok(()))) {
                drop(Object::take(connection.0));
            }
            drop(given_up);
        });
    }
}

/// Counted as long as it is there, whatever becomes of the task that holds it.
struct GivenUp(Arc<AtomicUsize>);

impl GivenUp {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Makes connections for the pool, each driven by a task of its own.
struct Manager(Arc<Connector>);

struct Session {
    client: Client,
    driver: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Left to itself it would wait for the end of what runs.
        self.driver.abort();
    }
}

impl managed::Manager for Manager {
    type Type = Session;
    type Error = Error;

    async fn create(&self) -> Result<Session, Error> {
        let (client, mut messages) = self.0.connect().await?;
        let driver = tokio::spawn(async move { while let Some(Ok(_)) = messages.next().await {} });
        Ok(Session { client, driver })
    }

    async fn recycle(&self, session: &mut Session, _: &Metrics) -> RecycleResult<Error> {
        if session.client.is_closed() { Err(RecycleError::message("it was closed")) } else { Ok(()) }
    }
}
