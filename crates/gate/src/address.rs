//! Addresses that a sandbox must not reach through an allowed name. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Kind of an address that is not dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forbidden {
    /// Address of this or a neighbouring network: dialled only for names that are allowed to be private.
    Private,
    /// Loopback, link-local (with the metadata services of clouds), multicast, reserved: never dialled.
    Local,
}

/// The reason not to dial an address, if there is one. IPv6 forms that carry an IPv4 address are judged by that.
pub fn forbidden(address: IpAddr) -> Option<Forbidden> {
    match address {
        IpAddr::V4(address) => forbidden_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            // A translated address that is fine by itself still goes through a gateway of this network: only the
            // plain mapping, which the kernel dials as IPv4, may be used.
            Some(inner) if address.to_ipv4_mapped().is_some() => forbidden_v4(inner),
            Some(inner) => Some(forbidden_v4(inner).unwrap_or(Forbidden::Private)),
            None => forbidden_v6(address),
        },
    }
}

fn forbidden_v4(address: Ipv4Addr) -> Option<Forbidden> {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        // "This network", loopback, link-local, multicast and reserved with broadcast.
        (0 | 127 | 224..=255, _, _) | (169, 254, _) => Some(Forbidden::Local),
        // Metadata services of clouds that are not link-local.
        (168, 63, 129) | (192, 0, 0) => Some(Forbidden::Local),
        (10, _, _) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => {
            Some(Forbidden::Private)
        }
        // They stand for names only inside the sandbox. Outside, some local proxies answer look-ups with them.
        (198, 18 | 19, _) => Some(Forbidden::Private),
        _ => None,
    }
}

fn forbidden_v6(address: Ipv6Addr) -> Option<Forbidden> {
    let [first, ..] = address.segments();
    match first {
        // Unique local addresses; the metadata address of one cloud, fd00:ec2::254, is among them.
        0xfd00 if address.segments()[1] == 0x0ec2 => Some(Forbidden::Local),
        0xfc00..=0xfdff => Some(Forbidden::Private),
        // Global unicast.
        0x2000..=0x3fff => None,
        // Unspecified, loopback, link-local, site-local, multicast, discard and unassigned.
        _ => Some(Forbidden::Local),
    }
}

/// The IPv4 address within a mapped, compatible, NAT64, 6to4 or Teredo address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = address.octets();
    let at = |start: usize| {
        Ipv4Addr::new(
            octets[start],
            octets[start + 1],
            octets[start + 2],
            octets[start + 3],
        )
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, _, _] => Some(at(12)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => Some(at(12)),
        [0x64, 0xff9b, ..] => Some(at(12)),
        [0x2002, ..] => Some(at(2)),
        [0x2001, 0, ..] => Some(Ipv4Addr::from_bits(!at(12).to_bits())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g110_addresses_of_the_machine_and_its_networks_are_forbidden() {
        let judge = |text: &str| forbidden(text.parse().expect(text));
        for local in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "169.254.169.254",
            "169.254.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "192.0.0.192",
            "::",
            "::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "fd00:ec2::254",
            "100::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:80ff:fffe",
        ] {
            assert_eq!(judge(local), Some(Forbidden::Local), "{local}");
        }
        for private in [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "fc00::1",
            "fd12:3456::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::5db8:d822",
            "2002:a00:1::1",
            "2002:5db8:d822::1",
        ] {
            assert_eq!(judge(private), Some(Forbidden::Private), "{private}");
        }
        for public in [
            "93.184.216.34",
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:93.184.216.34",
        ] {
            assert_eq!(judge(public), None, "{public}");
        }
    }
}
