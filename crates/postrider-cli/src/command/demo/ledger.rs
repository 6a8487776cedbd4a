//! The receiver's own books: which messages it took, how often, and whether each lane came in order. It knows messages
//! by their id, as any receiver of an outbox should, and nothing of the store.

use std::collections::HashMap;

use uuid::Uuid;

#[derive(Default)]
pub(super) struct Ledger {
    /// How often each message came.
    taken: HashMap<Uuid, u32>,
    /// The last number of each lane.
    lanes: HashMap<String, i64>,
    duplicates: u64,
    out_of_order: Vec<String>,
}

impl Ledger {
    /// Takes a message. True: it is new; false: it came before and is only counted.
    pub(super) fn take(&mut self, id: Uuid, lane: Option<(&str, i64)>) -> bool {
        let times = self.taken.entry(id).or_default();
        *times += 1;
        if *times > 1 {
            self.duplicates += 1;
            return false;
        }
        if let Some((lane, number)) = lane {
            let last = self.lanes.entry(lane.to_owned()).or_default();
            if number != *last + 1 {
                self.out_of_order.push(format!("{lane} #{number} came after #{last}"));
            }
            *last = number;
        }
        true
    }

    pub(super) fn has(&self, id: Uuid) -> bool {
        self.taken.contains_key(&id)
    }

    /// Different messages.
    pub(super) fn messages(&self) -> usize {
        self.taken.len()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = Uuid> {
        self.taken.keys().copied()
    }

    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What came before what it should have followed.
    pub(super) fn out_of_order(&self) -> &[String] {
        &self.out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_and_disorder_are_seen() {
        let mut ledger = Ledger::default();
        let ids: Vec<Uuid> = (0..4).map(Uuid::from_u128).collect();
        assert!(ledger.take(ids[0], Some(("a", 1))));
        assert!(ledger.take(ids[1], Some(("a", 2))));
        assert!(!ledger.take(ids[1], Some(("a", 2))), "the same again is no disorder");
        assert!(ledger.take(ids[2], None));
        assert_eq!((ledger.messages(), ledger.duplicates(), ledger.lanes()), (3, 1, 1));
        assert!(ledger.out_of_order().is_empty());
        assert!(ledger.take(ids[3], Some(("a", 4))));
        assert_eq!(ledger.out_of_order(), ["a #4 came after #2"]);
    }
}
