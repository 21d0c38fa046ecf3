use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn demux(locals: usize, connections: usize, shared_subscribers: usize) -> Demux {
    Demux::new(DemuxCapacity { locals, connections, shared_subscribers }, HashSeed::new(1, 2))
}

fn end(address: [u8; 4], port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address.into(), port)
}

fn flow(local: SocketAddrV4) -> Flow {
    Flow { local, remote: end([10, 0, 0, 9], 9000) }
}

fn plain(consumer: u32) -> Subscriber {
    Subscriber { consumer: ConsumerId(consumer), filter: FilterId::ANY }
}

/// The consumers that a datagram of `flow` reaches, in order.
fn reached(demux: &Demux, flow: Flow) -> Vec<u32> {
    let found = demux.lookup(flow);
    if let Some(consumer) = demux.only_consumer(flow.local) {
        assert_eq!(found, DemuxMatch::One(plain(consumer.0)), "the short answer is the whole answer, or none");
    }
    match found {
        DemuxMatch::None => vec![],
        DemuxMatch::One(one) => vec![one.consumer.0],
        DemuxMatch::Many(mut cursor) => {
            let all: Vec<_> = core::iter::from_fn(|| demux.next(&mut cursor)).map(|s| s.consumer.0).collect();
            assert_eq!(all.len(), cursor.len());
            all
        }
    }
}

const GROUP: [u8; 4] = [239, 1, 1, 1];
const HOST: [u8; 4] = [10, 0, 0, 1];
const ANY: [u8; 4] = [0, 0, 0, 0];

#[test]
fn zero_address_and_zero_port_of_a_packet_find_nobody() {
    let demux = demux(4, 4, 4);
    let zero = end(ANY, 0);
    assert_eq!(demux.lookup(Flow { local: zero, remote: zero }), DemuxMatch::None);
}

#[test]
fn flow_of_zeros_was_never_connected() {
    let zero = end(ANY, 0);
    let mut demux = demux(1, 1, 1);
    assert_eq!(demux.disconnect(Flow { local: zero, remote: zero }), None);
    assert_eq!(demux.connections(), 0);
}

#[test]
fn port_zero_is_refused() {
    assert_eq!(demux(1, 1, 1).bind(end(HOST, 0), plain(1)), Err(DemuxError::NoPort));
    assert_eq!(demux(1, 1, 1).connect(flow(end(HOST, 0)), ConsumerId(1)), Err(DemuxError::NoPort));
}

#[test]
fn full_tables_refuse_and_change_nothing() {
    let mut demux = demux(1, 1, 1);
    demux.bind(end(HOST, 1), plain(1)).unwrap();
    assert_eq!(demux.bind(end(HOST, 2), plain(2)), Err(DemuxError::Full));
    // Two subscribers need two places in the list.
    assert_eq!(demux.bind(end(HOST, 1), plain(2)), Err(DemuxError::Full));
    assert_eq!(demux.connect(flow(end(HOST, 2)), ConsumerId(2)), Err(DemuxError::Full));
    assert_eq!(reached(&demux, flow(end(HOST, 1))), [1]);
    assert_eq!(demux.connections(), 0);
}

#[test]
fn same_subscriber_twice_is_refused_alone_and_in_a_list() {
    let mut demux = demux(4, 4, 4);
    let local = end(GROUP, 5000);
    demux.bind(local, plain(1)).unwrap();
    assert_eq!(demux.bind(local, plain(1)), Err(DemuxError::Duplicate));
    demux.bind(local, plain(2)).unwrap();
    assert_eq!(demux.bind(local, plain(2)), Err(DemuxError::Duplicate));
    assert_eq!(reached(&demux, flow(local)), [1, 2]);
}

#[test]
fn unbinding_who_is_not_there_is_false() {
    let mut demux = demux(4, 4, 4);
    let local = end(GROUP, 5000);
    assert!(!demux.unbind(local, plain(1)));
    demux.bind(local, plain(1)).unwrap();
    assert!(!demux.unbind(local, plain(2)));
    demux.bind(local, plain(2)).unwrap();
    assert!(!demux.unbind(local, plain(3)));
    assert!(demux.unbind(local, plain(1)) && demux.unbind(local, plain(2)));
    assert_eq!((demux.lookup(flow(local)), demux.locals()), (DemuxMatch::None, 0));
}

