//! What a drain costs the relay in allocations, which a loaded machine does not change: one figure, and a test that fails when
//! it rises by a twentieth. The allocator of the test program counts for each thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tokio_util::sync::CancellationToken;

use crate::support::{arrivals, messages, site};

/// Allocations for each message, from the claim to the record of its outcome, the driver of PostgreSQL included.
const ALLOCATIONS: f64 = 20.2;
const WARM_UP: usize = 500;
const MESSAGES: usize = 4_000;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator is unsafe to write; this one passes every call on as it is")]
// SAFETY: as the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: as the caller's.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// On one thread, so that all of it is counted and nothing else.
#[tokio::test]
async fn a_drained_message_costs_few_allocations() {
    let site = site().await;
    let mut counts = Vec::new();
    for count in [WARM_UP, MESSAGES] {
        for part in messages(count).chunks(WARM_UP) {
            site.enqueue(part).await;
        }
        let (sink, _arrivals) = arrivals();
        let relay = site.relay().sink("default", sink).build().expect("a relay");
        let before = COUNT.get();
        let counted = relay.drain(CancellationToken::new()).await.expect("drained");
        counts.push(COUNT.get() - before);
        assert_eq!(counted.delivered, count as u64);
    }
    let each =
        f64::from(u32::try_from(counts[1]).expect("a count")) / f64::from(u32::try_from(MESSAGES).expect("a count"));
    println!("{each:.2} allocations a message");
    assert!(
        each <= ALLOCATIONS * 1.05,
        "a message costs {each:.2} allocations now, and {ALLOCATIONS} so far: a twentieth more is too much"
    );
    assert!(
        each >= ALLOCATIONS * 0.9,
        "a message costs {each:.2} allocations now, and {ALLOCATIONS} so far: write down the new figure, so that it stays"
    );
}
