//! The programs of `examples/languages`: those in Python and TypeScript run, and the pages of `docs/languages` show every
//! program, and what it prints, exactly as it is. A toolchain that is missing fails, with the command that installs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use postrider_testkit::Cluster;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs/languages").join(name).with_extension("md")).unwrap()
}

/// Runs a language's programs as a reader does, but on an empty database and with the program of this build. What its page
/// says that they print, they print.
async fn run_as_its_page_says(language: &str) {
    let database = Cluster::start().await.empty_database().await;
    let ran = tokio::process::Command::new(root().join("examples/languages").join(language).join("run"))
        .env("EXAMPLE_DATABASE_URL", database.url())
        .env("EXAMPLE_BIN", Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let [said, wrong] = [&ran.stdout, &ran.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(ran.status.success(), "{said}\n{wrong}");
    let page = page(language);
    let printed: Vec<&str> = page.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(printed.len(), 3, "the page shows what two programs and a worker print");
    for text in printed {
        assert!(said.contains(text), "the page says:\n{text}\nprinted was:\n{said}");
    }
}

#[tokio::test]
async fn python_enqueues_and_delivers() {
    run_as_its_page_says("python").await;
}

#[tokio::test]
async fn typescript_enqueues_and_delivers() {
    run_as_its_page_says("typescript").await;
}

#[test]
fn the_pages_show_the_programs_as_they_are() {
    let mut shown = 0;
    for (language, extension, mark) in
        [("python", "py", "python"), ("typescript", "ts", "ts"), ("go", "go", "go"), ("java", "java", "java")]
    {
        let pages = [page(language), page("testing")];
        for entry in fs::read_dir(root().join("examples/languages").join(language)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|found| found == extension) {
                let block = format!("```{mark}\n{}```\n", fs::read_to_string(&path).unwrap());
                assert!(pages.iter().any(|page| page.contains(&block)), "no page shows {} as it is", path.display());
                shown += 1;
            }
        }
    }
    assert_eq!(shown, 12);
}
