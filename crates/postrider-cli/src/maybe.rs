//! A message that somebody writes, by options, as a line or as a body: what is not given is left as it is.

use postrider::Message;

pub(crate) trait Maybe: Sized {
    /// With what `set` makes of a value, if there is one.
    fn maybe<T>(self, given: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match given {
            Some(given) => set(self, given),
            None => self,
        }
    }
}

impl Maybe for Message {}
