//! Connections to one Redis. Each is used by one delivery at a time, which owns it: dropping a delivery closes the
//! connection, and what was not yet written is never sent. As many are open as deliveries run at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, ErrorKind, RedisResult, ServerErrorKind};

/// Connections kept for later. The relay's default concurrency is well below it.
const MAX_IDLE: usize = 16;
/// A connection that rested longer may have been cut off by something on the way, without a word.
const MAX_REST: Duration = Duration::from_secs(30);

pub(super) struct Pool {
    client: Client,
    config: AsyncConnectionConfig,
    idle: Mutex<Vec<(MultiplexedConnection, Instant)>>,
}

impl Pool {
    pub(super) fn new(info: ConnectionInfo) -> RedisResult<Self> {
        // The sink bounds connecting and answering together.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Ok(Self { client: Client::open(info)?, config, idle: Mutex::default() })
    }

    /// A connection that rested, or else a new one.
    pub(super) async fn take(&self) -> RedisResult<MultiplexedConnection> {
        while let Some((connection, since)) = self.lock().pop() {
            if since.elapsed() < MAX_REST {
                return Ok(connection);
            }
        }
        self.connect().await
    }

    /// Asks something small first: to whoever has not said a password, Redis answers a command as long as ours with a
    /// broken connection.
    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        match redis::cmd("PING").exec_async(&mut connection).await {
            Err(error) if error.kind() != ErrorKind::Server(ServerErrorKind::NoPerm) => Err(error),
            _ => Ok(connection),
        }
    }

    /// Keeps a connection for later.
    pub(super) fn give_back(&self, connection: MultiplexedConnection) {
        let mut idle = self.lock();
        if idle.len() < MAX_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    /// Closes those that rest: what one of them found out is likely true of all. After a failover the next connection
    /// resolves the name again.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(MultiplexedConnection, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
