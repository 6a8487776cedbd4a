//! Small worlds, exhaustively: a model of the SQL functions at the grain at which sessions can get between, an explorer that
//! visits everything the model can come to, and a scheduler that drives real sessions through every interleaving and
//! follows them with the model. Called by tests of the workspace and by the program `worlds`. Nothing here may talk to a
//! server that it did not start.

pub mod calls;
pub mod checks;
mod claim;
pub mod explore;
mod follow;
pub mod mutant;
mod operate;
pub mod place;
pub mod real;
mod row;
pub mod scenes;
pub mod scheduler;
mod session;
pub mod starts;
pub mod state;
pub mod stories;
pub mod variants;
