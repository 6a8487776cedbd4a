//! A message as it is named on the command line: by its id, by the end of its id, or by its dedupe key. Called by the commands
//! that are about one message, `show` and `explain`. Reads only.

use postrider::inspect::{IdTail, ListFilter, MAX_IDS_LOOKED_AT, MAX_NAMED, PageRequest};
use postrider::{Error, Store};
use uuid::Uuid;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format;
use crate::store::Opened;

/// How a message is named on the command line.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = false)]
pub(super) struct NamedMessage {
    /// The message's id, or its last digits
    #[arg(value_name = "ID")]
    id: Option<IdTail>,
    /// The message with this dedupe key
    #[arg(long, value_name = "KEY")]
    dedupe_key: Option<String>,
}

impl NamedMessage {
    /// What the outbox answers about it. Fails if there is no such message, or if several are meant.
    pub(super) async fn ask<T>(
        self,
        Opened { store, place, .. }: &Opened,
        ask: impl AsyncFnOnce(&dyn Store, Uuid) -> std::result::Result<Option<T>, Error>,
    ) -> Result<T> {
        let id = self.find(&**store, place).await?;
        ask(&**store, id).await?.ok_or_else(|| no_message(&id.to_string(), place))
    }

    async fn find(self, store: &dyn Store, place: &str) -> Result<Uuid> {
        if let Some(id) = self.id.as_ref().and_then(IdTail::whole) {
            return Ok(id);
        }
        let named = match (&self.id, &self.dedupe_key) {
            (Some(tail), _) => format!("whose id ends with {}", tail.digits()),
            (None, key) => format!("with the dedupe key {:?}", key.as_deref().unwrap_or_default()),
        };
        let bounded = self.id.is_some();
        let filter = ListFilter { id: self.id, dedupe_key: self.dedupe_key, ..ListFilter::default() };
        let page = store.list(&filter, &PageRequest::first(MAX_NAMED)).await?;
        let mut ids: Vec<Uuid> = page.items.iter().map(|line| line.message_id).collect();
        ids.dedup();
        match ids[..] {
            [id] => Ok(id),
            [] if bounded && page.next.is_some() => {
                let looked_at = format::count(MAX_IDS_LOOKED_AT);
                Err(Failure::new(ExitCode::NotFound, format!("there is no message {named}")).hint(format!(
                    "searched: all that is undelivered or dead, and the newest {looked_at} messages. An older one: give its \
                     whole id, or postrider list --id DIGITS --to TIME"
                )))
            }
            [] => Err(no_message(&named, place)),
            _ => {
                let ids = ids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ");
                Err(Failure::usage(format!("several messages are meant {named}: {ids}")).hint("give one of these ids"))
            }
        }
    }
}

fn no_message(named: &str, place: &str) -> Failure {
    Failure::new(ExitCode::NotFound, format!("there is no message {named}"))
        .hint(format!("it may have been pruned, or be in another database or schema than {place}"))
}
