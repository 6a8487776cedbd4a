//! Every `postrider …` that the documents, the files for deployment, the help texts and the advice in the sources name is a
//! command that exists, with options that it has. What clap knows is asked; nothing is run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

use crate::options::Cli;

/// Fewer than this would mean that the looking does not work.
const MANY: usize = 150;

/// What ends a command in a line of shell, or in a sentence.
const ENDS: [&str; 12] = ["|", "||", "&&", ";", ">", ">>", "<", "#", "…", "->", "→", "\\"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files under a directory, those that are built or fetched left out.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !["target", "vendor", "node_modules", "snapshots", "images"].contains(&name.as_str()) {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

/// Words of a shell, without their quotation marks, up to the end of the command.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let (mut quote, mut quoted) = (None, false);
    for c in text.chars().chain([' ']) {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => (quote, quoted) = (Some(c), true),
            None if c.is_whitespace() => {
                if !word.is_empty() || quoted {
                    if !quoted && ENDS.contains(&word.as_str()) {
                        return words;
                    }
                    let ended = !quoted && word.ends_with([';', ',']);
                    words.push(std::mem::take(&mut word).trim_end_matches([';', ',', '.', ')', ':', '?']).to_owned());
                    quoted = false;
                    if ended {
                        return words;
                    }
                }
            }
            Some(_) | None => word.push(c),
        }
    }
    words
}

/// Code spans, and lines of code blocks.
fn in_markdown(text: &str) -> Vec<String> {
    let (mut found, mut block) = (Vec::new(), false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            block = !block;
        } else if block {
            found.extend(in_shell(line));
        }
    }
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    found.extend(prose.iter().flat_map(|part| in_spans(part)));
    found
}

/// What stands between backticks.
fn in_spans(text: &str) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| span.starts_with("postrider ")).map(|span| span.replace('\n', " ")).collect()
}

/// The commands of a line of shell, or of a unit of systemd: at its beginning, behind variables, a path or an operator.
fn in_shell(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches('-').trim_start();
    let parts = line
        .split("&& ")
        .flat_map(|part| part.split("| "))
        .flat_map(|part| part.split("; "))
        .flat_map(|part| part.split("$("));
    let command = |part: &str| {
        let mut rest = part.trim();
        while let Some((first, later)) = rest.split_once(' ')
            && first.contains('=')
            && !first.starts_with("Exec")
        {
            rest = later.trim_start();
        }
        let rest = rest.trim_start_matches("ExecStart=").trim_start_matches("exec ");
        let (program, _) = rest.split_once(' ')?;
        (program == "postrider" || program.ends_with("/postrider")).then(|| rest.replacen(program, "postrider", 1))
    };
    parts.filter_map(command).collect()
}

/// Code spans and whole texts in a source: advice, hints, examples of the help.
fn in_source(text: &str) -> Vec<String> {
    let mut found = in_spans(text);
    for literal in text.split('"').skip(1) {
        found.extend(
            literal
                .split("; ")
                .flat_map(|part| part.split("then "))
                .filter(|part| part.starts_with("postrider "))
                .map(str::to_owned),
        );
    }
    found.extend(text.lines().filter(|line| line.starts_with("  postrider ")).flat_map(in_shell));
    // `command(&["dlq", "redrive", …])`, of explain.rs.
    for call in text.split("command(&[").skip(1) {
        let arguments = call.split(']').next().unwrap_or_default().split(',').map(str::trim);
        let literal = arguments.map_while(|argument| argument.strip_prefix('"')?.strip_suffix('"'));
        found.push(format!("postrider {}", literal.collect::<Vec<_>>().join(" ")));
    }
    found
}

