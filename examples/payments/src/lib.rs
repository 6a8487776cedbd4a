//! A service that takes payment instructions and hands them to the outbox, and two fake rails that a relay delivers them to.
//! `main.rs` starts either, `run` shows them, the tests call them. The service never calls a rail: it writes, and a relay
//! delivers, in order for each participant.

mod instructions;
mod rails;

pub use instructions::{Accepted, Instruction, Rail, Refused, accept, router};
pub use rails::rails;
