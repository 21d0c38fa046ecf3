//! The kernel's neighbors: which MAC address an IPv4 address has on an interface.

use std::fs;

use super::sys;

/// The MAC address of a neighbor, where the kernel knows it.
pub fn neighbor(interface: &str, address: [u8; 4]) -> Option<[u8; 6]> {
    parse_arp(&fs::read_to_string("/proc/net/arp").unwrap_or_default(), interface, address)
}

/// Lets the kernel ask for a neighbor: sends it a datagram to the discard port, which goes out as
/// soon as the answer is there. Errors leave it unknown.
pub fn ask_neighbor(interface: &str, address: [u8; 4]) {
    let _ = sys::send_datagram(interface, address, DISCARD_PORT);
}

/// RFC 863.
const DISCARD_PORT: u16 = 9;

/// ATF_COM of if_arp.h: the entry has an address.
const COMPLETE: u32 = 2;

/// Lines are: address, hardware type, flags, hardware address, mask, interface (net/ipv4/arp.c).
fn parse_arp(text: &str, interface: &str, address: [u8; 4]) -> Option<[u8; 6]> {
    let address = std::net::Ipv4Addr::from(address);
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ip, _, flags, mac, _, device] = words[..] else { return None };
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        let is_meant = device == interface && ip.parse() == Ok(address) && flags & COMPLETE != 0;
        let mac: crate::settings::Mac = mac.parse().ok()?;
        is_meant.then_some(mac.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbor_is_read_from_the_kernels_table() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.0.0.2         0x1         0x0         00:00:00:00:00:00     *        veth0\n\
                     10.0.0.3         0x1         0x6         02:00:00:00:5c:03     *        veth0\n\
                     10.0.0.2         0x1         0x2         02:00:00:00:5c:02     *        veth1\n";
        assert_eq!(parse_arp(table, "veth0", [10, 0, 0, 3]), Some([2, 0, 0, 0, 0x5c, 3]));
        assert_eq!(parse_arp(table, "veth1", [10, 0, 0, 2]), Some([2, 0, 0, 0, 0x5c, 2]));
        assert_eq!(parse_arp(table, "veth0", [10, 0, 0, 2]), None, "asked for, and not answered");
        assert_eq!(parse_arp(table, "veth0", [10, 0, 0, 4]), None);
    }
}
