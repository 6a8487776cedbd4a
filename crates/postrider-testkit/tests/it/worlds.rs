//! Small worlds, a slice of them: the model of the SQL keeps every promise in all that it can come to, real sessions do in every
//! interleaving what the model says, and each guard that is taken out of the SQL shows. All of it: `scripts/worlds`.

use postrider_testkit::worlds::explore::explore;
use postrider_testkit::worlds::mutant::{Mutant, Rules};
use postrider_testkit::worlds::scenes::{SCENES, world};
use postrider_testkit::worlds::scheduler::Scheduler;
use postrider_testkit::worlds::{stories, variants};

/// Scenes of the slice, by their names: small enough for a build without optimisation.
const SMALL: [&str; 2] = ["the front of a lane", "letters in two hands"];
/// More than they have.
const MOST_STATES: usize = 200_000;
/// Interleavings of one story, more than any has.
const MOST_RUNS: u32 = 5_000;
/// Every so manieth story is told here.
const STORIES_BETWEEN: usize = 997;

#[test]
fn heavy_the_model_keeps_every_promise() {
    for scene in SCENES.iter().filter(|scene| SMALL.contains(&scene.name)) {
        for parks in [true, false] {
            let found = explore(&world(scene, Rules { parks, mutant: None }), MOST_STATES, false);
            println!("{}: {} states, {} steps", scene.name, found.states, found.steps);
            assert!(found.complete && found.broken.is_none(), "{}: {:?}", scene.name, found.broken);
        }
    }
}

/// What a guard is for is seen when it is left out of the model. Those that the small scenes have no room for are asked by
/// `scripts/worlds mutants`.
#[test]
fn heavy_the_model_breaks_without_its_guards() {
    let guards = [
        Mutant::NoLaneLock,
        Mutant::NoReach,
        Mutant::NoSkipLocked,
        Mutant::NamedOrder,
        Mutant::CounterUnlocked,
        Mutant::CountAtOutcome,
        Mutant::NotParked,
    ];
    for mutant in guards {
        let caught = SCENES.iter().filter(|scene| SMALL.contains(&scene.name)).find_map(|scene| {
            [true, false].into_iter().find_map(|parks| {
                explore(&world(scene, Rules { parks, mutant: Some(mutant) }), MOST_STATES, true).broken
            })
        });
        println!("{mutant:?}: {caught:?}");
        assert!(caught.is_some(), "{mutant:?} is not caught");
    }
}

#[tokio::test]
async fn heavy_real_sessions_do_what_the_model_says() {
    let mut scheduler = Scheduler::start().await;
    let (mut runs, mut told) = (0, 0);
    for story in stories::pairs().iter().step_by(STORIES_BETWEEN) {
        let one = scheduler.tell(story, MOST_RUNS).await;
        assert_eq!(one.broken, None, "{story:?}");
        (runs, told) = (runs + one.runs, told + 1);
    }
    println!("{runs} interleavings of {told} stories");
}

/// Proves that the stories would show a fault: each variant of the SQL is caught in one that goes well without it.
#[tokio::test]
async fn heavy_every_guard_of_the_sql_is_missed() {
    let mut scheduler = Scheduler::start().await;
    for variant in variants::variants() {
        scheduler.change(variant.changes).await;
        let told = scheduler.tell(&variant.story, MOST_RUNS).await;
        scheduler.change(&[]).await;
        assert!(told.broken.is_some(), "not caught: {}", variant.name);
    }
}
