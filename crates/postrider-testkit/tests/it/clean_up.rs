//! Nothing stays behind: the server and its directory go when the handle is dropped, when the test process ends, and
//! when it is killed without a chance to do anything about it. Other processes are this same program, started again
//! for the one ignored test.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use postrider_testkit::{Broker as _, Cluster, Consumer, Kafka, Mosquitto, Nats, PgBouncer, RabbitMq, Redis, database};

/// More than an immediate shutdown and the removal of some 50 MB take.
const GONE_DEADLINE: Duration = Duration::from_secs(30);
const HOW: &str = "POSTRIDER_TESTKIT_CHILD";

#[derive(Debug)]
struct Left {
    directories: Vec<PathBuf>,
    processes: Vec<u32>,
    ports: Vec<u16>,
}

impl Left {
    fn is_gone(&self) -> bool {
        !self.directories.iter().any(|directory| directory.exists())
            && !self.processes.iter().any(|&pid| is_running(pid))
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

/// An orphan that waits for its new parent to notice its end is gone.
fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| !status.contains("State:\tZ"))
}

fn left_of(cluster: &Cluster) -> Left {
    Left {
        directories: vec![directory_of(cluster)],
        processes: vec![postmaster_of(cluster)],
        ports: vec![cluster.port()],
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
    let mut left = left_of(cluster);
    left.ports.push(pooler.port());
    end(&how, &left).await;
}

/// The same for the brokers and a consumer, which frozen servers must not keep alive either.
#[tokio::test]
#[ignore = "only a part of the other tests of this file"]
async fn child_process_with_brokers() {
    let Ok(how) = env::var(HOW) else { return };
    let (redis, nats, mosquitto, rabbitmq, kafka) =
        tokio::join!(Redis::start(), Nats::start(), Mosquitto::start(), RabbitMq::start(), Kafka::start());
    let _consumer = Consumer::redis(&redis.url(), &["orders"]).await;
    let mut servers = vec![redis.server(), nats.server(), mosquitto.server(), rabbitmq.server()];
    if kafka.is_private() {
        servers.push(kafka.server());
    }
    let left = Left {
        directories: servers.iter().map(|server| server.directory()).collect(),
        processes: descendants_of(std::process::id()),
        ports: servers.iter().map(|server| server.port()).collect(),
    };
    if how == "paused" {
        for server in &servers {
            server.stall();
        }
    }
    end(&how, &left).await;
}

/// Supervisors, servers and whatever these have started.
fn descendants_of(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect();
    children.into_iter().flat_map(|child| [vec![child], descendants_of(child)].concat()).collect()
}

async fn end(how: &str, left: &Left) {
    let all = |words: Vec<String>| words.join(",");
    println!(
        "\nleft {} {} {}",
        all(left.directories.iter().map(|directory| directory.display().to_string()).collect()),
        all(left.processes.iter().map(u32::to_string).collect()),
        all(left.ports.iter().map(u16::to_string).collect()),
    );
    std::io::stdout().flush().unwrap();
    match how {
        "panic" => panic!("as asked"),
        "exit" => std::process::exit(0),
        "abort" => std::process::abort(),
        _ => std::future::pending().await,
    }
}

fn spawn_child(name: &str, how: &str) -> (Child, Left) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(HOW, how)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.starts_with("left ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let left = Left {
        directories: words[1].split(',').map(PathBuf::from).collect(),
        processes: words[2].split(',').map(|pid| pid.parse().unwrap()).collect(),
        ports: words[3].split(',').map(|port| port.parse().unwrap()).collect(),
    };
    (child, left)
}

fn assert_nothing_survives_a_kill(child: &str) {
    for how in ["wait", "paused"] {
        let (mut child, left) = spawn_child(child, how);
        assert!(!left.is_gone(), "it runs while its process does");
        child.kill().unwrap();
        child.wait().unwrap();
        left.assert_gone_soon();
    }
}

#[test]
fn nothing_survives_a_killed_test_process() {
    assert_nothing_survives_a_kill("clean_up::child_process");
}

#[test]
fn no_broker_survives_a_killed_test_process() {
    assert_nothing_survives_a_kill("clean_up::child_process_with_brokers");
}

#[test]
fn nothing_survives_a_process_that_ends_by_itself() {
    for how in ["exit", "panic", "abort"] {
        let (mut child, left) = spawn_child("clean_up::child_process", how);
        child.wait().unwrap();
        left.assert_gone_soon();
    }
}

#[tokio::test]
async fn the_server_is_gone_when_its_last_handle_is_dropped() {
    let cluster = Cluster::start().await;
    let left = left_of(&cluster);
    let database = cluster.empty_database().await;
    drop(cluster);
    database.connect().await.batch_execute("select 1").await.unwrap();
    drop(database);
    assert!(left.is_gone(), "at once: {left:?}");
}

#[tokio::test]
async fn a_killed_server_leaves_nothing_either() {
    let cluster = Cluster::start().await;
    let left = left_of(&cluster);
    cluster.kill9();
    drop(cluster);
    assert!(left.is_gone(), "{left:?}");
}
