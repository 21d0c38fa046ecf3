//! What peers tell each other before the first packet, of any bytes: the texts of ibv_rc_pingpong
//! and perftest, tickets of shared memory, offers of snapshots.

use core::net::{Ipv4Addr, Ipv6Addr};

use crate::cable::Ticket;
use crate::out_of_band::gid;
use crate::out_of_band::perftest::PerftestAddress;
use crate::out_of_band::pingpong::PingpongAddress;
use crate::snapshot::Offer;
use crate::wire::psn::Psn;
use crate::wire::qpn::Qpn;

/// Reads an input as each of them. What is read says the same when it is told on.
///
/// # Panics
/// If it does not.
pub fn run_exchanges(bytes: &[u8]) {
    if let Some(address) = bytes.first_chunk().and_then(|text| PingpongAddress::parse(text).ok()) {
        assert_eq!(PingpongAddress::parse(&address.encode()), Ok(address));
    }
    if let Some(address) = bytes.first_chunk().and_then(|text| PerftestAddress::parse(text).ok()) {
        assert_eq!(PerftestAddress::parse(&address.encode()), Ok(address));
    }
    if let Some(ticket) = bytes.first_chunk() {
        assert_eq!(Ticket::parse(ticket).encode(), *ticket);
    }
    if let Ok(offer) = Offer::parse(bytes) {
        for table in &offer.tables {
            // No slot is beyond the end of all addresses.
            table.slot_address(table.slots.saturating_sub(1), offer.value_len);
        }
    }
}

/// A text of each kind.
pub fn exchange_seeds() -> Vec<Vec<u8>> {
    let (qpn, psn, gid): (_, _, Ipv6Addr) = (Qpn::new(17), Psn::new(0x2_1b19), gid(Ipv4Addr::new(10, 9, 0, 2)));
    let pingpong = PingpongAddress { lid: 0, qpn, psn, gid };
    let perftest = PerftestAddress { lid: 0, rd_atomics: 1, qpn, psn, rkey: 0x307, address: 0x5562, gid, srqn: 0 };
    let table = crate::snapshot::Table { address: 0x7f00_0000, rkey: 0x1200, slots: 8 };
    let offer = Offer { schema: 1, value_len: 48, tables: vec![table; 2] };
    vec![pingpong.encode().to_vec(), perftest.encode().to_vec(), offer.encode()]
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_seed_is_read_as_what_it_is() {
        let [pingpong, perftest, offer] = &exchange_seeds()[..] else { panic!("three kinds") };
        assert!(PingpongAddress::parse(pingpong[..].try_into().unwrap()).is_ok());
        assert!(PerftestAddress::parse(perftest[..].try_into().unwrap()).is_ok());
        assert_eq!(Offer::parse(offer).map(|offer| offer.tables.len()), Ok(2));
    }

    proptest! {
        #[test]
        fn damaged_texts_are_refused_or_say_what_they_say(
            kind in 0..3_usize,
            damage in vec((any::<usize>(), any::<u8>()), 0..4),
            len in any::<usize>(),
        ) {
            let mut bytes = exchange_seeds().swap_remove(kind);
            for (at, byte) in damage {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(len % 200);
            run_exchanges(&bytes);
        }

        #[test]
        fn any_bytes_are_refused_or_say_what_they_say(bytes in vec(any::<u8>(), 0..200)) {
            run_exchanges(&bytes);
        }
    }
}
