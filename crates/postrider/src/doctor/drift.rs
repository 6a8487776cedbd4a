//! Whether the schema is this build's: its migrations, the hash of its functions, and the functions themselves, body by
//! body. The hash says what was installed; only the bodies say what is there now.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::types::Type;

use crate::doctor::{Finding, Level};
use crate::error::{Error, ErrorKind};
use crate::migrate;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;

const UP: &str = "postrider migrate up";

/// What differs, and whether the tables are those this build knows.
pub(super) async fn schema(store: &PostgresStore) -> (Vec<Finding>, bool) {
    let looked = async {
        let connection = store.connection().await?;
        match migrate::check(&*connection, store.schema()).await {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::SchemaMissing | ErrorKind::SchemaTooOld | ErrorKind::SchemaTooNew
                ) =>
            {
                let why = "this build refuses to work on it";
                let fix = if error.kind() == ErrorKind::SchemaTooNew { "use the postrider that made it" } else { UP };
                return Ok((vec![Finding::new("schema", Level::Bad, error.in_short(), why).fix(fix)], false));
            }
            Err(error) => return Err(error),
        }
        let mut findings = vec![Finding::ok(
            "schema",
            format!("schema {} is at version {}", store.schema(), migrate::latest_version()),
        )];
        drop(connection);
        findings.push(functions(store).await?);
        Ok((findings, true))
    };
    looked.await.unwrap_or_else(|error: Error| (vec![Finding::unseen("schema", &error)], true))
}

async fn functions(store: &PostgresStore) -> Result<Finding, Error> {
    let sql = sql!("doctor", "functions");
    let rows = store.ask(sql, &[(&store.schema().quoted(), Type::TEXT)]).await?;
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in &*rows {
        found.entry(row.try_get("name")?).or_default().push(row.try_get("body")?);
    }
    let built = migrate::script(store.schema());
    let finding = compare(&built, &store.schema().quoted(), &found);
    if finding.level > Level::Ok {
        return Ok(finding);
    }
    let connection = store.connection().await?;
    Ok(match migrate::status(&*connection, store.schema()).await {
        Ok(status) if !status.functions_current => {
            let why = "functions, views or rights may be another build's, with its mistakes";
            Finding::new("functions", Level::Bad, "functions and views were installed by another build", why).fix(UP)
        }
        // Who may not read the settings has compared the bodies, which is what counts.
        Ok(_) | Err(_) => finding,
    })
}

/// The functions that are there against the script that would make them.
fn compare(script: &str, schema: &str, found: &BTreeMap<String, Vec<String>>) -> Finding {
    let bodies: BTreeSet<&str> = script.split("$$").skip(1).step_by(2).collect();
    let names: BTreeSet<&str> = names(script).collect();
    let ours = |name: &str| names.contains(name);
    let altered: Vec<&str> = found
        .iter()
        .filter(|(name, found)| ours(name) && found.iter().any(|body| !bodies.contains(body.as_str())))
        .map(|(name, _)| name.as_str())
        .collect();
    let missing: Vec<&str> = names.iter().copied().filter(|name| !found.contains_key(*name)).collect();
    let strange: Vec<&str> = found.keys().map(String::as_str).filter(|name| !ours(name)).collect();
    let why = "what it does is not what this build was tested with";
    // migrate up leaves functions alone whose hash it knows.
    let fix = format!("update {schema}.setting set functions_hash = null; then {UP}");
    if !altered.is_empty() {
        let seen = format!("altered by hand: {}", altered.join(", "));
        return Finding::new("functions", Level::Bad, seen, why).fix(fix);
    }
    if !missing.is_empty() {
        let seen = format!("missing: {}", missing.join(", "));
        return Finding::new("functions", Level::Bad, seen, why).fix(fix);
    }
    if !strange.is_empty() {
        let seen = format!("not the outbox's own: {}", strange.join(", "));
        let why = "`migrate up` drops every function in the outbox's schema and makes its own again";
        return Finding::new("functions", Level::Warning, seen, why).fix("move them to another schema");
    }
    Finding::ok("functions", format!("{} functions are this build's", names.len()))
}

/// The names in `create [or replace] function "schema".name(`.
fn names(script: &str) -> impl Iterator<Item = &str> {
    let after = script.split("create or replace function ").skip(1).chain(script.split("create function ").skip(1));
    after.filter_map(|rest| rest.split('(').next()?.rsplit('.').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "create function \"o\".a() returns trigger as $$one$$;\n\
                          create or replace function \"o\".b(x integer) as $$two$$;";

    fn judged(functions: &[(&str, &str)]) -> (Level, String) {
        let found = functions.iter().map(|(name, body)| ((*name).to_owned(), vec![(*body).to_owned()])).collect();
        let finding = compare(SCRIPT, "o", &found);
        (finding.level, finding.seen)
    }

    #[test]
    fn functions_are_compared_body_by_body() {
        assert_eq!(judged(&[("a", "one"), ("b", "two")]).0, Level::Ok);
        assert_eq!(judged(&[("a", "one"), ("b", "three")]), (Level::Bad, "altered by hand: b".to_owned()));
        assert_eq!(judged(&[("b", "two")]), (Level::Bad, "missing: a".to_owned()));
        assert_eq!(
            judged(&[("a", "one"), ("b", "two"), ("mine", "x")]),
            (Level::Warning, "not the outbox's own: mine".to_owned())
        );
    }
}
