#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::receive::rq::*;
use crate::hca::testing::{CableEnd, ManualClock, PlainMemory};
use crate::hca::{AccessFlags, Config, CqRequest, MrRequest};
use proptest::prelude::*;

/// One ring with its CQ, and the driver's side of both.
struct World {
    hca: Hca,
    memory: PlainMemory,
    clock: ManualClock,
    wire: CableEnd,
    ring: RqRing,
    cq_ring: u64,
    rq: u32,
    lkey: u32,
    /// Where the registered memory begins, and beside it some that is not registered.
    buffers: u64,
    /// Completions that were read.
    read: u64,
}

const BUFFERS_LEN: u64 = 1 << 16;
const CQ_ENTRIES: u32 = 256;

/// The fields that a driver reads from an entry: syndrome (0 for success), `wqe_counter`,
/// `byte_cnt`, `wqe_id`.
type Entry = (u8, u16, u32, u16);

fn world_of(wqe_count: u32, wqe_shift: u32, striding: Option<Striding>) -> World {
    let memory = PlainMemory::new(0x10_0000, 1 << 18);
    let mut hca = Hca::new(Config::default());
    let pd = hca.alloc_pd();
    let buffers = memory.reserve(2 * BUFFERS_LEN, 4096);
    let access = AccessFlags(1);
    let mr = hca.register_memory(&MrRequest { pd, start: buffers, len: BUFFERS_LEN, iova: buffers, access }).unwrap();
    let cq_ring = memory.reserve(u64::from(CQ_ENTRIES) * 64, 4096);
    let cq = CqRequest {
        entries: CQ_ENTRIES,
        ring: cq_ring,
        doorbell: memory.reserve(8, 8),
        entry_len: 64,
        ..CqRequest::default()
    };
    let ring = RqRing {
        ring: memory.reserve(u64::from(wqe_count) << wqe_shift, 4096),
        wqe_count,
        wqe_shift,
        doorbell: memory.reserve(4, 4),
        cq: hca.create_cq(&cq, &memory).unwrap().handle,
        striding,
    };
    let rq = hca.add_rq(&request(pd, ring)).unwrap();
    hca.set_rq_state(rq, WqState::Ready);
    let (clock, wire) = (ManualClock::default(), CableEnd::pair().0);
    World { hca, memory, clock, wire, ring, cq_ring, rq, lkey: mr.lkey, buffers, read: 0 }
}

fn request(pd: u32, ring: RqRing) -> WqRequest {
    WqRequest { pd, ring, user_index: 5, user_handle: 0, wr_max: 0, sge_max: 0, create_flags: 0 }
}

/// A ring of four WQEs with two pointers each.
fn world() -> World {
    world_of(4, 5, None)
}

/// Two WQEs of eight strides of 64 bytes, each in its own 4 KiB.
fn striding(shift_two_bytes: bool) -> World {
    let mut world = world_of(2, 5, Some(Striding { stride_len_log: 6, strides_log: 3, shift_two_bytes }));
    for wqe in 0..2 {
        world.write_pointer(wqe, 1, 512, world.lkey, world.buffers + 4096 * wqe);
    }
    world.post(2);
    world
}

impl World {
    fn write_pointer(&mut self, wqe: u64, entry: u64, byte_count: u32, lkey: u32, address: u64) {
        let at = self.ring.ring + (wqe << self.ring.wqe_shift) + entry * 16;
        self.memory.put_be32(at, byte_count);
        self.memory.put_be32(at + 4, lkey);
        self.memory.put_be64(at + 8, address);
    }

    /// One buffer at the start of the registered memory, followed by a terminator.
    fn write_wqe(&mut self, wqe: u64, len: u32) {
        self.write_pointer(wqe, 0, len, self.lkey, self.buffers + 4096 * wqe);
        self.write_pointer(wqe, 1, 0, 0x100, 0);
    }

    fn post(&self, producer: u32) {
        self.memory.put_be32(self.ring.doorbell, producer);
    }

    fn receive(&mut self, frame: &[u8]) -> Received {
        let Self { hca, memory, wire, clock, .. } = self;
        let environment = Environment { dma: memory, wire, clock };
        let rq = hca.rqs.get_mut(self.rq).unwrap();
        rq.receive(frame, RxHeaders::default(), &hca.memory, &mut hca.cqs, &environment)
    }

    fn flush(&mut self, budget: usize) -> usize {
        let Self { hca, memory, wire, clock, .. } = self;
        let environment = Environment { dma: memory, wire, clock };
        hca.rqs.get_mut(self.rq).unwrap().flush(budget, &mut hca.cqs, &environment)
    }

