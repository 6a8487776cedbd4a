//! What to do, as commands that can be copied: for each remedy of an explanation and each finding of the doctor. The library says
//! what is the case; which command helps is said here alone, for the command line, the admin API and the page.

use postrider::doctor::{Finding, Level};
use postrider::explain::{Explanation, Reason, Remedy};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// Why a message is where it is, and what to do.
#[derive(Serialize, ToSchema)]
pub(crate) struct Explained {
    /// The message.
    pub(crate) message_id: Uuid,
    /// For each sink that has or had to do with it.
    pub(crate) deliveries: Vec<Advised>,
}

/// Why one delivery is where it is, and what to do.
#[derive(Serialize, ToSchema)]
pub(crate) struct Advised {
    #[serde(flatten)]
    pub(crate) reason: Reason,
    /// What to do; empty if there is nothing to do.
    pub(crate) advice: String,
}

impl Explained {
    pub(crate) fn new(explanation: Explanation) -> Self {
        let id = explanation.message_id;
        let advised = |reason: Reason| Advised { advice: advice(id, &reason), reason };
        Self { message_id: id, deliveries: explanation.deliveries.into_iter().map(advised).collect() }
    }
}

fn advice(id: Uuid, reason: &Reason) -> String {
    let (id, sink) = (id.to_string(), reason.sink.as_str());
    let lane = reason.lane.as_deref().unwrap_or_default();
    let head = reason.behind.map(|head| head.to_string()).unwrap_or_default();
    let again = |id: &str| command(&["dlq", "redrive", id, "--sink", sink]);
    let skip = || command(&["lanes", "skip", sink, lane]);
    let never = || command(&["dlq", "discard", &id, "--sink", sink]);
    match reason.remedy {
        Remedy::Redrive => format!("correct the cause and redrive it: {}; or give it up: {}", again(&id), never()),
        Remedy::RedriveOrSkip => format!(
            "correct the cause and redrive it: {}; or let the lane go on without it: {}; or give it up: {}",
            again(&id),
            skip(),
            never()
        ),
        Remedy::RedriveHead => {
            format!("redrive that one: {}; or let the lane go on without it: {}", again(&head), skip())
        }
        Remedy::LookAtHolder => {
            "look at that process and its log; if it is gone, another relay takes the message over \
                                 when the lease ends"
                .to_owned()
        }
        Remedy::TakenOver => "nothing: the next claim or repair of a relay takes it over".to_owned(),
        Remedy::StartToTakeOver => format!("start a relay, which takes it over: {}", command(&["run"])),
        Remedy::Resume => {
            format!("when the destination may be used again: {}", command(&["sinks", "resume", sink]))
        }
        Remedy::RetryNow => format!(
            "it is retried by itself; once the cause is mended, to retry it at once: {}",
            command(&["retry-now", &id])
        ),
        Remedy::ExplainHead => format!("what that one waits for: {}", command(&["explain", &head])),
        Remedy::StartRelay => {
            format!("start one that has this sink in its configuration: {}", command(&["run"]))
        }
        Remedy::RestartRelay => {
            format!("start it again ({}), or see why it does not reach the database", command(&["run"]))
        }
        Remedy::RepairDestination => format!(
            "repair the destination, or its address in the configuration: {} tries it; delivery then goes on by itself, \
             and no attempt is used up meanwhile",
            command(&["check"])
        ),
        Remedy::LookAtRelays => {
            format!("the relays have too much to do, or the sink is slow: {}", command(&["status"]))
        }
        _ => String::new(),
    }
}

/// A command line to be copied: every word that a shell would take apart is quoted.
fn command(words: &[&str]) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|one| one.is_ascii_alphanumeric() || "-_./:@%+=,".contains(one))
    };
    let quoted = words
        .iter()
        .map(|word| if plain(word) { (*word).to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) });
    format!("`postrider {}`", quoted.collect::<Vec<_>>().join(" "))
}

/// The finding with the command that helps, behind what the library says about it.
pub(crate) fn with_command(mut finding: Finding) -> Finding {
    let command = match (finding.check, finding.level, finding.fix.is_some()) {
        (_, Level::Ok, _) => None,
        ("dead_letters", ..) => Some("postrider dlq groups; then postrider dlq redrive or postrider dlq discard"),
        ("parked_lanes", ..) => {
            Some("postrider lanes --state parked; then redrive or discard the head, or postrider lanes skip SINK LANE")
        }
        ("stuck_leases", ..) => Some("start a relay (postrider run), or postrider unclaim-stuck --older-than 0s"),
        ("late", ..) => Some("postrider explain ID, with an ID of postrider list --state pending"),
        ("failing", ..) => Some("postrider explain ID, with an ID of postrider list --state pending, tells the error"),
        ("paused", ..) => Some("postrider sinks resume NAME"),
        ("unserved", ..) => Some("see them: postrider routes"),
        ("breakers", ..) => Some("postrider check tries it"),
        ("relays", _, false) => Some("postrider run"),
        ("future_times", ..) => Some(
            "postrider unclaim-stuck --live --older-than 0s frees every lease, postrider retry-now --all makes what waits \
             due",
        ),
        ("schema", Level::Bad, false) | ("functions", Level::Bad, _) => Some("postrider migrate up"),
        ("grants", Level::Bad, _) => Some("make the roles and their grants: postrider migrate roles"),
        ("retention", ..) => Some("postrider prune; then postrider dlq groups"),
        ("disk", ..) => Some("postrider prune drops what was delivered"),
        _ => None,
    };
    let parts: Vec<String> = [finding.fix.take(), command.map(str::to_owned)].into_iter().flatten().collect();
    finding.fix = (!parts.is_empty()).then(|| parts.join("; "));
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_copied() {
        assert_eq!(command(&["sinks", "resume", "web-hook"]), "`postrider sinks resume web-hook`");
        assert_eq!(command(&["lanes", "skip", "it's $HOME"]), "`postrider lanes skip 'it'\\''s $HOME'`");
    }

    #[test]
    fn a_finding_has_its_command_behind_the_librarys_words() {
        let bad = |check| Finding::new(check, Level::Bad, "seen", "why");
        assert_eq!(with_command(bad("schema")).fix.as_deref(), Some("postrider migrate up"));
        assert_eq!(with_command(bad("schema").fix("use the other")).fix.as_deref(), Some("use the other"));
        assert_eq!(with_command(bad("clock").fix("does NTP run?")).fix.as_deref(), Some("does NTP run?"));
        let both = with_command(bad("functions").fix("update the hash")).fix;
        assert_eq!(both.as_deref(), Some("update the hash; postrider migrate up"));
        let future = with_command(bad("future_times").fix("keep the clock steady")).fix.unwrap();
        assert!(
            future.contains("unclaim-stuck --live --older-than 0s") && future.contains("retry-now --all"),
            "{future}"
        );
        assert_eq!(with_command(Finding::ok("relays", "2 relays alive")).fix, None);
    }
}
