//! Help texts and the documentation of exit codes.

use std::fs;

use crate::support::{command, finish};

/// Of every command, as the help of the one above it lists them.
#[test]
fn every_command_has_a_help_text_of_eighty_columns() {
    let mut found = vec![Vec::<String>::new()];
    for at in 0.. {
        let Some(words) = found.get(at).cloned() else { break };
        let arguments: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let mut command = command(&arguments);
        command.env("DATABASE_URL", "postgres://user:hunter2@localhost/app");
        let help = finish(command, b"").ok();
        let name = if at == 0 { "postrider".to_owned() } else { words.join("_").replace('-', "_") };
        assert!(!help.contains("hunter2"), "{name} shows the password");
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // What stands further in goes on with a description.
        let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        found.extend(names.map(|name| [&words[..], &[name.to_owned()]].concat()));
        insta::assert_snapshot!(format!("help_{name}"), help);
    }
    assert!(found.len() > 45, "{found:?}");
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
