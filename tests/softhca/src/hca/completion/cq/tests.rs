#![allow(clippy::unwrap_used)] // a panic here is the report
use crate::hca::completion::cq::*;
use crate::hca::testing::{CableEnd, ManualClock, PlainMemory};
use crate::hca::{Compression, Config, Hostility, RxHeaders, Syndrome};

/// One CQ, and the driver's side of it.
struct World {
    hca: Hca,
    memory: PlainMemory,
    clock: ManualClock,
    wire: CableEnd,
    request: CqRequest,
    cq: CqCreated,
}

const CHANNEL: i32 = 7;
const HANDLE_OF_USER: u64 = 0xabcd;

fn request(memory: &PlainMemory, entries: u32, entry_len: u32) -> CqRequest {
    CqRequest {
        entries,
        ring: memory.reserve(u64::from(entries * entry_len), 4096),
        doorbell: memory.reserve(64, 64),
        entry_len,
        channel: Some(CHANNEL),
        user_handle: HANDLE_OF_USER,
        ..CqRequest::default()
    }
}

fn world_of(config: Config, entries: u32, entry_len: u32, change: impl Fn(&mut CqRequest)) -> World {
    let memory = PlainMemory::new(0x10_0000, 1 << 20);
    let mut request = request(&memory, entries, entry_len);
    change(&mut request);
    // As libmlx5 does before the create command: invalidates all entries.
    for at in (0..u64::from(entries) * u64::from(entry_len)).step_by(64) {
        memory.put(request.ring + at + 63, &[0xf0]);
    }
    let mut hca = Hca::new(config);
    let cq = hca.create_cq(&request, &memory).unwrap();
    World { hca, memory, clock: ManualClock::default(), wire: CableEnd::pair().0, request, cq }
}

fn world(entries: u32) -> World {
    world_of(Config::default(), entries, 64, |_| ())
}

fn compressing(entries: u32, format: Compression) -> World {
    world_of(Config::default(), entries, 64, |request| request.compression = Some(format))
}

impl World {
    fn complete(&mut self, completion: &Completion) {
        let environment = Environment { dma: &self.memory, wire: &mut self.wire, clock: &self.clock };
        self.hca.cqs.complete(self.cq.handle, completion, &environment);
    }

    fn step(&mut self) -> usize {
        self.hca.step(64, &mut Environment { dma: &self.memory, wire: &mut self.wire, clock: &self.clock })
    }

    /// Receives frames of these lengths, with consecutive counters from `counter` on, within one
    /// step.
    fn receive(&mut self, counter: u16, lens: &[u32]) {
        for (nth, &len) in lens.iter().enumerate() {
            self.complete(&received(counter.wrapping_add(nth as u16), len));
        }
        self.step();
    }

    fn slot(&self, slot: u32) -> Vec<u8> {
        self.memory.get(self.request.ring + u64::from(slot * self.request.entry_len), self.request.entry_len as usize)
    }

    /// `op_own` of each slot.
    fn owners(&self) -> Vec<u8> {
        (0..self.request.entries).map(|slot| self.slot(slot)[63]).collect()
    }

    fn set_consumer(&self, consumer: u32) {
        self.memory.put_be32(self.request.doorbell, consumer);
    }

    fn arm(&self, word: u32) {
        self.memory.put_be32(self.request.doorbell + 4, word);
    }

    fn take_event(&mut self) -> Option<EventKind> {
        let event = self.hca.take_event()?;
        assert_eq!(event.element, HANDLE_OF_USER);
        assert_eq!(event.channel, (event.kind == EventKind::Completion).then_some(CHANNEL));
        Some(event.kind)
    }
}

fn received(counter: u16, len: u32) -> Completion {
    let headers = RxHeaders {
        byte_count: len,
        hash: 0x1000 + len,
        checksum: 0x2000 + len as u16,
        types: 0x28,
        flow_tag: 9,
        ..RxHeaders::default()
    };
    Completion { user_index: 5, queue_number: 6, wqe_counter: counter, kind: CompletionKind::Received(headers) }
}

