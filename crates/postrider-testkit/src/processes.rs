//! Signals and process states, by `/proc` and the shell's `kill`, for freezing and killing a whole server at once.
//! Called by the supervisor only. It must be given process ids that this crate started, never names.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long a signalled process may take to show the new state before the test is told.
const STATE_DEADLINE: Duration = Duration::from_secs(20);
/// Between two looks at `/proc`.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The children of a server; its own children do not fork.
fn children_of(parent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|&pid| read_stat(pid).is_some_and(|(_, ppid)| ppid == parent))
        .collect()
}

/// Stops a server and its children and returns them all. The parent first: once it stands still, no child can appear
/// behind our back.
pub(crate) fn freeze(pid: u32) -> Vec<u32> {
    signal("STOP", &[pid]);
    wait_stopped(&[pid]);
    let children = children_of(pid);
    signal("STOP", &children);
    wait_stopped(&children);
    [vec![pid], children].concat()
}

pub(crate) fn thaw(pid: u32) {
    signal("CONT", &[children_of(pid), vec![pid]].concat());
}

/// Sends one signal to all; a process that is already gone is not an error.
pub(crate) fn signal(name: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    // One `kill` each: given several ids, dash stops at the first that is gone.
    Command::new("sh")
        .args(["-c", "signal=$1; shift; for pid; do kill -s \"$signal\" \"$pid\"; done; :", "sh", name])
        .args(pids.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status()
        .expect("sh is needed to send a signal");
}

/// A zombie counts as gone: it holds neither memory nor a socket.
pub(crate) fn is_running(pid: u32) -> bool {
    read_stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

pub(crate) fn wait_gone(pids: &[u32]) {
    wait_until(pids, "end", |pid| !is_running(pid));
}

fn wait_stopped(pids: &[u32]) {
    wait_until(pids, "stop", |pid| read_stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z' | 'X')));
}

fn wait_until(pids: &[u32], what: &str, reached: impl Fn(u32) -> bool) {
    let deadline = Instant::now() + STATE_DEADLINE;
    for &pid in pids {
        while !reached(pid) {
            assert!(Instant::now() < deadline, "process {pid} did not {what} within {STATE_DEADLINE:?} of its signal");
            thread::sleep(LOOK_EVERY);
        }
    }
}

/// State letter and parent. The command name before them may hold spaces and parentheses, so the search is from its end.
fn read_stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
