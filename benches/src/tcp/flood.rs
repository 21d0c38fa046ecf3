//! The cost of a flood of SYNs from random sources for an established connection.
//!
//! The wire of the memory device has no rate of its own: it delivers as many frames as the worker
//! takes, a burst a turn. So "line rate" means that each burst is full. Half of each burst is full
//! segments of a bulk transfer. The other half is empty, or as many SYNs, each from another source,
//! all to the connection's own listener. The figure compares goodput: bytes to the server's app
//! over the time of both ends. Dropped SYNs take time too: a SYN may cost a quarter of a segment,
//! the segment's sender included. Putting SYNs onto the wire is not counted.
//!
//! The listener has the default rate of SYNs, and no room for another handshake. The burst of that
//! rate is used up before the measurement; the rate itself continues, and each SYN within it is
//! answered by a cookie.

use core::net::Ipv4Addr;
use std::time;

use wirepath::device::{Offload, TxQueue};
use wirepath::pipeline::tcp::ListenOptions;
use wirepath::wire::EtherType;
use wirepath::wire::ethernet::{EthernetFields, EthernetHeader};
use wirepath::wire::tcp::{TcpFields, TcpFlags, TcpOption, TcpOptionList};
use wirepath_tests::frames::segment;
use zerocopy::IntoBytes;

use super::pair::{PairConfig, Role, SERVER, TcpPair, mac};
use super::{Checksums, SEGMENT_LEN};

/// Half of a burst of 32 frames: this many segments of the connection, and as many SYNs.
pub const HALF: usize = 16;
/// Sources of SYNs, which repeat.
const FORGED_SOURCES: usize = 4096;

/// A connection, and a flood of SYNs on its wire.
pub struct Flood {
    pair: TcpPair,
    syns: Vec<Vec<u8>>,
    next: usize,
    data: Vec<u8>,
}

impl Flood {
    /// Connected, and the listener's burst of SYNs used up.
    pub fn new() -> Self {
        let pair = TcpPair::new(PairConfig::one(Checksums::On, Role::Sink));
        let mut flood = Self { pair, syns: syns(), next: 0, data: vec![7; HALF * SEGMENT_LEN] };
        // The congestion window opens.
        (0..64).for_each(|_| flood.transfer());
        let syns_max = ListenOptions::default().syns_per_second.expect("a listener has a limit") as usize;
        // More than the limit's burst, because a part of it is refilled meanwhile.
        for _ in 0..syns_max.div_ceil(HALF) * 17 / 16 {
            flood.flood();
            flood.pair.turn_server();
            flood.pair.turn_client();
        }
        // The wire is empty: a turn takes only the frames that were sent for it.
        while flood.pair.turn_server() > 0 || flood.pair.turn_client() > 0 {}
        flood
    }

    /// Gbit/s to the server's app, over so many bursts.
    pub fn time(&mut self, bursts: usize, is_flooded: bool) -> f64 {
        let (mut spent, before) = (time::Duration::ZERO, self.pair.server.app().received);
        for _ in 0..bursts {
            if is_flooded {
                self.flood();
            }
            let start = time::Instant::now();
            self.transfer();
            spent += start.elapsed();
        }
        let bytes = self.pair.server.app().received - before;
        assert_eq!(bytes, bursts * HALF * SEGMENT_LEN, "each burst brings all that was sent");
        8.0 * bytes as f64 / spent.as_nanos() as f64
    }

    /// Measured: half a burst of segments from app to app, and its acknowledgment back.
    #[inline(never)]
    pub fn transfer(&mut self) {
        let Self { pair, data, .. } = self;
        let now = pair.now();
        let sent = pair.client.with_app(now, |app, cx| cx.tcp().send(app.connections[0], data));
        assert_eq!(sent, Ok(data.len()), "what was sent before is acknowledged");
        pair.turn_server();
        pair.turn_client();
    }

    /// Half a burst of SYNs onto the wire.
    pub fn flood(&mut self) {
        for _ in 0..HALF {
            let syn =
                self.pair.client.pool().alloc_copy(&self.syns[self.next]).expect("posted buffers come home at once");
            self.next = (self.next + 1) % FORGED_SOURCES;
            let posted = self.pair.client.tx_mut().post(syn, Offload::NONE);
            assert!(posted.is_ok(), "a burst is less than the wire has room for");
        }
    }
}

impl Default for Flood {
    fn default() -> Self {
        Self::new()
    }
}

/// A SYN of each source, with the options of Linux.
fn syns() -> Vec<Vec<u8>> {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..FORGED_SOURCES).map(|_| syn(forged_source(random()), random() as u16 | 1024, random())).collect()
}

/// A random address in 11.0.0.0/8.
fn forged_source(bits: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(11 << 24 | bits & 0xff_ffff)
}

fn syn(source: Ipv4Addr, source_port: u16, seq: u32) -> Vec<u8> {
    let mut options = TcpOptionList::EMPTY;
    for option in [TcpOption::MaximumSegmentSize(1460), TcpOption::SackPermitted, TcpOption::WindowScale(7)] {
        options.push(option).expect("three options fit");
    }
    let fields = TcpFields {
        source_port,
        destination_port: SERVER.port(),
        seq,
        ack: 0,
        flags: TcpFlags::SYN,
        window: 64_240,
        urgent_pointer: 0,
    };
    let link = EthernetHeader::new(EthernetFields { dst: mac(2), src: mac(1), ethertype: EtherType::IPV4 });
    [link.as_bytes(), &segment([source, *SERVER.ip()], &fields, options.as_bytes())].concat()
}
