//! A consumer in another language, asked for what the sink contract wants to know: everything that has arrived, once there
//! are so many different messages.

use std::collections::HashSet;

use postrider_testkit::sink_contract::Arrived;
use postrider_testkit::{Arrival, Consumer};
use tokio::sync::Mutex;

pub(super) struct Reader(Mutex<(Consumer, HashSet<String>)>);

impl Reader {
    pub(super) fn new(consumer: Consumer) -> Self {
        Self(Mutex::new((consumer, HashSet::new())))
    }

    /// Waits a minute for the next of them.
    pub(super) async fn arrived(&self, different: usize) -> Vec<Arrived> {
        let (consumer, seen) = &mut *self.0.lock().await;
        while seen.len() < different {
            let next = consumer.take(1).await.remove(0);
            seen.insert(arrived(next).message_id);
        }
        consumer.arrived_so_far().into_iter().map(arrived).collect()
    }

    /// The same as the consumer saw them.
    pub(super) async fn arrivals(&self, different: usize) -> Vec<Arrival> {
        self.arrived(different).await;
        self.0.lock().await.0.arrived_so_far()
    }
}

fn arrived(arrival: Arrival) -> Arrived {
    let headers = arrival.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect();
    Arrived::new(headers, arrival.body)
}