fn flushed(counter: u16) -> Completion {
    let kind = CompletionKind::ReceiveError { syndrome: Syndrome::Flushed, vendor: 0 };
    Completion { user_index: 5, queue_number: 6, wqe_counter: counter, kind }
}

/// The mini entry at `position` of an array, as two words.
fn mini(array: &[u8], position: usize) -> (u32, u32) {
    let word = |at: usize| u32::from_be_bytes(array[at..at + 4].try_into().unwrap());
    (word(position * 8), word(position * 8 + 4))
}

fn length_of(entry: &[u8]) -> u32 {
    u32::from_be_bytes(entry[44..48].try_into().unwrap())
}

#[test]
fn a_ring_that_cannot_be_is_refused() {
    let memory = PlainMemory::new(0x10_0000, 1 << 16);
    let good = request(&memory, 8, 64);
    let mut hca = Hca::new(Config { cqe_compression: false, ..Config::default() });
    let mut check = |change: fn(&mut CqRequest), errno| {
        let mut bad = good;
        change(&mut bad);
        assert_eq!(hca.create_cq(&bad, &memory), Err(Errno(errno)), "{bad:?}");
    };
    check(|request| request.entries = 0, libc::EINVAL);
    check(|request| request.entries = 7, libc::EINVAL);
    check(|request| request.entries = 1 << 23, libc::EINVAL);
    check(|request| request.entry_len = 32, libc::EINVAL);
    check(|request| request.pad_128 = true, libc::EINVAL);
    check(|request| request.ring += 8, libc::EINVAL);
    check(|request| request.doorbell += 4, libc::EINVAL);
    check(|request| request.ring = u64::MAX - 63, libc::EINVAL);
    check(|request| request.doorbell = u64::MAX - 7, libc::EINVAL);
    check(|request| request.entries = 1 << 20, libc::EFAULT);
    check(|request| request.doorbell = 0x100, libc::EFAULT);
    check(|request| request.compression = Some(Compression::Hash), libc::EOPNOTSUPP);
}

#[test]
fn an_entry_is_valid_by_the_owner_bit_of_its_round() {
    let mut world = world(2);
    for consumer in 0..5_u32 {
        world.set_consumer(consumer);
        world.complete(&received(consumer as u16, 60));
        assert_eq!(world.slot(consumer % 2)[63], 0x20 | (consumer / 2 % 2) as u8, "entry {consumer}");
    }
}

#[test]
fn a_full_queue_dies_with_one_event_and_no_entry_overwritten() {
    let mut world = world(4);
    for counter in 0..4 {
        world.complete(&received(counter, 60));
    }
    let before = world.owners();
    for counter in 4..6 {
        world.complete(&received(counter, 60));
    }
    world.set_consumer(4);
    world.complete(&received(6, 60));
    assert_eq!(world.owners(), before, "also after room was made: it is dead");
    assert_eq!(world.take_event(), Some(EventKind::CqError));
    assert_eq!(world.take_event(), None);
    let expected = CqEvents { completion: 0, asynchronous: 1 };
    assert_eq!(world.hca.destroy_cq(world.cq.handle), Ok(expected));
}

#[test]
fn a_consumer_index_of_16_bits_is_enough() {
    let mut world = world(8);
    for index in 0..200_000_u32 {
        // As DPDK writes it in its compressed scalar mode: always seven behind, in 16 bits.
        world.set_consumer(index.saturating_sub(7) & 0xffff);
        world.complete(&received(index as u16, 60));
        assert!(world.hca.cqs.is_alive(world.cq.handle), "entry {index}");
    }
}

#[test]
fn an_overrun_that_is_to_be_ignored_overwrites() {
    let mut world = world_of(Config::default(), 2, 64, |request| request.ignore_overrun = true);
    for counter in 0..3 {
        world.complete(&received(counter, 60 + u32::from(counter)));
    }
    assert_eq!(length_of(&world.slot(0)), 62);
    assert_eq!(world.take_event(), None);
}

