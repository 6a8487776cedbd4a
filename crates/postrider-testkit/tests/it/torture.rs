//! A slice of what `scripts/torture` does for hours: every fault of the storm, in one round. The binary checks the whole
//! history itself and says which promise was broken.

use std::process::Command;

/// As long as CI can spare.
const SECONDS: &str = "60";

/// Proves E2, and L4, M5, P1, P2 through the relay: whatever is killed, stopped, cut or confused, nothing is lost or made
/// up, lanes keep their order, no delivery is in two hands, and every attempt is accounted for.
#[test]
fn heavy_a_slice_of_every_storm() {
    let seed = std::env::var("POSTRIDER_TORTURE_SEED").ok();
    let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
    command.args([
        "--seconds",
        SECONDS,
        "--any-redelivery",
        "--relay-every",
        "200",
        "--server-every",
        "2000",
        "--network-every",
        "300",
        "--database-every",
        "700",
    ]);
    command.args(seed.iter().flat_map(|seed| ["--seed", seed]));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "a promise was broken, see above; the last line repeats it");
    for fault in ["relay-killed ", "server-killed ", "stale-worker "] {
        assert!(said.contains(fault), "it was no storm: no {fault}");
    }
}

#[test]
fn every_fault_has_a_name_and_a_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_torture")).arg("--list").output().unwrap();
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(list.lines().count() >= 30, "{list}");
    assert!(list.lines().all(|line| line.split_whitespace().count() > 4), "{list}");
}
