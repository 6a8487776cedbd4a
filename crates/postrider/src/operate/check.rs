//! What every store checks about an action before it carries it out, and how the action is written down. What only one
//! verb needs is checked where that verb is.

use serde_json::{Map, Value};

use crate::error::Error;
use crate::message::{Message, limit};
use crate::operate::{Action, MAX_PER_ACTION};

/// The word of the audit for a message that an operator enqueued.
pub(crate) const ENQUEUE: &str = "enqueue";

/// The fastest replay: beyond it a message would be due less than a microsecond after the one before.
const MAX_PER_SECOND: u32 = 1_000_000;

impl Action {
    /// Refuses what is out of range, whatever the store, and writes the action as the audit keeps it.
    pub(crate) fn to_detail(&self, actor: &str) -> Result<String, Error> {
        check_actor(actor)?;
        let (named, at_most) = match self {
            Self::Redrive { which, at_most } | Self::Discard { which, at_most } => (&which.message_ids, Some(*at_most)),
            Self::RetryNow { which, at_most } => (&which.message_ids, Some(*at_most)),
            Self::Replay(replay) => (&None, Some(replay.at_most)),
            _ => (&None, None),
        };
        if at_most.is_some_and(|at_most| !(1..=MAX_PER_ACTION).contains(&at_most)) {
            return refuse(format!("at_most must be between 1 and {MAX_PER_ACTION}"));
        }
        if named.as_ref().is_some_and(|ids| ids.len() > MAX_PER_ACTION as usize) {
            return refuse(format!("message_ids must be at most {MAX_PER_ACTION}: ask again for the rest"));
        }
        if matches!(self, Self::Replay(replay) if replay.per_second.is_some_and(|rate| rate.get() > MAX_PER_SECOND)) {
            return refuse(format!("per_second must be between 1 and {MAX_PER_SECOND}"));
        }
        if matches!(self, Self::Replay(replay) if replay.paced_from.is_some() && replay.per_second.is_none()) {
            return refuse("paced_from needs per_second".to_owned());
        }
        serde_json::to_string(self).or_else(|error| refuse(format!("the action cannot be written down: {error}")))
    }
}

/// The same for a message that an operator enqueues: what it is about. Its id is added by whoever has made it.
pub(crate) fn enqueue_detail(actor: &str, message: &Message) -> Result<Map<String, Value>, Error> {
    check_actor(actor)?;
    message.check()?;
    let told = [
        ("action", Some(ENQUEUE.into())),
        ("topic", Some(message.topic.as_str().into())),
        ("namespace", message.namespace.as_deref().map(Value::from)),
        ("tenant_id", message.tenant_id.map(|tenant| tenant.to_string().into())),
        ("lane", message.lane.as_deref().map(Value::from)),
        ("dedupe_key", message.dedupe_key.as_deref().map(Value::from)),
    ];
    Ok(told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn check_actor(actor: &str) -> Result<(), Error> {
    if actor.is_empty() || actor.len() > limit::NAME_BYTES || actor.contains('\0') {
        return refuse(format!("actor must be 1 to {} bytes of text", limit::NAME_BYTES));
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, Error> {
    Err(Error::Refused { message, hint: None })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::{Duration, UNIX_EPOCH};

    use uuid::Uuid;

    use super::*;
    use crate::inspect::DeadFilter;
    use crate::operate::ReplayAction;

    fn written(action: &Action) -> String {
        action.to_detail("ann").expect("the action is in range")
    }

    #[test]
    fn an_order_is_written_with_what_is_given() {
        let died_from = Some(UNIX_EPOCH + Duration::from_millis(1_500));
        let which = DeadFilter { sink: Some("s".to_owned()), died_from, ..DeadFilter::default() };
        assert_eq!(
            written(&Action::Redrive { which, at_most: 5 }),
            r#"{"action":"redrive","which":{"sink":"s","died_from":"1970-01-01T00:00:01.5Z"},"at_most":5}"#
        );
        let older_than = Duration::from_mins(15);
        assert_eq!(
            written(&Action::UnclaimStuck { older_than }),
            r#"{"action":"unclaim_stuck","older_than_seconds":900}"#
        );
        assert_eq!(written(&Action::Prune { older_than: None }), r#"{"action":"prune"}"#);
        let older_than = Some(Duration::from_millis(2_500));
        assert_eq!(written(&Action::Prune { older_than }), r#"{"action":"prune","older_than_seconds":2.5}"#);
        let replay = ReplayAction {
            sink: "s".to_owned(),
            from: UNIX_EPOCH,
            to: UNIX_EPOCH + Duration::from_hours(1),
            namespace: None,
            topic: Some("t".to_owned()),
            per_second: NonZeroU32::new(7),
            paced_from: None,
            after: None,
            at_most: 1,
        };
        assert_eq!(
            written(&Action::Replay(replay)),
            r#"{"action":"replay","sink":"s","from":"1970-01-01T00:00:00Z","to":"1970-01-01T01:00:00Z","topic":"t","per_second":7,"at_most":1}"#
        );
    }

    #[test]
    fn what_is_out_of_range_is_refused_in_words() {
        let redrive = |which: DeadFilter, at_most| Action::Redrive { which, at_most };
        let many = DeadFilter { message_ids: Some(vec![Uuid::nil(); 10_001]), ..DeadFilter::default() };
        let never = DeadFilter { died_to: Some(UNIX_EPOCH + Duration::from_secs(1 << 40)), ..DeadFilter::default() };
        for (actor, action, words) in [
            ("", Action::Prune { older_than: None }, "actor must be 1 to 255 bytes"),
            ("a\0b", Action::Prune { older_than: None }, "actor must be 1 to 255 bytes"),
            (&*"a".repeat(256), Action::Prune { older_than: None }, "actor must be 1 to 255 bytes"),
            ("ann", redrive(DeadFilter::default(), 0), "at_most must be between 1 and 10000"),
            ("ann", redrive(DeadFilter::default(), 10_001), "at_most must be between 1 and 10000"),
            ("ann", redrive(many, 1), "message_ids must be at most 10000"),
            ("ann", redrive(never, 1), "a time is out of range"),
        ] {
            let error = action.to_detail(actor).expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
