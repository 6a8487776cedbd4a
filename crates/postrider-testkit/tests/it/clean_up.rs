//! Nothing stays behind: the server and its directory go when the handle is dropped, when the test process ends, and
//! when it is killed without a chance to do anything about it. Other processes are this same program, started again
//! for the one ignored test.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use postrider_testkit::{Cluster, PgBouncer, database};

/// More than an immediate shutdown and the removal of some 50 MB take.
const GONE_DEADLINE: Duration = Duration::from_secs(30);
const HOW: &str = "POSTRIDER_TESTKIT_CHILD";

#[derive(Debug)]
struct Left {
    directory: PathBuf,
    postmaster: u32,
    ports: Vec<u16>,
}

impl Left {
    fn is_gone(&self) -> bool {
        !self.directory.exists()
            && !Path::new(&format!("/proc/{}", self.postmaster)).exists()
            && self.ports.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_err())
    }

    fn assert_gone_soon(&self) {
        let deadline = Instant::now() + GONE_DEADLINE;
        while !self.is_gone() {
            assert!(Instant::now() < deadline, "still there: {self:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn postmaster_of(cluster: &Cluster) -> u32 {
    let lock = std::fs::read_to_string(cluster.data_dir().join("postmaster.pid")).unwrap();
    lock.lines().next().unwrap().parse().unwrap()
}

fn directory_of(cluster: &Cluster) -> PathBuf {
    cluster.data_dir().parent().unwrap().to_owned()
}

/// Started by the others in a process of its own; how it ends is theirs to say.
#[tokio::test]
#[ignore = "only a part of the other tests of this file"]
async fn child_process() {
    let Ok(how) = env::var(HOW) else { return };
    let database = database().await;
    let pooler = PgBouncer::start(&database).await;
    let cluster = database.cluster();
    if how == "paused" {
        let _busy = database.connect().await;
        cluster.pause();
    }
    println!(
        "\nleft {} {} {} {}",
        directory_of(cluster).display(),
        postmaster_of(cluster),
        cluster.port(),
        pooler.port()
    );
    std::io::stdout().flush().unwrap();
    match how.as_str() {
        "panic" => panic!("as asked"),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        _ => std::future::pending().await,
    }
}

fn spawn_child(how: &str) -> (Child, Left) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "clean_up::child_process", "--ignored", "--nocapture"])
        .env(HOW, how)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("left ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let left = Left {
        directory: words[1].into(),
        postmaster: words[2].parse().unwrap(),
        ports: words[3..].iter().map(|port| port.parse().unwrap()).collect(),
    };
    (child, left)
}

#[test]
fn nothing_survives_a_killed_test_process() {
    for how in ["wait", "paused"] {
        let (mut child, left) = spawn_child(how);
        assert!(!left.is_gone(), "it runs while its process does");
        child.kill().unwrap();
        child.wait().unwrap();
        left.assert_gone_soon();
    }
}

#[test]
fn nothing_survives_a_process_that_ends_by_itself() {
    for how in ["exit", "panic", "abort"] {
        let (mut child, left) = spawn_child(how);
        child.wait().unwrap();
        left.assert_gone_soon();
    }
}

#[tokio::test]
async fn the_server_is_gone_when_its_last_handle_is_dropped() {
    let cluster = Cluster::start().await;
    let left =
        Left { directory: directory_of(&cluster), postmaster: postmaster_of(&cluster), ports: vec![cluster.port()] };
    let database = cluster.empty_database().await;
    drop(cluster);
    database.connect().await.batch_execute("select 1").await.unwrap();
    drop(database);
    assert!(left.is_gone(), "at once: {left:?}");
}

#[tokio::test]
async fn a_killed_server_leaves_nothing_either() {
    let cluster = Cluster::start().await;
    let left =
        Left { directory: directory_of(&cluster), postmaster: postmaster_of(&cluster), ports: vec![cluster.port()] };
    cluster.kill9();
    drop(cluster);
    assert!(left.is_gone(), "{left:?}");
}
