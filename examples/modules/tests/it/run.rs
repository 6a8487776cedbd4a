//! The example as a reader starts it.

use crate::script::runs_to_its_end;

/// Proves M1, M3, M5, M8, M9: the script checks each step, and ends well only if everything adds up.
#[tokio::test]
async fn the_example_runs_to_its_end() {
    runs_to_its_end(concat!(env!("CARGO_MANIFEST_DIR"), "/run")).await;
}
