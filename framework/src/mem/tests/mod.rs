mod model;

use std::sync::Arc;

use super::*;
use crate::time::UnixTime;

fn pool(buffers: usize) -> Pool {
    Pool::heap(buffers).unwrap()
}

/// An mbuf with these bytes.
fn packet(pool: &Pool, bytes: &[u8]) -> Mbuf {
    pool.alloc_copy(bytes).unwrap()
}

/// A chain of one buffer for each part.
fn chain(pool: &Pool, parts: &[&[u8]]) -> Mbuf {
    let mut rest: Option<Mbuf> = None;
    for part in parts.iter().rev() {
        let mut mbuf = packet(pool, part);
        if let Some(rest) = rest.take() {
            mbuf.attach(rest);
        }
        rest = Some(mbuf);
    }
    rest.unwrap()
}

fn flat(mbuf: &Mbuf) -> Vec<u8> {
    mbuf.segments().flatten().copied().collect()
}

#[test]
fn empty_pool_gives_none_and_counts_it() {
    let pool = pool(1);
    let mbuf = pool.alloc().unwrap();
    assert!(pool.alloc().is_none());
    assert_eq!((pool.exhausted(), pool.in_use()), (1, 1));
    mbuf.free();
    assert_eq!(pool.available(), 1);
}

#[test]
fn last_freed_buffer_is_next_allocated() {
    let pool = pool(4);
    let mbuf = pool.alloc().unwrap();
    let address = mbuf.data_ptr();
    mbuf.free();
    let again = pool.alloc().unwrap();
    assert_eq!(again.data_ptr(), address);
    again.free();
}

#[test]
fn going_out_of_scope_returns_the_buffer_and_is_counted() {
    let pool = pool(2);
    drop(packet(&pool, b"lost"));
    assert_eq!((pool.drops_without_reason(), pool.in_use()), (1, 0));
}

#[test]
fn prepend_and_advance_are_inverse() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"payload");
    let headroom = mbuf.headroom();
    mbuf.prepend(4).unwrap().copy_from_slice(b"head");
    assert_eq!(mbuf.bytes(), b"headpayload");
    mbuf.advance(4);
    assert_eq!((mbuf.bytes(), mbuf.headroom(), mbuf.behind(4)), (&b"payload"[..], headroom, Some(&b"head"[..])));
    mbuf.free();
}

#[test]
fn prepend_past_the_headroom_changes_nothing() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"x");
    let headroom = mbuf.headroom();
    assert!(mbuf.prepend(headroom + 1).is_none());
    assert_eq!((mbuf.bytes(), mbuf.headroom()), (&b"x"[..], headroom));
    mbuf.free();
}

#[test]
fn append_past_the_tailroom_changes_nothing() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"x");
    let tailroom = mbuf.tailroom();
    assert!(mbuf.append(tailroom + 1).is_none());
    mbuf.append(tailroom).unwrap().fill(7);
    assert_eq!((mbuf.tailroom(), mbuf.len()), (0, tailroom + 1));
    mbuf.free();
}

#[test]
#[should_panic(expected = "advance past the first segment")]
fn advance_past_the_segment_is_our_mistake() {
    let pool = pool(1);
    packet(&pool, b"ab").advance(3);
}

#[test]
fn trim_of_a_chain_frees_what_is_cut_off() {
    let pool = pool(3);
    let mut mbuf = chain(&pool, &[b"abc", b"def", b"ghi"]);
    assert_eq!((mbuf.len(), pool.in_use()), (9, 3));
    mbuf.trim_to(5);
    assert_eq!((flat(&mbuf), pool.in_use()), (b"abcde".to_vec(), 2));
    mbuf.trim(3);
    assert_eq!((flat(&mbuf), pool.in_use(), mbuf.is_linear()), (b"ab".to_vec(), 1, true));
    mbuf.free();
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
}