    /// The next entry, where there is one.
    fn poll(&mut self) -> Option<Entry> {
        let entry = self.memory.get(self.cq_ring + self.read % u64::from(CQ_ENTRIES) * 64, 64);
        let opcode = entry[63] >> 4;
        if opcode == 0 {
            return None; // memory began as zeros, and no send completes here
        }
        self.memory.put(self.cq_ring + self.read % u64::from(CQ_ENTRIES) * 64, &[0; 64]);
        self.read += 1;
        let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
        assert_eq!((word(32), opcode), (5, if entry[55] == 0 { 2 } else { 14 }));
        Some((entry[55], (word(60) >> 16) as u16, word(44), word(0) as u16))
    }

    /// The next WQE fails with this syndrome, and the ring with it.
    #[track_caller]
    fn check_fault(&mut self, frame: &[u8], syndrome: Syndrome) {
        self.post(1);
        assert!(matches!(self.receive(frame), Received::Failed(_)));
        assert_eq!(self.poll(), Some((syndrome as u8, 0, 0, 0)));
        assert_eq!(self.receive(frame), Received::NotReady);
    }
}

#[test]
fn a_geometry_that_cannot_be_is_refused() {
    let mut world = world();
    let mut check = |change: fn(&mut RqRing), errno| {
        let mut ring = world.ring;
        change(&mut ring);
        assert_eq!(world.hca.add_rq(&request(0, ring)), Err(Errno(errno)), "{ring:?}");
    };
    let striding = |stride_len_log, strides_log| Some(Striding { stride_len_log, strides_log, shift_two_bytes: false });
    check(|ring| ring.wqe_count = 0, libc::EINVAL);
    check(|ring| ring.wqe_count = 3, libc::EINVAL);
    check(|ring| ring.wqe_count = 65536, libc::EINVAL);
    check(|ring| ring.wqe_shift = 3, libc::EINVAL);
    check(|ring| ring.wqe_shift = 64, libc::EINVAL);
    check(|ring| ring.ring = u64::MAX - 15, libc::EINVAL);
    check(|ring| ring.doorbell += 2, libc::EINVAL);
    check(|ring| ring.cq = 99, libc::EINVAL);
    for (stride_len_log, strides_log) in [(5, 9), (14, 9), (6, 2), (6, 17)] {
        let ring = RqRing { striding: striding(stride_len_log, strides_log), ..world.ring };
        assert_eq!(world.hca.add_rq(&request(0, ring)), Err(Errno(libc::EINVAL)), "{ring:?}");
    }
    world.hca.config.striding_rq = false;
    let ring = RqRing { striding: striding(6, 9), ..world.ring };
    assert_eq!(world.hca.add_rq(&request(0, ring)), Err(Errno(libc::EOPNOTSUPP)));
}

#[test]
fn a_ring_that_is_not_ready_is_silent() {
    let mut world = world();
    world.write_wqe(0, 100);
    world.post(1);
    for state in [WqState::Reset, WqState::Error] {
        world.hca.set_rq_state(world.rq, state);
        assert_eq!(world.receive(&[1; 60]), Received::NotReady, "{state:?}");
    }
    assert_eq!(world.poll(), None);
}

#[test]
fn an_empty_ring_takes_nothing() {
    let mut world = world();
    assert_eq!(world.receive(&[1; 60]), Received::NoWqe);
    world.write_wqe(0, 100);
    world.post(1);
    assert_eq!(world.receive(&[1; 60]), Received::Stored);
    assert_eq!(world.receive(&[1; 60]), Received::NoWqe);
}

#[test]
fn frames_go_to_wqes_in_order_and_the_counter_is_16_bits() {
    let mut world = world();
    for wqe in 0..4 {
        world.write_wqe(wqe, 100);
    }
    for counter in 0..66_000_u32 {
        world.post((counter + 1) & 0xffff);
        let frame = [counter as u8; 60];
        assert_eq!(world.receive(&frame), Received::Stored);
        assert_eq!(world.poll(), Some((0, counter as u16, 60, 0)));
        let buffer = world.buffers + 4096 * u64::from(counter % 4);
        assert_eq!(world.memory.get(buffer, 60), frame);
        let consumer = world.hca.rqs.get(world.rq).unwrap().consumer;
        assert_eq!(consumer, (counter + 1) as u16);
        // The CQ's consumer index, so that it never fills.
        let cq = world.cq_doorbell();
        world.memory.put_be32(cq, counter + 1);
    }
}

#[test]
fn a_long_frame_goes_on_in_the_next_buffer() {
    let mut world = world();
    world.write_pointer(0, 0, 100, world.lkey, world.buffers);
    world.write_pointer(0, 1, 100, world.lkey, world.buffers + 1000);
    world.post(1);
    let frame = (0..150).collect::<Vec<u8>>();
    assert_eq!(world.receive(&frame), Received::Stored);
    assert_eq!(world.poll(), Some((0, 0, 150, 0)));
    assert_eq!(world.memory.get(world.buffers, 100), frame[..100]);
    assert_eq!(world.memory.get(world.buffers + 1000, 51), [&frame[100..], &[0]].concat());
}

