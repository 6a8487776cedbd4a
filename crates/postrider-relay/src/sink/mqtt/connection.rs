//! Connections to an MQTT server, each used by one delivery at a time. The library does nothing unless its event loop is
//! polled: while a connection is in use only the delivery polls it, so that a dropped delivery drops the socket, and what was queued
//! on it is never sent. While it is idle a task of ours polls it, for the sake of keep-alive, and ends with the sink.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rumqttc::{AsyncClient, ConnAckProperties, ConnectionError, Event, EventLoop, MqttOptions, Packet};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::MAX_MESSAGES;

/// A connection that the server has accepted.
pub(super) struct Connection {
    pub(super) client: AsyncClient,
    pub(super) events: EventLoop,
    /// What the server said when it let us in.
    pub(super) terms: ConnAckProperties,
}

impl Connection {
    pub(super) async fn open(options: MqttOptions) -> Result<Self, ConnectionError> {
        let (client, mut events) = AsyncClient::builder(options).capacity(MAX_MESSAGES).build();
        loop {
            if let Event::Incoming(Packet::ConnAck(accepted)) = events.poll().await? {
                let terms = accepted.properties.unwrap_or_else(no_terms);
                return Ok(Self { client, events, terms });
            }
        }
    }
}

/// A server that says nothing takes everything that MQTT has.
fn no_terms() -> ConnAckProperties {
    ConnAckProperties {
        session_expiry_interval: None,
        receive_max: None,
        max_qos: None,
        retain_available: None,
        max_packet_size: None,
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: None,
        subscription_identifiers_available: None,
        shared_subscription_available: None,
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    }
}

/// A connection that nobody needs now, kept alive.
struct Idle {
    task: JoinHandle<Option<Connection>>,
    stop: DropGuard,
}

impl Idle {
    fn new(mut connection: Connection) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => return Some(connection),
                    event = connection.events.poll() => if event.is_err() { return None },
                }
            }
        });
        Self { task, stop: stop.drop_guard() }
    }

    /// The connection, unless it broke meanwhile.
    async fn wake(self) -> Option<Connection> {
        drop(self.stop);
        self.task.await.ok().flatten()
    }
}

/// A place for one connection. Its number makes the client id.
struct Slot {
    number: usize,
    idle: Option<Idle>,
}

/// The connections of one sink.
pub(super) struct ConnectionPool {
    options: MqttOptions,
    permits: Semaphore,
    slots: Mutex<Vec<Slot>>,
}

impl ConnectionPool {
    pub(super) fn new(options: MqttOptions, most: usize) -> Self {
        // The first stands last, where it is taken first: one at a time uses one connection.
        let slots = (0..most).rev().map(|number| Slot { number, idle: None }).collect();
        Self { options, permits: Semaphore::new(most), slots: Mutex::new(slots) }
    }

    /// Waits for a free slot.
    pub(super) async fn slot(&self) -> Option<PoolSlot<'_>> {
        let permit = self.permits.acquire().await.ok()?;
        let slot = lock(&self.slots).pop()?;
        Some(PoolSlot { pool: self, slot: Some(slot), _permit: permit })
    }

    /// For a connection under this number. Two with one id would throw each other out.
    pub(super) fn options(&self, number: usize) -> MqttOptions {
        let mut options = self.options.clone();
        if number > 0 {
            options.set_client_id(format!("{}-{number}", self.options.client_id()));
        }
        options
    }
}

/// The right to a slot; it goes back when dropped.
pub(super) struct PoolSlot<'a> {
    pool: &'a ConnectionPool,
    slot: Option<Slot>,
    _permit: SemaphorePermit<'a>,
}

impl PoolSlot<'_> {
    /// The connection of this slot, or a new one.
    pub(super) async fn connection(&mut self) -> Result<Connection, ConnectionError> {
        let number = self.slot.as_ref().map_or(0, |slot| slot.number);
        if let Some(idle) = self.slot.as_mut().and_then(|slot| slot.idle.take())
            && let Some(connection) = idle.wake().await
        {
            return Ok(connection);
        }
        Connection::open(self.pool.options(number)).await
    }

    /// Keeps a connection on which everything was answered.
    pub(super) fn keep(&mut self, connection: Connection) {
        if let Some(slot) = &mut self.slot {
            slot.idle = Some(Idle::new(connection));
        }
    }
}

impl Drop for PoolSlot<'_> {
    fn drop(&mut self) {
        lock(&self.pool.slots).extend(self.slot.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