#[test]
fn narrow_trims_and_advances_at_once() {
    let pool = pool(3);
    let mut mbuf = packet(&pool, b"header payload padding");
    mbuf.narrow(7, 7);
    assert_eq!((mbuf.bytes(), mbuf.behind(7)), (&b"payload"[..], Some(&b"header "[..])));
    mbuf.free();
    let mut mbuf = chain(&pool, &[b"abc", b"def", b"ghi"]);
    mbuf.narrow(2, 3);
    assert_eq!((flat(&mbuf), pool.in_use()), (b"cde".to_vec(), 2));
    mbuf.free();
}

#[test]
#[should_panic(expected = "narrow past the packet")]
fn narrow_past_the_packet_is_our_mistake() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"abc");
    mbuf.narrow(1, 3);
}

#[test]
fn chain_and_view_are_not_plain() {
    let pool = pool(4);
    let mut mbuf = chain(&pool, &[b"a", b"b"]);
    let held = mbuf.hold();
    assert!(!mbuf.is_plain() && !mbuf.is_linear());
    drop(held);
    mbuf.detach().unwrap().free();
    assert!(mbuf.is_plain() && mbuf.is_linear());
    let view = pool.view(mbuf.hold()).unwrap();
    assert!(!view.is_plain() && view.is_linear());
    view.free();
    mbuf.free();
    // Leftovers of a chain and a view do not show in the buffers' next packets.
    let fresh: Vec<_> = (0..4).map(|_| pool.alloc().unwrap()).collect();
    assert!(fresh.iter().all(|mbuf| mbuf.is_plain() && mbuf.is_empty() && mbuf.segments().count() == 1));
    fresh.into_iter().for_each(Mbuf::free);
}

#[test]
fn chain_goes_home_whole() {
    let pool = pool(3);
    chain(&pool, &[b"a", b"b", b"c"]).free();
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
}

#[test]
fn held_bytes_survive_the_mbuf() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"tick");
    let held = mbuf.hold();
    mbuf.advance(2);
    mbuf.free();
    assert_eq!((held.bytes(), pool.in_use()), (Some(&b"tick"[..]), 1));
    drop(held);
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
}

#[test]
fn held_part_is_what_was_asked_for() {
    let pool = Pool::heap(1).unwrap();
    let mbuf = pool.alloc_copy(b"headertick").unwrap();
    let (held, empty) = (mbuf.hold_part(6, 4), mbuf.hold_part(10, 0));
    mbuf.free();
    assert_eq!((held.bytes(), empty.len(), pool.in_use()), (Some(&b"tick"[..]), 0, 1));
    drop((held, empty));
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn held_chain_survives_the_mbuf() {
    let pool = pool(2);
    let mbuf = chain(&pool, &[b"ab", b"cd"]);
    let held = mbuf.hold();
    mbuf.free();
    assert_eq!(held.bytes(), None);
    assert_eq!(held.segments().flatten().copied().collect::<Vec<_>>(), b"abcd");
    drop(held);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn handles_that_are_dropped_together_go_home_as_one_by_one() {
    let (first, second) = (pool(80), pool(2));
    let kept = packet(&first, b"kept");
    let view_of = packet(&second, b"0123456789");
    let mut all = vec![kept.hold()];
    for idx in 0..70 {
        let mbuf = match idx {
            20 => chain(&first, &[b"ab", b"cd"]),
            40 => first.view(view_of.hold()).unwrap(),
            _ => packet(&first, b"plain"),
        };
        all.push(mbuf.hold());
        mbuf.free();
    }
    let of_another_pool = packet(&second, b"x");
    all.insert(30, of_another_pool.hold());
    of_another_pool.free();
    Held::drop_all(all);
    assert_eq!((first.in_use(), second.in_use()), (1, 1), "the packet that is kept, and what the view showed");
    assert_eq!(kept.bytes(), b"kept");
    kept.free();
    view_of.free();
    Held::drop_all([]);
    assert_eq!((first.in_use(), second.in_use()), (0, 0));
    let mut again: Vec<Mbuf> = (0..80).map(|_| first.alloc().unwrap()).collect();
    assert!(first.alloc().is_none() && again.iter().all(Mbuf::is_writable), "each buffer once");
    again.drain(..).for_each(Mbuf::free);
}

#[test]
fn shared_bytes_cannot_be_written() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"x");
    let held = mbuf.hold();
    assert!(!mbuf.is_writable() && mbuf.prepend(1).is_none() && mbuf.append(1).is_none());
    drop(held);
    assert!(mbuf.prepend(1).is_some());
    mbuf.free();
}

