//! Turns an async function into a sink: how a Rust application handles its own messages, or sends them where no sink
//! here goes. One message at a time, so a lane's next message comes when the one before has been handled.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use postrider::lifecycle::Claimed;
use serde::de::DeserializeOwned;

use super::{Receipt, Sink, SinkFailure, Verdict};

/// A sink made of a function: see [`handler`].
pub struct Handler<F>(F);

/// A sink that calls `handle` for each message. `Ok(())` is delivered; any error is tried again unless it is a
/// [`SinkFailure::terminal`].
pub fn handler<F, Fut, R, E>(handle: F) -> Handler<F>
where
    F: Fn(Arc<Claimed>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Into<Receipt>,
    E: Into<SinkFailure>,
{
    Handler(handle)
}

#[async_trait]
impl<F, Fut, R, E> Sink for Handler<F>
where
    F: Fn(Arc<Claimed>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Into<Receipt>,
    E: Into<SinkFailure>,
{
    fn kind(&self) -> &'static str {
        "handler"
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(batch.len());
        for message in batch {
            verdicts.push(verdict((self.0)(Arc::clone(message)).await));
        }
        verdicts
    }
}

/// A sink made of a function of a payload type: see [`json_handler`].
pub struct JsonHandler<F, T>(F, PhantomData<fn(T)>);

/// A sink that decodes each message's JSON into a `T` and calls `handle` with it. What cannot be decoded is that one
/// message's terminal failure, [`SinkFailure::INVALID_PAYLOAD`], and `handle` is not called.
pub fn json_handler<T, F, Fut, R, E>(handle: F) -> JsonHandler<F, T>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Arc<Claimed>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Into<Receipt>,
    E: Into<SinkFailure>,
{
    JsonHandler(handle, PhantomData)
}

#[async_trait]
impl<T, F, Fut, R, E> Sink for JsonHandler<F, T>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Arc<Claimed>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Into<Receipt>,
    E: Into<SinkFailure>,
{
    fn kind(&self) -> &'static str {
        "handler"
    }

    async fn deliver(&self, batch: &[Arc<Claimed>]) -> Vec<Verdict> {
        let mut verdicts = Vec::with_capacity(batch.len());
        for message in batch {
            verdicts.push(match message.json() {
                Ok(payload) => verdict((self.0)(payload, Arc::clone(message)).await),
                Err(error) => {
                    Verdict::Failed(SinkFailure::terminal(SinkFailure::INVALID_PAYLOAD, why_not_a::<T>(&error)))
                }
            });
        }
        verdicts
    }
}

fn verdict<R: Into<Receipt>, E: Into<SinkFailure>>(handled: Result<R, E>) -> Verdict {
    match handled {
        Ok(receipt) => Verdict::Delivered(receipt.into()),
        Err(failure) => Verdict::Failed(failure.into()),
    }
}

/// Where, and not what: a payload does not belong into an error.
fn why_not_a<T>(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Data => "a value does not fit",
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => "it is not JSON",
    };
    let (name, line, column) = (std::any::type_name::<T>(), error.line(), error.column());
    format!("the payload is not a {name}: {what}, at line {line}, column {column}")
}
