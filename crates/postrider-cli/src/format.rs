//! Durations, counts, sizes and times as people write and read them. Pure functions. Spans and counts are the library's, so that
//! its texts and ours agree.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
pub(crate) use postrider::inspect::rfc3339;
use postrider::text::short_span;
pub(crate) use postrider::text::{count, counted, seconds, span};

const MS_PER_SECOND: u64 = 1_000;
const MS_PER_MINUTE: u64 = 60 * MS_PER_SECOND;
const MS_PER_HOUR: u64 = 60 * MS_PER_MINUTE;
const MS_PER_DAY: u64 = 24 * MS_PER_HOUR;

/// Reads `500ms`, `5s`, `5m`, `2h`, `1d`, and sums such as `1h30m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 500ms, 5s, 5m, 2h, 1d or 1h30m");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let unit_ms = match &rest[..letters] {
            "ms" => 1,
            "s" => MS_PER_SECOND,
            "m" => MS_PER_MINUTE,
            "h" => MS_PER_HOUR,
            "d" => MS_PER_DAY,
            _ => return Err(wrong()),
        };
        rest = &rest[letters..];
        total_ms = number
            .checked_mul(unit_ms)
            .and_then(|part| total_ms.checked_add(part))
            .ok_or_else(|| format!("{text:?} is too long"))?;
    }
    Ok(Duration::from_millis(total_ms))
}

/// A moment as people name it: a time, or so long before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(SystemTime),
    Ago(Duration),
}

impl Moment {
    /// By the store's clock: the reader's own may be off.
    pub(crate) fn resolve(self, now: SystemTime) -> SystemTime {
        match self {
            Self::At(time) => time,
            Self::Ago(duration) => {
                now.checked_sub(duration).unwrap_or(SystemTime::UNIX_EPOCH).max(SystemTime::UNIX_EPOCH)
            }
        }
    }
}

/// Reads `2026-11-14T12:00:00Z`, `2h ago`, `2h`, `now`.
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    let trimmed = text.trim();
    if trimmed == "now" {
        return Ok(Moment::Ago(Duration::ZERO));
    }
    if let Ok(ago) = parse_duration(trimmed.strip_suffix("ago").map_or(trimmed, str::trim_end)) {
        return Ok(Moment::Ago(ago));
    }
    let time: Timestamp = trimmed
        .parse()
        .map_err(|_| format!("{text:?} is not a time: write 2026-11-14T12:00:00Z (RFC 3339) or \"2h ago\""))?;
    Ok(Moment::At(time.into()))
}

/// Reads a size in bytes: `4096`, `512KiB`, `64MiB`, `1GiB`.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is not a size: write 4096, 512KiB, 64MiB or 1GiB");
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: usize = text[..digits].parse().map_err(|_| wrong())?;
    let unit: usize = match text[digits..].trim_start() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is too large"))
}

/// A setting in words: `5 min`, `90 s`, `1 h`.
pub(crate) fn window(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds if seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        seconds if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// One unit is enough for an age: `12s`, `5m`, `2h`, `3d`; `now` for less than a second, or for a clock that is behind.
pub(crate) fn age(now: SystemTime, then: SystemTime) -> String {
    match now.duration_since(then) {
        Ok(age) if age.as_secs() > 0 => short_span(age),
        _ => "now".to_owned(),
    }
}

/// `12s ago`, `now`.
pub(crate) fn ago(now: SystemTime, then: SystemTime) -> String {
    match age(now, then).as_str() {
        "now" => "now".to_owned(),
        age => format!("{age} ago"),
    }
}

/// `due now`, `due in 5m 00s`.
pub(crate) fn due(now: SystemTime, due_at: SystemTime) -> String {
    match due_at.duration_since(now) {
        Ok(wait) if !wait.is_zero() => format!("due in {}", span(wait)),
        _ => "due now".to_owned(),
    }
}

/// Since a beginning, for a timeline: `+120ms`, `+1.20s`, `+5m 12s`.
pub(crate) fn offset(start: SystemTime, then: SystemTime) -> String {
    let since = then.duration_since(start).unwrap_or_default();
    match since.as_millis() {
        0..1_000 => format!("+{}ms", since.as_millis()),
        1_000..60_000 => format!("+{}.{:02}s", since.as_secs(), since.subsec_millis() / 10),
        _ => format!("+{}", span(since)),
    }
}

/// In at most so many characters: `100,001`, or `100k`, `1.2M`, rounded down. Five characters are always enough up to
/// thousands of billions.
pub(crate) fn short_count(number: u64, width: usize) -> String {
    let whole = count(number);
    if whole.len() <= width {
        return whole;
    }
    let units = [(1_000_u64, "k"), (1_000_000, "M"), (1_000_000_000, "G"), (1_000_000_000_000, "T")];
    let (size, unit) = units.into_iter().rev().find(|(size, _)| number >= *size).unwrap_or((1, ""));
    let tenths = number % size * 10 / size;
    let exact = format!("{}.{tenths}{unit}", number / size);
    if tenths > 0 && exact.len() <= width { exact } else { format!("{}{unit}", number / size) }
}

/// A size in bytes: `512 bytes`, `1.5 KiB`, `16.0 MiB`.
pub(crate) fn size(bytes: usize) -> String {
    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;
    let tenths = |unit: usize| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        1 => "1 byte".to_owned(),
        ..KIB => format!("{bytes} bytes"),
        KIB..MIB => format!("{} KiB", tenths(KIB)),
        _ => format!("{} MiB", tenths(MIB)),
    }
}

