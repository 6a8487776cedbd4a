//! Whether the schema is this build's: its migrations, the hash of its functions, and the functions themselves, body by
//! body. The hash says what was installed; only the bodies say what is there now.

use std::collections::BTreeMap;

use tokio_postgres::types::Type;

use crate::doctor::{Finding, Level};
use crate::error::{Error, ErrorKind};
use crate::migrate;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::sql;

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
                let found = Finding::new("schema", Level::Bad, error.in_short(), why);
                let too_new = error.kind() == ErrorKind::SchemaTooNew;
                return Ok((vec![if too_new { found.fix("use the build that made it") } else { found }], false));
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
            Finding::new("functions", Level::Bad, "functions and views were installed by another build", why)
        }
        // Who may not read the settings has compared the bodies, which is what counts.
        Ok(_) | Err(_) => finding,
    })
}

/// The functions that are there against the script that would make them.
fn compare(script: &str, schema: &str, found: &BTreeMap<String, Vec<String>>) -> Finding {
    let built: BTreeMap<&str, &str> = definitions(script).collect();
    let ours = |name: &str| built.contains_key(name);
    let altered: Vec<&str> = found
        .iter()
        .filter(|(name, found)| built.get(name.as_str()).is_some_and(|built| found.iter().any(|body| body != built)))
        .map(|(name, _)| name.as_str())
        .collect();
    let missing: Vec<&str> = built.keys().copied().filter(|name| !found.contains_key(*name)).collect();
    let strange: Vec<&str> = found.keys().map(String::as_str).filter(|name| !ours(name)).collect();
    let why = "what it does is not what this build was tested with";
    // migrate up leaves functions alone whose hash it knows.
    let fix = format!("update {schema}.setting set functions_hash = null");
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
        let why = "a migration drops every function in the outbox's schema and makes its own again";
        return Finding::new("functions", Level::Warning, seen, why).fix("move them to another schema");
    }
    Finding::ok("functions", format!("{} functions are this build's", built.len()))
}

/// Name and body of each `create [or replace] function "schema".name(`. The server keeps no text of a body that it parsed
/// when the function was made (`begin atomic`), so that one is empty here as there.
fn definitions(script: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = ["create or replace function ", "create function "];
    starts.into_iter().flat_map(|start| script.split(start).skip(1)).filter_map(|rest| {
        let name = rest.split('(').next()?.rsplit('.').next()?;
        let (head, text) = rest.split_once("$$").unwrap_or((rest, ""));
        let parsed = head.contains("begin atomic");
        Some((name, if parsed { "" } else { text.split("$$").next()? }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "create function \"o\".a() returns trigger as $$one$$;\n\
                          create or replace function \"o\".c() begin atomic select 1; end;\n\
                          create or replace function \"o\".b(x integer) as $$two$$;";

    fn judged(functions: &[(&str, &str)]) -> (Level, String) {
        let found = functions.iter().map(|(name, body)| ((*name).to_owned(), vec![(*body).to_owned()])).collect();
        let finding = compare(SCRIPT, "o", &found);
        (finding.level, finding.seen)
    }

    #[test]
    fn functions_are_compared_body_by_body() {
        assert_eq!(judged(&[("a", "one"), ("b", "two"), ("c", "")]).0, Level::Ok);
        assert_eq!(
            judged(&[("a", "one"), ("b", "one"), ("c", "three")]),
            (Level::Bad, "altered by hand: b, c".to_owned())
        );
        assert_eq!(judged(&[("b", "two"), ("c", "")]), (Level::Bad, "missing: a".to_owned()));
        assert_eq!(
            judged(&[("a", "one"), ("b", "two"), ("c", ""), ("mine", "x")]),
            (Level::Warning, "not the outbox's own: mine".to_owned())
        );
    }
}
