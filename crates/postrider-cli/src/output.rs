//! Everything that goes to stdout: tables, lines and colour for people, one JSON document for programs. Commands say
//! what to show; whether there is colour, and how wide the terminal is, is decided once, here.

use std::env;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write as _};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table};
use postrider::inspect::Page;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

/// What a text means; the colour follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Paint {
    #[default]
    Plain,
    Strong,
    Quiet,
    Good,
    Warning,
    Bad,
}

/// One cell of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    text: String,
    paint: Paint,
}

impl Text {
    pub(crate) fn new(text: impl AsRef<str>, paint: Paint) -> Self {
        Self { text: printable(text.as_ref()), paint }
    }

    /// Puts a second line into the cell.
    pub(crate) fn below(mut self, line: &str) -> Self {
        if !line.is_empty() {
            self.text = format!("{}\n{}", self.text, printable(line));
        }
        self
    }

    /// A count that is quiet at zero and has the given meaning above.
    pub(crate) fn count(number: impl TryInto<u64>, above_zero: Paint) -> Self {
        let number = number.try_into().unwrap_or(0);
        Self { text: crate::format::count(number), paint: if number == 0 { Paint::Quiet } else { above_zero } }
    }
}

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Self {
        Self::new(text, Paint::Plain)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    /// An id or a word that must not be broken.
    Whole(&'static str),
    /// Text, on the left.
    Left(&'static str),
    /// Numbers, on the right.
    Right(&'static str),
    /// Text that is left out when no row has any.
    Optional(&'static str),
}

impl Column {
    fn name(self) -> &'static str {
        let (Self::Whole(name) | Self::Left(name) | Self::Right(name) | Self::Optional(name)) = self;
        name
    }
}

/// The columns of a table of records: each with what makes its cell.
pub(crate) type Columns<'a, T> = &'a [(Column, &'a dyn Fn(&T) -> Text)];

/// How the lines of a page are shown to people.
pub(crate) struct Listing<'a, T> {
    /// What is said if there are none.
    pub(crate) empty: &'static str,
    pub(crate) columns: Columns<'a, T>,
    /// For a terminal that is too narrow.
    pub(crate) narrow: Option<Columns<'a, T>>,
    /// What is said below, instead of how to see the next page.
    pub(crate) below: Option<String>,
}

impl<'a, T> Listing<'a, T> {
    pub(crate) fn new(empty: &'static str, columns: Columns<'a, T>) -> Self {
        Self { empty, columns, narrow: None, below: None }
    }
}

/// Stdout and how to write to it.
pub(crate) struct Output {
    pub(crate) json: bool,
    colour: bool,
    width: Option<u16>,
    stdout: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let width = if terminal { Table::new().width() } else { None };
        Self { json, colour: colour(terminal), width, stdout: BufWriter::new(stdout) }
    }

    /// Columns of the terminal; `None` if the output goes elsewhere, where lines may be as long as they are.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width.map(usize::from)
    }

    pub(crate) fn paint(&self, paint: Paint, text: &str) -> String {
        self::paint(self.colour, paint, text)
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> Result<()> {
        writeln!(self.stdout, "{}", line.as_ref()).map_err(|error| Failure::output(&error))
    }

    /// The whole answer as one line of JSON.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.stdout, document).map_err(|error| Failure::output(&error.into()))?;
        self.line("")
    }

    pub(crate) fn heading(&mut self, heading: &str) -> Result<()> {
        let heading = self.paint(Paint::Strong, heading);
        self.line("")?;
        self.line(heading)
    }

    pub(crate) fn table(&mut self, indent: &str, columns: &[Column], rows: Vec<Vec<Text>>) -> Result<()> {
        let shown: Vec<bool> = columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                !matches!(column, Column::Optional(_))
                    || rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.text.is_empty()))
            })
            .collect();
        let is_shown = |index: usize| shown.get(index).copied().unwrap_or(true);
        let mut table = self.empty_table(indent.len());
        let header = columns
            .iter()
            .enumerate()
            .filter(|(index, _)| is_shown(*index))
            .map(|(_, column)| aligned(Cell::new(column.name()).add_attribute(Attribute::Bold), *column));
        table.set_header(header.collect::<Vec<_>>());
        for row in rows {
            let cells = row.into_iter().zip(columns).enumerate().filter(|(index, _)| is_shown(*index));
            table.add_row(cells.map(|(_, (text, column))| aligned(cell(text), *column)).collect::<Vec<_>>());
        }
        let shown = columns.iter().enumerate().filter(|(index, _)| is_shown(*index));
        for (column, (_, kind)) in table.column_iter_mut().zip(shown) {
            column.set_padding((0, 2));
            if matches!(kind, Column::Whole(_) | Column::Right(_)) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        for line in table.lines() {
            self.line(format!("{indent}{line}").trim_end())?;
        }
        Ok(())
    }

    /// A table of records.
    pub(crate) fn records<T>(&mut self, columns: Columns<'_, T>, records: &[T]) -> Result<()> {
        let (names, rows) = laid_out(columns, records);
        self.table("", &names, rows)
    }

    /// A page as JSON, or as a table for people with what is said below it.
    pub(crate) fn listing<T: Serialize>(&mut self, page: &Page<T>, listing: &Listing<'_, T>) -> Result<ExitCode> {
        if self.json {
            self.json(page)?;
            return Ok(ExitCode::Ok);
        }
        match listing.narrow {
            _ if page.items.is_empty() => self.line(listing.empty)?,
            Some(narrow) if !self.fits(listing.columns, &page.items) => self.records(narrow, &page.items)?,
            _ => self.records(listing.columns, &page.items)?,
        }
        match (&listing.below, &page.next) {
            (Some(words), _) => self.quiet(words)?,
            (None, Some(cursor)) => self.quiet(&format!("perhaps more: --after {cursor}"))?,
            (None, None) => {}
        }
        Ok(ExitCode::Ok)
    }

    pub(crate) fn quiet(&mut self, words: &str) -> Result<()> {
        let words = self.paint(Paint::Quiet, words);
        self.line(words)
    }

    /// Whether a table with these columns needs no line breaks here.
    fn fits<T>(&self, columns: Columns<'_, T>, records: &[T]) -> bool {
        let Some(terminal) = self.width() else { return true };
        let (names, rows) = laid_out(columns, records);
        let widest = |(index, column): (usize, &Column)| {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.chars().count());
            match (cells.max().unwrap_or(0), column) {
                (0, Column::Optional(_)) => 0,
                (width, column) => width.max(column.name().len()) + 2,
            }
        };
        names.iter().enumerate().map(widest).sum::<usize>() <= terminal + 2
    }

    fn empty_table(&self, indent: usize) -> Table {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).force_no_tty();
        match self.width {
            // The last column's padding is cut off again, so it may stick out.
            Some(width) => {
                let width = usize::from(width).saturating_sub(indent) + 2;
                table.set_content_arrangement(ContentArrangement::Dynamic);
                table.set_width(u16::try_from(width).unwrap_or(u16::MAX));
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        if self.colour {
            table.enforce_styling();
            table.style_text_only();
        }
        table
    }

    /// Hands over what was said so far.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.stdout.flush().map_err(|error| Failure::output(&error))
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.flush()
    }
}