/// What is wrong with a command, if anything.
fn wrong(text: &str, program: &Command) -> Option<String> {
    let words = words(text);
    let mut words = words.iter().skip(1).map(String::as_str).peekable();
    if words.next_if_eq(&"help").is_none() && words.peek().is_some_and(|first| !plain(first)) {
        // An option, or a placeholder such as COMMAND.
        return None;
    }
    let mut command = program;
    while let Some(next) = words.next_if(|word| plain(word)).and_then(|word| {
        let known = command.find_subcommand(word);
        if known.is_none() && command.has_subcommands() && command.get_positionals().next().is_none() {
            return Some(Err(format!("{} has no command {word}", command.get_name())));
        }
        known.map(Ok)
    }) {
        match next {
            Ok(known) => command = known,
            Err(reason) => return Some(reason),
        }
    }
    let knows = |word: &str| {
        let mut known = command.get_arguments().chain(program.get_arguments().filter(|one| one.is_global_set()));
        match word.strip_prefix("--") {
            Some(long) => {
                let long = long.split('=').next().unwrap_or_default();
                ["help", "version"].contains(&long) || known.any(|one| one.get_long() == Some(long))
            }
            None => known.any(|one| one.get_short() == word.chars().nth(1)),
        }
    };
    let mut options = words.filter(|word| word.starts_with('-') && word.len() > 1 && *word != "--");
    options.find(|word| !knows(word)).map(|word| format!("{} has no option {word}", command.get_name()))
}

/// A word that can be the name of a command.
fn plain(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

fn texts_of(command: &Command, found: &mut Vec<String>) {
    let texts = [command.get_after_help(), command.get_long_about(), command.get_about()];
    for text in texts.into_iter().flatten() {
        let text = text.to_string();
        found.extend(in_spans(&text));
        found.extend(text.lines().flat_map(in_shell));
    }
    command.get_subcommands().for_each(|one| texts_of(one, found));
}

#[test]
fn every_command_that_is_named_exists() {
    let mut program = Cli::command();
    program.build();
    let mut all = Vec::new();
    let mut paths = Vec::new();
    for place in ["docs", "deploy", "crates", "scripts", "examples"] {
        files(&root().join(place), &mut paths);
    }
    paths.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let tests =
        |path: &Path| path.ends_with("documented.rs") || path.components().any(|part| part.as_os_str() == "tests");
    for path in paths.iter().filter(|path| !tests(path)) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let found = match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => in_markdown(&text),
            Some("rs" | "js" | "sql") => in_source(&text),
            Some("toml" | "yaml" | "yml" | "service" | "timer") => {
                [in_spans(&text), text.lines().flat_map(in_shell).collect()].concat()
            }
            None => text.lines().flat_map(in_shell).collect(),
            Some(_) => continue,
        };
        all.extend(found.into_iter().map(|one| (path.display().to_string(), one)));
    }
    let mut help = Vec::new();
    texts_of(&program, &mut help);
    all.extend(help.into_iter().map(|one| ("the help".to_owned(), one)));
    let faults: BTreeSet<String> = all
        .iter()
        .filter_map(|(place, text)| wrong(text, &program).map(|reason| format!("{place}: `{text}`: {reason}")))
        .collect();
    assert!(faults.is_empty(), "{}", faults.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(all.len() > MANY, "only {} commands were found", all.len());
}

#[test]
fn a_command_is_judged_by_its_words_and_options() {
    let mut program = Cli::command();
    program.build();
    for good in [
        "postrider run --config postrider.toml",
        "postrider dlq redrive ID --sink web --json",
        "postrider sinks pause orders",
        "postrider sinks",
        "postrider show 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41 | jq .x --y",
        "postrider routes add 'order.*' orders",
        "postrider help dlq",
        "postrider --version",
        "postrider status; rm --force",
    ] {
        assert_eq!(wrong(good, &program), None, "{good}");
    }
    for (bad, reason) in [
        ("postrider attempts 7", "postrider has no command attempts"),
        ("postrider dlq purge", "dlq has no command purge"),
        ("postrider list --state dead --older", "list has no option --older"),
        ("postrider help attempts", "postrider has no command attempts"),
    ] {
        assert_eq!(wrong(bad, &program).as_deref(), Some(reason), "{bad}");
    }
    let text = "Run `postrider status`.\n```sh\nDATABASE_URL=x postrider migrate up && postrider doctor\n```\n";
    assert_eq!(in_markdown(text), ["postrider migrate up", "postrider doctor", "postrider status"]);
    assert_eq!(
        in_source("Finding.fix(\"postrider prune; then postrider dlq groups\")"),
        ["postrider prune", "postrider dlq groups"]
    );
}