#[test]
fn an_entry_of_128_bytes_lies_in_the_upper_half() {
    for (pad_128, lower) in [(false, 0xee), (true, 0)] {
        let mut world = world_of(Config::default(), 2, 128, |request| request.pad_128 = pad_128);
        world.memory.put(world.request.ring + 128, &[0xee; 64]);
        world.set_consumer(0);
        world.complete(&received(0, 60));
        world.complete(&received(1, 61));
        let slot = world.slot(1);
        assert_eq!((length_of(&slot[64..]), slot[127]), (61, 0x20));
        assert_eq!(slot[..64], [lower; 64]);
    }
}

#[test]
fn a_stamp_has_the_format_that_was_asked_for() {
    for (real_time, expected) in [(false, 2_000_000_005), (true, 1_700_000_002 << 32 | 5)] {
        let mut world = world_of(Config::default(), 2, 64, |request| request.real_time = real_time);
        world.clock.advance(2_000_000_005);
        world.complete(&received(0, 60));
        assert_eq!(world.slot(0)[48..56], u64::to_be_bytes(expected));
    }
}

#[test]
fn memory_that_is_gone_kills_only_its_own_queue() {
    let mut world = world(2);
    let gone = CqRequest { user_handle: 1, ..request(&world.memory, 2, 64) };
    let gone = world.hca.create_cq(&gone, &world.memory).unwrap();
    let nowhere = PlainMemory::new(0, 0);
    let environment = Environment { dma: &nowhere, wire: &mut world.wire, clock: &world.clock };
    world.hca.cqs.complete(gone.handle, &received(0, 60), &environment);
    assert!(!world.hca.cqs.is_alive(gone.handle));
    assert!(world.hca.cqs.is_alive(world.cq.handle));
    assert_eq!(world.hca.take_event().map(|event| (event.element, event.kind)), Some((1, EventKind::CqError)));
}

#[test]
fn a_queue_in_use_stays_and_an_unknown_one_is_refused() {
    let mut world = world(2);
    let handle = world.cq.handle;
    world.hca.cqs.hold(handle).unwrap();
    assert_eq!(world.hca.destroy_cq(handle), Err(Errno(libc::EBUSY)));
    world.hca.cqs.release(handle);
    assert_eq!(world.hca.destroy_cq(handle), Ok(CqEvents::default()));
    assert_eq!(world.hca.destroy_cq(handle), Err(Errno(libc::EINVAL)));
    assert_eq!(world.hca.modify_cq(handle, 1, 1), Err(Errno(libc::EINVAL)));
    assert_eq!(world.hca.cqs.hold(handle), Err(Errno(libc::EINVAL)));
    world.complete(&received(0, 60));
    assert_eq!(world.slot(0)[63], 0xf0, "nothing is written after destruction");
}

#[test]
fn an_event_that_nobody_took_goes_with_its_queue() {
    let mut world = world(4);
    world.arm(0);
    world.receive(0, &[60]);
    assert_eq!(world.take_event(), Some(EventKind::Completion));
    world.arm(1 << 28 | 1);
    world.receive(1, &[60]);
    assert_eq!(world.hca.destroy_cq(world.cq.handle), Ok(CqEvents { completion: 1, asynchronous: 0 }));
    assert_eq!(world.hca.take_event(), None);
}

#[test]
fn an_arm_is_answered_at_the_end_of_the_step_that_completes() {
    let mut world = world(4);
    world.arm(0);
    world.step();
    assert_eq!(world.take_event(), None, "nothing happened yet");
    world.receive(0, &[60]);
    assert_eq!(world.take_event(), Some(EventKind::Completion));
    world.receive(1, &[60]);
    assert_eq!(world.take_event(), None, "armed for one");
}

#[test]
fn in_strict_mode_an_arm_must_be_rung_and_recorded_before() {
    let mut world = world_of(Config { strict: true, ..Config::default() }, 4, 64, |_| ());
    let register = |word: u64, number: u32| word << 32 | u64::from(number);
    let number = world.cq.number;
    let ring = |world: &mut World, value| {
        world.hca.cqs.arm_register_written(value, &world.memory, &mut world.hca.counters);
    };
    world.receive(0, &[60]);

    world.arm(0);
    world.step();
    assert_eq!(world.take_event(), None, "recorded, not rung");
    ring(&mut world, register(0, number));
    world.step();
    assert_eq!(world.take_event(), Some(EventKind::Completion));
    assert_eq!(world.hca.counters, Counters::default());

    ring(&mut world, register(1 << 28, number));
    assert_eq!(world.hca.counters.strict_record_late, 1, "rung before the record");
    ring(&mut world, register(0, number + 1));
    assert_eq!(world.hca.counters.strict_register_wrong, 1, "no such queue");
}

