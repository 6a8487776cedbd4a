//! How times and durations are written in JSON: RFC 3339 in UTC, and seconds. For serde's `serialize_with`, on what is
//! written down or shown; nothing here reads.

use std::time::{Duration, SystemTime};

use serde::ser::{Error as _, Serializer};

pub(crate) fn time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let time = jiff::Timestamp::try_from(*time).map_err(|_| S::Error::custom("a time is out of range"))?;
    // Always to the microsecond, as the databases write it.
    serializer.collect_str(&format_args!("{time:.6}"))
}

/// For a field that is skipped if it is `None`.
#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(crate) fn time_if_given<S: Serializer>(given: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    given.as_ref().map_or_else(|| Err(S::Error::custom("no time is given")), |given| time(given, serializer))
}

/// A whole number if it is one.
pub(crate) fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    if duration.subsec_nanos() == 0 {
        serializer.serialize_u64(duration.as_secs())
    } else {
        serializer.serialize_f64(duration.as_secs_f64())
    }
}

/// For a field that is skipped if it is `None`.
#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(crate) fn seconds_if_given<S: Serializer>(given: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    given.as_ref().map_or_else(|| Err(S::Error::custom("no duration is given")), |given| seconds(given, serializer))
}
