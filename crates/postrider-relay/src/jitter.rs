//! The relay's random numbers, which a test can seed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub(crate) struct Jitter(Mutex<StdRng>);

impl Jitter {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        Self(Mutex::new(seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64)))
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, StdRng> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
