//! What every store checks about an action before it carries it out, and how SQLite's store writes it down: PostgreSQL's
//! functions write the same themselves. What only one verb needs is checked where that verb is.

#[cfg(feature = "sqlite")]
use serde_json::Map;
use serde_json::Value;

use crate::error::{Cause, Error};
use crate::message::{Message, limit};
use crate::operate::{Action, MAX_PER_ACTION, Replay};

/// The fastest replay: beyond it a message would be due less than a microsecond after the one before.
const MAX_PER_SECOND: u32 = 1_000_000;

impl Action {
    /// Refuses what is out of range, whatever the store.
    pub(crate) fn check(&self, actor: &str) -> Result<(), Error> {
        check_actor(actor)?;
        let (named, at_most) = match self {
            Self::Redrive { which, at_most } | Self::Discard { which, at_most } => (&which.message_ids, Some(*at_most)),
            Self::RetryNow { which, at_most } | Self::Cancel { which, at_most } => (&which.message_ids, Some(*at_most)),
            Self::Replay(replay) => (&replay.message_ids, Some(replay.at_most)),
            Self::ApplyRoutes { at_most } => (&None, Some(*at_most)),
            _ => (&None, None),
        };
        if at_most.is_some_and(|at_most| !(1..=MAX_PER_ACTION).contains(&at_most)) {
            return refuse(format!("at_most must be between 1 and {MAX_PER_ACTION}"));
        }
        if named.as_ref().is_some_and(|ids| ids.len() > MAX_PER_ACTION as usize) {
            return refuse(format!("message_ids must be at most {MAX_PER_ACTION}: ask again for the rest"));
        }
        if let Self::Replay(replay) = self {
            replay.check()?;
        }
        self.detail().map(drop)
    }

    /// The action as the audit keeps it: what was given, without the action's name, which has a column of its own.
    pub(crate) fn detail(&self) -> Result<String, Error> {
        match serde_json::to_value(self) {
            Ok(Value::Object(mut detail)) => {
                detail.remove("action");
                detail.retain(|_, given| !given.is_null());
                Ok(Value::Object(detail).to_string())
            }
            Ok(other) => refuse(format!("the action cannot be written down: {other}")),
            Err(error) => refuse(format!("the action cannot be written down: {error}")),
        }
    }
}

impl Replay {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let spans = usize::from(self.from.is_some()) + usize::from(self.to.is_some());
        if spans != if self.message_ids.is_some() { 0 } else { 2 } {
            return refuse("name message_ids, or from and to".to_owned());
        }
        if self.per_second.is_some_and(|rate| rate.get() > MAX_PER_SECOND) {
            return refuse(format!("per_second must be between 1 and {MAX_PER_SECOND}"));
        }
        if self.paced_from.is_some() && self.per_second.is_none() {
            return refuse("paced_from needs per_second".to_owned());
        }
        Ok(())
    }
}

/// Refuses what cannot be enqueued in this name.
pub(crate) fn enqueue(actor: &str, message: &Message) -> Result<(), Error> {
    check_actor(actor)?;
    Ok(message.check()?)
}

/// What the audit says about a message that an operator enqueues. Its id is added by whoever has made it.
#[cfg(feature = "sqlite")]
pub(crate) fn enqueue_detail(message: &Message) -> Map<String, Value> {
    let told = [
        ("topic", Some(message.topic.as_str().into())),
        ("namespace", message.namespace.as_deref().map(Value::from)),
        ("tenant_id", message.tenant_id.as_deref().map(Value::from)),
        ("lane", message.lane.as_deref().map(Value::from)),
        ("dedupe_key", message.dedupe_key.as_deref().map(Value::from)),
    ];
    told.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn check_actor(actor: &str) -> Result<(), Error> {
    if actor.is_empty() || actor.len() > limit::NAME_BYTES || actor.contains('\0') {
        return refuse(format!("actor must be 1 to {} bytes of text", limit::NAME_BYTES));
    }
    Ok(())
}

fn refuse<T>(message: String) -> Result<T, Error> {
    Err(Error::from(Cause::Refused { message, hint: None }))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::{Duration, UNIX_EPOCH};

    use uuid::Uuid;

    use super::*;
    use crate::inspect::DeadFilter;
    use crate::store::OnDead;

    fn written(action: &Action) -> String {
        action.check("ann").expect("the action is in range");
        action.detail().expect("it is an object")
    }

    #[test]
    fn an_action_is_written_with_what_is_given() {
        let died_from = Some(UNIX_EPOCH + Duration::from_millis(1_500));
        let which = DeadFilter { sink: Some("s".to_owned()), died_from, ..DeadFilter::default() };
        assert_eq!(
            written(&Action::Redrive { which, at_most: 5 }),
            r#"{"at_most":5,"died_from":"1970-01-01T00:00:01.500000Z","sink":"s"}"#
        );
        let older_than = Duration::from_mins(15);
        assert_eq!(written(&Action::UnclaimStuck { older_than, live: false }), r#"{"older_than_seconds":900}"#);
        let live = Action::UnclaimStuck { older_than, live: true };
        assert_eq!(written(&live), r#"{"live":true,"older_than_seconds":900}"#);
        assert_eq!(written(&Action::Prune { older_than: None }), "{}");
        let older_than = Some(Duration::from_millis(2_500));
        assert_eq!(written(&Action::Prune { older_than }), r#"{"older_than_seconds":2.5}"#);
        let on_dead = OnDead::Skip;
        assert_eq!(written(&Action::SetOnDead { sink: "s".to_owned(), on_dead }), r#"{"on_dead":"skip","sink":"s"}"#);
        let replay = Replay {
            sink: "s".to_owned(),
            from: Some(UNIX_EPOCH),
            to: Some(UNIX_EPOCH + Duration::from_hours(1)),
            topic: Some("t".to_owned()),
            include_never_delivered: true,
            per_second: NonZeroU32::new(7),
            at_most: 1,
            ..Replay::default()
        };
        let all = Action::Replay(replay);
        assert_eq!(
            written(&all),
            r#"{"at_most":1,"from":"1970-01-01T00:00:00.000000Z","include_never_delivered":true,"per_second":7,"sink":"s","to":"1970-01-01T01:00:00.000000Z","topic":"t"}"#
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
            ("ann", Action::Replay(Replay { at_most: 1, ..Replay::default() }), "name message_ids, or from and to"),
        ] {
            let error = action.check(actor).expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
