//! Lanes as an operator sees them: see [`crate::Inspect::lanes`]. What a lane is doing is decided by each store's view.

use std::time::SystemTime;

use uuid::Uuid;

/// Which lanes to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneFilter {
    /// For this sink.
    pub sink: Option<String>,
    /// This lane.
    pub lane: Option<String>,
    /// In this state: `parked`, `waiting`, `leased` or `due`.
    pub state: Option<LaneState>,
    /// At most this many.
    pub limit: u32,
}

/// What a lane is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaneState {
    /// Its head is dead: it waits for a person.
    Parked,
    /// Its head is due later, for it failed or was scheduled.
    Waiting,
    /// A worker holds its head.
    Leased,
    /// Its head can be claimed.
    Due,
}

impl LaneState {
    /// From the word used in SQL and JSON; a word that is none is the ordinary state.
    pub(crate) fn from_word(word: &str) -> Self {
        [Self::Parked, Self::Waiting, Self::Leased]
            .into_iter()
            .find(|state| state.as_str() == word)
            .unwrap_or(Self::Due)
    }

    /// The word used in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parked => "parked",
            Self::Waiting => "waiting",
            Self::Leased => "leased",
            Self::Due => "due",
        }
    }
}

/// How one lane stands for one sink.
#[derive(Debug, Clone, PartialEq)]
pub struct LaneStatus {
    /// The sink.
    pub sink: String,
    /// The lane.
    pub lane: String,
    /// What it is doing.
    pub state: LaneState,
    /// Deliveries in it, the head included.
    pub depth: i64,
    /// The head's number.
    pub head_sequence_id: i64,
    /// The head.
    pub head_message_id: Uuid,
    /// When the head is due; `None` if it is dead.
    pub head_due_at: Option<SystemTime>,
    /// Attempts of the head since its last redrive.
    pub head_attempt_count: i32,
    /// The code of the head's last failure.
    pub head_error_code: Option<String>,
    /// The message of the head's last failure.
    pub head_error_message: Option<String>,
}
