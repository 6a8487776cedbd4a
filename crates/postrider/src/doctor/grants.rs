//! What the current role may do, measured against the group roles of `roles.sql`: which kind of work it is complete for,
//! and whether a group it belongs to has lost a right.

use tokio_postgres::types::Type;

use crate::doctor::{Finding, Level};
use crate::error::Error;
use crate::migrate;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;

/// The groups that call functions, and what their members do.
const GROUPS: [(&str, &str); 5] = [
    ("producer", "enqueue"),
    ("receiver", "receive"),
    ("relay", "run relays"),
    ("reader", "read"),
    ("operator", "operate"),
];

/// One group and what it needs.
struct Group {
    work: &'static str,
    role: Option<String>,
    functions: Vec<String>,
}

/// Asks for all groups and judges.
pub(super) async fn grants(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    let connection = store.connection().await?;
    // Who may not read the settings does not know the groups' names; what it may call is seen all the same.
    let prefix = migrate::status(&*connection, store.schema()).await.ok().and_then(|status| status.role_prefix);
    drop(connection);
    let script = migrate::grants(store.schema());
    let groups: Vec<Group> = GROUPS
        .iter()
        .map(|(name, work)| Group {
            work,
            role: prefix.as_ref().map(|prefix| format!("{prefix}_{name}")),
            functions: functions_of(&script, name),
        })
        .collect();
    let all: Vec<&String> = groups.iter().flat_map(|group| &group.functions).collect();
    let roles: Vec<&String> = groups.iter().filter_map(|group| group.role.as_ref()).collect();
    let sql = sql!("doctor", "grants");
    let rows = store.ask(sql, &[(&all, Type::TEXT_ARRAY), (&roles, Type::TEXT_ARRAY)]).await?;
    let Some(row) = rows.first() else { return Ok(Vec::new()) };
    let (missing, member): (Vec<String>, Vec<String>) = (row.try_get("missing")?, row.try_get("groups")?);
    Ok(judge(&groups, &missing, &member))
}

fn judge(groups: &[Group], missing: &[String], member: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lacks = |group: &Group| -> Vec<String> {
        group.functions.iter().filter(|function| missing.contains(function)).map(|one| short(one)).collect()
    };
    for group in groups {
        let Some(role) = group.role.as_ref().filter(|role| member.contains(role)) else { continue };
        let lacking = lacks(group);
        if !lacking.is_empty() {
            let seen = format!("a member of {role} may not call {}", lacking.join(", "));
            let why = "it fails in the middle of its work";
            findings.push(Finding::new("grants", Level::Bad, seen, why));
        }
    }
    let can: Vec<&str> = groups.iter().filter(|group| lacks(group).is_empty()).map(|group| group.work).collect();
    if can.is_empty() && findings.is_empty() {
        let why = "it can neither enqueue nor receive, run relays, read or operate";
        findings.push(
            Finding::new("grants", Level::Bad, "this role may do no work as a whole", why)
                .fix("grant outbox_relay (or another of the group roles) to this role"),
        );
    }
    if findings.is_empty() {
        findings.push(Finding::ok("grants", format!("this role may {}", can.join(", "))));
    }
    findings
}

/// `"outbox".claim` in short: `claim`.
fn short(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

/// The names in the `grant execute on function … to …` statements that name this group.
fn functions_of(script: &str, group: &str) -> Vec<String> {
    let plain: String =
        script.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let name = format!(":\"{group}\"");
    let mut functions = Vec::new();
    for statement in plain.split(';').filter_map(|statement| statement.split("grant execute on function").nth(1)) {
        let Some((list, to)) = statement.rsplit_once(" to ") else { continue };
        if to.split(',').any(|role| role.trim() == name) {
            functions.extend(list.split(',').map(|name| name.trim().to_owned()));
        }
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    #[test]
    fn the_rights_of_each_group_are_read_from_the_grants() {
        let script = migrate::grants(&Schema::default());
        let producer: Vec<String> = functions_of(&script, "producer").iter().map(|one| short(one)).collect();
        assert_eq!(producer, ["enqueue", "enqueue_many", "schema_version"]);
        let relay = functions_of(&script, "relay");
        assert!(relay.iter().any(|one| one == "\"outbox\".claim"), "{relay:?}");
        assert!(functions_of(&script, "operator").iter().any(|one| short(one) == "redrive"));
        assert!(functions_of(&script, "nobody").is_empty());
    }

    #[test]
    fn a_group_that_lost_a_right_is_bad_and_a_role_without_work_too() {
        let group = |work, role: &str, functions: &[&str]| Group {
            work,
            role: Some(role.to_owned()),
            functions: functions.iter().map(|one| (*one).to_owned()).collect(),
        };
        let groups =
            [group("enqueue", "o_producer", &["o.enqueue"]), group("run relays", "o_relay", &["o.claim", "o.renew"])];
        let judged = |missing: &[&str], member: &[&str]| {
            let own = |texts: &[&str]| texts.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            let findings = judge(&groups, &own(missing), &own(member));
            (findings[0].level, findings[0].seen.clone())
        };
        assert_eq!(judged(&[], &[]), (Level::Ok, "this role may enqueue, run relays".to_owned()));
        assert_eq!(judged(&["o.enqueue"], &[]), (Level::Ok, "this role may run relays".to_owned()));
        assert_eq!(
            judged(&["o.enqueue", "o.claim"], &["o_relay"]),
            (Level::Bad, "a member of o_relay may not call claim".to_owned())
        );
        assert_eq!(judged(&["o.enqueue", "o.claim"], &[]).0, Level::Bad);
    }
}
