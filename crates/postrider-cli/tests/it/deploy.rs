//! What is in `deploy/`, and the rules of the edge example: the alert rules fire when they should, and rules and dashboard ask only
//! for what a relay records. Reads files and runs promtool; starts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use postrider_relay::telemetry::{METRICS, MetricKind};
use serde_json::Value;

fn deploy(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

fn read(file: &str) -> String {
    let path = deploy(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where the edge example has its rules.
const EDGE: &str = "../examples/edge/prometheus";

#[track_caller]
fn promtool(directory: &str, args: &[&str]) {
    let ran = Command::new("promtool").args(args).current_dir(deploy(directory)).output();
    let output = ran.unwrap_or_else(|error| {
        panic!("promtool cannot be run ({error}): ./scripts/setup installs it, as does `apt-get install prometheus`")
    });
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {args:?}: {}", String::from_utf8_lossy(&said));
}

/// The metrics that an expression asks for, without what Prometheus adds to the name of a histogram.
fn metrics(expression: &str) -> BTreeSet<&str> {
    let histograms = || METRICS.iter().filter(|metric| metric.kind == MetricKind::Histogram);
    expression
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| ["outbox_", "sync_", "oldest_pending_"].iter().any(|start| word.starts_with(start)))
        .map(|word| histograms().map(|metric| metric.name).find(|name| word.starts_with(name)).unwrap_or(word))
        .collect()
}

#[track_caller]
fn are_recorded(asked_for: &BTreeSet<&str>, whose: &str) {
    let recorded: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let unknown: Vec<_> = asked_for.difference(&recorded).collect();
    assert!(unknown.is_empty(), "{whose} asks for {unknown:?}, which no relay records");
}

/// Each alert with its lines.
fn alerts(rules: &str) -> BTreeMap<&str, &str> {
    rules.split("- alert: ").skip(1).filter_map(|alert| alert.split_once('\n')).collect()
}

/// `OutboxBacklogOld` is explained at `#outbox-backlog-old`.
fn anchor(alert: &str) -> String {
    alert.split_inclusive(|_: char| true).fold(String::new(), |anchor, letter| {
        let dash = if anchor.is_empty() || letter.to_lowercase() == letter { "" } else { "-" };
        format!("{anchor}{dash}{}", letter.to_lowercase())
    })
}

/// Proves P15: oldest age, growth of the dead letters, stuck leases and a spike of retries are told.
/// Proves E9: at the document's thresholds: 1,000 and 10,000 waiting, an hour and a day, any dead letter.
#[test]
fn the_alert_rules_fire_when_they_should() {
    promtool("prometheus", &["check", "rules", "alerts.yml"]);
    promtool("prometheus", &["test", "rules", "alerts_test.yml"]);
    let (rules, played) = (read("prometheus/alerts.yml"), read("prometheus/alerts_test.yml"));
    let alerts = alerts(&rules);
    assert_eq!(alerts.len(), 11, "{:?}", alerts.keys());
    for (alert, expression) in [
        ("OutboxBacklogOld", "(outbox_oldest_pending_age_seconds) > 3600"),
        ("OutboxBacklogVeryOld", "(outbox_oldest_pending_age_seconds) > 86400"),
        ("OutboxBacklogLarge", "(outbox_pending_depth) > 1000"),
        ("OutboxBacklogVeryLarge", "(outbox_pending_depth) > 10000"),
        ("OutboxDeadLetters", "(outbox_dlq_depth) > 0"),
    ] {
        let line = alerts[alert].lines().next().unwrap();
        assert!(line.ends_with(expression), "{alert}: {line}");
    }
    for (alert, text) in alerts {
        assert!(text.contains(&format!("runbook: docs/operating/runbooks.md#{}\n", anchor(alert))), "{alert}: {text}");
        let cases: Vec<_> = played.split(&format!("alertname: {alert}\n")).skip(1).collect();
        let fires = cases.iter().any(|case| case.trim_start().starts_with("exp_alerts:\n"));
        let does_not = cases.iter().any(|case| case.trim_start().starts_with("exp_alerts: []"));
        assert!(fires && does_not, "{alert} is not played both ways");
    }
}

#[test]
fn the_alert_rules_ask_for_what_is_recorded() {
    let rules = read("prometheus/alerts.yml");
    let asked_for = metrics(&rules);
    assert!(asked_for.len() >= 8, "{asked_for:?}");
    are_recorded(&asked_for, "alerts.yml");
    are_recorded(&metrics(&read("prometheus/alerts_test.yml")), "alerts_test.yml");
}

/// Proves E9: the names of the document's seven metrics are kept as they are, and its alerts fire at its thresholds.
#[test]
fn the_edge_example_keeps_the_older_names_and_alerts() {
    promtool(EDGE, &["check", "config", "--syntax-only", "prometheus.yml"]);
    promtool(EDGE, &["check", "rules", "rules.yml"]);
    promtool(EDGE, &["test", "rules", "rules_test.yml"]);
    let scraped = read(&format!("{EDGE}/prometheus.yml"));
    let kept = metrics(&scraped);
    let documented = [
        "oldest_pending_age_seconds",
        "outbox_claimed_total",
        "outbox_dlq_total",
        "outbox_pending_total",
        "sync_batch_latency_ms",
        "sync_send_failure_total",
        "sync_send_success_total",
    ];
    assert!(kept.iter().eq(&documented), "{kept:?}");
    are_recorded(&kept, "the edge example");
    let rules = read(&format!("{EDGE}/rules.yml"));
    assert!(metrics(&rules).is_subset(&kept));
    let alerts = alerts(&rules);
    let age = "max by (job) (oldest_pending_age_seconds)";
    for (alert, expression) in [
        ("Warning", format!("pending_count > 1000 or {age} > 3600")),
        ("Critical", format!("pending_count > 10000 or {age} > 86400")),
        ("DLQ", "dlq_count > 0".to_owned()),
    ] {
        assert_eq!(alerts[alert].lines().next().unwrap().trim(), format!("expr: {expression}"));
    }
}

#[test]
fn the_dashboard_asks_for_what_is_recorded() {
    let text = read("grafana/dashboard.json");
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(dashboard["uid"], "postrider-outbox");
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| variable["name"] == "datasource" && variable["type"] == "datasource"));
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have one id");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
            let asked_for = metrics(target["expr"].as_str().unwrap());
            assert!(!asked_for.is_empty(), "{}", panel["title"]);
            are_recorded(&asked_for, panel["title"].as_str().unwrap());
        }
    }
    are_recorded(&metrics(&text), "a variable of the dashboard");
}

/// The page names every metric, with the labels and the unit that are recorded.
#[test]
fn every_metric_is_documented() {
    let page = read("../docs/telemetry.md");
    for metric in METRICS {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let row = format!("| `{}` | {kind} | {labels} |", metric.name).replace("|  |", "| |");
        assert!(page.contains(&row), "docs/telemetry.md has no row that begins with {row}");
    }
    are_recorded(&metrics(&page), "docs/telemetry.md");
}
