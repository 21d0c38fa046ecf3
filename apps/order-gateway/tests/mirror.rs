//! An order journal that is mirrored by RDMA WRITE, in virtual time: wherever the wire is cut and
//! whatever it loses, the mirror is a beginning of the journal with every order that left.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

use market::{Price, Side, Symbol};
use order_entry::journal::{Intent, Journal, Records, Stamp};
use order_entry::orders::Instructions;
use order_entry::risk::{InstrumentIdx, StrategyIdx};
use order_gateway::standby::mirror_address;
use rdma::mirror::MirrorOptions;
use rdma::testing::Mirrored;

const LEN: usize = 1 << 14;
const OPTIONS: MirrorOptions = MirrorOptions { window: 16, staging: 2_048, signal_every: 4 };

fn order(id: u64) -> Intent {
    let (symbol, instrument, side) = (Symbol(*b"ZIEXT   "), InstrumentIdx(0), Side::Buy);
    Intent::New {
        id,
        symbol,
        instrument,
        side,
        is_short: false,
        qty: 100,
        price: Price(1_000_000),
        strategy: StrategyIdx(0),
        instructions: Instructions::PLAIN,
    }
}

fn journal() -> Journal<Vec<u8>> {
    Journal::create(vec![0; LEN], 5, 0, 0).unwrap()
}

/// Orders in a journal, up to its first bad record; none in memory without a file header.
fn orders(memory: &[u8]) -> u64 {
    Records::new(memory).map_or(0, |records| records.count() as u64)
}

/// Trades until `turns` are over or the wire is cut. An order leaves when its record is
/// acknowledged. Returns the journal and the orders that left.
fn trade(mirrored: &mut Mirrored, turns: u64, mut keep: impl FnMut() -> bool) -> (Journal<Vec<u8>>, u64) {
    let (mut journal, mut ends, mut left) = (journal(), vec![64], 0);
    for id in 1..=turns {
        if journal.append_intent(&order(id), Stamp::default()).is_ok() {
            ends.push(journal.end());
        }
        mirrored.post(journal.written(0));
        mirrored.carry(|_| keep());
        let acknowledged = mirrored.mirror.acknowledged();
        left = ends[1..].iter().filter(|end| **end <= acknowledged).count() as u64;
    }
    (journal, left)
}

fn compare(mirrored: &Mirrored, journal: &Journal<Vec<u8>>, left: u64) -> u64 {
    let copy = mirrored.bytes();
    let found = orders(&copy);
    assert!(found >= left, "{left} orders left, and the mirror has {found}");
    let mut records = Records::new(&copy).map(|mut records| {
        records.by_ref().for_each(drop);
        records.end()
    });
    let end = records.as_mut().map_or(0, |end| *end);
    assert_eq!(copy[..end], journal.written(0)[..end], "the mirror is no beginning of the journal");
    found
}

#[test]
fn mirror_has_every_order_that_left_wherever_the_wire_is_cut() {
    let mut found = std::collections::BTreeSet::new();
    for cut in 0..120 {
        let mut mirrored = Mirrored::new(&OPTIONS, LEN);
        let mut carried = 0;
        let (journal, left) = trade(&mut mirrored, 40, || {
            carried += 1;
            carried <= cut
        });
        found.insert(compare(&mirrored, &journal, left));
    }
    assert!(found.contains(&0) && found.contains(&40) && found.len() > 30, "{found:?}");
}

#[test]
fn mirror_has_every_order_that_left_over_a_lossy_wire_that_is_cut() {
    let mut much = 0;
    for seed in 0..100_u64 {
        let mut mirrored = Mirrored::new(&OPTIONS, LEN);
        let (mut random, mut carried) = (seed * 2 + 1, 0);
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let cut = next() % 200;
        let mut keep = || {
            carried += 1;
            carried <= cut && !next().is_multiple_of(9)
        };
        let (journal, mut left) = trade(&mut mirrored, 40, &mut keep);
        // What is sent again.
        for _ in 0..4 {
            mirrored.tick();
            mirrored.carry(|_| keep());
        }
        left = left.max((mirrored.mirror.acknowledged().saturating_sub(64) / 80) as u64);
        much += u64::from(compare(&mirrored, &journal, left) > 10);
    }
    assert!(much > 30, "{much} mirrors had more than ten orders");
}

#[test]
fn mirror_that_is_cut_at_any_byte_ends_at_its_last_whole_record() {
    let mut journal = journal();
    let ends: Vec<usize> = (1..=20)
        .map(|id| {
            journal.append_intent(&order(id), Stamp::default()).unwrap();
            journal.end()
        })
        .collect();
    for cut in 0..=journal.end() {
        let mut copy = vec![0; LEN];
        copy[..cut].copy_from_slice(&journal.written(0)[..cut]);
        // A record may end with zeros, which are there before they arrive.
        let whole = ends.iter().filter(|end| copy[..**end] == journal.written(0)[..**end]).count() as u64;
        assert_eq!(orders(&copy), whole, "cut at {cut}");
    }
}

#[test]
fn address_of_a_mirror_has_a_port_of_its_own_or_the_usual_one() {
    assert_eq!(mirror_address("rdma://192.0.2.11:7").unwrap().to_string(), "192.0.2.11:7");
    assert_eq!(mirror_address("rdma://192.0.2.11").unwrap().to_string(), "192.0.2.11:9301");
    for wrong in ["192.0.2.11", "rdma://", "rdma://host:x", "tcp://192.0.2.11"] {
        assert!(mirror_address(wrong).unwrap_err().contains("rdma://192.0.2.11:9301"), "{wrong}");
    }
}
