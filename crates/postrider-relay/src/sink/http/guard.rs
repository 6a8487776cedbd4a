//! Keeps requests away from addresses that are not public: whoever chooses a webhook's URL must not reach what only this
//! machine can. Names are checked where they become addresses, so a name that changes its mind is checked each time it is
//! asked; addresses written in a URL are checked before the request. It never decides by how an address is spelled.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use crate::sink::SinkFailure;

/// The code of a request that was not made because of its address.
pub(super) const FORBIDDEN_ADDRESS: &str = "FORBIDDEN_ADDRESS";

/// What is not public among the addresses of version 4: RFC 6890 and its registry, multicast, what is reserved, and what a
/// platform answers itself. The metadata services of the others (169.254.169.254, 100.100.100.200, 192.0.0.192) are in these
/// networks.
const FORBIDDEN_V4: [(Ipv4Addr, u8); 19] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // The platform's own service in Azure: the address is public, what answers there is the machine's host.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Version 6: only global unicast, `2000::/3`, is public, and of that not these.
const GLOBAL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Protocol assignments with Teredo among them, documentation (old and new), AS112, and 6to4: the last can hide any address of
/// version 4, and no public service is reached through it any more.
const FORBIDDEN_V6: [(Ipv6Addr, u8); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Finds the addresses of a name. The system's resolver does unless another is given.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// The addresses of this name, the best first.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
pub(super) struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Lets through what is public and what is allowed; everything if it is off.
#[derive(Clone)]
pub(super) struct Guard {
    resolver: Arc<dyn Resolver>,
    on: bool,
    allow: Arc<[IpNet]>,
}

/// An address that a request must not go to.
#[derive(Debug, thiserror::Error)]
#[error("{host} is at {address}, which is not a public address; if it is meant, add its network to `allow`")]
pub(super) struct Forbidden {
    host: String,
    address: IpAddr,
}

impl Forbidden {
    /// May be retried: the operator opens the network or the name gets another address, and the message is as it was.
    pub(super) fn failure(&self) -> SinkFailure {
        SinkFailure::retryable(FORBIDDEN_ADDRESS, self.to_string())
    }
}

impl Guard {
    pub(super) fn new(resolver: Arc<dyn Resolver>, on: bool, allow: &[IpNet]) -> Self {
        Self { resolver, on, allow: allow.into() }
    }

    /// Checks an address that stands in the URL itself: no resolver will see it.
    pub(super) fn check(&self, url: &Url) -> Result<(), Forbidden> {
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) | None => return Ok(()),
        };
        if self.lets_through(address) { Ok(()) } else { Err(Forbidden { host: address.to_string(), address }) }
    }

    /// The addresses of a name that a request may go to. Never empty.
    pub(super) async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let mut addresses = self.resolver.resolve(host).await?;
        let first = addresses.first().copied().ok_or_else(|| io::Error::other(format!("{host} has no address")))?;
        addresses.retain(|address| self.lets_through(*address));
        if addresses.is_empty() {
            return Err(Forbidden { host: host.to_owned(), address: first }.into());
        }
        Ok(addresses)
    }

    fn lets_through(&self, address: IpAddr) -> bool {
        // `::ffff:10.1.2.3` is 10.1.2.3, on the wire and in the list.
        let address = address.to_canonical();
        !self.on || is_public(address) || self.allow.iter().any(|network| network.contains(&address))
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str()).await?;
            // Port 0 is replaced by that of the URL.
            Ok(Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// Whether anybody may be sent there. Addresses of version 6 that hold one of version 4 (mapped, compatible, NAT64) are
/// outside `2000::/3` or in the list, so none of them is.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !FORBIDDEN_V4.iter().any(|(network, length)| v4(*network, *length, address)),
        IpAddr::V6(address) => {
            v6(GLOBAL_V6.0, GLOBAL_V6.1, address)
                && !FORBIDDEN_V6.iter().any(|(network, length)| v6(*network, *length, address))
        }
    }
}

fn v4(network: Ipv4Addr, length: u8, address: Ipv4Addr) -> bool {
    Ipv4Net::new_assert(network, length).contains(&address)
}

fn v6(network: Ipv6Addr, length: u8, address: Ipv6Addr) -> bool {
    Ipv6Net::new_assert(network, length).contains(&address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_edges_of_every_range_are_where_they_should_be() {
        for (inside, outside) in [
            ("0.255.255.255", "1.0.0.0"),
            ("10.0.0.0", "9.255.255.255"),
            ("10.255.255.255", "11.0.0.0"),
            ("100.64.0.0", "100.63.255.255"),
            ("100.127.255.255", "100.128.0.0"),
            ("127.0.0.0", "126.255.255.255"),
            ("127.255.255.255", "128.0.0.0"),
            ("168.63.129.16", "168.63.129.15"),
            ("168.63.129.16", "168.63.129.17"),
            ("100.100.100.200", "192.31.197.0"),
            ("192.0.0.192", "192.52.194.0"),
            ("192.31.196.1", "192.31.195.255"),
            ("192.52.193.1", "192.52.192.255"),
            ("192.175.48.1", "192.175.47.255"),
            ("fd00:ec2::254", "2620:4f:8001::1"),
            ("fd20:ce::254", "2620:4f:7fff::1"),
            ("2620:4f:8000::1", "2620::1"),
            ("169.254.169.254", "169.253.255.255"),
            ("169.254.255.255", "169.255.0.0"),
            ("172.16.0.0", "172.15.255.255"),
            ("172.31.255.255", "172.32.0.0"),
            ("192.0.0.255", "192.0.1.0"),
            ("192.0.2.255", "192.0.3.0"),
            ("192.88.99.1", "192.88.98.255"),
            ("192.168.255.255", "192.169.0.0"),
            ("198.19.255.255", "198.20.0.0"),
            ("198.51.100.0", "198.51.99.255"),
            ("203.0.113.255", "203.0.114.0"),
            ("224.0.0.0", "223.255.255.255"),
            ("255.255.255.255", "8.8.8.8"),
            ("::", "2000::"),
            ("::1", "2600::1"),
            ("::7f00:1", "2a00::1"),
            ("64:ff9b::8.8.8.8", "2003::1"),
            ("64:ff9b:1::1", "2606:4700::1111"),
            ("100::1", "2001:200::1"),
            ("2001::1", "2400::1"),
            ("2001:db8:ffff::1", "2001:db9::1"),
            ("2002:7f00:1::1", "2001:4860:4860::8888"),
            ("3fff:fff::1", "3fff:1000::1"),
            ("fc00::1", "2800::1"),
            ("fdff::1", "2c0f::1"),
            ("fe80::1", "3ffe::1"),
            ("fec0::1", "2a01::1"),
            ("ff02::1", "2003:ffff::1"),
        ] {
            assert!(!is_public(address(inside).to_canonical()), "{inside}");
            assert!(is_public(address(outside)), "{outside}");
        }
    }

    #[test]
    fn a_mapped_address_is_the_address_that_it_maps() {
        let guard = Guard::new(Arc::new(SystemResolver), true, &["10.1.0.0/16".parse().expect("a network")]);
        assert!(guard.lets_through(address("::ffff:10.1.2.3")) && guard.lets_through(address("10.1.2.3")));
        assert!(!guard.lets_through(address("::ffff:10.2.0.1")) && !guard.lets_through(address("::ffff:127.0.0.1")));
        assert!(guard.lets_through(address("::ffff:8.8.8.8")));
        let off = Guard::new(Arc::new(SystemResolver), false, &[]);
        assert!(off.lets_through(address("127.0.0.1")));
    }
}
