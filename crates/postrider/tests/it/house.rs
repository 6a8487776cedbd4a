//! House rules that a reviewer should not have to remember: a test that the documentation names exists, its links lead
//! somewhere, and every SQL function is commented and pins its search path. Reads files only.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every Markdown page of the project.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root(), root().join("docs"), root().join("examples")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && folder != root() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 10, "the pages are not where this test looks for them");
    pages
}

/// What stands between two marks, for every pair of them in a line.
fn between<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().flat_map(move |line| line.split(open).skip(1).filter_map(move |rest| rest.split(close).next()))
}

/// The sources of a module: of `tests/it` in any crate, of the testkit's contracts, or of `src` after the crate's name, or of
/// `tests/it` after an example's.
fn test_sources(module: &str) -> Vec<String> {
    let file = format!("{}.rs", module.replace("::", "/"));
    let crates = root().join("crates");
    let mut files = vec![crates.join("postrider-testkit/src").join(&file)];
    if let Some((name, file)) = file.split_once('/') {
        files.push(crates.join(name).join("src").join(file));
        files.push(root().join("examples").join(name).join("tests/it").join(file));
    }
    files.extend(fs::read_dir(&crates).unwrap().map(|entry| entry.unwrap().path().join("tests/it").join(&file)));
    files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect()
}

#[test]
fn tests_named_in_the_documentation_exist() {
    let mut named = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for code in text.split('`').skip(1).step_by(2) {
            let Some((module, name)) = code.rsplit_once("::") else { continue };
            let sources = test_sources(module);
            // Paths of the library have short names; a test's name is a sentence.
            let is_sentence = name.matches('_').count() >= 3 && !name.contains(' ');
            if sources.is_empty() && !is_sentence {
                continue;
            }
            named += 1;
            let spellings = [format!("fn {name}("), format!("fn {name}<"), format!("mod {name} {{")];
            let exists = |source: &String| name == "*" || spellings.iter().any(|spelling| source.contains(spelling));
            assert!(sources.iter().any(exists), "{} names {code}, which does not exist", page.display());
        }
    }
    assert!(named > 30, "only {named} tests are named: the pages are not read as they should be");
}

#[test]
fn links_between_pages_lead_somewhere() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in between(&text, "](", ")") {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || target.contains("://") {
                continue;
            }
            assert!(page.parent().unwrap().join(file).exists(), "{} links to {target}", page.display());
        }
    }
}

/// Every file of SQL and every statement says what it is for, and every statement is used.
#[test]
fn sql_is_explained_and_used() {
    let crate_root = root().join("crates/postrider");
    let source = |folder: &str| -> String {
        let files = fs::read_dir(crate_root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| fs::read_to_string(path).unwrap()).collect()
    };
    let shared = ["src", "src/store", "src/doctor", "src/enqueue", "src/inbox"].map(source).concat();
    for (store, folder) in ["statements", "functions", "views", "migrations"]
        .iter()
        .flat_map(|folder| [("postgres", *folder), ("sqlite", *folder)])
        .filter(|place| *place != ("sqlite", "functions"))
    {
        let code = format!("{shared}{}", source(&format!("src/store/{store}")));
        for entry in fs::read_dir(crate_root.join("sql").join(store).join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let sql = fs::read_to_string(&path).unwrap();
            let file = path.file_stem().unwrap().to_str().unwrap();
            assert!(sql.starts_with("-- "), "{store}: {file} does not say what it is for");
            for section in sql.split("\n-- name: ").skip(1) {
                let (name, text) = section.split_once('\n').unwrap();
                assert!(text.starts_with("-- "), "{store}: {name} of {file} does not say what it is for");
                let calls = [format!("!(\"{file}\", \"{name}\")"), format!("!(\"{store}\", \"{file}\", \"{name}\")")];
                let prefix = name == "matching" && code.contains(&format!("matching!(\"{file}\""));
                assert!(
                    prefix || calls.iter().any(|call| code.contains(call)),
                    "{store}: nothing uses {name} of {file}"
                );
            }
        }
    }
}

#[test]
fn every_function_is_commented_and_pins_its_path() {
    for entry in fs::read_dir(root().join("crates/postrider/sql/postgres/functions")).unwrap() {
        let path = entry.unwrap().path();
        let sql = fs::read_to_string(&path).unwrap();
        let functions = sql.matches("create or replace function").count();
        let name = path.display();
        assert_eq!(sql.matches("comment on function").count(), functions, "{name}: a comment for each function");
        // A body between `begin atomic` and `end` looks up its names when the function is made.
        let pinned = sql.matches("set search_path = pg_catalog, :\"schema\", pg_temp").count();
        let parsed = sql.matches("\nbegin atomic\n").count();
        assert_eq!(pinned + parsed, functions, "{name}: a pinned path for each function");
        assert!(
            !sql.contains("interval '7") && !sql.contains("interval '30"),
            "{name}: durations belong into the settings"
        );
    }
}
