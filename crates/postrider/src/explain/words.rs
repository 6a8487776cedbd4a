//! Times, attempts and errors as an explanation writes them. Called by `explain.rs` only; decides nothing.

use std::time::SystemTime;

use crate::inspect::DeliveryRecord;

/// `2026-11-16T07:08:56Z`.
pub(super) fn moment(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| "an unknown time".to_owned(), |time| format!("{time:.0}"))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_is_utc_to_the_second() {
        assert_eq!(moment(SystemTime::UNIX_EPOCH + Duration::from_millis(1_763_276_936_750)), "2025-11-16T07:08:56Z");
    }
}
