//! For the tests of an application: what its transactions have enqueued, and a store whose time a test can move. Belongs to
//! the feature `testing`, among the dev-dependencies; `postrider_relay::testing` delivers. It never enqueues and never
//! delivers. `docs/testing-your-app.md` shows all of it at work.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod clock;
mod look;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::clock::MovableClock;
pub use self::look::{Look, Question};
use crate::error::{Cause, Error};
use crate::record::texts;
use crate::schema::Schema;
use crate::statement::named;

/// So many messages are looked at, the newest.
pub const MAX_MESSAGES: usize = 1_000;

/// So many are listed when the one that was expected is not among them.
const MAX_LISTED: usize = 20;

/// So much of a payload is listed.
const MAX_PAYLOAD_CHARS: usize = 200;

/// A message as it was enqueued.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Written {
    /// Its id.
    pub message_id: Uuid,
    /// `default` unless the producer gave one.
    pub namespace: String,
    /// What happened.
    pub topic: String,
    /// Its tenant.
    pub tenant_id: Option<String>,
    /// Its lane.
    pub lane: Option<String>,
    /// Its number in the lane.
    pub sequence_id: Option<i64>,
    /// Its dedupe key.
    pub dedupe_key: Option<String>,
    /// The producer's headers.
    pub headers: BTreeMap<String, String>,
    /// Its payload; `None` if it has a body of bytes.
    pub payload: Option<Value>,
}

/// The newest [`MAX_MESSAGES`] messages that this transaction or connection sees in the outbox of this schema, the newest first:
/// its own, which are not committed yet, and what is committed.
pub async fn enqueued<L: Look>(tx: L, schema: &Schema) -> Result<Vec<Written>, Error> {
    let statements = (named!("postgres", "testing", "enqueued"), named!("sqlite", "testing", "enqueued"));
    let rows = tx.look(Question::new(statements.0, statements.1, schema)).await?;
    let written = |row: &String| {
        serde_json::from_str(row).map_err(|error| {
            Error::from(Cause::Refused { message: format!("a message is not JSON: {error}"), hint: None })
        })
    };
    rows.iter().map(written).collect()
}

/// What a test expects to have been enqueued: what it does not name may be anything. [`assert_enqueued!`](crate::assert_enqueued)
/// makes one.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Expected {
    #[serde(skip)]
    schema: Schema,
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(rename = "tenant", skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dedupe_key: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Value>,
}

texts! { Expected:
    /// Of this namespace.
    namespace => namespace,
    /// Of this tenant.
    tenant => tenant_id,
    /// In this lane.
    lane => lane,
    /// With this dedupe key.
    dedupe_key => dedupe_key,
}

