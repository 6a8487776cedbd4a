//! Decides what a failure means: terminal or retryable by its code, when to try again, and what it says about the
//! destination. Pure: it is given the random numbers, knows neither store nor clock, and never reads a failure's text.

use std::collections::BTreeMap;
use std::time::Duration;

use postrider::lifecycle::{Failure, Outcome};
use rand::Rng;

use crate::options::RetryOptions;
use crate::sink::{SinkFailure, Verdict};

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureClass {
    /// It cannot: the message is dead at once.
    Terminal,
    /// It can: the message is due again after the backoff.
    Retryable,
}

/// What failure codes mean, code by code: the destination's own code first, then the sink's. A code that is not in it
/// means what the sink says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeTable(BTreeMap<String, FailureClass>);

impl CodeTable {
    /// Adds a code.
    #[must_use]
    pub fn with(mut self, code: impl Into<String>, class: FailureClass) -> Self {
        self.0.insert(code.into(), class);
        self
    }

    /// What a failure means here.
    #[must_use]
    pub fn class_of(&self, failure: &SinkFailure) -> FailureClass {
        let said = failure.reply_code.as_ref().and_then(|code| self.0.get(code));
        said.or_else(|| self.0.get(&failure.code)).copied().unwrap_or(failure.class)
    }
}

/// What to record about a failed attempt.
pub(crate) fn outcome(
    failure: SinkFailure,
    class: FailureClass,
    attempt_count: i32,
    retry: &RetryOptions,
    rng: &mut impl Rng,
) -> Outcome {
    let asked_for = failure.retry_after;
    let failure = Failure::new(failure.code, failure.message).answer(failure.answer);
    match class {
        FailureClass::Terminal => Outcome::Failed(failure),
        FailureClass::Retryable => {
            Outcome::Retryable { retry_after: delay(asked_for, attempt_count, retry, rng), failure }
        }
    }
}

/// The backoff, or what the destination asked for if that is longer, up to its cap.
fn delay(asked_for: Option<Duration>, attempt_count: i32, retry: &RetryOptions, rng: &mut impl Rng) -> Duration {
    let backoff = retry.backoff.delay(u32::try_from(attempt_count).unwrap_or(1), rng);
    asked_for.map_or(backoff, |asked_for| backoff.max(asked_for.min(retry.retry_after_max)))
}

/// What one call of a sink says about its destination.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Health<'a> {
    /// It answered for so many messages, be it with a refusal.
    Answered(usize),
    /// Nothing was sent, or everything that was sent failed and may be retried; the last failure.
    Failed(Option<&'a SinkFailure>),
    /// The relay refused the messages before they were sent.
    Unknown,
}

pub(crate) fn health<'a>(verdicts: &'a [Verdict], codes: &CodeTable) -> Health<'a> {
    let refused_here = |verdict: &Verdict| matches!(verdict, Verdict::Failed(failure) if failure.is_refused_here());
    let is_answer = |verdict: &&Verdict| match verdict {
        Verdict::Delivered(_) => true,
        Verdict::NotSent => false,
        Verdict::Failed(failure) => codes.class_of(failure) == FailureClass::Terminal && !failure.is_refused_here(),
    };
    match verdicts.iter().filter(is_answer).count() {
        0 if verdicts.iter().any(refused_here) => Health::Unknown,
        0 => Health::Failed(verdicts.iter().rev().find_map(|verdict| match verdict {
            Verdict::Failed(failure) => Some(failure),
            _ => None,
        })),
        answered => Health::Answered(answered),
    }
}

#[cfg(test)]
mod tests {
    use crate::backoff::Backoff;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    fn retry() -> RetryOptions {
        RetryOptions {
            backoff: Backoff { base: Duration::from_secs(2), max: Duration::from_mins(1) },
            max_attempts: 10,
            retry_after_max: Duration::from_secs(100),
        }
    }

    /// Proves P11: codes decide, in the table first, and the text of an error decides nothing.
    #[test]
    fn a_code_is_terminal_or_retryable() {
        let table =
            CodeTable::default().with("HTTP_409", FailureClass::Terminal).with("HTTP_400", FailureClass::Retryable);
        let table = table.with("ACCOUNT_LOCKED", FailureClass::Retryable).with("ACCOUNT_GONE", FailureClass::Terminal);
        for (failure, class) in [
            (SinkFailure::retryable("HTTP_503", "permanent failure, do not retry"), FailureClass::Retryable),
            (SinkFailure::terminal("HTTP_404", "temporary, please retry"), FailureClass::Terminal),
            (SinkFailure::retryable("HTTP_409", ""), FailureClass::Terminal),
            (SinkFailure::terminal("HTTP_400", ""), FailureClass::Retryable),
            (SinkFailure::retryable("HTTP_409", "").reply_code("ACCOUNT_LOCKED"), FailureClass::Retryable),
            (SinkFailure::retryable("HTTP_503", "").reply_code("ACCOUNT_GONE"), FailureClass::Terminal),
            (SinkFailure::retryable("HTTP_409", "").reply_code("UNHEARD_OF"), FailureClass::Terminal),
        ] {
            assert_eq!(table.class_of(&failure), class, "{failure:?}");
        }
    }

    #[test]
    fn a_hint_lengthens_the_wait_up_to_its_cap() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut wait = |asked_for: Option<u64>, attempts| {
            delay(asked_for.map(Duration::from_secs), attempts, &retry(), &mut rng).as_secs_f64()
        };
        assert!((1.0..=2.0).contains(&wait(None, 1)), "the backoff alone");
        assert!((wait(Some(30), 1) - 30.0).abs() < f64::EPSILON, "the hint is longer");
        assert!((wait(Some(86_400), 1) - 100.0).abs() < f64::EPSILON, "the cap");
        assert!(wait(Some(0), 5) >= 16.0, "a hint never shortens the backoff");
    }

    #[test]
    fn a_terminal_failure_is_recorded_as_failed_whatever_it_asks_for() {
        let failure = SinkFailure::terminal("NO", "never").retry_after(Duration::from_secs(1));
        let outcome = outcome(failure, FailureClass::Terminal, 1, &retry(), &mut StdRng::seed_from_u64(1));
        assert_eq!(outcome, Outcome::Failed(Failure::new("NO", "never")));
    }

    #[test]
    fn a_call_fails_only_if_nothing_was_answered() {
        let failed = |failure| Verdict::Failed(failure);
        let down = || SinkFailure::retryable("HTTP_503", "");
        let codes = CodeTable::default();
        for (verdicts, health_is) in [
            (vec![failed(down()), Verdict::Delivered(().into())], Health::Answered(1)),
            (vec![failed(down()), failed(SinkFailure::terminal("HTTP_404", ""))], Health::Answered(1)),
            (vec![Verdict::NotSent, failed(down()), Verdict::NotSent], Health::Failed(Some(&down()))),
            (vec![Verdict::NotSent], Health::Failed(None)),
            (vec![failed(SinkFailure::terminal(SinkFailure::TOO_LARGE, ""))], Health::Unknown),
        ] {
            assert_eq!(health(&verdicts, &codes), health_is);
        }
    }
}
