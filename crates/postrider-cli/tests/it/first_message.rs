//! `docs/first-message.md` as a reader types it, in one shell: each block of commands is run, and what the page shows after it must
//! come. The build is this one, and the database and the port are the test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longer than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A shell, and what its commands say. It ends with this value, and so does what it started.
struct Shell {
    child: Child,
    lines: Receiver<String>,
}

impl Shell {
    fn start(directory: &Path) -> Self {
        let mut bash = Command::new("bash");
        bash.current_dir(directory).process_group(0);
        bash.env("POSTRIDER__ADMIN__LISTEN", "none").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = bash.spawn().unwrap();
        let (line, lines) = channel();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        std::thread::spawn(move || said.for_each(|said| drop(line.send(said))));
        let mut shell = Self { child, lines };
        shell.enter("exec 2>&1\nset -eu\n");
        shell
    }

    fn enter(&mut self, commands: &str) {
        self.child.stdin.as_mut().unwrap().write_all(commands.as_bytes()).unwrap();
    }

    /// Until every one of these lines came, whatever came between them. Ids and times differ.
    fn expect(&self, shown: &str) {
        let mut awaited: Vec<&str> = shown.lines().collect();
        let mut said = Vec::new();
        while !awaited.is_empty() {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{awaited:?} after {said:#?}"));
            awaited.retain(|shown| !is_like(&line, shown));
            said.push(line);
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status());
        drop(self.child.wait());
    }
}

/// The same words, but for ids and durations.
fn is_like(line: &str, shown: &str) -> bool {
    let is_duration = |word: &str| word.ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
    let varies = |word: &&str| word.len() == 36 || *word == "now" || is_duration(word);
    let words = |text| -> Vec<&str> { str::split_whitespace(text).filter(|word| !varies(word)).collect() };
    words(line) == words(shown)
}

#[tokio::test]
async fn the_page_is_right() {
    let database = postrider_testkit::database().await;
    let directory = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let programs = Path::new(env!("CARGO_BIN_EXE_postrider")).parent().unwrap();
    let page = include_str!("../../../../docs/first-message.md");
    let (before, after) = page.split_once("```sh\ncargo build\nexport PATH=\"$PWD/target/debug:$PATH\"\n```").unwrap();
    assert!(!before.contains("```"), "the build comes first");
    let url = "postgres://app:secret@localhost:5432/app";
    assert!(after.contains(url) && after.contains(":8080") && after.contains(", 8080"));
    let steps = after.replace(url, &format!("'{}'", database.url())).replace("8080", &port);

    let mut shell = Shell::start(directory.path());
    shell.enter(&format!("export PATH='{}':$PATH\n", programs.display()));
    let mut run = 0;
    for block in steps.split("```").skip(1).step_by(2) {
        match block.split_once('\n').unwrap() {
            ("sh", commands) => {
                shell.enter(commands);
                run += 1;
            }
            ("text", shown) => shell.expect(shown),
            (other, _) => panic!("a block of {other}"),
        }
    }
    assert!(run >= 6, "only {run} blocks were run");
    drop(shell.child.stdin.take());
    assert!(shell.child.wait().unwrap().success());
}
