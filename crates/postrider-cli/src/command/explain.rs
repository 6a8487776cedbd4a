//! `postrider explain`: why a message is not delivered, for each sink, and what to do about it. Nothing is changed.

use postrider::{Explanation, Reason};

use super::which::Which;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::options::Global;
use crate::output::{Output, Paint, printable, wrap};
use crate::store::{Address, Missing, Opened};

/// Where the words begin, under the name of the sink.
const INDENT: &str = "  ";
/// Width of the words where there is no terminal.
const PLAIN_WIDTH: usize = 78;

const AFTER_HELP: &str = "\
Codes: DELIVERED, DISCARDED, CANCELLED, DEAD, LEASED, LEASE_EXPIRED, NOT_DUE,
RETRY_LATER, BEHIND_LANE_HEAD, LANE_PARKED, SINK_PAUSED, BREAKER_OPEN, NO_RELAY,
RELAY_SILENT and DUE. Exit code 4 if there is no such message.

Examples:
  postrider explain 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41
  postrider explain 0f2b6a3e8d41
  postrider explain 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41 --json | jq .deliveries";

/// Say why a message is not delivered, and what to do
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
}

pub(crate) struct Prepared {
    address: Address,
    which: Which,
}

impl Args {
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        Ok(Prepared { address: global.address()?, which: self.which })
    }
}

impl Prepared {
    pub(crate) async fn run(self, output: &mut Output) -> Result<ExitCode> {
        let Opened { store, place, .. } = self.address.open(Missing::Refuse).await?;
        let id = self.which.find(&*store, &place).await?;
        let Some(explanation) = store.explain(id).await? else {
            return Err(Failure::new(ExitCode::NotFound, format!("there is no message {id}"))
                .hint(format!("it may have been pruned, or be in another database or schema than {place}")));
        };
        if output.json {
            output.json(&explanation)?;
        } else {
            print(&explanation, output)?;
        }
        Ok(ExitCode::Ok)
    }
}

fn print(explanation: &Explanation, output: &mut Output) -> Result<()> {
    output.line(format!("message {}", explanation.message_id))?;
    if explanation.deliveries.is_empty() {
        return output.line("it went to no sink");
    }
    for reason in &explanation.deliveries {
        output.line("")?;
        print_reason(reason, output)?;
    }
    Ok(())
}

fn print_reason(reason: &Reason, output: &mut Output) -> Result<()> {
    let sink = output.paint(Paint::Strong, &printable(&reason.sink));
    let code = output.paint(paint(reason.code), reason.code);
    output.line(format!("{sink}  {code}"))?;
    let width = output.width().unwrap_or(PLAIN_WIDTH);
    for line in wrap(&printable(&reason.why), width.saturating_sub(INDENT.len())) {
        output.line(format!("{INDENT}{line}"))?;
    }
    if !reason.advice.is_empty() {
        let lines = wrap(&printable(&reason.advice), width.saturating_sub(INDENT.len() + 2));
        for (index, line) in lines.iter().enumerate() {
            output.line(format!("{INDENT}{} {line}", if index == 0 { "→" } else { " " }))?;
        }
    }
    if let Some(behind) = reason.behind {
        output.line(format!("{INDENT}first: postrider explain {behind}"))?;
    }
    Ok(())
}

/// What ended well is good, what waits for a person is bad, the rest is on its way.
fn paint(code: &str) -> Paint {
    match code {
        "DELIVERED" => Paint::Good,
        "DEAD" | "LANE_PARKED" | "NO_RELAY" | "RELAY_SILENT" | "DISCARDED" | "CANCELLED" => Paint::Bad,
        "LEASE_EXPIRED" | "RETRY_LATER" | "BEHIND_LANE_HEAD" | "SINK_PAUSED" | "BREAKER_OPEN" => Paint::Warning,
        _ => Paint::Plain,
    }
}