#[test]
fn group_that_nobody_joined_does_not_fall_to_the_wildcard() {
    let mut demux = demux(4, 4, 4);
    demux.bind(end(ANY, 5000), plain(1)).unwrap();
    assert_eq!(reached(&demux, flow(end(GROUP, 5000))), [0; 0]);
    assert_eq!(reached(&demux, flow(end(HOST, 5000))), [1]);
}

#[test]
fn exact_bind_goes_before_the_wildcard() {
    let mut demux = demux(4, 4, 4);
    demux.bind(end(ANY, 5000), plain(1)).unwrap();
    demux.bind(end(ANY, 5000), plain(2)).unwrap();
    demux.bind(end(HOST, 5000), plain(3)).unwrap();
    assert_eq!(reached(&demux, flow(end(HOST, 5000))), [3]);
    assert_eq!(reached(&demux, flow(end([10, 0, 0, 2], 5000))), [1, 2]);
    assert_eq!(reached(&demux, flow(end(HOST, 5001))), [0; 0]);
}

#[test]
fn connected_flow_takes_its_datagrams_before_those_bound() {
    let mut demux = demux(4, 4, 4);
    let local = end(HOST, 5000);
    demux.bind(local, plain(1)).unwrap();
    demux.connect(flow(local), ConsumerId(2)).unwrap();
    assert_eq!(reached(&demux, flow(local)), [2]);
    assert_eq!(reached(&demux, Flow { local, remote: end([10, 0, 0, 8], 9000) }), [1]);
    assert_eq!(demux.connect(flow(local), ConsumerId(3)), Err(DemuxError::Duplicate));
    assert_eq!(demux.disconnect(flow(local)), Some(ConsumerId(2)));
    assert_eq!(demux.disconnect(flow(local)), None);
    assert_eq!(reached(&demux, flow(local)), [1]);
}

#[test]
fn unknown_peer_at_a_connected_port_reaches_the_wildcard_or_none() {
    let mut demux = demux(4, 4, 4);
    let local = end(HOST, 5000);
    let stranger = Flow { local, remote: end([10, 0, 0, 8], 1) };
    demux.connect(flow(local), ConsumerId(2)).unwrap();
    assert_eq!(demux.lookup(stranger), DemuxMatch::None);
    demux.bind(end(ANY, 5000), plain(7)).unwrap();
    assert_eq!(reached(&demux, stranger), [7]);
    demux.disconnect(flow(local)).unwrap();
    assert_eq!(demux.locals(), 1, "the entry of the local end went with its last connection");
}

#[test]
fn connection_of_a_group_is_refused() {
    for local in [GROUP, ANY, [255; 4]] {
        assert_eq!(demux(4, 4, 4).connect(flow(end(local, 1)), ConsumerId(1)), Err(DemuxError::LocalNotUnicast));
    }
}

/// Three subscribers; after the first was served, calls `change`; returns those that are served
/// next.
fn after_first(change: impl FnOnce(&mut Demux, SocketAddrV4)) -> Vec<u32> {
    let mut demux = demux(4, 4, 8);
    let local = end(GROUP, 5000);
    for consumer in 1..=3 {
        demux.bind(local, plain(consumer)).unwrap();
    }
    let DemuxMatch::Many(mut cursor) = demux.lookup(flow(local)) else { panic!("three share it") };
    assert_eq!(demux.next(&mut cursor), Some(plain(1)));
    change(&mut demux, local);
    core::iter::from_fn(|| demux.next(&mut cursor)).map(|s| s.consumer.0).collect()
}