#[test]
fn a_frame_longer_than_its_buffers_is_a_length_error() {
    let mut terminated = world();
    terminated.write_wqe(0, 100);
    terminated.check_fault(&[1; 101], Syndrome::LocalLength);

    let mut full = world();
    full.write_pointer(0, 0, 50, full.lkey, full.buffers);
    full.write_pointer(0, 1, 50, full.lkey, full.buffers);
    full.check_fault(&[1; 101], Syndrome::LocalLength);
}

#[test]
fn a_pointer_is_checked_as_a_whole() {
    let mut wrong_key = world();
    wrong_key.write_pointer(0, 0, 100, wrong_key.lkey + 1, wrong_key.buffers);
    wrong_key.check_fault(&[1; 60], Syndrome::LocalProtection);

    let mut one_byte_over = world();
    one_byte_over.write_pointer(0, 0, 101, one_byte_over.lkey, one_byte_over.buffers + BUFFERS_LEN - 100);
    one_byte_over.check_fault(&[1; 60], Syndrome::LocalProtection);

    let mut zero_is_two_gigabytes = world();
    zero_is_two_gigabytes.write_pointer(0, 0, 0, zero_is_two_gigabytes.lkey, zero_is_two_gigabytes.buffers);
    zero_is_two_gigabytes.check_fault(&[1; 60], Syndrome::LocalProtection);

    let mut inline = world();
    inline.write_pointer(0, 0, 1 << 31 | 100, inline.lkey, inline.buffers);
    inline.check_fault(&[1; 60], Syndrome::LocalQpOperation);
}

#[test]
fn a_second_pointer_that_no_frame_reaches_is_not_looked_at() {
    let mut world = world();
    world.write_pointer(0, 0, 100, world.lkey, world.buffers);
    world.write_pointer(0, 1, 100, 0xdead, 0);
    world.post(1);
    assert_eq!(world.receive(&[1; 60]), Received::Stored);
}

#[test]
fn a_region_that_may_not_be_written_is_an_access_error() {
    let mut world = world();
    let request = MrRequest { pd: 0, start: world.buffers, len: 4096, iova: 0, access: AccessFlags(0) };
    let readable = world.hca.register_memory(&request).unwrap();
    world.write_pointer(0, 0, 100, readable.lkey, 0);
    world.check_fault(&[1; 60], Syndrome::LocalAccess);
}

#[test]
fn a_record_beyond_the_ring_is_fatal() {
    let mut world = world();
    world.post(5);
    assert_eq!(world.receive(&[1; 60]), Received::Fatal(RqFault::BeyondRing { posted: 5, wqe_count: 4 }));
    assert_eq!(world.flush(64), 0, "nothing sensible is posted");
    assert_eq!(world.poll(), None);
}

#[test]
fn in_error_all_that_is_posted_comes_back_flushed_a_few_at_a_time() {
    let mut world = world();
    world.post(3);
    assert_eq!(world.flush(64), 0, "not in error");
    world.hca.set_rq_state(world.rq, WqState::Error);
    assert_eq!((world.flush(2), world.flush(2), world.flush(2)), (2, 1, 0));
    world.post(4);
    assert_eq!(world.flush(2), 1, "posted later");
    for counter in 0..4 {
        assert_eq!(world.poll(), Some((5, counter, 0, 0)));
    }
    assert_eq!(world.poll(), None);
}

#[test]
fn only_a_reset_brings_a_ring_back() {
    let mut world = world();
    world.write_wqe(0, 100);
    world.post(1);
    assert_eq!(world.receive(&[1; 101]), Received::Failed(RqFault::TooLong { len: 101 }));
    world.hca.set_rq_state(world.rq, WqState::Ready);
    assert_eq!(world.receive(&[1; 60]), Received::NotReady);
    world.hca.set_rq_state(world.rq, WqState::Reset);
    world.hca.set_rq_state(world.rq, WqState::Ready);
    assert_eq!(world.receive(&[1; 60]), Received::Stored, "from the first WQE again");
}

#[test]
fn a_ring_without_its_cq_is_fatal() {
    let mut world = world();
    world.write_wqe(0, 100);
    world.post(1);
    let cq = world.ring.cq;
    world.hca.cqs.release(cq);
    world.hca.destroy_cq(cq).unwrap();
    assert_eq!(world.receive(&[1; 60]), Received::Fatal(RqFault::CqDead));
}

