//! Records outcomes in PostgreSQL: one array for each parameter. Called by the store; the rules are in
//! `sql/postgres/functions/complete_many.sql`.

use tokio_postgres::types::Type;

use super::PostgresStore;
use super::statement::{seconds, sql};
use crate::error::Error;
use crate::lifecycle::{Completed, Completion, Failure, Outcome};
use crate::statement::without_nul;

pub(super) async fn complete(
    store: &PostgresStore,
    worker_id: &str,
    completions: &[Completion],
) -> Result<Vec<Completed>, Error> {
    if completions.is_empty() {
        return Ok(Vec::new());
    }
    let texts =
        |said: fn(&Completion) -> Option<&str>| column_if_any(completions, |completion| without_nul(said(completion)));
    let failure = |said: fn(&Failure) -> Option<&str>| {
        column_if_any(completions, |completion| without_nul(completion.outcome.failure().and_then(said)))
    };
    let answer = store
        .query(
            sql!("complete", "complete"),
            &[
                (&column(completions, |completion| completion.message_id), Type::UUID_ARRAY),
                (&column(completions, |completion| completion.lease_token.0), Type::UUID_ARRAY),
                (&column(completions, |completion| completion.outcome.state().as_str()), Type::TEXT_ARRAY),
                (&worker_id, Type::TEXT),
                (&column_if_any(completions, retry_after), Type::TEXT_ARRAY),
                (&failure(|failure| failure.error_code.as_deref()), Type::TEXT_ARRAY),
                (&failure(|failure| failure.error_message.as_deref()), Type::TEXT_ARRAY),
                (&texts(|completion| completion.reference.as_deref()), Type::TEXT_ARRAY),
                (&texts(|completion| completion.code.as_deref()), Type::TEXT_ARRAY),
                (&column(completions, Completion::latency_ms), Type::INT4_ARRAY),
                (&failure(|failure| failure.answer.as_deref()), Type::TEXT_ARRAY),
            ],
        )
        .await?;
    answer.all()
}

fn column<'a, T>(completions: &'a [Completion], value: impl Fn(&'a Completion) -> T) -> Vec<T> {
    completions.iter().map(value).collect()
}

/// No array at all, as usual, if nobody has a value.
fn column_if_any<T>(completions: &[Completion], value: impl Fn(&Completion) -> Option<T>) -> Option<Vec<Option<T>>> {
    let values = column(completions, value);
    values.iter().any(Option::is_some).then_some(values)
}

fn retry_after(completion: &Completion) -> Option<String> {
    match &completion.outcome {
        Outcome::Retryable { retry_after, .. } => Some(seconds(*retry_after)),
        _ => None,
    }
}
