//! `postrider migrate`.

use postrider_testkit::Cluster;

use crate::support::{command, filters, finish, run, sql};

#[tokio::test]
async fn up_brings_an_empty_database_to_this_build() {
    let database = Cluster::start().await.empty_database().await;
    let missing = run(&database, &["migrate", "status"]);
    assert_eq!(missing.code, 3);
    insta::assert_snapshot!(missing.stdout);
    let document = run(&database, &["migrate", "status", "--json"]);
    assert_eq!(document.code, 3);
    let document: serde_json::Value = serde_json::from_str(&document.stdout).unwrap();
    assert_eq!(document["state"], "missing");

    insta::assert_snapshot!(run(&database, &["migrate", "up"]).ok());
    insta::assert_snapshot!(run(&database, &["migrate", "up"]).ok());
    let again = run(&database, &["--json", "migrate", "up"]).json();
    assert_eq!(again, serde_json::json!({"migrations": [], "functions": false}));

    let _bound = filters().bind_to_scope();
    insta::assert_snapshot!(run(&database, &["migrate", "status"]).ok());
    let current = run(&database, &["migrate", "status", "--json"]).json();
    assert_eq!((&current["state"], &current["functions_current"]), (&"current".into(), &true.into()));
    assert!(current["migrations"][0]["applied_at"].as_str().unwrap().ends_with('Z'), "{current}");
}

#[tokio::test]
async fn replaced_functions_and_newer_schemas_are_seen() {
    let database = postrider_testkit::database().await;
    sql(&database, "update outbox.setting set functions_hash = 'another'").await;
    let pending = run(&database, &["migrate", "status"]);
    assert_eq!(pending.code, 3);
    assert!(pending.stdout.contains("functions  to be replaced"), "{}", pending.stdout);
    assert_eq!(run(&database, &["migrate", "up"]).ok(), "replaced functions and views\nschema outbox is now current\n");

    sql(&database, "insert into outbox.migration (version, name, checksum) values (99, 'later', 'x')").await;
    let newer = run(&database, &["migrate", "status"]);
    assert_eq!(newer.code, 3);
    assert!(newer.stdout.contains("made by a newer postrider"), "{}", newer.stdout);
    let refused = run(&database, &["migrate", "up"]);
    assert_eq!(refused.code, 3);
    assert!(refused.stderr.contains("use a newer postrider"), "{}", refused.stderr);
}

#[tokio::test]
async fn roles_are_made_and_a_producer_may_only_enqueue() {
    let database = Cluster::start().await.database().await;
    insta::assert_snapshot!(run(&database, &["migrate", "roles"]).ok());
    let other = run(&database, &["migrate", "roles", "--prefix", "shop", "--json"]).json();
    assert_eq!(other["producer"], "shop_producer");
    assert!(run(&database, &["migrate", "status"]).ok().contains("shop_owner, _producer"));

    sql(&database, "create role web_app login in role shop_producer").await;
    let url = database.url_as("web_app");
    crate::support::run_at(&url, &["enqueue", "--topic", "t", "--payload", "1"]).ok();
    let denied = crate::support::run_at(&url, &["list"]);
    assert_eq!((denied.code, denied.stdout.as_str()), (7, ""));
    assert!(denied.stderr.starts_with("error: permission denied"), "{}", denied.stderr);
}

#[tokio::test]
async fn the_printed_script_makes_the_schema() {
    let script = finish(command(&["migrate", "print", "--schema", "events"]), b"").ok();
    let database = Cluster::start().await.empty_database().await;
    sql(&database, &script).await;
    let status = run(&database, &["migrate", "status", "--schema", "events"]);
    assert_eq!(status.code, 0, "{}", status.stdout);
    run(&database, &["enqueue", "--schema", "events", "--topic", "t", "--payload", "1"]).ok();
    let document = finish(command(&["migrate", "print", "--json"]), b"").json();
    assert!(document["sql"].as_str().unwrap().starts_with("begin;"));
}

/// A restore on another server brings no roles: those that are there are listed, and what makes the others is said.
#[tokio::test]
async fn roles_that_are_missing_are_named() {
    let database = Cluster::start().await.database().await;
    run(&database, &["migrate", "roles", "--prefix", "shop"]).ok();
    sql(&database, "drop owned by shop_relay, shop_auditor; drop role shop_relay, shop_auditor").await;
    let said = run(&database, &["migrate", "status"]).ok();
    let line = "roles      shop_owner, shop_producer, shop_receiver, shop_reader, shop_operator; \
                missing: shop_relay, shop_auditor (run `postrider migrate roles --prefix shop`)";
    assert!(said.contains(line), "{said}");
    let document = run(&database, &["migrate", "status", "--json"]).json();
    assert_eq!(document["missing_roles"], serde_json::json!(["shop_relay", "shop_auditor"]));
    // An upgrade does not stumble over them.
    sql(&database, "update outbox.setting set functions_hash = 'another'").await;
    run(&database, &["migrate", "up"]).ok();
    run(&database, &["migrate", "roles", "--prefix", "shop"]).ok();
    assert!(run(&database, &["migrate", "status"]).ok().contains("shop_owner, _producer"));
}

/// A standby is not something to run on, and `check` says so; what only reads works there.
#[tokio::test]
async fn a_standby_is_told_apart() {
    let cluster = Cluster::start().await;
    let database = cluster.database().await;
    let check = || {
        let mut check = command(&["check"]);
        check.env("DATABASE_URL", database.url()).env("POSTRIDER__SINKS__DEFAULT__STDOUT", "{}");
        finish(check, b"")
    };
    assert_eq!(check().code, 0);
    cluster.demote().await;
    let checked = check();
    assert_eq!(checked.code, 8, "{}", checked.stdout);
    assert!(checked.stdout.contains("it takes no writes: it is in recovery"), "{}", checked.stdout);
    assert!(checked.stdout.contains("connect to the primary"), "{}", checked.stdout);
    let sink = &run(&database, &["status", "--json"]).json()["items"][0];
    assert_eq!((&sink["sink"], &sink["state"]), (&"default".into(), &serde_json::Value::Null));
    let refused = run(&database, &["enqueue", "--topic", "t", "--payload", "1"]);
    assert_eq!(refused.code, 6, "{}", refused.stderr);
    assert!(refused.stderr.contains("this server takes no writes"), "{}", refused.stderr);
    let wanted = format!("{}?target_session_attrs=primary", database.url());
    let away = crate::support::run_at(&wanted, &["status"]);
    assert_eq!(away.code, 6);
    assert!(away.stderr.contains("it is a standby"), "{}", away.stderr);
}
