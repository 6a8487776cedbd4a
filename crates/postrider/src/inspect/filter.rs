//! Which messages, deliveries, dead letters and lanes are meant. The same structs are the parameters and bodies of the admin
//! API, what the command line's options become, what the stores search by, and the detail of the audit.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::id_floor;
use super::{DeadReason, DeliveryState, IdTail, LaneState};
use crate::json;

/// Which dead letters. Everything that is given must hold; nothing given is every dead letter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct DeadFilter {
    /// These messages.
    #[cfg_attr(feature = "openapi", schema(max_items = 10_000), param(ignore))]
    pub message_ids: Option<Vec<Uuid>>,
    /// Of this sink.
    pub sink: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of this topic; `*` stands for any characters, as in a route.
    pub topic: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// In this lane.
    pub lane: Option<String>,
    /// For this reason.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub reason: Option<DeadReason>,
    /// With this code; an empty one means those without any.
    pub error_code: Option<String>,
    /// Dead since this time or later.
    #[serde(with = "json::given_time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>), param(value_type = Option<String>, format = DateTime))]
    pub died_from: Option<SystemTime>,
    /// Dead before this time.
    #[serde(with = "json::given_time")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<json::Time>), param(value_type = Option<String>, format = DateTime))]
    pub died_to: Option<SystemTime>,
}

/// Which open deliveries. Everything that is given must hold; nothing given is every one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeliveryFilter {
    /// Of these messages.
    #[cfg_attr(feature = "openapi", schema(max_items = 10_000))]
    pub message_ids: Option<Vec<Uuid>>,
    /// Of this sink.
    pub sink: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of this topic; `*` stands for any characters, as in a route.
    pub topic: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// In this lane.
    pub lane: Option<String>,
}

/// Which messages to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ListFilter {
    /// In this state.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<DeliveryState>,
    /// With this id, or with an id that ends so: at least 4 hexadecimal digits. Looks at all that is undelivered or dead, and
    /// at the newest 100,000 messages.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, pattern = "^[0-9a-fA-F]{4,32}$"))]
    pub id: Option<IdTail>,
    /// With this dedupe key, while its dedupe window lasts. Namespace and topic, if both are given without `*`, make it
    /// one look; else the keys of up to 1,000 topics are looked up.
    #[cfg_attr(feature = "openapi", param(min_length = 1))]
    pub dedupe_key: Option<String>,
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Enqueued at this time or later.
    #[serde(deserialize_with = "json::given_time::deserialize")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, format = DateTime))]
    pub from: Option<SystemTime>,
    /// Enqueued before this time.
    #[serde(deserialize_with = "json::given_time::deserialize")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, format = DateTime))]
    pub to: Option<SystemTime>,
    /// Of this topic; `*` stands for any characters, as in a route.
    pub topic: Option<String>,
    /// Of this tenant.
    pub tenant_id: Option<String>,
    /// In this lane.
    pub lane: Option<String>,
    /// For this sink.
    pub sink: Option<String>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl ListFilter {
    /// The ids that are meant, the lowest and the first that is no longer meant: an id carries the time it was made.
    pub(crate) fn ids(&self, before: Option<Uuid>) -> (Uuid, Uuid) {
        let from = self.from.map_or(Uuid::nil(), id_floor);
        let to = self.to.map_or(Uuid::max(), id_floor);
        (from, before.map_or(to, |before| before.min(to)))
    }

    /// The topic, if it is one and not a pattern.
    pub(crate) fn one_topic(&self) -> Option<&str> {
        self.topic.as_deref().filter(|topic| !topic.contains('*'))
    }
}

/// Which lanes to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct LaneFilter {
    /// For this sink.
    pub sink: Option<String>,
    /// This lane.
    pub lane: Option<String>,
    /// In this state.
    #[cfg_attr(feature = "openapi", param(inline))]
    pub state: Option<LaneState>,
}
