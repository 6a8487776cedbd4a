//! The template is made once, however many test processes want it at the same moment.

use std::{env, fs, process::Command};

use postrider_testkit::database;

const CACHE: &str = "POSTRIDER_TEST_CACHE";
const CHILD: &str = "POSTRIDER_TESTKIT_TEMPLATE_CHILD";

/// Started by the other test, several times at once.
#[tokio::test]
#[ignore = "only a part of the other test of this file"]
async fn child_process() {
    if env::var_os(CHILD).is_some() {
        database().await.connect().await.batch_execute("select 1").await.unwrap();
    }
}

#[test]
fn parallel_processes_make_one_template() {
    let cache = tempfile::tempdir().unwrap();
    let shelf = cache.path().join("template");
    fs::create_dir_all(shelf.join(".building-by-someone-killed")).unwrap();
    let children: Vec<_> = (0..3)
        .map(|_| {
            Command::new(env::current_exe().unwrap())
                .args(["--exact", "template::child_process", "--ignored"])
                .env(CACHE, cache.path())
                .env(CHILD, "1")
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut left: Vec<_> = fs::read_dir(&shelf).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.retain(|name| name != "lock");
    assert_eq!(left.len(), 1, "one template, nothing unfinished: {left:?}");
}
