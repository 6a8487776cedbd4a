//! The account at the end of the demo. Three parties kept books: the producers (and the shop's own tables), the store,
//! and the receiver. Every rule that must hold between them is checked, message by message, and what does not hold is
//! said loudly.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use postrider::inspect::{DeliveryState, ListFilter, PageRequest};
use postrider_relay::Counts;
use serde::Serialize;
use uuid::Uuid;

use super::shop::Shop;
use super::world::{World, read};
use crate::failure::Result;
use crate::format::{self, count, counted};
use crate::output::{Output, Paint};

/// Messages read from the store at once.
const PAGE: u32 = 10_000;
/// Of what is wrong, so many examples.
const EXAMPLES: usize = 5;

/// What everybody counted.
#[derive(Debug, Default, Serialize)]
pub(super) struct Account {
    adds_up: bool,
    /// What does not.
    wrong: Vec<String>,
    seed: u64,
    elapsed_seconds: f64,
    /// By the producers: transactions that were committed, and those that were rolled back on purpose.
    enqueued: u64,
    rolled_back: u64,
    /// By the shop's own tables.
    changes: u64,
    /// By the store.
    stored: u64,
    delivered: u64,
    dead: u64,
    pending: u64,
    /// By the receiver.
    received: u64,
    duplicates: u64,
    lanes: u64,
    out_of_order: u64,
    /// Taken by the receiver, but its answer never came: still pending, and to come again.
    unanswered: u64,
    /// By the relay.
    retried: u64,
}

/// What the store has, by id.
#[derive(Default)]
struct Stored {
    all: HashSet<Uuid>,
    delivered: HashSet<Uuid>,
    dead: u64,
    pending: u64,
}

/// Counts everything, once nothing moves any more.
pub(super) async fn take(
    world: &World,
    store: &Arc<dyn Store>,
    shop: &Shop,
    counts: Counts,
    elapsed: Duration,
) -> Result<Account> {
    let stored = Stored::read(store).await?;
    let changes = shop.changes()?;
    let ledger = world.ledger();
    let unanswered = ledger.ids().filter(|id| stored.all.contains(id) && !stored.delivered.contains(id)).count();
    let mut account = Account {
        adds_up: false,
        wrong: Vec::new(),
        seed: world.seed,
        elapsed_seconds: elapsed.as_secs_f64(),
        enqueued: read(&world.enqueued),
        rolled_back: read(&world.rolled_back),
        changes,
        stored: stored.all.len() as u64,
        delivered: stored.delivered.len() as u64,
        dead: stored.dead,
        pending: stored.pending,
        received: ledger.messages() as u64,
        duplicates: ledger.duplicates(),
        lanes: ledger.lanes() as u64,
        out_of_order: ledger.out_of_order().len() as u64,
        unanswered: unanswered as u64,
        retried: counts.retried,
    };
    let missing: Vec<Uuid> = stored.delivered.iter().copied().filter(|id| !ledger.has(*id)).collect();
    let unknown: Vec<Uuid> = ledger.ids().filter(|id| !stored.all.contains(id)).collect();
    account.wrong = account.check(&missing, &unknown, ledger.out_of_order());
    account.adds_up = account.wrong.is_empty();
    Ok(account)
}

impl Stored {
    async fn read(store: &Arc<dyn Store>) -> Result<Self> {
        let mut stored = Self::default();
        let (filter, mut page) = (ListFilter::default(), PageRequest::first(PAGE));
        loop {
            let found = store.list(&filter, &page).await?;
            for message in &found.items {
                stored.all.insert(message.message_id);
                match message.state {
                    DeliveryState::Delivered => {
                        stored.delivered.insert(message.message_id);
                    }
                    DeliveryState::Dead => stored.dead += 1,
                    _ => stored.pending += 1,
                }
            }
            if found.next.is_none() {
                return Ok(stored);
            }
            page.after = found.next;
        }
    }
}

