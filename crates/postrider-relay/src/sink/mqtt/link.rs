//! Connections to an MQTT server, each lent to one delivery at a time. The library does nothing unless its event loop is
//! polled: while a link is lent only the delivery polls it, so that a dropped delivery drops the socket, and what was queued
//! on it is never sent. While it is idle a task of ours polls it, for the sake of keep-alive, and ends with the sink.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rumqttc::{AsyncClient, ConnAckProperties, ConnectionError, Event, EventLoop, MqttOptions, Packet};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::BATCH_MESSAGES;

/// A connection that the server has accepted.
pub(super) struct Link {
    pub(super) client: AsyncClient,
    pub(super) events: EventLoop,
    /// What the server said when it let us in.
    pub(super) terms: ConnAckProperties,
}

impl Link {
    pub(super) async fn open(options: MqttOptions) -> Result<Self, ConnectionError> {
        let (client, mut events) = AsyncClient::builder(options).capacity(BATCH_MESSAGES).build();
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

/// A link that nobody needs now, kept alive.
struct Idle {
    task: JoinHandle<Option<Link>>,
    stop: DropGuard,
}

impl Idle {
    fn new(mut link: Link) -> Self {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = stopped.cancelled() => return Some(link),
                    event = link.events.poll() => if event.is_err() { return None },
                }
            }
        });
        Self { task, stop: stop.drop_guard() }
    }

    /// The link, unless it broke meanwhile.
    async fn wake(self) -> Option<Link> {
        drop(self.stop);
        self.task.await.ok().flatten()
    }
}

/// A place for one link. Its number makes the client id.
struct Slot {
    number: usize,
    idle: Option<Idle>,
}

/// The links of one sink.
pub(super) struct Links {
    options: MqttOptions,
    turns: Semaphore,
    slots: Mutex<Vec<Slot>>,
}

impl Links {
    pub(super) fn new(options: MqttOptions, most: usize) -> Self {
        // The first stands last, where it is taken first: one at a time uses one connection.
        let slots = (0..most).rev().map(|number| Slot { number, idle: None }).collect();
        Self { options, turns: Semaphore::new(most), slots: Mutex::new(slots) }
    }

    /// Waits for a free slot.
    pub(super) async fn turn(&self) -> Option<Turn<'_>> {
        let permit = self.turns.acquire().await.ok()?;
        let slot = lock(&self.slots).pop()?;
        Some(Turn { links: self, slot: Some(slot), _permit: permit })
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
pub(super) struct Turn<'a> {
    links: &'a Links,
    slot: Option<Slot>,
    _permit: SemaphorePermit<'a>,
}

impl Turn<'_> {
    /// The link of this slot, or a new one.
    pub(super) async fn link(&mut self) -> Result<Link, ConnectionError> {
        let number = self.slot.as_ref().map_or(0, |slot| slot.number);
        if let Some(idle) = self.slot.as_mut().and_then(|slot| slot.idle.take())
            && let Some(link) = idle.wake().await
        {
            return Ok(link);
        }
        Link::open(self.links.options(number)).await
    }

    /// Keeps a link on which everything was answered.
    pub(super) fn keep(&mut self, link: Link) {
        if let Some(slot) = &mut self.slot {
            slot.idle = Some(Idle::new(link));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.links.slots).extend(self.slot.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
