//! Addresses of 198.18.0.0/15 that stand for names within one session. Pure.
//!
//! Addresses are given out in sequence. A name keeps its address until [`MAX_NAMES`] younger names were looked up; a
//! connection to an address that stands for no name any more is refused. So ten thousand names cost a bounded table.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use crate::allowlist::HostName;

/// Names that have an address at the same time.
pub const MAX_NAMES: usize = 8192;

const NETWORK: u32 = Ipv4Addr::new(198, 18, 0, 0).to_bits();
/// Number of addresses in a /15.
const ADDRESSES: u32 = 1 << 17;

/// True for an address that can stand for a name.
pub fn is_of_gate(address: Ipv4Addr) -> bool {
    address.to_bits() & !(ADDRESSES - 1) == NETWORK
}

/// The names that have an address, oldest first.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<HostName, u32>,
    by_age: VecDeque<HostName>,
    /// Number of the oldest name. Numbers count up without end; an address is a number modulo [`ADDRESSES`].
    first: u32,
}

impl Names {
    /// The address that stands for a name, given out now if the name has none.
    pub fn address(&mut self, name: &HostName) -> Ipv4Addr {
        if let Some(number) = self.numbers.get(name) {
            return address_of(*number);
        }
        if self.by_age.len() == MAX_NAMES
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.numbers.remove(&oldest);
            self.first = self.first.wrapping_add(1);
        }
        let number = self.first.wrapping_add(self.by_age.len() as u32);
        self.by_age.push_back(name.clone());
        self.numbers.insert(name.clone(), number);
        address_of(number)
    }

    /// The name for which an address stands.
    pub fn name(&self, address: Ipv4Addr) -> Option<&HostName> {
        if !is_of_gate(address) {
            return None;
        }
        let offset = (address.to_bits() - NETWORK).wrapping_sub(self.first) % ADDRESSES;
        self.by_age.get(offset as usize)
    }
}

fn address_of(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(NETWORK + number % ADDRESSES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> HostName {
        HostName::parse(&format!("n{number}.example.org")).expect("a host name")
    }

    #[test]
    fn g114_each_name_has_its_own_address_and_the_table_is_bounded() {
        // Addresses wrap around after a few names, and the table is full before the last.
        let (start, count) = (ADDRESSES - 5, MAX_NAMES as u32 + 20);
        let mut names = Names {
            first: start,
            ..Names::default()
        };
        for number in 0..count {
            let address = names.address(&name(number));
            assert!(is_of_gate(address), "{address}");
            assert_eq!(names.address(&name(number)), address);
            assert_eq!(names.name(address), Some(&name(number)));
        }
        assert_eq!(names.by_age.len(), MAX_NAMES);
        assert_eq!(names.numbers.len(), MAX_NAMES);
        let oldest = names.address(&name(20));
        assert_eq!(
            names.name(oldest),
            Some(&name(20)),
            "the oldest that is kept"
        );
        let dropped = address_of(start + 19);
        assert_eq!(names.name(dropped), None, "one that was dropped");
        assert_eq!(names.name(Ipv4Addr::new(198, 20, 0, 0)), None);
        assert_eq!(names.name(Ipv4Addr::LOCALHOST), None);
    }
}