impl Account {
    /// What does not hold.
    fn check(&self, missing: &[Uuid], unknown: &[Uuid], out_of_order: &[String]) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut rule = |holds: bool, words: String| {
            if !holds {
                wrong.push(words);
            }
        };
        rule(
            self.stored == self.enqueued,
            format!("the producers enqueued {}, but the store has {}", self.enqueued, self.stored),
        );
        rule(
            self.changes == self.enqueued,
            format!("the shop's tables were changed {} times, but {} were enqueued", self.changes, self.enqueued),
        );
        rule(
            self.stored == self.delivered + self.dead + self.pending,
            format!(
                "the store has {}, which is not {} delivered + {} dead + {} pending",
                self.stored, self.delivered, self.dead, self.pending
            ),
        );
        rule(
            missing.is_empty(),
            format!("{} recorded as delivered never came to the receiver: {}", missing.len(), examples(missing)),
        );
        rule(
            unknown.is_empty(),
            format!("the receiver has {} that the store does not know: {}", unknown.len(), examples(unknown)),
        );
        rule(
            self.received == self.delivered + self.unanswered,
            format!(
                "the receiver has {}, which is not {} delivered + {} that it did not answer",
                self.received, self.delivered, self.unanswered
            ),
        );
        rule(out_of_order.is_empty(), format!("{} came out of order: {}", out_of_order.len(), examples(out_of_order)));
        wrong
    }

    /// Says it; true if it adds up.
    pub(super) fn print(&self, output: &mut Output) -> Result<bool> {
        if output.json {
            output.json(self)?;
            return Ok(self.adds_up);
        }
        let elapsed = Duration::from_secs_f64(self.elapsed_seconds.max(0.0));
        output.line("")?;
        output.line(format!("The demo ran for {} (seed {}).", format::span(elapsed), self.seed))?;
        output.line("")?;
        let width = count(self.enqueued).len();
        for (sign, name, number, words) in self.lines() {
            let name = output.paint(Paint::Strong, &format!("{name:<10}"));
            let words = output.paint(Paint::Quiet, &words);
            output.line(format!("  {sign} {name} {:>width$}   {words}", count(number)))?;
        }
        output.line("")?;
        if self.adds_up {
            let sum = format!(
                "It adds up: {} enqueued = {} delivered + {} dead + {} pending.",
                count(self.enqueued),
                count(self.delivered),
                count(self.dead),
                count(self.pending)
            );
            let sum = output.paint(Paint::Good, &sum);
            output.line(sum)?;
        } else {
            let loud = output.paint(Paint::Bad, "IT DOES NOT ADD UP:");
            output.line(loud)?;
            for words in &self.wrong {
                output.line(format!("  - {words}"))?;
            }
            output.line("Please report it, with the seed above and the directory of --keep.")?;
        }
        Ok(self.adds_up)
    }

    fn lines(&self) -> [(char, &'static str, u64, String); 7] {
        let unanswered = match self.unanswered {
            0 => String::new(),
            some => format!("; {} more, its answer was lost", count(some)),
        };
        let order = match self.out_of_order {
            0 => format!("{}, each in order", counted(self.lanes, "lane")),
            some => format!("{some} OUT OF ORDER"),
        };
        [
            (' ', "enqueued", self.enqueued, "each committed with a change of the shop's tables".to_owned()),
            ('=', "delivered", self.delivered, format!("the receiver has every one{unanswered}")),
            ('+', "dead", self.dead, "refused by the receiver: they wait for a person".to_owned()),
            ('+', "pending", self.pending, "not delivered yet, and not lost".to_owned()),
            (' ', "received", self.received, format!("by the receiver's own books; {order}")),
            (' ', "twice", self.duplicates, "came again after a lost answer: known by their id".to_owned()),
            (' ', "undone", self.rolled_back, "transactions rolled back: no change, and no message".to_owned()),
        ]
    }
}

fn examples<T: ToString>(some: &[T]) -> String {
    some.iter().take(EXAMPLES).map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// How to look at what was kept.
pub(super) fn say_where(file: &Path, output: &mut Output) -> Result<()> {
    if output.json {
        return Ok(());
    }
    let file = file.display();
    output.line("")?;
    output.line(format!("Kept in {file}. To look at it:"))?;
    output.line(format!("  postrider status --database-url sqlite:{file}"))?;
    output.line(format!("  postrider list --state dead --database-url sqlite:{file}"))?;
    output.line(format!("  postrider drain --database-url sqlite:{file}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Account {
        Account {
            enqueued: 10,
            changes: 10,
            stored: 10,
            delivered: 7,
            dead: 1,
            pending: 2,
            received: 8,
            unanswered: 1,
            ..Account::default()
        }
    }

    #[test]
    fn books_that_agree_add_up() {
        assert_eq!(good().check(&[], &[], &[]), Vec::<String>::new());
    }

    #[test]
    fn whatever_does_not_agree_is_said() {
        let id = [Uuid::nil()];
        let cases = [
            (Account { enqueued: 11, changes: 11, ..good() }, "the store has 10"),
            (Account { changes: 9, ..good() }, "the shop's tables were changed 9 times"),
            (Account { dead: 0, ..good() }, "not 7 delivered + 0 dead + 2 pending"),
            (Account { received: 7, ..good() }, "not 7 delivered + 1 that it did not answer"),
        ];
        for (account, says) in cases {
            let wrong = account.check(&[], &[], &[]);
            assert!(wrong.len() == 1 && wrong[0].contains(says), "{wrong:?}");
        }
        assert!(good().check(&id, &[], &[])[0].contains("never came to the receiver: 00000000-"));
        assert!(good().check(&[], &id, &[])[0].contains("does not know"));
        assert!(good().check(&[], &[], &["order-1 #3 came after #1".to_owned()])[0].contains("out of order"));
    }
}
