//! The beginning of an answer, as it stands beside a failed attempt: text that can be stored and shown as it is. Secrets
//! that this sink sends are masked, since some receivers repeat the request in an error page.

use std::fmt;

/// Stands at the end of an answer that was cut.
const CUT: &str = "…";
/// Stands in place of a secret.
const MASK: &str = "[redacted]";
/// A shorter value is no secret worth masking: it would be found in any text.
const MIN_SECRET_BYTES: usize = 8;

/// What is kept of answers.
#[derive(Clone)]
pub(super) struct Excerpt {
    max_bytes: usize,
    secrets: Vec<String>,
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Excerpt").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

impl Excerpt {
    /// At most so many bytes, zero for nothing.
    pub(super) fn new(max_bytes: usize, mut secrets: Vec<String>) -> Self {
        secrets.retain(|secret| secret.len() >= MIN_SECRET_BYTES);
        // The longest first: one may be a part of another.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { max_bytes, secrets }
    }

    /// The beginning of an answer; `None` if there is nothing to keep.
    pub(super) fn of(&self, body: &[u8]) -> Option<String> {
        if self.max_bytes == 0 {
            return None;
        }
        let mut text = String::from_utf8_lossy(body).replace("\r\n", "\n");
        // Before it is cut, so that no half of a secret is left.
        for secret in &self.secrets {
            text = text.replace(secret, MASK);
        }
        let mut text: String = text.trim().chars().map(harmless).collect();
        if text.len() > self.max_bytes {
            text.truncate(text.floor_char_boundary(self.max_bytes.saturating_sub(CUT.len())));
            text.push_str(CUT);
        }
        (!text.is_empty()).then_some(text)
    }
}

/// What moves a terminal's cursor, or turns the direction of a line, is replaced.
fn harmless(letter: char) -> char {
    match letter {
        '\n' | '\t' => letter,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if letter.is_control() => '\u{fffd}',
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(max_bytes: usize, body: &[u8]) -> Option<String> {
        Excerpt::new(max_bytes, vec!["hunter2-hunter2".to_owned(), "short".to_owned()]).of(body)
    }

    #[test]
    fn the_beginning_is_kept_and_cut_at_a_character() {
        assert_eq!(kept(2_048, b" {\"a\":\r\n1}\n").as_deref(), Some("{\"a\":\n1}"));
        let cut = kept(10, "üüüüüüüüüü".as_bytes()).expect("kept");
        assert_eq!((cut.as_str(), cut.len()), ("üüü…", 9));
        assert_eq!(kept(10, b"0123456789").as_deref(), Some("0123456789"));
        assert_eq!(kept(0, b"anything"), None);
        assert_eq!(kept(10, b" \r\n "), None);
        assert_eq!(kept(1, b"ab").as_deref(), Some("…"), "however small the limit");
    }

    #[test]
    fn it_can_be_stored_and_shown() {
        let odd = kept(2_048, b"nul\0 esc\x1b[2J bell\x07 \xff tab\t \xe2\x80\xae").expect("kept");
        assert_eq!(odd, "nul\u{fffd} esc\u{fffd}[2J bell\u{fffd} \u{fffd} tab\t \u{fffd}");
    }

    #[test]
    fn a_secret_is_masked_before_the_cut() {
        let text = "authorization: Bearer hunter2-hunter2, short";
        assert_eq!(kept(2_048, text.as_bytes()).as_deref(), Some("authorization: Bearer [redacted], short"));
        let cut = kept(32, text.as_bytes()).expect("kept");
        assert!(!cut.contains("hunter"), "{cut}");
    }
}
