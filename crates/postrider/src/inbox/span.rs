//! What a lane remembers of its pruned events: the exact set of their numbers, as spans, so that a gap is a number that
//! never came. The same rules as in `sql/postgres/functions/prune_inbox.sql`, for SQLite; pure, without a database.
//! It may forget, which is safe: it must never remember a number that was not received.

use uuid::Uuid;

/// Numbers that were all received, and the newest of their events (ids are UUIDv7, so it is the latest made).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) newest: Uuid,
}

impl Span {
    fn holds(&self, number: i64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

/// The spans of a lane after these numbers were pruned, lowest first, at most so many.
///
/// A number that is there already came again with another event: the sender counts anew, and the lane is forgotten.
/// Events whose ids tell no time (not UUIDv7) are not remembered.
pub(super) fn remember(known: &[Span], pruned: &[(i64, Uuid)], most: usize) -> Vec<Span> {
    let mut pieces: Vec<Span> = pruned
        .iter()
        .filter(|(_, event_id)| event_id.get_version_num() == 7)
        .map(|&(number, event_id)| Span { first: number, last: number, newest: event_id })
        .collect();
    pieces.sort_unstable_by_key(|piece| piece.first);
    let twice = pieces.windows(2).any(|pair| pair[0].first == pair[1].first);
    if twice || pieces.iter().any(|piece| known.iter().any(|span| span.holds(piece.first))) {
        return Vec::new();
    }
    pieces.extend_from_slice(known);
    pieces.sort_unstable_by_key(|piece| piece.first);
    let mut spans: Vec<Span> = Vec::new();
    for piece in pieces {
        match spans.last_mut() {
            Some(span) if piece.first - 1 <= span.last => {
                span.last = span.last.max(piece.last);
                span.newest = span.newest.max(piece.newest);
            }
            _ => spans.push(piece),
        }
    }
    let too_many = spans.len().saturating_sub(most);
    spans.split_off(too_many)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(n: i64) -> Uuid {
        Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 | u128::try_from(n).unwrap())
    }

    fn numbers(numbers: &[i64]) -> Vec<(i64, Uuid)> {
        numbers.iter().map(|&n| (n, id(n))).collect()
    }

    fn shown(spans: &[Span]) -> Vec<(i64, i64)> {
        spans.iter().map(|span| (span.first, span.last)).collect()
    }

    #[test]
    fn gaps_stay_gaps_until_they_are_filled() {
        let spans = remember(&[], &numbers(&[7, 3, 4, 9, 8]), 10);
        assert_eq!(shown(&spans), [(3, 4), (7, 9)]);
        assert_eq!(spans[1].newest, id(9));
        let spans = remember(&spans, &numbers(&[5, 6]), 10);
        assert_eq!((shown(&spans), spans[0].newest), (vec![(3, 9)], id(9)));
    }

    #[test]
    fn the_lowest_of_too_many_are_forgotten() {
        assert_eq!(shown(&remember(&[], &numbers(&[1, 3, 5, 7]), 2)), [(5, 5), (7, 7)]);
    }

    #[test]
    fn a_number_that_comes_again_forgets_the_lane() {
        let spans = remember(&[], &numbers(&[1, 2, 3]), 10);
        assert_eq!(remember(&spans, &[(2, id(100)), (4, id(4))], 10), []);
        assert_eq!(remember(&[], &[(2, id(100)), (2, id(2))], 10), []);
    }

    #[test]
    fn ids_without_time_and_the_last_number_there_is() {
        assert_eq!(remember(&[], &[(1, Uuid::from_u128(0x4000_8000_0000_0000_0000))], 10), []);
        assert_eq!(shown(&remember(&[], &numbers(&[i64::MAX, i64::MAX - 1]), 10)), [(i64::MAX - 1, i64::MAX)]);
    }

    proptest! {
        /// However the numbers come, and in whatever batches: what is remembered is what was received.
        #[test]
        fn what_is_remembered_is_what_came(
            received in proptest::collection::btree_set(1_i64..60, 0..60), batch in 1_usize..10, seed in any::<u64>(),
        ) {
            let mut order: Vec<i64> = received.iter().copied().collect();
            order.sort_by_key(|n| seed.wrapping_mul(u64::try_from(*n).unwrap_or(1)).rotate_left(17));
            let mut spans = Vec::new();
            for some in order.chunks(batch) {
                spans = remember(&spans, &numbers(some), 100);
            }
            let held: BTreeSet<i64> = (1..60).filter(|n| spans.iter().any(|span| span.holds(*n))).collect();
            prop_assert_eq!(held, received);
        }
    }
}
