//! `postrider explain`: why a message is not delivered, for each sink, and what to do about it. Nothing is changed.

use async_trait::async_trait;
use postrider::explain::ReasonCode;

use super::OnOutbox;
use super::message::NamedMessage;
use crate::advice::{Advised, Explained};
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::output::{Output, Paint, printable, wrap};
use crate::store::Opened;

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
    message: NamedMessage,
}

#[async_trait(?Send)]
impl OnOutbox for Args {
    async fn run(self: Box<Self>, outbox: Opened, output: &mut Output) -> Result<ExitCode> {
        let explanation = self.message.ask(&outbox, async |store, id| store.explain(id).await).await?;
        let explained = Explained::new(explanation);
        if output.json {
            output.json(&explained)?;
        } else {
            print(&explained, output)?;
        }
        Ok(ExitCode::Ok)
    }
}

fn print(explanation: &Explained, output: &mut Output) -> Result<()> {
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

fn print_reason(Advised { reason, advice }: &Advised, output: &mut Output) -> Result<()> {
    let sink = output.paint(Paint::Strong, &printable(&reason.sink));
    let code = output.paint(paint(reason.code), reason.code.as_str());
    output.line(format!("{sink}  {code}"))?;
    let width = output.width().unwrap_or(PLAIN_WIDTH);
    for line in wrap(&printable(&reason.why), width.saturating_sub(INDENT.len())) {
        output.line(format!("{INDENT}{line}"))?;
    }
    if !advice.is_empty() {
        let lines = wrap(&printable(advice), width.saturating_sub(INDENT.len() + 2));
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
fn paint(code: ReasonCode) -> Paint {
    use ReasonCode as Code;
    match code {
        Code::Delivered => Paint::Good,
        Code::Dead | Code::LaneParked | Code::NoRelay | Code::RelaySilent | Code::Discarded | Code::Cancelled => {
            Paint::Bad
        }
        Code::LeaseExpired | Code::RetryLater | Code::BehindLaneHead | Code::SinkPaused | Code::BreakerOpen => {
            Paint::Warning
        }
        _ => Paint::Plain,
    }
}