fn laid_out<T>(columns: Columns<'_, T>, records: &[T]) -> (Vec<Column>, Vec<Vec<Text>>) {
    let row = |record: &T| columns.iter().map(|(_, cell)| cell(record)).collect();
    (columns.iter().map(|(column, _)| *column).collect(), records.iter().map(row).collect())
}

fn aligned(cell: Cell, column: Column) -> Cell {
    cell.set_alignment(match column {
        Column::Right(_) => CellAlignment::Right,
        Column::Whole(_) | Column::Left(_) | Column::Optional(_) => CellAlignment::Left,
    })
}

fn cell(text: Text) -> Cell {
    let cell = Cell::new(text.text);
    match text.paint {
        Paint::Plain => cell,
        Paint::Strong => cell.add_attribute(Attribute::Bold),
        Paint::Quiet => cell.add_attribute(Attribute::Dim),
        Paint::Good => cell.fg(Color::DarkGreen),
        Paint::Warning => cell.fg(Color::DarkYellow),
        Paint::Bad => cell.fg(Color::DarkRed),
    }
}

/// Colour on a terminal only, and not where somebody asked for none (<https://no-color.org>).
pub(crate) fn colour(terminal: bool) -> bool {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    terminal && !refused && !dumb
}

pub(crate) fn paint(colour: bool, paint: Paint, text: &str) -> String {
    let code = match paint {
        Paint::Plain => return text.to_owned(),
        Paint::Strong => "1",
        Paint::Quiet => "2",
        Paint::Good => "32",
        Paint::Warning => "33",
        Paint::Bad => "31",
    };
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// A topic, a lane or a destination's error message may hold anything; what would move the cursor is escaped.
pub(crate) fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Breaks a text between words so that no line is longer than `width`, where that is possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\x1b[2Jb\nc\u{9b}"), "a\\u{1b}[2Jb\\nc\\u{9b}");
        assert_eq!(printable("Grüße ✓"), "Grüße ✓");
    }

    #[test]
    fn colour_is_left_out_when_not_wanted() {
        assert_eq!(paint(false, Paint::Bad, "x"), "x");
        assert_eq!(paint(true, Paint::Bad, "x"), "\x1b[31mx\x1b[0m");
        assert_eq!(paint(true, Paint::Plain, "x"), "x");
    }

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrap("incomprehensibilities", 7), ["incomprehensibilities"]);
        assert_eq!(wrap("", 7), [""]);
    }
}
