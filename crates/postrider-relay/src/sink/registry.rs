//! The kinds of sinks that a configuration can name. The list itself is in `sink.rs`, one line for each kind. A kind that
//! this build leaves out stays in the list, so that a configuration that names it gets a useful error.

use std::fmt;
use std::sync::Arc;

use super::Sink;
use crate::error::Error;

/// Options of a sink, as read from a configuration.
pub trait BuildSink: fmt::Debug + Send + Sync + 'static {
    /// Makes the sink. Reads files and secrets, and connects to nothing: the destination may be down.
    fn build(&self) -> Result<Arc<dyn Sink>, Error>;
}

/// A kind of sink.
///
/// It reads its own options: it is a [`DeserializeSeed`](serde::de::DeserializeSeed), which gives `None` if this build
/// leaves the kind out.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SinkKind {
    /// What a configuration calls it: `http` for `[sinks.NAME.http]`.
    pub name: &'static str,
    /// The Cargo feature that it needs.
    pub feature: Option<&'static str>,
    /// Whether this build has it.
    pub is_built_in: bool,
    /// Options whose values can be printed. All other texts may hold a secret.
    pub public_keys: &'static [&'static str],
    /// Every option, as TOML.
    pub example: &'static str,
}

impl SinkKind {
    /// The kind of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|kind| kind.name == name)
    }
}

macro_rules! kinds {
    ($($name:literal $(($feature:literal))? => $options:ty;)*) => {
        impl $crate::sink::registry::SinkKind {
            /// Every kind there is, those that this build leaves out included.
            pub const ALL: &'static [Self] = &[$(
                $(#[cfg(feature = $feature)])?
                Self {
                    name: $name,
                    feature: $crate::sink::registry::kinds!(@feature $($feature)?),
                    is_built_in: true,
                    public_keys: <$options>::PUBLIC_KEYS,
                    example: include_str!(concat!("sink/", $name, "/example.toml")),
                },
                $(
                    #[cfg(not(feature = $feature))]
                    Self {
                        name: $name,
                        feature: Some($feature),
                        is_built_in: false,
                        public_keys: &[],
                        example: include_str!(concat!("sink/", $name, "/example.toml")),
                    },
                )?
            )*];
        }

        impl<'de> serde::de::DeserializeSeed<'de> for &$crate::sink::registry::SinkKind {
            type Value = Option<Arc<dyn $crate::sink::registry::BuildSink>>;

            fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
                match self.name {
                    $(
                        $(#[cfg(feature = $feature)])?
                        $name => Ok(Some(Arc::new(<$options as serde::Deserialize>::deserialize(deserializer)?))),
                    )*
                    _ => <serde::de::IgnoredAny as serde::Deserialize>::deserialize(deserializer).map(|_| None),
                }
            }
        }
    };
    (@feature $feature:literal) => { Some($feature) };
    (@feature) => { None };
}
pub(crate) use kinds;
