//! `postrider completions` and `postrider man`: scripts that shells read, pages that man reads.

use std::fs;
use std::process::Command;

use crate::support::{command, finish};

/// Every command's name, from the help.
fn commands() -> Vec<String> {
    let help = finish(command(&["--help"]), b"").ok();
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names: Vec<String> = list
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert!(names.len() > 15 && names.contains(&"doctor".to_owned()), "{names:?}");
    names
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    let directory = tempfile::tempdir().unwrap();
    for (shell, check) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])] {
        let script = finish(command(&["completions", shell]), b"").ok();
        for name in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
        let file = directory.path().join(shell);
        fs::write(&file, &script).unwrap();
        // A shell that is not at hand cannot be asked.
        if let Ok(parsed) = Command::new(shell).args(check).arg(&file).output() {
            assert!(parsed.status.success(), "{shell}: {}", String::from_utf8_lossy(&parsed.stderr));
        }
    }
    assert_eq!(finish(command(&["completions", "cmd.exe"]), b"").code, 2);
}

#[test]
fn bash_completes_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postrider.bash");
    fs::write(&file, finish(command(&["completions", "bash"]), b"").ok()).unwrap();
    let ask = "source \"$0\"; COMP_WORDS=(postrider dlq re); COMP_CWORD=2; _postrider postrider re dlq; echo \"${COMPREPLY[@]}\"";
    let answer = Command::new("bash").args(["-c", ask]).arg(&file).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "redrive\n", "{}", String::from_utf8_lossy(&answer.stderr));
}

#[test]
fn every_command_has_a_manual_page() {
    let page = finish(command(&["man"]), b"").ok();
    assert!(page.contains(".TH postrider 1") && page.contains("Exit codes"), "{page}");
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_str().unwrap();
    let written = finish(command(&["man", "--dir", dir, "--json"]), b"").json();
    for name in commands() {
        let page = fs::read_to_string(directory.path().join(format!("postrider-{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    assert!(directory.path().join("postrider-dlq-redrive.1").exists());
    assert_eq!(written["written"].as_array().unwrap().len(), fs::read_dir(directory.path()).unwrap().count());
    let nowhere = finish(command(&["man", "--dir", "/nonexistent/man1"]), b"");
    assert_eq!(nowhere.code, 2, "{}", nowhere.stderr);
}