#[test]
fn change_during_a_fan_out_neither_repeats_nor_skips_a_subscriber() {
    assert_eq!(after_first(|_, _| {}), [2, 3]);
    assert_eq!(after_first(|demux, local| assert!(demux.unbind(local, plain(1)))), [2, 3]);
    assert_eq!(after_first(|demux, local| assert!(demux.unbind(local, plain(2)))), [3]);
    assert_eq!(after_first(|demux, local| demux.bind(local, plain(4)).unwrap()), [2, 3]);
    let replace_all = |demux: &mut Demux, local| {
        for consumer in 1..=3 {
            assert!(demux.unbind(local, plain(consumer)));
        }
        demux.bind(local, plain(4)).unwrap();
        demux.bind(local, plain(5)).unwrap();
    };
    assert_eq!(after_first(replace_all), [0; 0]);
}

#[test]
fn a_hundred_thousand_flows_are_all_found() {
    let mut demux = demux(100_000, 0, 0);
    let local = |idx: u32| SocketAddrV4::new(Ipv4Addr::from_bits(0xef00_0000 + idx / 4), 5000 + (idx % 4) as u16);
    for idx in 0..100_000 {
        demux.bind(local(idx), plain(idx)).unwrap();
    }
    for idx in 0..100_000 {
        assert_eq!(demux.lookup(flow(local(idx))), DemuxMatch::One(plain(idx)));
    }
}

#[test]
fn capacity_states_the_bytes() {
    let capacity = DemuxCapacity { locals: 1000, connections: 0, shared_subscribers: 0 };
    // 1024 buckets for 1000 groups, the smallest table of flows, 1000 lists.
    assert_eq!(capacity.bytes(), 1024 * 64 + 2 * 64 + 1000 * 16);
}

/// The specified behavior, in code that a reader can check.
#[derive(Default)]
struct Model {
    bound: HashMap<SocketAddrV4, Vec<u32>>,
    connected: HashMap<Flow, u32>,
}

impl Model {
    fn reached(&self, flow: Flow) -> Vec<u32> {
        if let Some(consumer) = self.connected.get(&flow) {
            return vec![*consumer];
        }
        let any = end(ANY, flow.local.port());
        let wildcard = || (!flow.local.ip().is_multicast()).then(|| self.bound.get(&any)).flatten();
        self.bound.get(&flow.local).or_else(wildcard).cloned().unwrap_or_default()
    }
}

proptest! {
    #[test]
    fn demux_agrees_with_a_hash_map(changes in prop::collection::vec((0u8..4, 0usize..4, 1u16..3, 0u32..4), 1..300)) {
        let addresses = [ANY, HOST, [10, 0, 0, 2], GROUP];
        let remote = |consumer: u32| end([10, 9, 9, 9], consumer as u16);
        let mut demux = demux(16, 16, 64);
        let mut model = Model::default();
        for (change, address, port, consumer) in changes {
            let local = end(addresses[address], port);
            let flow = Flow { local, remote: remote(consumer) };
            let subscribers = model.bound.entry(local).or_default();
            match change {
                0 => if demux.bind(local, plain(consumer)).is_ok() { subscribers.push(consumer) },
                1 => {
                    let there = subscribers.contains(&consumer);
                    prop_assert_eq!(demux.unbind(local, plain(consumer)), there);
                    subscribers.retain(|other| *other != consumer);
                }
                2 => if demux.connect(flow, ConsumerId(consumer)).is_ok() { model.connected.insert(flow, consumer); },
                _ => prop_assert_eq!(demux.disconnect(flow).map(|c| c.0), model.connected.remove(&flow)),
            }
            model.bound.retain(|_, subscribers| !subscribers.is_empty());
            for address in addresses { for port in 1..3 { for consumer in 0..4 {
                let flow = Flow { local: end(address, port), remote: remote(consumer) };
                prop_assert_eq!(reached(&demux, flow), model.reached(flow));
            }}}
        }
        for (local, subscribers) in model.bound { for consumer in subscribers {
            prop_assert!(demux.unbind(local, plain(consumer)));
        }}
        for flow in model.connected.into_keys() { prop_assert!(demux.disconnect(flow).is_some()); }
        prop_assert_eq!((demux.locals(), demux.nodes.len(), demux.lists.len()), (0, 0, 0));
    }
}
