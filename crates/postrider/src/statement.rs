//! Statements by name. The files of `sql/*/statements` hold one section for each statement, under a line `-- name: …`; they
//! are split while this crate is compiled, so a name that no file has does not compile.

/// The text of a statement: `named!("sqlite", "claim", "due")` is the section `due` of `sql/sqlite/statements/claim.sql`.
macro_rules! named {
    ($store:literal, $file:literal, $name:literal) => {
        const {
            $crate::statement::section(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/sql/", $store, "/statements/", $file, ".sql")),
                $name,
            )
        }
    };
}
pub(crate) use named;

const MARK: &[u8] = b"\n-- name: ";

/// The section of this name, without its first line.
pub(crate) const fn section<'a>(file: &'a str, name: &str) -> &'a str {
    let text = file.as_bytes();
    let mut at = next_mark(text, 0);
    while at < text.len() {
        let begin = at + MARK.len();
        let end = next_mark(text, begin);
        let after_name = begin + name.len();
        if stands_at(text, begin, name.as_bytes()) && text[after_name] == b'\n' {
            return file.split_at(end).0.split_at(after_name + 1).1;
        }
        at = end;
    }
    panic!("the file has no section of this name")
}

/// Where the next section begins, or the end of the text.
const fn next_mark(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < text.len() && !(text[at] == MARK[0] && stands_at(text, at, MARK)) {
        at += 1;
    }
    at
}

const fn stands_at(text: &[u8], at: usize, words: &[u8]) -> bool {
    let mut matched = 0;
    while matched < words.len() && at + matched < text.len() && text[at + matched] == words[matched] {
        matched += 1;
    }
    matched == words.len()
}

/// What a destination said may hold NUL, which PostgreSQL's text cannot, and at which SQLite's functions stop; an outcome must
/// not be lost over it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn without_nul(said: Option<&str>) -> Option<String> {
    said.map(|said| said.replace('\0', "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::section;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let file = "-- What they are for.\n\n-- name: one\n-- First.\nselect 1\n\n-- name: one_more\nselect 2\n";
        assert_eq!(section(file, "one"), "-- First.\nselect 1\n");
        assert_eq!(section(file, "one_more"), "select 2\n");
    }
}
