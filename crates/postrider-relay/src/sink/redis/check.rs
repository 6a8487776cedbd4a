//! Looks at a Redis without writing to it: whether it can be written to, whether it keeps what it was given over a crash,
//! and whether it may throw messages away. Called by `postrider check`.

use std::collections::HashMap;

use redis::{FromRedisValue as _, Pipeline, Value};

use super::RedisSink;
use super::failure::refused;
use crate::sink::Finding;

/// Answers of the pipeline, by their places.
const INFO: usize = 0;
const SAVE: usize = 1;
const FSYNC: usize = 2;
const SCRIPT: usize = 3;
const TYPE: usize = 4;

pub(super) async fn findings(sink: &RedisSink) -> Vec<Finding> {
    let mut pipeline = Pipeline::new();
    pipeline.ignore_errors();
    pipeline.cmd("INFO");
    pipeline.cmd("CONFIG").arg("GET").arg("save");
    pipeline.cmd("CONFIG").arg("GET").arg("appendfsync");
    pipeline.cmd("EVAL").arg("return 1").arg(0);
    if let Some(stream) = sink.stream.fixed() {
        pipeline.cmd("TYPE").arg(stream);
    }
    let answers = match sink.send(&pipeline).await {
        Ok(answers) => answers,
        Err(failure) => {
            return vec![Finding::broken(failure.message, "make Redis reachable for the relay, then look again")];
        }
    };
    let mut findings = vec![Finding::works(format!("Redis answers at {}", sink.address))];
    match text(answers.get(INFO)) {
        Some(info) => {
            let info = fields(&info);
            findings.extend(role(&info));
            findings.push(persistence(&info, &answers));
            findings.push(memory(&info));
        }
        None => findings.push(Finding::weak(
            "the relay's user may not ask INFO: whether messages survive a restart is not known",
            "allow it: ACL SETUSER … +info +config|get",
        )),
    }
    findings.push(trimming(sink.max_len));
    findings.extend(script(sink, &answers));
    findings.extend(stream(sink, &answers));
    findings
}

/// A replica takes nothing, and a cluster takes only some.
fn role(info: &HashMap<&str, &str>) -> Option<Finding> {
    if info.get("cluster_enabled") == Some(&"1") {
        return Some(Finding::broken(
            "this Redis is part of a cluster: it takes only the streams whose slots it holds",
            "send to a Redis that is not clustered; a stream lives on one node in any case",
        ));
    }
    (info.get("role") == Some(&"slave")).then(|| {
        Finding::broken(
            "this Redis is a replica: it takes no messages",
            "name the master, or end the replication: REPLICAOF NO ONE",
        )
    })
}

/// What is left after a crash.
fn persistence(info: &HashMap<&str, &str>, answers: &[Value]) -> Finding {
    let forbidden = || {
        Finding::weak(
            "the relay's user may not ask CONFIG GET: how often Redis writes to disk is not known",
            "allow it: ACL SETUSER … +config|get",
        )
    };
    if info.get("aof_enabled") == Some(&"1") {
        return match setting(answers.get(FSYNC)).as_deref() {
            Some("always") => Finding::works("every message is on disk before it is acknowledged (appendfsync always)"),
            Some("everysec") => Finding::weak(
                "the log is synced every second: a crash of the machine loses about the last second of acknowledged messages",
                "CONFIG SET appendfsync always, if that second matters",
            ),
            Some(_) => Finding::weak(
                "the log is synced when the system likes: a crash of the machine loses what it had not written yet",
                "CONFIG SET appendfsync always",
            ),
            None => forbidden(),
        };
    }
    match setting(answers.get(SAVE)).as_deref() {
        Some("") => Finding::weak(
            "this Redis keeps nothing on disk: a restart loses every message",
            "CONFIG SET appendonly yes, CONFIG SET appendfsync always, then CONFIG REWRITE",
        ),
        Some(_) => Finding::weak(
            "this Redis only takes snapshots: a crash loses what came after the last one, minutes of messages",
            "CONFIG SET appendonly yes, CONFIG SET appendfsync always, then CONFIG REWRITE",
        ),
        None => forbidden(),
    }
}

/// What happens when the memory is full.
fn memory(info: &HashMap<&str, &str>) -> Finding {
    let policy = info.get("maxmemory_policy").copied().unwrap_or_default();
    let limited = info.get("maxmemory").is_some_and(|limit| *limit != "0");
    if policy.starts_with("allkeys") {
        let when = if limited { "when memory is full" } else { "as soon as maxmemory is set" };
        return Finding::weak(
            format!("{when}, this Redis throws away whole streams (maxmemory-policy {policy})"),
            "CONFIG SET maxmemory-policy noeviction: deliveries then wait with REDIS_OOM until there is room",
        );
    }
    Finding::works(format!("streams are not thrown away when memory is full (maxmemory-policy {policy})"))
}

fn trimming(max_len: Option<u64>) -> Finding {
    match max_len {
        Some(entries) => Finding::weak(
            format!("a stream keeps about {entries} entries (max_len): older ones go, whether they were read or not"),
            "make max_len larger than the longest time a reader may be away, or trim from the reading side (XTRIM MINID)",
        ),
        None => {
            Finding::works("streams are not trimmed: whoever reads them does that (XTRIM, XDEL), or memory fills up")
        }
    }
}

fn script(sink: &RedisSink, answers: &[Value]) -> Option<Finding> {
    let Some(Value::ServerError(error)) = answers.get(SCRIPT) else { return None };
    Some(Finding::broken(
        format!("messages of one lane cannot be sent together: {}", refused(error, &sink.address).message),
        "allow the relay's user to run EVAL: ACL SETUSER … +eval",
    ))
}

fn stream(sink: &RedisSink, answers: &[Value]) -> Option<Finding> {
    let (stream, kind) = (sink.stream.fixed()?, text(answers.get(TYPE))?);
    Some(match kind.as_str() {
        "stream" => Finding::works(format!("the stream {stream} exists")),
        "none" => Finding::works(format!("the stream {stream} does not exist yet: the first message makes it")),
        other => Finding::broken(
            format!("the key {stream} holds a {other}, not a stream"),
            "rename that key, or change `stream`",
        ),
    })
}

fn text(answer: Option<&Value>) -> Option<String> {
    String::from_redis_value_ref(answer?).ok()
}

/// The value in an answer to CONFIG GET.
fn setting(answer: Option<&Value>) -> Option<String> {
    let pair: Vec<String> = Vec::from_redis_value_ref(answer?).ok()?;
    pair.into_iter().nth(1)
}

/// Lines of INFO.
fn fields(info: &str) -> HashMap<&str, &str> {
    info.lines().filter_map(|line| line.split_once(':')).collect()
}
