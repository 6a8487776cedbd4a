//! `postrider top`: the outbox on a terminal, looked at every second: sinks, dead letters, stuck lanes, relays. A person
//! can pause a sink and redrive dead letters from here; both go through the audit. The terminal is restored on every way
//! out, a panic and a signal included.

mod draw;
mod snapshot;
mod state;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use postrider::Store;
use postrider::inspect::DeadFilter;
use postrider::operate::Action;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::snapshot::{Picture, Snapshot};
use self::state::{Act, View};
use crate::bulk::Bulk;
use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};
use crate::format::{count, counted};
use crate::operator;
use crate::options::Global;
use crate::output;
use crate::signals::Stop;
use crate::store::{Address, Missing, Opened};
use crate::terminal::Screen;

/// Between the end of one look and the start of the next: looks never overlap.
const PAUSE: Duration = Duration::from_secs(1);
/// Pictures and reports that wait to be drawn.
const MAX_NEWS: usize = 16;

const AFTER_HELP: &str = "\
Keys: arrows or j k select a line, Tab the next box; Enter shows details, p
pauses or resumes the selected sink, r redrives the selected dead letters,
? helps, q quits. Exit code 2 without a terminal.

Examples:
  postrider top
  postrider top --database-url sqlite:postrider.db";

/// Watch and operate the outbox in a terminal
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {}

pub(crate) struct Prepared {
    address: Address,
}

impl Args {
    #[expect(clippy::unused_self, reason = "every command is prepared from its arguments; this one has none yet")]
    pub(crate) fn prepare(self, global: &Global) -> Result<Prepared> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::usage("top needs a terminal, for its picture and for its keys")
                .hint("without one: postrider status, postrider status --json"));
        }
        Ok(Prepared { address: global.address()? })
    }
}

/// What comes in from the tasks beside the drawing.
enum News {
    Snapshot(Box<Snapshot>),
    /// How many dead letters were found to redrive.
    Counted(Box<DeadFilter>, u64),
    /// Something was done, or failed.
    Said(String),
}

impl Prepared {
    pub(crate) async fn run(self, json: bool) -> Result<ExitCode> {
        if json {
            return Err(Failure::usage("top draws a picture, not JSON").hint("use postrider status --json"));
        }
        let Opened { store, place, .. } = self.address.open(Missing::Refuse).await?;
        let stop = Stop::on_signals(ratatui::restore)?;
        watch(store, place, &stop).await?;
        // Ctrl-C is a key here; a signal comes from outside.
        Ok(match stop.heard() {
            Some(ExitCode::Terminated) => ExitCode::Terminated,
            _ => ExitCode::Ok,
        })
    }
}

/// Draws until somebody quits.
async fn watch(store: Arc<dyn Store>, place: String, stop: &Stop) -> Result<()> {
    let mut screen = Screen::enter("without a terminal: postrider status")?;
    let ended = CancellationToken::new();
    let _end = ended.clone().drop_guard();
    let (tell, mut news) = mpsc::channel(MAX_NEWS);
    tokio::spawn(keep_looking(Arc::clone(&store), tell.clone(), ended.clone()));
    let (mut picture, mut view) = (Picture::new(place), View::new(output::colour(true)));
    loop {
        screen.draw(|frame| draw::draw(frame, &picture, &mut view))?;
        tokio::select! {
            () = stop.token.cancelled() => break,
            event = screen.events.recv() => {
                let Some(event) = event else { break };
                match view.press(&event, &picture) {
                    Act::Quit => break,
                    Act::Nothing => {}
                    act => begin(act, &store, &tell),
                }
            }
            Some(one) = news.recv() => match one {
                News::Snapshot(looked) => picture.take(*looked),
                News::Counted(which, count) => view.ask(which, count),
                News::Said(words) => view.said(words),
            },
        }
    }
    Ok(())
}

/// One look after the other, each bounded in time.
async fn keep_looking(store: Arc<dyn Store>, tell: mpsc::Sender<News>, ended: CancellationToken) {
    while !ended.is_cancelled() {
        let looked = Snapshot::at(&*store).await;
        if tell.send(News::Snapshot(Box::new(looked))).await.is_err() {
            return;
        }
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// Does something beside the drawing, and tells what came of it.
fn begin(act: Act, store: &Arc<dyn Store>, tell: &mpsc::Sender<News>) {
    let (store, tell) = (Arc::clone(store), tell.clone());
    tokio::spawn(async move {
        let news = match act {
            Act::Quit | Act::Nothing => return,
            Act::Pause(sink, paused) => pause(&*store, sink, paused).await,
            Act::Count(which) => match store.count_dead(&which).await {
                Ok(count) => News::Counted(which, count),
                Err(error) => News::Said(error.in_short()),
            },
            Act::Redrive(which, total) => redrive(&*store, &which, total, &tell).await,
        };
        // The window is closed: nobody wants to know.
        drop(tell.send(news).await);
    });
}

async fn pause(store: &dyn Store, sink: String, paused: bool) -> News {
    let words = format!("{} sink {sink}", if paused { "paused" } else { "resumed" });
    let action = if paused { Action::Pause { sink } } else { Action::Resume { sink } };
    News::Said(match store.operate(&operator::actor(), &action).await {
        Ok(_) => words,
        Err(error) => error.in_short(),
    })
}

async fn redrive(store: &dyn Store, which: &DeadFilter, total: u64, tell: &mpsc::Sender<News>) -> News {
    let progress = |done: u64| {
        // A line that does not fit into the queue is followed by another.
        drop(tell.try_send(News::Said(format!("redriving: {} of {}", count(done), count(total)))));
        true
    };
    let bulk = Bulk::Redrive(which.clone());
    News::Said(match operator::in_batches(store, &bulk, total, progress).await {
        Ok(done) => format!("redriven {}", counted(done, "dead letter")),
        Err(error) => error.in_short(),
    })
}
