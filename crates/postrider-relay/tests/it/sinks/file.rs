//! The file sink: lines in a file, read back as any program would. A server that is killed is here a directory that goes
//! away; a file cannot stand still and refuses no message, so those cases of the contract are not for it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use postrider::lifecycle::Claimed;
use postrider_relay::sink::Level;
use postrider_relay::sink::file::{FileOptions, FileSink, FileSync};
use postrider_relay::{Sink, Verdict};
use postrider_testkit::sink_contract::{Arrived, Destination, Refusal, claimed, deliver, distinct};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;

struct Directory {
    root: TempDir,
}

impl Directory {
    fn path(&self) -> PathBuf {
        self.root.path().join("data/messages.ndjson")
    }
}

#[async_trait]
impl Destination for Directory {
    async fn start() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("data")).expect("a directory in it");
        Self { root }
    }

    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(FileSink::new(FileOptions::new(self.path()).sync(FileSync::Never)))
    }

    async fn kill(&mut self) {
        fs::rename(self.root.path().join("data"), self.root.path().join("away")).expect("renamed");
    }

    async fn restart(&mut self) {
        fs::rename(self.root.path().join("away"), self.root.path().join("data")).expect("renamed");
    }

    async fn arrived(&self, different: usize) -> Vec<Arrived> {
        let all = async {
            loop {
                let arrived = read(&fs::read(self.path()).unwrap_or_default());
                if distinct(&arrived) >= different {
                    return arrived;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), all).await.expect("everything arrives")
    }

    async fn refusals(&self) -> Vec<Refusal> {
        Vec::new()
    }

    fn spoil(&self, _: &mut Claimed) {
        panic!("a file takes everything");
    }
}

#[derive(serde::Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    body: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Reads what stands in whole lines.
fn read(file: &[u8]) -> Vec<Arrived> {
    let whole = file.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let lines = file[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.filter_map(|line| serde_json::from_slice::<Line<'_>>(line).ok()).map(arrived).collect()
}

fn arrived(line: Line<'_>) -> Arrived {
    let json = line.payload.is_some();
    let mut headers: BTreeMap<String, Vec<u8>> =
        line.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    for (name, value) in &line.rest {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        headers.insert(format!("postrider-{}", name.replace('_', "-")), text.into_bytes());
    }
    let assumed = if json { "application/json" } else { "application/octet-stream" };
    let said = headers.remove("postrider-content-type").unwrap_or_else(|| assumed.as_bytes().to_vec());
    headers.insert("content-type".to_owned(), said);
    let body = line.body.map(|body| base64::engine::general_purpose::STANDARD.decode(body).expect("base64"));
    // A line break between the tokens of JSON cannot stand in a line: it became a space.
    Arrived::new(
        headers,
        body.unwrap_or_else(|| line.payload.map(|payload| payload.get().as_bytes().to_vec()).expect("content")),
    )
}

postrider_testkit::contract_cases! { Directory::start(), sink_contract transfer,
    the_dedupe_key_arrives
    a_batch_keeps_its_order
    one_sink_serves_many_tasks
}
postrider_testkit::contract_cases! { Directory::start(), sink_contract outage,
    a_server_that_is_down_at_the_start
    heavy_killed_in_the_middle_and_started_again
}

/// Whoever rotates renames the file, and then makes a new one or not: no line is lost, none is cut.
#[tokio::test]
async fn the_file_may_be_rotated_at_any_time() {
    let directory = Directory::start().await;
    let sink = directory.sink().await;
    let mut sent = 0;
    for round in 0..5 {
        for number in 0..20 {
            let verdicts = deliver(&*sink, &[claimed("t", &number.to_string())]).await;
            assert!(matches!(verdicts.as_slice(), [Verdict::Delivered(_)]), "{verdicts:?}");
            sent += 1;
        }
        fs::rename(directory.path(), directory.root.path().join(format!("data/messages.{round}"))).expect("rotated");
        if round % 2 == 0 {
            fs::write(directory.path(), "").expect("a new one");
        }
    }
    let files = fs::read_dir(directory.root.path().join("data")).expect("files");
    let lines: usize = files.map(|file| read(&fs::read(file.expect("a file").path()).expect("read")).len()).sum();
    assert_eq!(lines, sent);
}

/// A crash in the middle of a line: it ends there, and what comes after stands in lines of its own.
#[tokio::test]
async fn a_torn_line_stands_alone() {
    let directory = Directory::start().await;
    fs::write(directory.path(), "{\"message_id\":\"torn off in the mid").expect("written");
    let message = claimed("t", "1");
    deliver(&*directory.sink().await, std::slice::from_ref(&message)).await;
    let text = fs::read_to_string(directory.path()).expect("read");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[1].contains(&message.message_id.to_string()), "{text}");
}

#[tokio::test]
async fn a_look_at_it_says_what_is_weak_and_what_is_broken() {
    let directory = Directory::start().await;
    let levels = async |path: PathBuf, sync| -> Vec<Level> {
        let findings = FileSink::new(FileOptions::new(path).sync(sync)).check().await;
        findings.into_iter().map(|finding| finding.level).collect()
    };
    assert_eq!(levels(directory.path(), FileSync::Batch).await, [Level::Works]);
    assert_eq!(levels(directory.path(), FileSync::Never).await, [Level::Works, Level::Weak]);
    assert_eq!(levels("/nowhere/at/all".into(), FileSync::Batch).await, [Level::Broken]);
}

/// Messages are nobody else's to read.
#[tokio::test]
async fn a_new_file_is_for_the_relays_user_alone() {
    let directory = Directory::start().await;
    deliver(&*directory.sink().await, &[claimed("t", "1")]).await;
    let mode = || fs::metadata(directory.path()).expect("the file").permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600);
    fs::set_permissions(directory.path(), Permissions::from_mode(0o644)).expect("opened");
    let findings = FileSink::new(FileOptions::new(directory.path())).check().await;
    assert_eq!(findings.iter().map(|finding| finding.level).collect::<Vec<_>>(), [Level::Works, Level::Weak]);
    assert_eq!(mode(), 0o644, "whoever opened it may have meant it");
}

/// A link in the file's place is not followed: not at the start, and not when it is put there later, even to the same file.
#[tokio::test]
async fn a_symbolic_link_is_not_followed() {
    let directory = Directory::start().await;
    let (elsewhere, path) = (directory.root.path().join("elsewhere"), directory.path());
    let sink = directory.sink().await;
    let refused = async || {
        let verdicts = deliver(&*sink, &[claimed("t", "1")]).await;
        let [Verdict::Failed(failure)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
        assert!(failure.message.contains("symbolic link"), "{}", failure.message);
    };
    fs::write(&elsewhere, "").expect("a file");
    symlink(&elsewhere, &path).expect("a link");
    refused().await;
    fs::remove_file(&path).expect("removed");
    symlink(directory.root.path().join("nothing"), &path).expect("a link to nothing");
    refused().await;
    fs::remove_file(&path).expect("removed");
    let verdicts = deliver(&*sink, &[claimed("t", "1")]).await;
    assert!(matches!(verdicts.as_slice(), [Verdict::Delivered(_)]), "{verdicts:?}");
    // While the sink has it open.
    fs::rename(&path, directory.root.path().join("moved")).expect("moved");
    symlink(directory.root.path().join("moved"), &path).expect("a link to what is open");
    refused().await;
    assert_eq!(fs::read(&elsewhere).expect("read"), b"");
    assert_eq!(read(&fs::read(directory.root.path().join("moved")).expect("read")).len(), 1);
}
