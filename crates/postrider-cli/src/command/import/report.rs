//! What an import prints: rows by state and what became of them, why rows were refused, and whether the counts add up. Only
//! words and numbers; nothing is asked of the database here.

use std::collections::BTreeMap;

use postrider::import::{Arrived, Checked, Imported, Standing};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::format::counted;
use crate::output::{Column, Output, Paint, Text};

/// Reasons that are told one by one; what comes after them is told together.
pub(super) const MAX_REASONS: u16 = 20;

/// Rows of one state of the old table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct StateRows {
    rows: u64,
    imported: u64,
    duplicates: u64,
    refused: u64,
    skipped: u64,
    /// Not looked at yet.
    open: u64,
}

/// The whole answer.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) source: String,
    pub(super) mapping: String,
    pub(super) dry_run: bool,
    /// What this run did, or would do.
    pub(super) this_run: Imported,
    /// How the old table stands now.
    pub(super) states: BTreeMap<String, StateRows>,
    pub(super) refusals: Vec<Checked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) outbox: Option<Arrived>,
    /// Whether every row is accounted for.
    pub(super) complete: bool,
}

/// Rows by state. What is delivered is skipped if that was asked for, unless it was imported before.
pub(super) fn by_state(standing: &[Standing], skip_delivered: bool) -> BTreeMap<String, StateRows> {
    let mut states: BTreeMap<String, StateRows> = BTreeMap::new();
    for Standing { state, outcome, rows } in standing {
        let counts = states.entry(state.clone()).or_default();
        counts.rows += rows;
        match outcome.as_deref() {
            Some("duplicate") => counts.duplicates += rows,
            _ if skip_delivered && state == "delivered" && outcome.as_deref() != Some("delivered") => {
                counts.skipped += rows;
            }
            Some("refused") => counts.refused += rows,
            Some(_) => counts.imported += rows,
            None => counts.open += rows,
        }
    }
    states
}

pub(super) fn sum(states: &BTreeMap<String, StateRows>, which: fn(&StateRows) -> u64) -> u64 {
    states.values().map(which).sum()
}

impl StateRows {
    pub(super) fn open(&self) -> u64 {
        self.open
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Rows that a run has to look at.
    pub(super) fn unsettled(&self) -> u64 {
        self.open + self.refused
    }
}

impl Report {
    pub(super) fn print(&self, output: &mut Output) -> Result<ExitCode> {
        let refused = if self.dry_run { self.this_run.refused } else { sum(&self.states, StateRows::refused) };
        let code = match (refused, self.complete) {
            (0, true) => ExitCode::Ok,
            (0, false) => ExitCode::Failure,
            _ => ExitCode::InvalidInput,
        };
        if output.json {
            output.json(self)?;
            return Ok(code);
        }
        self.print_states(output)?;
        self.print_refusals(output)?;
        output.line("")?;
        let Imported { pending, dead, delivered, duplicates, refused, .. } = self.this_run;
        let verb = if self.dry_run { "would import" } else { "imported" };
        output.line(format!(
            "{verb} {} to deliver, {}, {} delivered before; {}, {} refused",
            counted(pending, "message"),
            counted(dead, "dead letter"),
            counted(delivered, "message"),
            counted(duplicates, "duplicate"),
            counted(refused, "row"),
        ))?;
        if let Some(Arrived { imported, messages, open, dead }) = self.outbox {
            output.line(format!(
                "the outbox has {} of {}: {open} to deliver, {dead} dead",
                counted(messages, "message"),
                counted(imported, "imported row"),
            ))?;
        }
        let open = sum(&self.states, StateRows::open);
        if !self.dry_run && open > 0 {
            output.line(format!("{} came meanwhile: run it again", counted(open, "row")))?;
        }
        Ok(code)
    }

    fn print_states(&self, output: &mut Output) -> Result<()> {
        let (source, mapping) = (&self.source, &self.mapping);
        output.line(format!("{source}, as {mapping}"))?;
        let columns = [
            Column::Left("STATE"),
            Column::Right("ROWS"),
            Column::Right("IMPORTED"),
            Column::Right("DUPLICATE"),
            Column::Right("SKIPPED"),
            Column::Right("REFUSED"),
            Column::Right("NOT YET"),
        ];
        let number = |rows: u64, paint| Text::count(i64::try_from(rows).unwrap_or(i64::MAX), paint);
        let rows = self.states.iter().map(|(state, counts)| {
            vec![
                Text::from(state),
                number(counts.rows, Paint::Plain),
                number(counts.imported, Paint::Good),
                number(counts.duplicates, Paint::Plain),
                number(counts.skipped, Paint::Plain),
                number(counts.refused, Paint::Bad),
                number(counts.open, Paint::Plain),
            ]
        });
        output.table("", &columns, rows.collect())
    }

    fn print_refusals(&self, output: &mut Output) -> Result<()> {
        if self.refusals.is_empty() {
            return Ok(());
        }
        output.heading(if self.dry_run { "Would be refused" } else { "Refused" })?;
        let rows = self.refusals.iter().map(|refusal| {
            vec![
                Text::from(crate::format::count(refusal.rows)),
                Text::from(refusal.reason.as_deref().unwrap_or_default()),
                Text::from(refusal.examples.join(", ")),
            ]
        });
        output.table("", &[Column::Right("ROWS"), Column::Left("WHY"), Column::Left("FOR EXAMPLE")], rows.collect())
    }
}
