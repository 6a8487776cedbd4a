//! Times, spans, errors and commands as an explanation writes them. Called by `explain.rs` only; decides nothing.

use std::time::{Duration, SystemTime};

use crate::inspect::DeliveryRecord;

/// `2026-11-16T07:08:56Z`.
pub(super) fn moment(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| "an unknown time".to_owned(), |time| format!("{time:.0}"))
}

/// The two largest units that are not zero: `4 min 10 s`.
pub(super) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let Some(first) = units.iter().position(|(count, _)| *count > 0) else {
        return "less than a second".to_owned();
    };
    let shown = units.iter().skip(first).take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count} {unit}")).collect::<Vec<_>>().join(" ")
}

/// `attempt 3`.
pub(super) fn number(attempt_no: i32) -> String {
    format!("attempt {attempt_no}")
}

/// `attempt 3 of 10`; after a redrive the count starts again, and the number does not: `attempt 3 of 10 (number 13)`.
pub(super) fn number_of(delivery: &DeliveryRecord) -> String {
    let of = delivery.max_attempts.map(|most| format!(" of {most}")).unwrap_or_default();
    let all = if delivery.attempt_no == delivery.attempt_count {
        String::new()
    } else {
        format!(" (number {})", delivery.attempt_no)
    };
    format!("attempt {}{of}{all}", delivery.attempt_count)
}

/// `; 1 attempt is left`; empty while nobody has said how many there are.
pub(super) fn attempts_left(delivery: &DeliveryRecord) -> String {
    match delivery.max_attempts.map(|most| most.saturating_sub(delivery.attempt_count).max(0)) {
        None => String::new(),
        Some(1) => "; 1 attempt is left".to_owned(),
        Some(left) => format!("; {left} attempts are left"),
    }
}

/// What a destination said: `HTTP_503: Service Unavailable`.
pub(super) fn said(code: Option<&str>, message: Option<&str>) -> String {
    match (code, message) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => "an error without a word".to_owned(),
    }
}

/// A command line to be copied: every word that a shell would take apart is quoted.
pub(super) fn command(words: &[&str]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|one| one.is_ascii_alphanumeric() || "-_./:@%+=,".contains(one))
    };
    let quoted = words
        .iter()
        .map(|word| if plain(word) { (*word).to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) });
    format!("`postrider {}`", quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units() {
        let table = [
            (0.4, "less than a second"),
            (1.9, "1 s"),
            (250.0, "4 min 10 s"),
            (3_600.0, "1 h"),
            (3_605.0, "1 h"),
            (7_500.0, "2 h 5 min"),
            (90_000.0, "1 d 1 h"),
        ];
        for (seconds, words) in table {
            assert_eq!(span(Duration::from_secs_f64(seconds)), words);
        }
    }

    #[test]
    fn a_moment_is_utc_to_the_second() {
        assert_eq!(moment(SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_276_936_750)), "2025-11-16T07:08:56Z");
    }

    #[test]
    fn a_command_can_be_copied() {
        assert_eq!(command(&["sinks", "resume", "web-hook"]), "`postrider sinks resume web-hook`");
        assert_eq!(command(&["lanes", "skip", "it's $HOME"]), "`postrider lanes skip 'it'\\''s $HOME'`");
    }
}
