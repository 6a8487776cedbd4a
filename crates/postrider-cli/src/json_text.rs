//! Lays out JSON text for people without parsing it into values, so that every number stays as it was written:
//! 12345678901234567890 and 1.10 would not survive a float. Called by `show`; the text must be valid JSON.

use std::fmt::Write as _;

const INDENT: &str = "  ";

/// One element per line, two spaces per level; empty objects and arrays stay on one line.
pub(crate) fn pretty(json: &str) -> String {
    let mut laid_out = String::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            push_printable(&mut laid_out, c);
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match c {
            '{' | '[' => {
                laid_out.push(c);
                while chars.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = chars.next_if(|c| matches!(c, '}' | ']')) {
                    laid_out.push(close);
                } else {
                    depth += 1;
                    new_line(&mut laid_out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut laid_out, depth);
                laid_out.push(c);
            }
            ',' => {
                laid_out.push(c);
                new_line(&mut laid_out, depth);
            }
            ':' => laid_out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => {
                in_string = c == '"';
                laid_out.push(c);
            }
        }
    }
    laid_out
}

fn new_line(laid_out: &mut String, depth: usize) {
    laid_out.push('\n');
    laid_out.extend(std::iter::repeat_n(INDENT, depth));
}

/// JSON escapes the C0 controls itself; DEL and the C1 ones may stand in it as they are, and some terminals obey them.
fn push_printable(laid_out: &mut String, c: char) {
    if c.is_control() {
        let _ = write!(laid_out, "\\u{:04x}", u32::from(c));
    } else {
        laid_out.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn numbers_and_strings_stay_as_they_are() {
        let json =
            r#"{"n": 12345678901234567890, "x": 1.10, "s": "a, {\"b\": [\\", "e": {}, "l": [ ], "a": [1, null]}"#;
        let expected = r#"{
  "n": 12345678901234567890,
  "x": 1.10,
  "s": "a, {\"b\": [\\",
  "e": {},
  "l": [],
  "a": [
    1,
    null
  ]
}"#;
        assert_eq!(pretty(json), expected);
        assert_eq!(pretty("\"a\u{7f}b\""), r#""a\u007fb""#);
        assert_eq!(pretty(" 7 "), "7");
    }
}
