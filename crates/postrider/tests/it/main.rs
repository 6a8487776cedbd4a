//! The outbox on a real PostgreSQL: one binary, one file for each part of the contract.

#![expect(clippy::unwrap_used, reason = "a test that meets what it did not expect should end there")]

mod support;

mod adapter;
mod audit;
mod claim;
mod clock;
mod complete;
mod connections;
mod contract;
mod costs;
mod drivers;
mod enqueue;
mod house;
mod inbox;
mod input;
mod isolation;
mod kept_plans;
mod lanes;
mod locks;
mod migrate;
mod model;
mod old_statistics;
mod one_hand;
mod operate;
mod partitions;
mod plans;
mod pooler;
mod producer_costs;
mod races;
mod requirements;
mod roles;
mod sqlite;
mod testing;
mod torture;
mod wake;
mod watching;
