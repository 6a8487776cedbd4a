//! What is said, and which exit code is given, when the database cannot be used.

use std::{fs, net::TcpListener};

use postrider_testkit::{Cluster, database};

use crate::support::{Ran, command, finish, run, run_at, run_with_input, sql};

const SECRET: &str = "hunter2";

/// In words and as JSON: the exit code, the word, what is said; never the password.
#[track_caller]
fn refused(url: &str, args: &[&str], code: i32, word: &str, says: &[&str]) {
    let text = run_at(url, args);
    assert_eq!((text.code, text.stdout.as_str()), (code, ""), "{}", text.stderr);
    assert!(text.stderr.starts_with("error: "), "{}", text.stderr);
    for part in says {
        assert!(text.stderr.contains(part), "{part:?} is not in: {}", text.stderr);
    }
    let json = run_at(url, &[args, &["--json"]].concat());
    assert_eq!(json.code, code, "{}", json.stderr);
    assert_eq!(json.error()["code"], word);
    assert!(json.error()["message"].is_string());
    for Ran { stderr, .. } in [text, json] {
        assert!(!stderr.contains(SECRET), "{stderr}");
    }
}

#[tokio::test]
async fn nobody_listens() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://app:{SECRET}@127.0.0.1:{port}/app");
    let says = [format!("127.0.0.1:{port}/app"), "Connection refused".to_owned(), "DATABASE_URL".to_owned()];
    for args in [&["status"][..], &["run"], &["drain"], &["enqueue", "--topic", "t", "--payload", "1"]] {
        refused(&url, args, 6, "unreachable", &says.each_ref().map(String::as_str));
    }
}

#[tokio::test]
async fn wrong_password_unknown_role_unknown_database() {
    let cluster = Cluster::start().await;
    let database = cluster.database().await;
    sql(&database, "create role app login password 'right'").await;
    refused(&database.url_as("nobody"), &["status"], 6, "unreachable", &["role \"nobody\" does not exist"]);
    let nowhere = format!("postgres://postgres:{SECRET}@127.0.0.1:{}/nowhere", cluster.port());
    refused(&nowhere, &["status"], 6, "unreachable", &["database \"nowhere\" does not exist"]);

    let rules = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    fs::write(cluster.data_dir().join("pg_hba.conf"), rules).unwrap();
    cluster.reconfigure(&[("work_mem", "5MB")]).await;
    let url = format!("postgres://app:{SECRET}@127.0.0.1:{}/{}", cluster.port(), database.name());
    for args in [["list"], ["run"], ["drain"]] {
        refused(&url, &args, 6, "unreachable", &["password authentication failed", "check user and password"]);
    }
}

#[tokio::test]
async fn schema_missing_too_old_too_new() {
    let empty = Cluster::start().await.empty_database().await;
    let enqueue = ["enqueue", "--topic", "t", "--payload", "1"];
    let show = ["show", "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41"];
    for args in [&["status"][..], &["list"], &show, &enqueue, &["run"], &["drain"], &["migrate", "roles"]] {
        refused(&empty.url(), args, 3, "schema_not_current", &["postrider migrate up"]);
    }
    let database = database().await;
    refused(&database.url(), &["status", "--schema", "elsewhere"], 3, "schema_not_current", &["elsewhere"]);
    sql(&database, "insert into outbox.migration (version, name, checksum) values (99, 'later', 'x')").await;
    refused(&database.url(), &["list"], 3, "schema_not_current", &["version 99", "use a newer postrider"]);
    sql(&database, "delete from outbox.migration").await;
    refused(&database.url(), &["list"], 3, "schema_not_current", &["version 0", "postrider migrate up"]);
}

#[test]
fn bad_urls() {
    let cases = [
        (format!("mysql://app:{SECRET}@localhost/app"), "it begins with mysql://"),
        (format!("app:{SECRET}@localhost"), "the database URL is not usable"),
        (format!("postgres://app:{SECRET}@localhost:port/app"), "the database URL is not usable"),
        (format!("postgres://app:{SECRET}@localhost/app?sslmode=maybe"), "sslmode=maybe is not known"),
        (String::new(), "the database URL is empty"),
        ("  ".to_owned(), "the database URL is empty"),
    ];
    for (url, says) in cases {
        for args in [["status"], ["run"], ["drain"]] {
            refused(&url, &args, 2, "usage", &[says, "hint: "]);
        }
    }
}

#[test]
fn no_url_says_how_to_give_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut status = command(&["status"]);
    status.current_dir(directory.path());
    let missing = finish(status, b"");
    assert_eq!(missing.code, 6);
    insta::assert_snapshot!(missing.stderr);
    let migrate = finish(command(&["migrate", "up"]), b"");
    assert_eq!(migrate.code, 2);
    assert!(migrate.stderr.contains("no database was given"), "{}", migrate.stderr);
}

#[test]
fn wrong_usage_is_json_too_and_never_repeats_a_url() {
    let url = format!("postgres://app:{SECRET}@localhost/app");
    for args in
        [&[url.as_str()][..], &["status", &url], &["list", "--limit", &url], &["list", &format!("--lmit={url}")]]
    {
        for json in [&[][..], &["--json"]] {
            let wrong = finish(command(&[args, json].concat()), b"");
            assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""));
            assert!(!wrong.stderr.contains(SECRET), "{}", wrong.stderr);
        }
    }
    assert_eq!(finish(command(&["stauts", "--json"]), b"").error()["code"], "usage");
    assert!(finish(command(&["stauts"]), b"").stderr.contains("'status'"));
    assert_eq!(finish(command(&["status", "--schema", "a b"]), b"").code, 2);
}

#[tokio::test]
async fn an_unknown_message_is_not_found() {
    let database = database().await;
    let args = ["show", "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41"];
    refused(&database.url(), &args, 4, "not_found", &["there is no message 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41"]);
    assert_eq!(run(&database, &["show", "7"]).code, 2);
}

/// The server goes away between two batches: what is committed is told, and that the batch under way must be looked for. A
/// session may be ended after its commit, too.
#[tokio::test]
async fn a_server_that_goes_away() {
    let cluster = Cluster::start().await;
    let database = cluster.database().await;
    let forbid = "create function outbox.break() returns trigger language plpgsql as \
                  $$ begin perform pg_terminate_backend(pg_backend_pid()); return new; end $$; \
                  create trigger break before insert on outbox.message for each row when (new.topic = 'break') \
                  execute function outbox.break()";
    sql(&database, forbid).await;
    let line = |topic: &str| format!("{{\"topic\": \"{topic}\", \"payload\": 1}}\n");
    let input = [line("t"), line("t"), line("break"), line("t")].concat();
    let broken = run_with_input(&database, &["enqueue", "--batch-size", "2"], &input);
    assert_eq!(broken.code, 1, "{}", broken.stderr);
    assert!(broken.stderr.contains("the connection broke while lines 3 to 4 were written"), "{}", broken.stderr);
    assert!(broken.stderr.contains("note: 2 messages up to line 2 committed"), "{}", broken.stderr);
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "2");
}
