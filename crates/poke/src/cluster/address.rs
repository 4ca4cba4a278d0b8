//! The address that a node advertises.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address at which nobody can be reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cluster: the address must be the one at which other nodes reach this one: an IP address or a name, with or without a \
     port (10.0.0.5:7400); and \"bind\", if given, an IP address with a port"
)]
pub struct InvalidAddress;

/// A name or an IP address, and a port; 0 is any that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
}

impl Address {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let (host, port) = match text.parse::<SocketAddr>() {
            Ok(address) => (address.ip().to_string(), address.port()),
            Err(_) => match text
                .trim_start_matches('[')
                .trim_end_matches(']')
                .parse::<IpAddr>()
            {
                Ok(ip) => (ip.to_string(), 0),
                Err(_) => match text.rsplit_once(':') {
                    Some((host, port)) => (host.to_owned(), port.parse().map_err(|_| InvalidAddress)?),
                    None => (text.to_owned(), 0),
                },
            },
        };
        let reachable = match host.parse::<IpAddr>() {
            Ok(ip) => !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST),
            Err(_) => is_name(&host),
        };
        if reachable {
            Ok(Self { host, port })
        } else {
            Err(InvalidAddress)
        }
    }

    /// Its first IP address: others are told this one, so a name need not mean the same to them.
    pub(super) async fn look_up(&self) -> io::Result<SocketAddr> {
        let mut found = tokio::net::lookup_host((self.host.as_str(), self.port)).await?;
        found
            .next()
            .ok_or_else(|| io::Error::other(format!("{} has no address", self.host)))
    }

    /// All addresses of this machine, of the same kind and with the same port.
    pub(super) fn any(advertised: SocketAddr) -> SocketAddr {
        match advertised {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, advertised.port()).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, advertised.port()).into(),
        }
    }
}

fn is_name(host: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.len() <= 253 && host.trim_end_matches('.').split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_one_machine_or_is_refused() {
        for (text, host, port) in [
            ("10.0.0.5", "10.0.0.5", 0),
            ("10.0.0.5:7400", "10.0.0.5", 7400),
            ("2001:db8::1", "2001:db8::1", 0),
            ("[2001:db8::1]:7400", "2001:db8::1", 7400),
            ("[2001:db8::1]", "2001:db8::1", 0),
            ("worker-3.internal:7400", "worker-3.internal", 7400),
            ("localhost", "localhost", 0),
        ] {
            let host = host.to_owned();
            assert_eq!(Address::parse(text), Ok(Address { host, port }), "{text}");
        }
        for text in [
            "",
            ":7400",
            "0.0.0.0:7400",
            "[::]:7400",
            "224.0.0.1:7400",
            "255.255.255.255",
            "a b:1",
            "a..b:1",
            "host:x",
            "host:70000",
            "user:secret@host:1",
            "host/path",
        ] {
            assert_eq!(Address::parse(text), Err(InvalidAddress), "{text}");
        }
    }
}
