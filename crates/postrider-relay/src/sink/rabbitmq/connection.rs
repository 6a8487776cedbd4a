//! Connections to RabbitMQ, each with one channel in confirm mode and used by one delivery at a time. A connection that is dropped
//! while messages are on it has its socket shut down at once, so that nothing the library still holds is sent behind the
//! relay's back; there is no other way to stop it. A connection that the server has blocked is kept and watched: as long as
//! it is blocked, nothing is sent at all.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use lapin::options::ConfirmSelectOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{AsyncTcpStream, Channel, ConnectionProperties, Event};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::failure;
use crate::sink::SinkFailure;

/// Where to connect, and how.
pub(super) struct Target {
    pub(super) uri: AMQPUri,
    pub(super) tls: OwnedTLSConfig,
    pub(super) timeout: Duration,
}

/// A connection with its channel.
pub(super) struct Connection {
    // Dropped first: what is in doubt is cut off before the library says a polite goodbye behind it.
    guard: SocketGuard,
    pub(super) inner: lapin::Connection,
    pub(super) channel: Channel,
    events: BoxStream<'static, Event>,
}

impl Connection {
    pub(super) async fn open(target: &Target) -> Result<Self, lapin::Error> {
        // In doubt from the start: the library would go on with a connection that nobody waits for any more.
        let mut guard = SocketGuard { socket: Arc::default(), in_doubt: true };
        let (socket, tls, timeout) = (Arc::clone(&guard.socket), target.tls.clone(), target.timeout);
        let properties = ConnectionProperties::default().with_connection_name("postrider".into());
        let runtime = lapin::runtime::default_runtime()?;
        let connection = lapin::Connection::connector(
            target.uri.clone(),
            runtime,
            async move |uri: AMQPUri, runtime| {
                let connecting = async {
                    let mut tried = Err(io::Error::other("the host has no address"));
                    for address in tokio::net::lookup_host((uri.authority.host.as_str(), uri.authority.port)).await? {
                        tried = AsyncTcpStream::connect(&runtime, address).await;
                        if tried.is_ok() {
                            break;
                        }
                    }
                    let stream = tried?;
                    if let AsyncTcpStream::Plain(plain) = &stream {
                        plain.get_ref().set_nodelay(true)?;
                        attach(&socket, plain.get_ref())?;
                    }
                    match uri.scheme {
                        AMQPScheme::AMQP => Ok(stream),
                        AMQPScheme::AMQPS => stream.into_tls(&uri.authority.host, tls.as_ref()).await,
                    }
                };
                Ok(tokio::time::timeout(timeout, connecting).await.map_err(io::Error::from)??)
            },
            properties,
        )
        .await?;
        let events = connection.events_listener().boxed();
        let channel = connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        guard.in_doubt = false;
        Ok(Self { guard, inner: connection, channel, events })
    }

    /// What is sent from now on has no answer yet.
    pub(super) fn begin(&mut self) {
        self.guard.in_doubt = true;
    }

    /// How many bytes a frame may have.
    pub(super) fn frame_max(&self) -> usize {
        usize::try_from(self.inner.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Waits until the server says that it blocks publishers, and why.
    pub(super) async fn until_blocked(&mut self) -> String {
        while let Some(event) = self.events.next().await {
            if let Event::ConnectionBlocked(reason) = event {
                return reason;
            }
        }
        std::future::pending().await
    }

    fn is_up(&self) -> bool {
        self.inner.status().connected() && self.channel.status().connected()
    }

    fn is_blocked(&self) -> bool {
        self.inner.status().connected() && self.inner.status().blocked()
    }
}

/// The socket under a connection.
struct SocketGuard {
    socket: Arc<Mutex<Socket>>,
    /// Whether something may be on the connection that has no answer.
    in_doubt: bool,
}

#[derive(Default)]
enum Socket {
    #[default]
    NotYet,
    Open(TcpStream),
    Shut,
}

fn attach(socket: &Mutex<Socket>, stream: &impl AsFd) -> io::Result<()> {
    let mut socket = lock(socket);
    if matches!(*socket, Socket::Shut) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    *socket = Socket::Open(TcpStream::from(stream.as_fd().try_clone_to_owned()?));
    Ok(())
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        if self.in_doubt {
            self.shut(Shutdown::Both);
        }
    }
}

impl SocketGuard {
    fn shut(&self, how: Shutdown) {
        let mut socket = lock(&self.socket);
        if let Socket::Open(stream) = &*socket {
            // It fails only when the connection is gone already.
            let _ = stream.shutdown(how);
        }
        if how == Shutdown::Both {
            *socket = Socket::Shut;
        }
    }
}

/// The connections of one sink.
pub(super) struct ConnectionPool {
    target: Target,
    permits: Semaphore,
    idle: Mutex<Vec<Connection>>,
    blocked: Mutex<Option<(Connection, String)>>,
}

impl ConnectionPool {
    pub(super) fn new(target: Target, most: usize) -> Self {
        Self { target, permits: Semaphore::new(most), idle: Mutex::default(), blocked: Mutex::default() }
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Waits until one of the connections is free, or may be made.
    pub(super) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.permits.acquire().await.ok()
    }

    /// A connection that works, as far as is known; whoever takes it has a permit.
    pub(super) async fn take(&self) -> Result<Connection, SinkFailure> {
        if let Some(reason) = self.blocked() {
            return Err(failure::blocked(&reason));
        }
        loop {
            let idle = lock(&self.idle).pop();
            match idle {
                Some(connection) if connection.is_up() && !connection.is_blocked() => return Ok(connection),
                Some(_) => {}
                None => return Connection::open(&self.target).await.map_err(|error| failure::of(&error)),
            }
        }
    }

    /// Takes back a connection on which everything was answered.
    pub(super) fn give_back(&self, mut connection: Connection) {
        connection.guard.in_doubt = false;
        if connection.is_up() {
            lock(&self.idle).push(connection);
        }
    }

    /// Keeps a blocked connection to see when that ends. Nothing more is sent on it.
    pub(super) fn watch(&self, connection: Connection, reason: String) {
        connection.guard.shut(Shutdown::Write);
        *lock(&self.blocked) = Some((connection, reason));
    }

    /// Why the server blocks publishers, while it does.
    pub(super) fn blocked(&self) -> Option<String> {
        let mut watched = lock(&self.blocked);
        watched.take_if(|(connection, _)| !connection.is_blocked());
        watched.as_ref().map(|(_, reason)| reason.clone())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
