//! What the tests of the examples share: where the programs of this build are, the example's `run` on a database of the
//! testkit, and a look at who waits. Included by each example's tests.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use postrider_testkit::{Cluster, Database};

/// Longer than anything here takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Where this build's programs are: beside the directory of the test itself.
pub(crate) fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_owned()
}

/// Runs this script, as a reader does, but on an empty database and with the programs of this build.
pub(crate) async fn runs_to_its_end(script: &str) {
    let database = Cluster::start().await.empty_database().await;
    let run = tokio::process::Command::new(script)
        .env("EXAMPLE_DATABASE_URL", database.url())
        .env("EXAMPLE_BIN", programs())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let [said, wrong] = [&run.stdout, &run.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(run.status.success(), "{said}\n{wrong}");
    assert!(said.ends_with("\nEverything adds up.\n"), "{said}");
}

/// Until a session of this database waits for a lock of another.
pub(crate) async fn somebody_waits(database: &Database) {
    let waits = "select exists (select from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock')";
    let client = database.connect().await;
    let look = async {
        while !client.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap();
}