#[test]
fn only_the_last_handle_becomes_an_mbuf_again() {
    let pool = pool(1);
    let mbuf = packet(&pool, b"order");
    let held = mbuf.hold().into_mbuf().unwrap_err();
    mbuf.free();
    let mbuf = held.into_mbuf().unwrap();
    assert_eq!(mbuf.bytes(), b"order");
    mbuf.free();
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn view_shows_held_bytes_and_lets_go_of_them() {
    let pool = pool(3);
    let payload = packet(&pool, b"0123456789");
    let part = payload.hold().slice(2, 5).unwrap();
    payload.free();
    let view = pool.view(part).unwrap();
    let mut frame = packet(&pool, b"head");
    frame.attach(view);
    assert_eq!((flat(&frame), pool.in_use()), (b"head23456".to_vec(), 3));
    frame.free();
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
}

#[test]
fn view_cannot_be_grown_or_written() {
    let pool = pool(2);
    let payload = packet(&pool, b"0123");
    let mut view = pool.view(payload.hold()).unwrap();
    view.advance(2);
    assert_eq!((view.bytes(), view.headroom(), view.tailroom()), (&b"23"[..], 2, 0));
    assert!(view.prepend(1).is_none() && !view.is_writable());
    view.free();
    payload.free();
}

#[test]
fn slice_outside_the_held_bytes_is_none() {
    let pool = pool(1);
    let mbuf = packet(&pool, b"abc");
    let held = mbuf.hold();
    assert!(held.slice(2, 2).is_none() && held.slice(usize::MAX, 2).is_none());
    assert_eq!(held.slice(3, 0).unwrap().bytes(), Some(&b""[..]));
    drop(held);
    mbuf.free();
}

#[test]
fn reused_buffer_forgets_the_last_packet() {
    let pool = pool(1);
    let mut mbuf = packet(&pool, b"x");
    let info = RxInfo {
        timestamp: Some(UnixTime::from_nanos(9)),
        ticks: None,
        flow_tag: Some(3),
        vlan: Some(100),
        hash: Some(1),
        ip_checksum: ChecksumStatus::Good,
        l4_checksum: ChecksumStatus::Bad,
        headers: Headers::UNKNOWN.with_l3(L3::Ipv4).with_l4(L4::Udp).with_ip_options(),
    };
    mbuf.set_rx_info(&info);
    assert_eq!(mbuf.rx_info(), info);
    mbuf.free();
    let mbuf = pool.alloc().unwrap();
    assert_eq!((mbuf.rx_info(), mbuf.len()), (RxInfo::default(), 0));
    mbuf.free();
}

#[test]
fn region_serves_one_pool() {
    let region = Arc::new(Region::heap(64 * 1024).unwrap());
    let _pool = Pool::new(Arc::clone(&region), Layout::default()).unwrap();
    assert_eq!(Pool::new(region, Layout::default()).unwrap_err(), PoolError::Claimed);
}

#[test]
fn buffers_do_not_overlap() {
    let pool = pool(8);
    let mut burst = Burst::new();
    while let Some(mut mbuf) = pool.alloc() {
        let room = mbuf.tailroom();
        let mark = burst.len() as u8;
        mbuf.append(room).unwrap().fill(mark);
        let headroom = mbuf.headroom();
        mbuf.prepend(headroom).unwrap().fill(mark);
        burst.push(mbuf);
    }
    for (mark, mbuf) in burst.drain(..).enumerate() {
        assert!(mbuf.bytes().iter().all(|&byte| byte == mark as u8));
        mbuf.free();
    }
}

#[test]
#[cfg_attr(miri, ignore = "leaves the pool behind on purpose, which Miri calls a leak")]
fn pool_dropped_early_keeps_its_mbufs_alive() {
    let pool = pool(2);
    let mbuf = packet(&pool, b"late");
    drop(pool);
    assert_eq!(mbuf.bytes(), b"late");
    mbuf.free();
}

#[test]
fn layouts_that_cannot_work_are_refused() {
    let region = |len| Arc::new(Region::heap(len).unwrap());
    let refused = |len, layout| Pool::new(region(len), layout).unwrap_err();
    assert!(matches!(refused(1 << 20, Layout::umem(100)), PoolError::Stride(100)));
    assert!(matches!(refused(1 << 20, Layout::for_frames(100_000)), PoolError::Stride(_)));
    assert!(matches!(refused(64, Layout::default()), PoolError::Empty { .. }));
}

#[test]
fn sizing_adds_up_and_explains_itself() {
    let sizing = Sizing::new().part("rx ring", 1024, "posted to the NIC").part("burst", 64, "in the pipeline");
    assert_eq!(sizing.total(), 1088);
    assert!(sizing.to_string().contains("1024  rx ring        posted to the NIC"));
}

#[test]
fn held_tail_of_a_chain_keeps_what_is_chained_behind_it() {
    let pool = pool(4);
    let rest = chain(&pool, &[b"bb", b"cc"]);
    let held = rest.hold();
    let mut front = packet(&pool, b"aa");
    front.attach(rest);
    let mut segments = held.segments();
    segments.next();
    let behind = segments.next().unwrap();
    front.free();
    let mut other = pool.alloc().unwrap();
    let mut another = pool.alloc().unwrap();
    other.append(2).unwrap().fill(b'X');
    another.append(2).unwrap().fill(b'Y');
    assert_eq!(behind, b"cc");
    assert_eq!(held.segments().flatten().copied().collect::<Vec<_>>(), b"bbcc");
    other.free();
    another.free();
    drop(held);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn header_of_a_view_can_be_read_behind_it() {
    let pool = pool(2);
    let frame = packet(&pool, b"headpayload");
    let mut view = pool.view(frame.hold()).unwrap();
    frame.free();
    view.advance(4);
    assert_eq!((view.bytes(), view.behind(4)), (&b"payload"[..], Some(&b"head"[..])));
    view.free();
}

#[test]
#[cfg_attr(miri, ignore = "a chain of 66,000 buffers")]
fn chain_over_4_gib_is_refused_whole() {
    let big = Pool::new(Arc::new(Region::heap(65_600).unwrap()), Layout::for_frames(65_000)).unwrap();
    let layout = Layout::for_frames(1);
    let views = Pool::new(Arc::new(Region::heap(layout.region_len(70_000)).unwrap()), layout).unwrap();
    let payload = big.alloc_copy(&[0; 65_000]).unwrap();
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut chain = views.view(payload.hold()).unwrap();
        for _ in 0..66_500 {
            let mut front = views.view(payload.hold()).unwrap();
            front.attach(chain);
            chain = front;
        }
        chain.free();
    }));
    assert!(refused.is_err());
    assert_eq!((views.in_use(), views.available()), (0, 70_000));
    payload.free();
}

#[test]
fn views_of_views_go_home_without_recursion() {
    std::thread::Builder::new()
        .stack_size(256 * 1024)
        .spawn(|| {
            // Miri is slow: there the test checks the count of handles, but not the depth of the
            // stack.
            let views = if cfg!(miri) { 50 } else { 19_999 };
            let pool = Pool::heap(views + 1).unwrap();
            let mut view = packet(&pool, b"x");
            for _ in 0..views {
                let held = view.hold();
                view.free();
                view = pool.view(held).unwrap();
            }
            view.free();
            assert_eq!(pool.in_use(), 0);
        })
        .unwrap()
        .join()
        .unwrap();
}
