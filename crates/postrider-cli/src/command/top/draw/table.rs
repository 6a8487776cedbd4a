//! Tables that fit any width: columns go by priority, text is cut on its right, and a number that does not fit is
//! shortened (`100k`), never cut. Pure; called by `draw.rs`.

use ratatui::layout::{Alignment, Constraint};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

use super::style;
use crate::format;
use crate::output::{Paint, printable};

/// Between two columns.
const SPACING: u16 = 1;

/// A column, and how important it is.
pub(super) struct Column {
    name: &'static str,
    /// It is left out where it would be narrower. Never less than the name is long.
    least: u16,
    /// It is never wider.
    most: u16,
    right: bool,
    /// Where there is too little room, the highest goes first.
    rank: u8,
}

/// Text, on the left.
pub(super) const fn text(name: &'static str, rank: u8, least: u16, most: u16) -> Column {
    Column { name, least, most, right: false, rank }
}

/// Numbers, on the right.
pub(super) const fn number(name: &'static str, rank: u8, width: u16) -> Column {
    Column { name, least: width, most: width, right: true, rank }
}

/// What stands in a cell.
pub(super) enum Value {
    Text(String, Style),
    Count(u64, Style),
    /// Messages a second; `None` while nobody measures.
    Rate(Option<f64>, Style),
}

/// The table with the columns that fit into this many characters.
pub(super) fn table(columns: &[Column], rows: Vec<Vec<Value>>, width: u16) -> Table<'static> {
    let widths = fit(columns, width);
    let shown = || columns.iter().zip(&widths).filter_map(|(column, width)| Some((column, (*width)?)));
    let heading = shown().map(|(column, _)| cell(column.name.to_owned(), column.right, style(false, Paint::Quiet)));
    let heading = Row::new(heading.collect::<Vec<_>>());
    let rows = rows.into_iter().map(|row| {
        let cells = row.into_iter().zip(columns).zip(&widths);
        let cells = cells.filter_map(|((value, column), width)| Some(value.cell(column.right, (*width)?)));
        Row::new(cells.collect::<Vec<_>>())
    });
    let lengths = shown().map(|(_, width)| Constraint::Length(width));
    Table::new(rows.collect::<Vec<_>>(), lengths.collect::<Vec<_>>()).header(heading).column_spacing(SPACING)
}

/// The width of each column; `None`: it is left out. What is left over goes to the texts, from the left.
fn fit(columns: &[Column], width: u16) -> Vec<Option<u16>> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|index| columns[*index].rank);
    let mut widths = vec![None; columns.len()];
    let mut used = 0;
    for (place, index) in by_rank.into_iter().enumerate() {
        let column = &columns[index];
        let needed = column.least.max(u16::try_from(column.name.len()).unwrap_or(u16::MAX));
        let spacing = if place == 0 { 0 } else { SPACING };
        if place > 0 && used + spacing + needed > width {
            break;
        }
        used += spacing + needed;
        widths[index] = Some(needed);
    }
    let mut left = width.saturating_sub(used);
    for (column, width) in columns.iter().zip(&mut widths) {
        if let Some(width) = width {
            let more = column.most.saturating_sub(*width).min(left);
            *width += more;
            left -= more;
        }
    }
    widths
}

fn cell(text: String, right: bool, style: Style) -> Cell<'static> {
    let line = Line::from(Span::styled(text, style));
    Cell::from(if right { line.alignment(Alignment::Right) } else { line })
}

impl Value {
    fn cell(self, right: bool, width: u16) -> Cell<'static> {
        match self {
            Self::Text(text, style) => cell(cut(&printable(&text), width), right, style),
            Self::Count(count, style) => cell(format::short_count(count, usize::from(width)), right, style),
            Self::Rate(rate, style) => {
                let text = rate.map_or("-".to_owned(), |rate| per_second(rate, usize::from(width)));
                cell(text, right, style)
            }
        }
    }
}

/// `customer-123…`: that something is missing is seen.
fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// `0/s`, `<0.1/s`, `0.4/s`, `12/s`, `1,234/s`, `12.3k/s`.
pub(super) fn per_second(rate: f64, width: usize) -> String {
    if rate > 0.0 && rate < 0.1 {
        return "<0.1/s".to_owned();
    }
    if rate > 0.0 && rate < 10.0 {
        return format!("{rate:.1}/s");
    }
    let whole = std::time::Duration::try_from_secs_f64(rate).unwrap_or_default().as_secs();
    format!("{}/s", format::short_count(whole, width.saturating_sub(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] =
        [text("SINK", 0, 8, 20), number("PENDING", 1, 7), number("DUE", 3, 7), text("STATE", 2, 8, 8)];

    #[test]
    fn columns_go_by_priority_and_texts_take_what_is_left() {
        for (width, widths) in [
            (5, [Some(8), None, None, None]),
            (16, [Some(8), Some(7), None, None]),
            (25, [Some(8), Some(7), None, Some(8)]),
            (33, [Some(8), Some(7), Some(7), Some(8)]),
            (40, [Some(15), Some(7), Some(7), Some(8)]),
            (90, [Some(20), Some(7), Some(7), Some(8)]),
        ] {
            assert_eq!(fit(&COLUMNS, width), widths, "{width}");
        }
    }

    #[test]
    fn a_long_text_says_that_it_is_cut() {
        assert_eq!((cut("customer-7", 10).as_str(), cut("customer-77", 10).as_str()), ("customer-7", "customer-…"));
    }
}