#[test]
fn a_lone_frame_is_never_compressed() {
    let mut world = compressing(16, Compression::Hash);
    world.receive(0, &[60]);
    assert_eq!((world.slot(0)[63], length_of(&world.slot(0))), (0x20, 60));
    assert_eq!(world.owners()[1..], [0xf0; 15]);
}

#[test]
fn arrays_lie_behind_the_title_then_at_multiples_of_eight() {
    let mut world = compressing(64, Compression::Hash);
    let lens = (100..120).collect::<Vec<_>>();
    world.receive(40, &lens);
    let title = world.slot(0);
    assert_eq!((title[63], length_of(&title)), (0x2c, 20), "opcode 2, format 3, owner 0");
    assert_eq!(title[60..62], [0, 40]);
    assert_eq!(title[56..60], [0, 0, 0, 9]);
    for (nth, len) in lens.into_iter().enumerate() {
        let array = world.slot([1, 8, 16][nth / 8]);
        assert_eq!(mini(&array, nth % 8), (0x1000 + len, len), "frame {nth}");
    }
    let untouched = (2..8).chain(9..16).chain(17..64);
    assert!(untouched.map(|slot| world.slot(slot)).all(|slot| slot[..63] == [0; 63] && slot[63] == 0xf0));
    world.receive(60, &[300]);
    assert_eq!(length_of(&world.slot(20)), 300, "the next entry comes after as many slots as frames");
}

#[test]
fn minis_carry_what_the_format_says() {
    for (format, first, second) in [
        (Compression::Hash, 0x1000 + 60, 0x1000 + 61),
        (Compression::Checksum, (0x2000 + 60) << 16, (0x2000 + 61) << 16),
        (Compression::ChecksumStride, (0x2000 + 60) << 16 | 3, (0x2000 + 61) << 16 | 4),
    ] {
        let mut world = compressing(8, format);
        world.receive(3, &[60, 61]);
        let array = world.slot(1);
        assert_eq!((mini(&array, 0), mini(&array, 1)), ((first, 60), (second, 61)), "{format:?}");
    }
}

#[test]
fn a_session_never_wraps_past_the_end() {
    let mut world = compressing(8, Compression::Hash);
    world.receive(0, &[60; 5]);
    world.set_consumer(5);
    world.receive(5, &[60; 6]);
    assert_eq!((world.slot(5)[63], length_of(&world.slot(5))), (0x2c, 3), "to the end");
    assert_eq!((world.slot(0)[63], length_of(&world.slot(0))), (0x2d, 3), "and another one, owner 1");
}

#[test]
fn a_session_has_an_end() {
    let mut world = compressing(128, Compression::Hash);
    world.receive(0, &[60; 65]);
    assert_eq!(length_of(&world.slot(0)), 64);
    assert_eq!((world.slot(64)[63], length_of(&world.slot(64))), (0x20, 60));
}

