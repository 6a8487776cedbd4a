//! `postrider demo` without a terminal: it runs, counts and cleans up.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{command, finish, run_at};

/// The demo in a directory of the test, so that what it leaves behind is seen.
fn demo(directory: &std::path::Path, args: &[&str]) -> Command {
    let mut command = command(&[&["demo"], args].concat());
    command.env("TMPDIR", directory);
    command
}

#[test]
fn it_adds_up_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let said = finish(demo(directory.path(), &["--seconds", "3", "--seed", "7"]), b"").ok();
    assert!(said.contains("\nseed 7\n"), "{said}");
    assert!(said.matches("  enqueued ").count() >= 2, "a line every second: {said}");
    let (_, account) = said.split_once("The demo ran for ").unwrap();
    assert!(account.contains("It adds up: "), "{account}");
    assert!(account.contains("each in order"), "{account}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "the temporary directory is gone");
}

#[test]
fn the_account_is_json_for_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let account = finish(demo(directory.path(), &["--seconds", "2", "--rate", "200", "--json"]), b"").json();
    assert_eq!(account["adds_up"], true, "{account}");
    let number = |name: &str| account[name].as_u64().unwrap();
    assert_eq!(number("enqueued"), number("delivered") + number("dead") + number("pending"));
    assert_eq!(number("enqueued"), number("changes"));
    assert!(number("delivered") > 50 && number("out_of_order") == 0, "{account}");
}

#[test]
fn what_is_kept_can_be_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("shop");
    let kept = kept.to_str().unwrap();
    let said = finish(command(&["demo", "--seconds", "1", "--keep", kept]), b"").ok();
    let url = format!("sqlite:{kept}/demo.db");
    assert!(said.contains(&format!("  postrider status --database-url {url}\n")), "{said}");
    assert!(run_at(&url, &["status"]).ok().contains("default"));
    let again = finish(command(&["demo", "--seconds", "1", "--keep", kept]), b"");
    assert_eq!((again.code, again.stdout.as_str()), (2, ""), "{}", again.stderr);
    assert!(again.stderr.contains("there is a demo.db in "), "{}", again.stderr);
}

#[test]
fn a_signal_ends_it_with_its_account() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = demo(directory.path(), &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("  enqueued ") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut stdout, &mut line).unwrap() > 0, "it ended by itself");
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let rest = std::io::read_to_string(stdout).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.contains("It adds up: "), "{rest}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
