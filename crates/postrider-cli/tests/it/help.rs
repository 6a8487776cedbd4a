//! Help texts and the documentation of exit codes.

use std::fs;

use crate::support::{command, finish};

const COMMANDS: &[(&str, &[&str])] = &[
    ("postrider", &[]),
    ("demo", &["demo"]),
    ("run", &["run"]),
    ("serve", &["serve"]),
    ("drain", &["drain"]),
    ("check", &["check"]),
    ("config", &["config"]),
    ("config_print", &["config", "print"]),
    ("config_check", &["config", "check"]),
    ("routes", &["routes"]),
    ("routes_add", &["routes", "add"]),
    ("routes_remove", &["routes", "remove"]),
    ("routes_apply", &["routes", "apply"]),
    ("receive", &["receive"]),
    ("migrate", &["migrate"]),
    ("migrate_up", &["migrate", "up"]),
    ("migrate_status", &["migrate", "status"]),
    ("migrate_print", &["migrate", "print"]),
    ("migrate_roles", &["migrate", "roles"]),
    ("enqueue", &["enqueue"]),
    ("status", &["status"]),
    ("list", &["list"]),
    ("show", &["show"]),
    ("explain", &["explain"]),
    ("top", &["top"]),
    ("dlq", &["dlq"]),
    ("dlq_list", &["dlq", "list"]),
    ("dlq_groups", &["dlq", "groups"]),
    ("dlq_redrive", &["dlq", "redrive"]),
    ("dlq_discard", &["dlq", "discard"]),
    ("lanes", &["lanes"]),
    ("lanes_skip", &["lanes", "skip"]),
    ("sinks", &["sinks"]),
    ("sinks_pause", &["sinks", "pause"]),
    ("sinks_resume", &["sinks", "resume"]),
    ("relays", &["relays"]),
    ("replay", &["replay"]),
    ("retry_now", &["retry-now"]),
    ("unclaim_stuck", &["unclaim-stuck"]),
    ("prune", &["prune"]),
    ("audit", &["audit"]),
    ("import", &["import"]),
    ("doctor", &["doctor"]),
    ("bench", &["bench"]),
    ("completions", &["completions"]),
    ("man", &["man"]),
];

#[test]
fn every_command_has_a_help_text_of_eighty_columns() {
    for (name, words) in COMMANDS {
        let mut command = command(&[words, &["--help"][..]].concat());
        command.env("DATABASE_URL", "postgres://user:hunter2@localhost/app");
        let help = finish(command, b"").ok();
        assert!(!help.contains("hunter2"), "{name} shows the password");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        insta::assert_snapshot!(format!("help_{name}"), help);
    }
}

#[test]
fn help_is_a_command_too() {
    for words in [&[][..], &["dlq"], &["dlq", "redrive"], &["run"]] {
        let asked = finish(command(&[&["help"], words].concat()), b"").ok();
        assert_eq!(asked, finish(command(&[words, &["--help"]].concat()), b"").ok(), "{words:?}");
    }
    let unknown = finish(command(&["help", "attempts"]), b"");
    assert!(unknown.code == 2 && unknown.stderr.contains("attempts"), "{}", unknown.stderr);
}

#[test]
fn version_and_bare_call() {
    assert_eq!(finish(command(&["--version"]), b"").ok(), format!("postrider {}\n", env!("CARGO_PKG_VERSION")));
    let bare = finish(command(&[]), b"");
    assert_eq!((bare.code, bare.stdout.as_str()), (2, ""));
    assert!(bare.stderr.contains("Usage: postrider"), "{}", bare.stderr);
}

#[test]
fn the_page_on_exit_codes_lists_what_the_help_lists() {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md")).unwrap();
    let help = finish(command(&["--help"]), b"").ok();
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let mut seen = 0;
    for line in codes.lines() {
        let (code, _) = line.trim().split_once(' ').unwrap();
        assert!(page.contains(&format!("\n| {code} | `")), "exit code {code} is not in docs/exit-codes.md");
        seen += 1;
    }
    let listed =
        page.lines().filter(|line| line.strip_prefix("| ").is_some_and(|row| row.starts_with(char::is_numeric)));
    assert_eq!(listed.count(), seen, "docs/exit-codes.md lists other codes than --help");
}