/// For people: RFC 3339 with milliseconds.
pub(crate) fn clock(time: SystemTime) -> String {
    let exact = rfc3339(time);
    exact.strip_suffix("Z").and_then(|time| time.get(..time.len() - 3)).map_or(exact.clone(), |time| format!("{time}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        let cases = [("500ms", 500), ("5s", 5_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_mins(90)));
        for wrong in ["", "5", "5 s", "-5s", "1.5s", "5y", "s", "m5", "5\u{b5}s", "99999999999999999999s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert!(parse_duration("9999999999999999999d").unwrap_err().contains("too long"));
    }

    #[test]
    fn a_moment_is_a_time_or_so_long_ago() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(48);
        for (text, hours) in [
            ("1970-01-01T06:00:00Z", 6),
            ("1970-01-01T08:00:00+02:00", 6),
            ("2h ago", 46),
            ("2h", 46),
            (" 1d1h ago ", 23),
            ("now", 48),
            ("9999999d ago", 0),
        ] {
            let moment = parse_moment(text).map(|moment| moment.resolve(now));
            assert_eq!(moment, Ok(SystemTime::UNIX_EPOCH + Duration::from_hours(hours)), "{text}");
        }
        for wrong in ["", "ago", "yesterday", "2026-11-14", "2026-11-14T12:00:00", "-2h", "2 hours ago"] {
            assert!(parse_moment(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn sizes_are_read_with_their_unit() {
        for (text, bytes) in [("4096", 4_096), ("512KiB", 524_288), ("64 MiB", 67_108_864), ("1GiB", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "KiB", "64MB", "1.5GiB", "-1", "99999999999GiB"] {
            assert!(parse_size(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn a_window_has_one_unit() {
        for (seconds, text) in [(300, "5 min"), (90, "90 s"), (7_200, "2 h")] {
            assert_eq!(window(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn offsets_are_exact_where_it_matters() {
        let start = SystemTime::UNIX_EPOCH;
        for (ms, text) in [(0, "+0ms"), (120, "+120ms"), (1_204, "+1.20s"), (59_999, "+59.99s"), (60_000, "+1m 00s")] {
            assert_eq!(offset(start, start + Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_shortened() {
        for (number, width, text) in [
            (100_001, 7, "100,001"),
            (100_001, 6, "100k"),
            (1_200_345, 7, "1.2M"),
            (999_999, 6, "999.9k"),
            (999_999, 5, "999k"),
            (12_345, 5, "12.3k"),
            (999, 3, "999"),
            (u64::MAX, 6, "18446744T"),
        ] {
            assert_eq!(short_count(number, width), text, "{number} in {width}");
        }
        assert_eq!(size(1_536), "1.5 KiB");
        assert_eq!(size(16 * 1024 * 1024), "16.0 MiB");
    }

    #[test]
    fn times_have_a_fixed_precision() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        assert_eq!(rfc3339(time), "1970-01-01T00:00:01.500000Z");
        assert_eq!(clock(time), "1970-01-01T00:00:01.500Z");
    }
}
