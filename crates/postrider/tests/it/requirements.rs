//! Every requirement has a test that proves it: `docs/requirements.md` lists the requirements in words, and below each the
//! tests whose comment says `Proves <id>`. The lists are written by this test when `POSTRIDER_WRITE_DOCS` is set, and
//! compared otherwise. Reads files only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Begins the line of the page that is made here.
const PROVEN: &str = "  Proven by ";
/// The line of a requirement that nothing proves yet.
const UNPROVEN: &str = "  Not proven yet.";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// `crates/postrider/tests/it/claim.rs` is `claim`, a contract of the testkit `contract::claim`; any other file of `src`
/// keeps its crate's name, and a test of an example the example's.
fn module(file: &Path) -> String {
    let file = file.strip_prefix(root()).unwrap().with_extension("");
    let parts: Vec<&str> = file.iter().skip(1).map(|part| part.to_str().unwrap()).collect();
    match parts[1] {
        "tests" if file.starts_with("examples") => [&parts[..1], &parts[3..]].concat().join("::"),
        "tests" => parts[3..].join("::"),
        _ if parts[0] == "postrider-testkit" => parts[2..].join("::"),
        _ => [&[parts[0]], &parts[2..]].concat().join("::"),
    }
}

/// `H1`, `E10`: what a comment names.
fn ids(comment: &str) -> impl Iterator<Item = &str> {
    let words = comment.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.filter(|word| {
        let (letter, number) = word.split_at(word.len().min(1));
        "HLMPE".contains(letter) && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Which tests prove each requirement: a `Proves` in the comment of a function or a module counts as far as the first colon or full stop.
fn proofs() -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    rust_files(&root().join("crates"), &mut files);
    rust_files(&root().join("examples"), &mut files);
    let mut proofs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("tests/it/requirements.rs")) {
        let text = fs::read_to_string(file).unwrap();
        let mut open: Vec<&str> = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix("/// ") {
                for claim in comment.split("Proves ").skip(1) {
                    open.extend(ids(claim.split([':', '.']).next().unwrap_or_default()));
                }
            } else if let Some(name) =
                line.split("fn ").nth(1).or(line.strip_prefix("mod ")).filter(|_| !open.is_empty())
            {
                let name = name.split(['(', '<', ' ']).next().unwrap_or_default();
                for id in open.drain(..) {
                    proofs.entry(id.to_owned()).or_default().insert(format!("{}::{name}", module(file)));
                }
            }
        }
        assert!(open.is_empty(), "{}: {open:?} stands above no function", file.display());
    }
    proofs
}

/// `- **H1** …` begins a requirement.
fn id_of(line: &str) -> Option<&str> {
    line.strip_prefix("- **")?.split("**").next()
}

#[test]
fn every_requirement_is_proven_by_the_tests_that_the_page_names() {
    let page = root().join("docs/requirements.md");
    let text = fs::read_to_string(&page).unwrap();
    let proofs = proofs();
    let mut known = BTreeSet::new();
    let mut id = None;
    let mut made: Vec<String> = Vec::new();
    for line in text.lines() {
        id = id_of(line).or(id);
        let made_here = line.starts_with(PROVEN) || line == UNPROVEN;
        let id = id.filter(|_| made_here);
        assert!(id.is_none_or(|id| known.insert(id)), "{id:?} is there twice");
        let tests = id.and_then(|id| proofs.get(id));
        made.push(tests.map_or_else(
            || line.to_owned(),
            |tests| format!("{PROVEN}{}.", tests.iter().map(|test| format!("`{test}`")).collect::<Vec<_>>().join(", ")),
        ));
    }
    let admitted = made.iter().filter(|line| *line == UNPROVEN).count();
    let made = made.join("\n") + "\n";
    assert!(known.len() > 50, "the page is not read as it should be");
    if std::env::var_os("POSTRIDER_WRITE_DOCS").is_some() {
        fs::write(&page, &made).unwrap();
    }
    for id in proofs.keys() {
        assert!(known.contains(id.as_str()), "a test proves {id}, which docs/requirements.md does not know");
    }
    let missing: Vec<_> = known.iter().filter(|id| !proofs.contains_key(**id)).collect();
    assert_eq!(missing.len(), admitted, "no test proves one of {missing:?}; say so with the line {UNPROVEN:?}");
    let current = std::env::var_os("POSTRIDER_WRITE_DOCS").is_some() || made == text;
    assert!(current, "docs/requirements.md is old: POSTRIDER_WRITE_DOCS=1 cargo nextest run requirements:: writes it");
}