impl Expected {
    /// A message of this topic.
    #[must_use]
    pub fn topic(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), ..Self::default() }
    }

    /// In another schema than `outbox`.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// With this header, whatever others there are.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// With a payload that has this in it. An object may have further members, at any depth; a list has the same number of
    /// elements, each of which has its counterpart in it; anything else is equal.
    ///
    /// # Panics
    /// If it cannot be JSON.
    #[must_use]
    pub fn payload(mut self, part: impl Serialize) -> Self {
        self.payload = Some(serde_json::to_value(part).expect("what a payload is to have in it must be JSON"));
        self
    }

    /// The newest message that is so, among those that [`enqueued`] looks at. Otherwise what to say: what was expected, and what
    /// was enqueued instead.
    pub async fn find<L: Look>(self, tx: L) -> Result<Written, String> {
        let all = enqueued(tx, &self.schema).await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            format!("the outbox cannot be looked at: {error}{cause}")
        })?;
        let found = all.iter().find(|written| self.differences(written).is_empty());
        found.cloned().ok_or_else(|| self.report(&all))
    }

    /// What about a message is not as expected.
    fn differences(&self, written: &Written) -> Vec<&'static str> {
        let other = |expected: Option<&String>, is: Option<&String>| expected.is_some() && expected != is;
        let headers = |(name, value): (&String, &String)| written.headers.get(name) == Some(value);
        let payload = |part: &Value| !written.payload.as_ref().is_some_and(|whole| is_in(part, whole));
        [
            ("topic", self.topic != written.topic),
            ("namespace", other(self.namespace.as_ref(), Some(&written.namespace))),
            ("tenant", other(self.tenant_id.as_ref(), written.tenant_id.as_ref())),
            ("lane", other(self.lane.as_ref(), written.lane.as_ref())),
            ("dedupe_key", other(self.dedupe_key.as_ref(), written.dedupe_key.as_ref())),
            ("headers", !self.headers.iter().all(headers)),
            ("payload", self.payload.as_ref().is_some_and(payload)),
        ]
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect()
    }

    fn report(&self, all: &[Written]) -> String {
        let expected = serde_json::to_string(self).unwrap_or_default();
        let mut lines = vec!["no message like this was enqueued:".to_owned(), format!("  {expected}")];
        if all.is_empty() {
            lines.push("There is no message at all.".to_owned());
        } else {
            lines.push("There are, the newest first:".to_owned());
        }
        lines.extend(all.iter().take(MAX_LISTED).map(|written| self.line(written)));
        if all.len() > MAX_LISTED {
            lines.push(format!("  … and {} more", all.len() - MAX_LISTED));
        }
        lines.join("\n")
    }

    /// What a message is that is not as expected.
    fn line(&self, written: &Written) -> String {
        let is = Self {
            schema: Schema::default(),
            topic: written.topic.clone(),
            namespace: self.namespace.as_ref().map(|_| written.namespace.clone()),
            tenant_id: written.tenant_id.clone(),
            lane: written.lane.clone(),
            dedupe_key: written.dedupe_key.clone(),
            headers: if self.headers.is_empty() { BTreeMap::new() } else { written.headers.clone() },
            payload: None,
        };
        let payload = written.payload.as_ref().map_or_else(|| "bytes".to_owned(), ToString::to_string);
        let short: String = payload.chars().take(MAX_PAYLOAD_CHARS).collect();
        let cut = if short.len() < payload.len() { "…" } else { "" };
        let (is, differ) = (serde_json::to_string(&is).unwrap_or_default(), self.differences(written).join(", "));
        format!("  {is} with the payload {short}{cut} (other: {differ})")
    }
}

/// Whether a part of a payload is in the whole.
fn is_in(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| is_in(part, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_in(part, whole))
        }
        _ => part == whole,
    }
}

/// Asserts that a message was enqueued, as seen by this transaction, and returns it: a [`Written`](crate::testing::Written).
///
/// First the transaction, as [`Outbox::enqueue`](crate::Outbox::enqueue) takes it, or a connection; then the topic; then what
/// else is expected, by the methods of [`Expected`](crate::testing::Expected). What is not named may be anything. It is used in
/// an async function, and panics with a list of what was enqueued instead.
///
/// ```
/// # #[cfg(feature = "tokio-postgres")]
/// async fn an_order_is_announced(tx: &tokio_postgres::Transaction<'_>) {
///     // … the application places order 7 …
///     postrider::assert_enqueued!(tx, "order.placed", payload = serde_json::json!({"order": 7}), lane = "customer-7");
/// }
/// ```
#[macro_export]
macro_rules! assert_enqueued {
    ($tx:expr, $topic:expr $(, $field:ident = $value:expr)* $(,)?) => {
        match $crate::testing::Expected::topic($topic)$(.$field($value))*.find($tx).await {
            Ok(written) => written,
            Err(why) => panic!("{why}"),
        }
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_part_is_in_the_whole() {
        let whole = json!({"order": 7, "lines": [{"sku": "a", "count": 2}, {"sku": "b"}], "note": null});
        for part in
            [json!({}), json!({"order": 7}), json!({"note": null}), json!({"lines": [{"count": 2}, {}]}), whole.clone()]
        {
            assert!(is_in(&part, &whole), "{part}");
        }
        for part in [
            json!({"order": 8}),
            json!({"order": "7"}),
            json!({"customer": null}),
            json!({"lines": [{"count": 2}]}),
            json!({"lines": [{"sku": "b"}, {"sku": "a"}]}),
            json!([]),
            json!(null),
        ] {
            assert!(!is_in(&part, &whole), "{part}");
        }
    }
}
