//! Spans of time and counts as people read them, the same in explanations, in the doctor's findings and on the command line.
//! Pure functions.

use std::time::Duration;

/// The two largest units: `850ms`, `12s`, `5m 12s`, `2h 05m`, `3d 4h`.
#[must_use]
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// One unit, where that is enough: `12s`, `5m`, `2h`, `3d`.
#[must_use]
pub fn short_span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A span that is kept as a number of seconds.
#[must_use]
pub fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// `1,234,567`. What is less than nothing is nothing.
#[must_use]
pub fn count(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(0).to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 message`, `1,234 messages`, `2 deliveries`.
#[must_use]
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(0);
    match one.strip_suffix("ry") {
        _ if number == 1 => format!("1 {one}"),
        Some(stem) => format!("{} {stem}ries", count(number)),
        None => format!("{} {one}s", count(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_show_two_units_or_one() {
        for (ms, two, one) in [
            (850, "850ms", "0s"),
            (12_000, "12s", "12s"),
            (312_000, "5m 12s", "5m"),
            (7_500_000, "2h 05m", "2h"),
            (273_600_000, "3d 4h", "3d"),
        ] {
            let duration = Duration::from_millis(ms);
            assert_eq!((span(duration).as_str(), short_span(duration).as_str()), (two, one));
        }
    }

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567"), (-1, "0")] {
            assert_eq!(count(number), text);
        }
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(1_000, "delivery"), "1,000 deliveries");
    }
}
