//! `postrider check`: connects to the store and to every sink and says what works, what is weak and what is broken, each
//! with what to do. Nothing is sent and nothing is claimed.

use std::time::Duration;

use postrider::{ErrorKind, Store};
use postrider_relay::sink::{Finding, Level};
use serde::Serialize;

use super::deliver::{Planned, planned};
use crate::config::Flags;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::{Output, Paint, printable};
use crate::schemas::PayloadSchemas;
use crate::store::{Address, Database, Missing, Opened};

/// A sink looks for so long at most; each has shorter limits of its own.
const PATIENCE: Duration = Duration::from_mins(1);

const CLOUD_HELP: &str = "Without a configuration of sinks: where `run` would POST batches [env: CLOUD_INGESTION_URL]";

const AFTER_HELP: &str = "\
Exit code 0 if everything works, be it weak; 8 if something is broken.

Examples:
  postrider check
  postrider check --config postrider.toml
  postrider check --config postrider.toml --sink orders --json";

/// Test the store and every sink, without sending anything
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[arg(long = "cloud-url", value_name = "URL", help = CLOUD_HELP)]
    cloud: Option<String>,
    /// Only this sink; may be repeated
    #[arg(long = "sink", value_name = "NAME")]
    sinks: Vec<String>,
}

pub(crate) struct Prepared {
    databases: Vec<Database>,
    sinks: Vec<Planned>,
    routed: Vec<String>,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        let flags = Flags { cloud: self.cloud, sinks: self.sinks.clone(), ..Flags::default() };
        let layers = global.layers(flags)?;
        let config = layers.config()?;
        PayloadSchemas::read(&config, &layers)?;
        let routed = config.routes().map(|route| route.sink).collect();
        let sinks = planned(&config, &layers, &self.sinks)?;
        Ok(Prepared { databases: global.databases(&layers)?, sinks, routed })
    }
}

/// What was looked at, and what was found there.
struct Place {
    title: String,
    findings: Vec<Finding>,
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Self { databases, sinks, routed } = self;
        let mut places = Vec::new();
        let several = databases.len() > 1;
        for Database { name, address } in databases {
            let mut place = look_at_store(address, &sinks, &routed).await;
            if several {
                place.title = format!("{} (database {name})", place.title);
            }
            places.push(place);
        }
        for Planned { name, kind, .. } in sinks {
            let title = format!("sink {name} ({})", kind.kind);
            let findings = match kind.build(&name) {
                Ok(sink) => match tokio::time::timeout(PATIENCE, sink.check()).await {
                    Ok(findings) => findings,
                    Err(_) => vec![Finding::broken("it does not come to an end", "is its address right?")],
                },
                Err(failure) => vec![broken(&failure)],
            };
            places.push(Place { title, findings });
        }
        let found =
            |level: Level| places.iter().flat_map(|place| &place.findings).filter(move |one| one.level == level);
        let (weak, broken) = (found(Level::Weak).count(), found(Level::Broken).count());
        if output.json {
            output.json(&Document { weak, broken, places: places.iter().map(PlaceDocument::from).collect() })?;
        } else {
            for place in &places {
                show(output, place)?;
            }
            output.line(summary(weak, broken))?;
        }
        Ok(if broken == 0 { ExitCode::Ok } else { ExitCode::CheckFailed })
    }
}

async fn look_at_store(address: Address, sinks: &[Planned], routed: &[String]) -> Place {
    let opened = match address.open(Missing::Refuse).await {
        Ok(opened) => opened,
        Err(failure) => return Place { title: "store".to_owned(), findings: vec![broken(&failure)] },
    };
    let Opened { store, place, .. } = &opened;
    let mut findings = vec![Finding::works("it answers, and its schema is current")];
    if let Err(error) = store.can_write().await {
        let what = match (error.kind(), error.reason()) {
            (ErrorKind::ReadOnly, Some(reason)) => format!("it takes no writes: {reason}"),
            _ => format!("whether it takes writes is not known: {}", error.in_short()),
        };
        findings.push(Finding::broken(
            what,
            "connect to the primary; several hosts in the URL are tried until one takes writes",
        ));
        return Place { title: format!("store {place}"), findings };
    }
    match store.listen().await {
        Ok(_) => findings.push(Finding::works("it tells when something is due")),
        Err(error) => findings.push(Finding::weak(
            format!("it cannot tell when something is due, so a relay polls: {}", error.in_short()),
            "connect directly, or through a pooler in session mode",
        )),
    }
    findings.extend(look_at_routes(&**store, sinks, routed).await);
    Place { title: format!("store {place}"), findings }
}

/// Messages that wait for a sink that is not in the configuration wait for ever, unless another relay has it.
async fn look_at_routes(store: &dyn Store, sinks: &[Planned], routed: &[String]) -> Option<Finding> {
    let known = |name: &str| sinks.iter().any(|sink| sink.name == name);
    let mut wanted: Vec<String> = store.routes().await.ok()?.into_iter().map(|route| route.sink).collect();
    wanted.extend_from_slice(routed);
    wanted.extend(store.status().await.ok()?.into_iter().filter(|sink| sink.pending > 0).map(|sink| sink.sink));
    wanted.retain(|name| !known(name));
    wanted.sort();
    wanted.dedup();
    (!wanted.is_empty()).then(|| {
        Finding::weak(
            format!("messages go to sinks that are not configured here: {}", wanted.join(", ")),
            "add them to the configuration, unless another relay has them; `postrider routes` shows what goes where",
        )
    })
}

fn broken(failure: &Failure) -> Finding {
    match failure {
        Failure::Report(report) => {
            let mut finding = Finding::broken(&report.message, "");
            finding.fix.clone_from(&report.hint);
            finding
        }
        Failure::Silent(_) => Finding::broken("it cannot be used", "look at the log"),
    }
}

fn summary(weak: usize, broken: usize) -> String {
    match (weak, broken) {
        (0, 0) => "everything works".to_owned(),
        (weak, 0) => format!("everything works; {weak} could be better"),
        (0, broken) => format!("{broken} broken"),
        (weak, broken) => format!("{broken} broken, {weak} could be better"),
    }
}

fn show(output: &mut Output, place: &Place) -> Result<()> {
    let title = output.paint(Paint::Strong, &printable(&place.title));
    output.line(title)?;
    for finding in &place.findings {
        let (sign, paint) = match finding.level {
            Level::Works => ("✓", Paint::Good),
            Level::Weak => ("!", Paint::Warning),
            Level::Broken => ("✗", Paint::Bad),
        };
        let line = format!("  {} {}", output.paint(paint, sign), printable(&finding.what));
        output.line(line)?;
        if let Some(fix) = &finding.fix {
            output.line(format!("    → {}", printable(fix)))?;
        }
    }
    output.line("")
}

#[derive(Serialize)]
struct Document<'a> {
    weak: usize,
    broken: usize,
    places: Vec<PlaceDocument<'a>>,
}

#[derive(Serialize)]
struct PlaceDocument<'a> {
    place: &'a str,
    findings: Vec<FindingDocument<'a>>,
}

#[derive(Serialize)]
struct FindingDocument<'a> {
    level: &'static str,
    what: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'a str>,
}

impl<'a> From<&'a Place> for PlaceDocument<'a> {
    fn from(place: &'a Place) -> Self {
        let document = |finding: &'a Finding| FindingDocument {
            level: match finding.level {
                Level::Works => "works",
                Level::Weak => "weak",
                Level::Broken => "broken",
            },
            what: &finding.what,
            fix: finding.fix.as_deref(),
        };
        Self { place: &place.title, findings: place.findings.iter().map(document).collect() }
    }
}
