//! What `bench` says at the end: a table for people, one JSON document for programs. The ratio is what can be compared.

use serde::Serialize;

use super::Size;
use super::figure::{Figure, Spread};
use super::run::STEP;
use crate::failure::Result;
use crate::format;
use crate::output::{Column, Output, Paint, Text};

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) place: String,
    #[serde(flatten)]
    pub(super) size: Sizes,
    pub(super) figures: Vec<Figure>,
    pub(super) series: Vec<Series>,
}

#[derive(Serialize)]
pub(super) struct Sizes {
    version: &'static str,
    cpus: usize,
    messages: u32,
    rounds: u16,
    clients: u16,
    batch: u32,
    payload_bytes: u32,
    series_step_ms: u128,
}

/// Messages a second of a first round, step by step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) ours: Vec<f64>,
    pub(super) floor: Vec<f64>,
}

impl Sizes {
    pub(super) fn of(size: &Size) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            cpus: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            messages: size.messages,
            rounds: size.rounds,
            clients: size.clients,
            batch: size.batch,
            payload_bytes: size.payload_bytes,
            series_step_ms: STEP.as_millis(),
        }
    }
}

impl Report {
    pub(super) fn print(&self, output: &mut Output) -> Result<()> {
        if output.json {
            return output.json(self);
        }
        let Sizes { version, cpus, messages, rounds, payload_bytes, .. } = &self.size;
        output.line(format!(
            "postrider {version} on {}, {}",
            self.place,
            format::counted(*cpus as u64, "processor")
        ))?;
        output.line(format!(
            "{} messages of {payload_bytes} bytes, median of {}",
            format::count(*messages),
            format::counted(*rounds, "round")
        ))?;
        output.line("")?;
        let columns = [
            Column::Left("MEASUREMENT"),
            Column::Right("OURS"),
            Column::Whole("UNIT"),
            Column::Right("FLOOR"),
            Column::Right("RATIO"),
            Column::Right("RANGE"),
            Column::Optional("THE FLOOR"),
        ];
        output.table("", &columns, self.figures.iter().map(row).collect())
    }
}

fn row(figure: &Figure) -> Vec<Text> {
    let ours = Text::new(value(figure.ours.median), Paint::Strong);
    let mut row = vec![Text::from(&figure.name), ours, Text::new(figure.unit, Paint::Quiet)];
    match &figure.floor {
        Some(floor) => row.extend([
            Text::from(value(floor.value.median)),
            Text::new(ratio(floor.ratio.median), Paint::Strong),
            Text::new(range(floor.ratio), Paint::Quiet),
            Text::new(&floor.what, Paint::Quiet),
        ]),
        None => row.extend([const { "" }; 4].map(Text::from)),
    }
    row
}

/// Three digits that count; a dash if it is not known.
fn value(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a figure is not below zero, and rounded"
        )]
        Some(value) if value >= 100.0 => format::count(value.round() as u64),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) if value >= 0.1 || value == 0.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.4}"),
    }
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn range(spread: Spread) -> String {
    format!("{}…{}", ratio(spread.min), ratio(spread.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_as_exact_as_it_is_useful() {
        let shown = [0.0, 0.0012, 0.55, 12.34, 1_234.5].map(|number| value(Some(number)));
        assert_eq!(shown, ["0.00", "0.0012", "0.55", "12.3", "1,235"]);
        assert_eq!(value(None), "–");
    }
}