#[test]
fn frames_that_differ_in_a_field_that_mini_cqes_lack_end_the_session() {
    let change = |change: fn(&mut Completion, &mut RxHeaders)| {
        let mut world = compressing(8, Compression::Hash);
        let mut second = received(1, 60);
        let CompletionKind::Received(mut headers) = second.kind else { unreachable!() };
        change(&mut second, &mut headers);
        second.kind = CompletionKind::Received(headers);
        world.complete(&received(0, 60));
        world.complete(&second);
        world.step();
        world.owners()[..2].to_vec()
    };
    let (apart, together) = ([0x20, 0x20], [0x2c, 0xf0]);
    assert_eq!(change(|_, headers| headers.hash = 1)[0], together[0]);
    assert_eq!(change(|_, headers| headers.checksum = 1)[0], together[0], "lost, as in hardware");
    assert_eq!(change(|completion, _| completion.user_index = 1), apart);
    assert_eq!(change(|completion, _| completion.queue_number = 1), apart);
    assert_eq!(change(|completion, _| completion.wqe_counter = 7), apart);
    assert_eq!(change(|_, headers| headers.flow_tag = 1), apart);
    assert_eq!(change(|_, headers| headers.vlan = 1), apart);
    assert_eq!(change(|_, headers| headers.types = 1), apart);
    assert_eq!(change(|_, headers| headers.verdicts = 1), apart);
    assert_eq!(change(|_, headers| headers.hash_type = 1), apart);
    assert_eq!(change(|_, headers| headers.wqe_id = 1), apart);
    assert_eq!(change(|_, headers| headers.byte_count |= cqe::FILLER), apart);
}

#[test]
fn in_a_striding_queue_the_counter_goes_on_by_the_strides() {
    for (second, count) in [(4, 2), (2, 60 | 3 << 16)] {
        let mut world = compressing(8, Compression::Hash);
        world.complete(&received(1, 60 | 3 << 16));
        world.complete(&received(second, 60 | 1 << 16));
        world.step();
        assert_eq!(length_of(&world.slot(0)), count, "stride {second} after 1 to 3");
    }
}

#[test]
fn an_error_ends_a_session_and_keeps_its_place() {
    let mut world = compressing(8, Compression::Hash);
    world.complete(&received(0, 60));
    world.complete(&received(1, 61));
    world.complete(&flushed(2));
    world.complete(&received(3, 60));
    world.step();
    assert_eq!((length_of(&world.slot(0)), world.slot(0)[63]), (2, 0x2c));
    assert_eq!((world.slot(2)[55], world.slot(2)[63]), (5, 0xe0));
    assert_eq!(world.slot(3)[63], 0x20);
}

#[test]
fn what_found_room_before_an_overrun_is_still_written() {
    let mut world = compressing(4, Compression::Hash);
    world.receive(0, &[60; 5]);
    assert_eq!((length_of(&world.slot(0)), world.slot(0)[63]), (4, 0x2c));
    assert_eq!(world.take_event(), Some(EventKind::CqError));
}

#[test]
fn a_hostile_nic_writes_late_and_then_all_at_once() {
    let hostility = Hostility { seed: 3, completion_delay_max: 5, ..Hostility::default() };
    let config = Config { hostility: Some(hostility), ..Config::default() };
    let mut world = world_of(config, 64, 64, |request| request.compression = Some(Compression::Hash));
    let mut largest = 0;
    let (mut sent, mut seen) = (0_u16, 0);
    for step in 0..60 {
        world.clock.advance(1);
        world.complete(&received(sent, 60));
        sent += 1;
        assert!(world.step() > 0, "who waits has something to do");
        let mut valid = seen;
        while valid < 64 && world.slot(valid)[63] != 0xf0 {
            let entry = world.slot(valid);
            valid += if entry[63] == 0x2c { length_of(&entry) } else { 1 };
        }
        largest = largest.max(valid - seen);
        seen = valid;
        assert!(u32::from(sent) - valid <= 6, "late at step {step}: {valid} of {sent}");
    }
    assert!(largest > 1, "never more than one at once");
    assert_eq!(world.slot(0)[48..56], 1_u64.to_be_bytes(), "stamped when it came, not when it was written");
}

#[test]
fn a_completion_of_a_queue_that_was_reset_is_never_written() {
    let hostility = Hostility { completion_delay_max: 1000, ..Hostility::default() };
    let mut world = world_of(Config { hostility: Some(hostility), ..Config::default() }, 8, 64, |_| ());
    let other = Completion { queue_number: 77, ..received(0, 77) };
    world.complete(&received(0, 60));
    world.complete(&other);
    world.hca.cqs.forget(6);
    for _ in 0..=1001 {
        world.step();
    }
    assert_eq!(length_of(&world.slot(0)), 77);
    assert_eq!(world.owners()[1..], [0xf0; 7]);
}