#[test]
fn frames_lie_in_consecutive_strides() {
    let mut world = striding(false);
    for (frame, (stride, consumed)) in [(60, (0, 1_u32)), (64, (1, 1)), (65, (2, 2)), (128, (4, 2)), (129, (0, 3))] {
        let filled = frame == 129;
        assert_eq!(world.receive(&vec![frame as u8; frame]), Received::Stored);
        if filled {
            assert_eq!(world.poll(), Some((0, 6, 1 << 31 | 2 << 16, 0)), "two strides are given up");
        }
        let wqe = u16::from(filled);
        assert_eq!(world.poll(), Some((0, stride, consumed << 16 | frame as u32, wqe)));
        let at = world.buffers + 4096 * u64::from(wqe) + 64 * u64::from(stride);
        assert_eq!(world.memory.get(at, frame), vec![frame as u8; frame]);
    }
}

#[test]
fn the_last_stride_ends_its_wqe_without_a_filler() {
    let mut world = striding(false);
    for wqe in 0..2 {
        for stride in 0..8 {
            assert_eq!(world.receive(&[1; 60]), Received::Stored);
            assert_eq!(world.poll(), Some((0, stride, 1 << 16 | 60, wqe)));
        }
    }
    assert_eq!(world.receive(&[1; 60]), Received::NoWqe);
}

#[test]
fn strides_are_not_given_up_for_a_wqe_that_is_not_there() {
    let mut world = striding(false);
    world.post(1);
    assert_eq!(world.receive(&[1; 7 * 64]), Received::Stored);
    assert_eq!(world.receive(&[1; 65]), Received::NoWqe);
    assert_eq!(world.receive(&[1; 64]), Received::Stored, "a shorter one fits");
    assert_eq!((world.poll().unwrap().1, world.poll().unwrap().1, world.poll()), (0, 7, None));
}

#[test]
fn two_bytes_before_a_frame_are_zero_and_not_counted() {
    let mut world = striding(true);
    world.memory.put(world.buffers, &[0xee; 256]);
    assert_eq!(world.receive(&[7; 62]), Received::Stored);
    assert_eq!(world.receive(&[8; 63]), Received::Stored);
    assert_eq!(world.poll(), Some((0, 0, 1 << 16 | 62, 0)));
    assert_eq!(world.poll(), Some((0, 1, 2 << 16 | 63, 0)));
    assert_eq!(world.memory.get(world.buffers, 66), [&[0, 0][..], &[7; 62], &[0, 0]].concat());
    assert_eq!(world.memory.get(world.buffers + 66, 64), [&[8; 63][..], &[0xee]].concat());
}

#[test]
fn a_frame_longer_than_all_strides_is_a_length_error() {
    let mut world = striding(true);
    world.check_fault(&[1; 511], Syndrome::LocalLength);
}

#[test]
fn strides_beyond_the_segment_are_a_length_error() {
    let mut world = striding(false);
    world.write_pointer(0, 1, 64, world.lkey, world.buffers);
    world.check_fault(&[1; 65], Syndrome::LocalLength);
}

impl World {
    fn cq_doorbell(&self) -> u64 {
        // Reserved right behind the ring of the CQ.
        self.cq_ring + u64::from(CQ_ENTRIES) * 64
    }
}

proptest! {
    /// With any bytes in ring and record, the ring goes on or fails, and no byte outside the region
    /// is written.
    #[test]
    fn any_bytes_in_the_ring_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 128),
        strides in any::<bool>(),
        good_keys in any::<bool>(),
        steps in proptest::collection::vec((any::<u8>(), 0..3000_usize), 1..20),
    ) {
        let striding = Striding { stride_len_log: 6, strides_log: 3, shift_two_bytes: false };
        let mut world = world_of(4, 5, strides.then_some(striding));
        world.memory.put(world.ring.ring, &bytes);
        if good_keys {
            // Far enough to reach the region, so that more than keys are tried.
            for wqe in 0..4 {
                let at = world.ring.ring + (wqe << 5) + if strides { 16 } else { 0 };
                world.memory.put_be32(at, u32::from(bytes[wqe as usize]) * 16);
                world.memory.put_be32(at + 4, world.lkey);
                world.memory.put_be64(at + 8, world.buffers + u64::from(bytes[wqe as usize + 4]) * 255);
            }
        }
        for (producer, len) in steps {
            world.post(u32::from(producer % 8));
            let outcome = world.receive(&vec![0x55; len]);
            if matches!(outcome, Received::Failed(_) | Received::Fatal(_)) {
                world.flush(8);
                world.hca.set_rq_state(world.rq, WqState::Reset);
                world.hca.set_rq_state(world.rq, WqState::Ready);
            }
        }
        let unregistered = world.memory.get(world.buffers + BUFFERS_LEN, BUFFERS_LEN as usize);
        prop_assert!(unregistered.iter().all(|&byte| byte == 0));
    }
}
