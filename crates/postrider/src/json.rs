//! How values are written in JSON: times as RFC 3339 in UTC to the microsecond, as the databases keep them; spans as seconds;
//! bytes as base64. For serde's attributes on records and filters.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::ser::Serializer;

/// A moment, as the API describes it.
#[cfg(feature = "openapi")]
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2027-01-31T08:00:00.000000Z")]
pub(crate) struct Time(#[expect(dead_code, reason = "only described")] String);

/// RFC 3339 with microseconds. PostgreSQL's times reach further than RFC 3339's years; the nearest one stands for them.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let nearest = if time < SystemTime::UNIX_EPOCH { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    format!("{:.6}", jiff::Timestamp::try_from(time).unwrap_or(nearest))
}

pub(crate) fn time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(crate) fn time_option<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => self::time(time, serializer),
        None => serializer.serialize_none(),
    }
}

#[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
pub(crate) fn base64_option<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => serializer.serialize_str(&STANDARD.encode(bytes)),
        None => serializer.serialize_none(),
    }
}

/// A time that a filter is given, or null. It is refused if it cannot be written.
pub(crate) mod given_time {
    use std::time::SystemTime;

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::{Error as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(given: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(given) = *given else { return serializer.serialize_none() };
        let time = jiff::Timestamp::try_from(given).map_err(|_| S::Error::custom("a time is out of range"))?;
        serializer.collect_str(&format_args!("{time:.6}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SystemTime>, D::Error> {
        let wrong = || D::Error::custom("expected an RFC 3339 time such as 2027-01-31T08:00:00Z");
        let Some(text) = Option::<String>::deserialize(deserializer).map_err(|_| wrong())? else { return Ok(None) };
        let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
        Ok(Some(time.into()))
    }
}

/// A whole number of seconds if it is one.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        if span.subsec_nanos() == 0 {
            serializer.serialize_u64(span.as_secs())
        } else {
            serializer.serialize_f64(span.as_secs_f64())
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The same, or null.
pub(crate) mod seconds_option {
    use std::time::Duration;

    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    #[expect(clippy::ref_option, reason = "serde hands over a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::seconds::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<f64>::deserialize(deserializer)?;
        seconds.map(Duration::try_from_secs_f64).transpose().map_err(D::Error::custom)
    }
}
