//! Small worlds by hand: `worlds model`, `worlds mutants`, `worlds real`, `worlds variants`. See `postrider_testkit::worlds`.
//! Called by people and by `scripts/worlds`; tests run a slice of the same. It talks to no server but one of its own.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use postrider_testkit::worlds::explore::explore;
use postrider_testkit::worlds::mutant::{Mutant, Rules};
use postrider_testkit::worlds::scenes::{SCENES, world};
use postrider_testkit::worlds::scheduler::{Scheduler, Story};
use postrider_testkit::worlds::{stories, variants};

/// More than any scene has.
const MOST_STATES: usize = 20_000_000;
/// More than any story has.
const MOST_RUNS: u32 = 5_000;
/// Stories between two lines.
const LINE_EVERY: u32 = 200;
/// From one story to the next, at least.
const STRIDE: usize = 7_919;
const USAGE: &str = "usage: worlds model | mutants | real [MINUTES] | variants";

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_default();
    let minutes = arguments.next().and_then(|minutes| minutes.parse().ok()).unwrap_or(60);
    let good = match &*what {
        "model" => model(),
        "mutants" => mutants(),
        "real" => real(Duration::from_secs(60 * minutes)).await,
        "variants" => broken_sql().await,
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn model() -> bool {
    let (mut states, mut good) = (0, true);
    for scene in SCENES {
        for parks in [true, false] {
            let begun = Instant::now();
            let found = explore(&world(scene, Rules { parks, mutant: None }), MOST_STATES, false);
            good &= found.complete && found.broken.is_none();
            states += found.states;
            println!(
                "{}, {}: {} states, {} steps, {} deep, complete: {}, broken: {:?}, {:.1?}",
                scene.name,
                if parks { "parks" } else { "skips" },
                found.states,
                found.steps,
                found.depth,
                found.complete,
                found.broken,
                begun.elapsed()
            );
        }
    }
    println!("{states} distinct states in all");
    good
}

fn mutants() -> bool {
    let mut good = true;
    for mutant in Mutant::ALL {
        let begun = Instant::now();
        let caught = SCENES.iter().flat_map(|scene| [(scene, true), (scene, false)]).find_map(|(scene, parks)| {
            let found = explore(&world(scene, Rules { parks, mutant: Some(mutant) }), MOST_STATES, true);
            found.broken.map(|broken| (scene.name, broken))
        });
        if let Some((scene, (fault, way))) = caught {
            println!("{mutant:?}: {fault:?} after {} steps, in {scene}, {:.1?}", way.len(), begun.elapsed());
            println!("    {way:?}");
        } else {
            good = false;
            println!("{mutant:?}: not caught");
        }
    }
    good
}

/// Stories in an order that has something of everything early, until they end or the time is up.
async fn real(limit: Duration) -> bool {
    let mut all: Vec<Story> = stories::pairs_in_time();
    all.extend(stories::pairs());
    all.extend(stories::triples());
    let stride = (STRIDE..2 * STRIDE).find(|stride| coprime(*stride, all.len())).unwrap_or(1);
    let mut scheduler = Scheduler::start().await;
    let begun = Instant::now();
    let (mut told, mut runs, mut steps, mut broken) = (0_u32, 0_u32, 0_u32, 0_u32);
    for n in 0..all.len() {
        if begun.elapsed() > limit {
            break;
        }
        let story = &all[n * stride % all.len()];
        let one = scheduler.tell(story, MOST_RUNS).await;
        told += 1;
        runs += one.runs;
        steps += one.steps;
        if let Some((wrong, done)) = one.broken {
            broken += 1;
            println!("{story:?}: {wrong}\n    {done:#?}");
        }
        if told.is_multiple_of(LINE_EVERY) {
            println!(
                "{told} of {} stories, {runs} interleavings, {steps} steps, {broken} broken, {:.0?}",
                all.len(),
                begun.elapsed()
            );
        }
    }
    println!(
        "{told} of {} stories, {runs} interleavings, {steps} steps, {broken} broken, {:.0?}",
        all.len(),
        begun.elapsed()
    );
    broken == 0
}

fn coprime(one: usize, other: usize) -> bool {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one == 1
}

async fn broken_sql() -> bool {
    let mut scheduler = Scheduler::start().await;
    let mut good = true;
    for variant in variants::variants() {
        let sound = scheduler.tell(&variant.story, MOST_RUNS).await;
        scheduler.change(variant.changes).await;
        let told = scheduler.tell(&variant.story, MOST_RUNS).await;
        scheduler.change(&[]).await;
        println!("{}: {} interleavings are sound", variant.name, sound.runs);
        if let Some(broken) = &sound.broken {
            println!("    NOT SOUND: {broken:?}");
        }
        match &told.broken {
            Some((wrong, done)) => {
                println!("    caught in interleaving {}: {wrong}\n    {}", told.runs, done.join("; "));
            }
            None => println!("    NOT CAUGHT"),
        }
        good &= sound.broken.is_none() && told.broken.is_some();
    }
    good
}
