//! Who has a connection, and who must give one up when there are too many. A connection that waits for a request is idle,
//! and the one that is idle for longest makes room for the next; one that is being answered is never cut. If all of them
//! are being answered, a few places are left, for probes: see `guard.rs`. It decides alone; `server.rs` acts on it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// How many there may be.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Connections at once.
    pub(super) connections: usize,
    /// Of these, from one client.
    pub(super) per_client: usize,
    /// Beside these, for probes.
    pub(super) kept: usize,
}

/// Marks the requests of a connection that is kept for probes.
#[derive(Clone, Copy)]
pub(crate) struct Kept;

/// The connections of one server.
pub(super) struct Connections {
    limits: Limits,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Counts what happens: a smaller number was earlier.
    events: u64,
    by_id: BTreeMap<u64, Connection>,
}

struct Connection {
    client: IpAddr,
    kept: bool,
    /// Since which event it waits for a request; `None`: it is being answered.
    idle_since: Option<u64>,
    cut: CancellationToken,
}

/// A place, until it is dropped.
pub(super) struct Slot {
    id: u64,
    pub(super) kept: bool,
    /// Fires when it has to make room.
    pub(super) cut: CancellationToken,
    places: Arc<Connections>,
}

/// A request that is being answered, until it is dropped.
pub(super) struct Busy {
    id: u64,
    places: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// A place for a new connection: there always is one, and another may have to go for it.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr) -> Slot {
        let client = client(peer);
        let mut taken = self.taken();
        let kept = !taken.make_room(self.limits, client);
        if kept {
            taken.make_room_among_kept(self.limits.kept);
        }
        let (id, cut) = (taken.event(), CancellationToken::new());
        taken.by_id.insert(id, Connection { client, kept, idle_since: Some(id), cut: cut.clone() });
        Slot { id, kept, cut, places: Arc::clone(self) }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_idle(&self, id: u64, idle: bool) {
        let mut taken = self.taken();
        let now = taken.event();
        // It may have been cut.
        if let Some(connection) = taken.by_id.get_mut(&id) {
            connection.idle_since = idle.then_some(now);
        }
    }
}

impl Taken {
    fn event(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// Whether there is room for one more of this client, made by cutting an idle one if need be.
    fn make_room(&mut self, limits: Limits, client: IpAddr) -> bool {
        let ordinary = || self.by_id.values().filter(|one| !one.kept);
        let crowded = ordinary().filter(|one| one.client == client).count() >= limits.per_client;
        if !crowded && ordinary().count() < limits.connections {
            return true;
        }
        // A client with too many pays for it; otherwise whoever has been idle for longest.
        let candidates = self.by_id.iter().filter(|(_, one)| !one.kept && (!crowded || one.client == client));
        let idle = candidates.filter_map(|(id, one)| Some((one.idle_since?, *id))).min();
        idle.is_some_and(|(_, id)| self.cut(id))
    }

    /// The oldest goes, whatever it does: a probe takes a moment.
    fn make_room_among_kept(&mut self, most: usize) {
        let mut kept = self.by_id.iter().filter(|(_, one)| one.kept).map(|(id, _)| *id);
        let oldest = kept.next();
        if 1 + kept.count() >= most
            && let Some(oldest) = oldest
        {
            self.cut(oldest);
        }
    }

    fn cut(&mut self, id: u64) -> bool {
        self.by_id.remove(&id).is_some_and(|one| {
            one.cut.cancel();
            true
        })
    }
}

impl Slot {
    /// A request came: until this is dropped, the connection is not cut for another.
    pub(super) fn busy(&self) -> Busy {
        self.places.set_idle(self.id, false);
        Busy { id: self.id, places: Arc::clone(&self.places) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.places.taken().by_id.remove(&self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.places.set_idle(self.id, true);
    }
}

/// Whom an address stands for. Whoever has an IPv6 address has the 64 bits behind the prefix, too.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { connections: 4, per_client: 2, kept: 2 };

    fn from(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    fn cut(places: &[&Slot]) -> Vec<bool> {
        places.iter().map(|place| place.cut.is_cancelled()).collect()
    }

    #[test]
    fn a_client_with_too_many_loses_its_own() {
        let places = Connections::new(LIMITS);
        let [other, first, second] = [1, 2, 2].map(|last| places.take(from(last)));
        // It was answered meanwhile, so it is the other one that has been idle for longer.
        drop(first.busy());
        let third = places.take(from(2));
        assert_eq!(cut(&[&other, &first, &second, &third]), [false, false, true, false]);
        assert!(!third.kept);
    }

    #[test]
    fn the_longest_idle_makes_room() {
        let places = Connections::new(LIMITS);
        let held = [1, 2, 3, 4].map(|last| places.take(from(last)));
        let _answering = held[0].busy();
        let next = places.take(from(5));
        assert_eq!(cut(&held.each_ref()), [false, true, false, false]);
        assert!(!next.kept);
    }

    #[test]
    fn what_is_being_answered_is_not_cut() {
        let places = Connections::new(LIMITS);
        let held = [1, 1, 2, 3].map(|last| places.take(from(last)));
        let _answering = held.each_ref().map(Slot::busy);
        let probes = [places.take(from(1)), places.take(from(4)), places.take(from(4))];
        assert_eq!(cut(&held.each_ref()), [false; 4]);
        assert!(probes.iter().all(|place| place.kept));
        assert_eq!(cut(&probes.each_ref()), [true, false, false], "of those that are kept the oldest goes");
    }

    #[test]
    fn a_place_is_free_when_it_is_dropped() {
        let places = Connections::new(LIMITS);
        let [first, second] = [1, 1].map(|last| places.take(from(last)));
        drop(first);
        let third = places.take(from(1));
        assert_eq!(cut(&[&second, &third]), [false, false]);
    }

    #[test]
    fn an_ipv6_client_is_its_prefix() {
        let [one, same, other] =
            ["2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"].map(|text| client(text.parse().unwrap()));
        assert_eq!(one, same);
        assert_ne!(one, other);
        assert_eq!(client("::ffff:192.0.2.1".parse().unwrap()), from(1));
    }
}
