//! Hears PostgreSQL's notifications on a connection of its own. A pooler in transaction mode takes LISTEN and loses what
//! comes, without a word; so a new listener first sends itself a notification through the store's pool and waits for it.
//! Nothing is spawned: the connection is driven by whoever waits.

use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::StreamExt as _;
use tokio_postgres::types::Type;
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use super::PostgresStore;
use super::connect::{Messages, closed, driven};
use super::statement::sql;
use crate::error::{Cause, Error};
use crate::store::Listener;

/// How long a notification may take from one connection to the other: it is sent by a commit and arrives at once, or
/// the server is so busy that polling serves better.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct PostgresListener {
    /// Closes the connection when dropped.
    client: Client,
    messages: Messages,
    /// A notification came while something else was waited for.
    heard: bool,
    channel: String,
    /// For errors.
    target: String,
}

impl PostgresListener {
    pub(super) async fn connect(store: &PostgresStore) -> Result<Self, Error> {
        let (client, messages) = store.pool.connector().connect().await?;
        let channel = format!("{}.due", store.schema);
        let target = store.place().to_owned();
        let mut listener = Self { client, messages, heard: false, channel: channel.clone(), target };
        let probe = format!("postrider.probe.{}", Uuid::new_v4().simple());
        listener.run(&format!("listen \"{channel}\"; listen \"{probe}\"")).await?;
        store.query(sql!("watch", "notify"), &[(&probe, Type::TEXT)]).await?;
        if tokio::time::timeout(PROBE_TIMEOUT, listener.hear(&probe)).await.is_err() {
            return Err(Error::from(Cause::CannotListen {
                reason: "a notification sent through the database did not arrive (a pooler in transaction mode loses \
                         them)"
                    .to_owned(),
            }));
        }
        listener.run(&format!("unlisten \"{probe}\"")).await?;
        Ok(listener)
    }

    /// Runs a command while the connection is driven.
    async fn run(&mut self, command: &str) -> Result<(), Error> {
        let (heard, channel) = (&mut self.heard, &self.channel);
        driven(&self.target, &mut self.messages, self.client.batch_execute(command), |message| {
            *heard |= matches!(message, AsyncMessage::Notification(news) if news.channel() == channel);
        })
        .await
    }

    /// Waits for a notification of this channel.
    async fn hear(&mut self, channel: &str) -> Result<(), Error> {
        loop {
            let message = self.messages.next().await;
            match notification(&self.target, message)? {
                Some(heard) if heard == channel => return Ok(()),
                Some(heard) => self.heard |= heard == self.channel,
                None => {}
            }
        }
    }
}

#[async_trait]
impl Listener for PostgresListener {
    async fn news(&mut self) -> Result<(), Error> {
        if !self.heard {
            let channel = self.channel.clone();
            self.hear(&channel).await?;
            self.heard = true;
        }
        // What has arrived besides is the same news. Nothing is awaited from here on, so nothing can be forgotten.
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(message) = self.messages.poll_next_unpin(&mut context) {
            notification(&self.target, message)?;
        }
        self.heard = false;
        Ok(())
    }
}

/// The channel, if it is a notification. The end of the connection is an error.
fn notification(
    target: &str,
    message: Option<Result<AsyncMessage, tokio_postgres::Error>>,
) -> Result<Option<String>, Error> {
    match message {
        Some(Ok(AsyncMessage::Notification(notification))) => Ok(Some(notification.channel().to_owned())),
        Some(Ok(_)) => Ok(None),
        Some(Err(error)) => Err(error.into()),
        None => Err(closed(target)),
    }
}
