#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::receive::wq::*;
use crate::hca::testing::PlainMemory;
use crate::hca::{Config, CqRequest, RqRing, RssRequest};

struct World {
    hca: Hca,
    request: WqRequest,
}

fn world() -> World {
    let memory = PlainMemory::new(0x10_0000, 1 << 16);
    let mut hca = Hca::new(Config::default());
    let cq = CqRequest {
        entries: 16,
        ring: memory.reserve(16 * 64, 64),
        doorbell: memory.reserve(8, 8),
        entry_len: 64,
        ..CqRequest::default()
    };
    let ring = RqRing {
        ring: memory.reserve(16 * 16, 64),
        wqe_count: 16,
        wqe_shift: 4,
        doorbell: memory.reserve(4, 4),
        cq: hca.create_cq(&cq, &memory).unwrap().handle,
        striding: None,
    };
    let pd = hca.alloc_pd();
    let request = WqRequest { pd, ring, user_index: 1, user_handle: 2, wr_max: 16, sge_max: 1, create_flags: 0 };
    World { hca, request }
}

fn rss(table: u32) -> RssRequest {
    RssRequest { table, fields: 0x03, function: 1, key: vec![1; 40] }
}

fn go(state: WqState) -> WqChange {
    WqChange { state: Some(state), ..WqChange::default() }
}

const EINVAL: Errno = Errno(libc::EINVAL);
const EBUSY: Errno = Errno(libc::EBUSY);

#[test]
fn users_go_before_what_they_use() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap().handle;
    let table = hca.create_table(&[wq, wq]).unwrap();
    let tir = hca.add_tir(&rss(table)).unwrap();
    assert_eq!(hca.destroy_table(table), Err(EBUSY));
    hca.remove_tir(tir);
    assert_eq!(hca.destroy_wq(wq), Err(EBUSY));
    assert_eq!(hca.destroy_table(table), Ok(()));
    assert_eq!(hca.destroy_cq(request.ring.cq), Err(EBUSY));
    assert_eq!(hca.dealloc_pd(request.pd), Err(EBUSY));
    assert_eq!(hca.destroy_wq(wq), Ok(0));
    assert_eq!((hca.destroy_wq(wq), hca.destroy_table(table)), (Err(EINVAL), Err(EINVAL)), "twice");
    assert!(hca.destroy_cq(request.ring.cq).is_ok());
    assert_eq!(hca.dealloc_pd(request.pd), Ok(()));
}

#[test]
fn what_a_refused_wq_held_is_given_back() {
    let World { mut hca, request } = world();
    let mut wrong = request;
    wrong.ring.cq = 99;
    assert_eq!(hca.create_wq(&wrong), Err(EINVAL));
    wrong = WqRequest { pd: 99, ..request };
    assert_eq!(hca.create_wq(&wrong), Err(EINVAL));
    assert_eq!(hca.dealloc_pd(request.pd), Ok(()));
    assert!(hca.destroy_cq(request.ring.cq).is_ok());
}

#[test]
fn a_table_is_of_known_wqs_and_as_long_as_a_power_of_two() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap().handle;
    for wqs in [vec![], vec![wq; 3], vec![wq; 1024], vec![wq, 99]] {
        assert_eq!(hca.create_table(&wqs), Err(EINVAL), "{} WQs", wqs.len());
    }
    assert_eq!(hca.destroy_wq(wq), Ok(0), "a refused table holds nothing");
}

#[test]
fn a_tir_is_refused_for_what_it_cannot_do() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap().handle;
    let (one, two) = (hca.create_table(&[wq]).unwrap(), hca.create_table(&[wq, wq]).unwrap());
    let mut check = |request: RssRequest, expected| assert_eq!(hca.add_tir(&request).err(), expected, "{request:?}");
    check(RssRequest { function: 2, ..rss(one) }, Some(Errno(libc::EOPNOTSUPP)));
    check(RssRequest { key: vec![1; 39], ..rss(one) }, Some(EINVAL));
    check(RssRequest { fields: 0x30 | 0xc0, ..rss(one) }, Some(EINVAL));
    check(rss(99), Some(EINVAL));
    check(RssRequest { fields: 0, ..rss(two) }, Some(EINVAL));
    check(RssRequest { fields: 0, ..rss(one) }, None);
    assert_eq!(hca.destroy_table(two), Ok(()), "a refused one holds nothing");
}

#[test]
fn only_some_steps_are_there() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap().handle;
    assert_eq!(hca.modify_wq(wq, &go(WqState::Error)), Err(EINVAL), "from reset");
    assert_eq!(hca.modify_wq(wq, &go(WqState::Ready)), Ok(()));
    assert_eq!(hca.modify_wq(wq, &go(WqState::Error)), Ok(()));
    assert_eq!(hca.modify_wq(wq, &go(WqState::Ready)), Err(EINVAL), "out of an error");
    assert_eq!(hca.modify_wq(wq, &go(WqState::Reset)), Ok(()));
    let wrong_belief = WqChange { current_state: Some(WqState::Ready), ..go(WqState::Ready) };
    assert_eq!(hca.modify_wq(wq, &wrong_belief), Err(EINVAL));
    assert_eq!(hca.modify_wq(99, &go(WqState::Ready)), Err(EINVAL));
}

#[test]
fn a_client_that_missed_an_error_may_still_reset() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap();
    for state in [WqState::Ready, WqState::Error] {
        hca.modify_wq(wq.handle, &go(state)).unwrap();
    }
    let reset = WqChange { current_state: Some(WqState::Ready), ..go(WqState::Reset) };
    assert_eq!(hca.modify_wq(wq.handle, &reset), Ok(()));
}

#[test]
fn stripping_is_switched_without_a_step() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap();
    hca.modify_wq(wq.handle, &WqChange { vlan_stripping: Some(true), ..WqChange::default() }).unwrap();
    assert!(hca.rqs.get(wq.number).unwrap().strips_vlan);
    assert_eq!(hca.rqs.get(wq.number).unwrap().state, WqState::Reset);
}

#[test]
fn the_events_of_a_destroyed_wq_are_those_that_were_taken() {
    let World { mut hca, request } = world();
    let wq = hca.create_wq(&request).unwrap();
    for _ in 0..2 {
        let event = hca.wqs.fatal_event(wq.number).unwrap();
        hca.events.push_back(event);
    }
    assert_eq!(hca.take_event().map(|event| (event.kind, event.element)), Some((EventKind::WqFatal, 2)));
    assert_eq!(hca.destroy_wq(wq.handle), Ok(1));
    assert_eq!(hca.take_event(), None);
}
