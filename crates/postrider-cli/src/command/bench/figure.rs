//! What was measured, as one record: a name, a unit, what the outbox does and what the floor does, and their ratio. Made of
//! the runs of both, which took turns; printed by `report`. Nothing here measures.

use serde::Serialize;

use super::run::Run;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) ours: Spread,
    pub(super) floor: Option<Floor>,
}

/// What it is held against, in the same run.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Floor {
    /// What was done instead.
    pub(super) what: String,
    pub(super) value: Spread,
    /// Ours by the floor's, round by round.
    pub(super) ratio: Spread,
}

/// The median of the rounds, with the lowest and the highest; `None` where this system does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

impl Spread {
    pub(super) fn of(values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let values: Option<Vec<f64>> = values.into_iter().collect();
        let mut values = values.unwrap_or_default();
        values.sort_by(f64::total_cmp);
        Self { median: median(&values), min: values.first().copied(), max: values.last().copied() }
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// What is read off a run.
pub(super) type Reading = fn(&Run) -> Option<f64>;

/// The runs of the outbox and of the floor; round by round they took turns.
pub(super) struct Pair {
    pub(super) ours: Vec<Run>,
    pub(super) floor: Vec<Run>,
}

impl Pair {
    pub(super) fn figure(&self, name: impl Into<String>, unit: &'static str, what: &str, reading: Reading) -> Figure {
        let read = |runs: &[Run]| runs.iter().map(reading).collect::<Vec<_>>();
        let (ours, floor) = (read(&self.ours), read(&self.floor));
        let ratios =
            ours.iter().zip(&floor).map(|(ours, floor)| Some((*ours)? / (*floor).filter(|floor| *floor > 0.0)?));
        let ratio = Spread::of(ratios);
        let floor = Floor { what: what.to_owned(), value: Spread::of(floor), ratio };
        Figure { name: name.into(), unit, ours: Spread::of(ours), floor: Some(floor) }
    }

    /// Only what the outbox did.
    pub(super) fn alone(&self, name: impl Into<String>, unit: &'static str, reading: Reading) -> Figure {
        Figure { name: name.into(), unit, ours: Spread::of(self.ours.iter().map(reading)), floor: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied().map(Some));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: Some(2.0), min: Some(1.0), max: Some(3.0) });
        assert_eq!(spread(&[4.0, 2.0]).median, Some(3.0));
        assert_eq!(Spread::of([Some(1.0), None]), Spread { median: None, min: None, max: None });
    }
}
