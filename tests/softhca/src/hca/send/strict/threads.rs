//! Strict mode while drivers run: no interleaving of looks and writes may look like a mistake.
#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::hca::send::rig::{ethernet, inline, pointer};
use crate::hca::testing::ManualClock;
use crate::hca::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const BASE: u64 = 0x10_0000;
const CQ_ENTRIES: u32 = 256;
const WQEBBS: u32 = 64;

/// Memory that several threads see, as on x86-64: stores of one thread become visible in their
/// order.
struct SharedMemory {
    words: Vec<AtomicU64>,
    reserved: AtomicU64,
}

impl SharedMemory {
    fn reserve(&self, len: u64) -> u64 {
        BASE + self.reserved.fetch_add(len.next_multiple_of(4096), Ordering::Relaxed)
    }

    fn word(&self, address: u64) -> Result<&AtomicU64, Unmapped> {
        let at = address.checked_sub(BASE).ok_or(Unmapped)? / 8;
        self.words.get(at as usize).ok_or(Unmapped)
    }

    /// Changes some bytes of a word.
    fn patch(&self, address: u64, bytes: &[u8]) -> Result<(), Unmapped> {
        let at = (address % 8) as usize;
        let change = |word: u64| {
            let mut whole = word.to_ne_bytes();
            whole[at..at + bytes.len()].copy_from_slice(bytes);
            Some(u64::from_ne_bytes(whole))
        };
        let _ = self.word(address)?.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        Ok(())
    }

    fn get(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes).unwrap();
        bytes
    }
}

impl Dma for SharedMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        let mut address = address;
        let mut into = into;
        while !into.is_empty() {
            let at = (address % 8) as usize;
            let len = into.len().min(8 - at);
            let word = self.word(address)?.load(Ordering::Acquire).to_ne_bytes();
            let (now, later) = into.split_at_mut(len);
            now.copy_from_slice(&word[at..at + len]);
            (into, address) = (later, address + len as u64);
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        let mut address = address;
        let mut from = from;
        while !from.is_empty() {
            let (now, later) = from.split_at(from.len().min(8 - (address % 8) as usize));
            match <[u8; 8]>::try_from(now) {
                Ok(word) => self.word(address)?.store(u64::from_ne_bytes(word), Ordering::Release),
                Err(_) => self.patch(address, now)?,
            }
            (from, address) = (later, address + now.len() as u64);
        }
        Ok(())
    }

    fn swap_be64(&self, address: u64, value: u64) -> Result<u64, Unmapped> {
        let word = u64::from_ne_bytes(value.to_be_bytes());
        Ok(u64::from_be_bytes(self.word(address)?.swap(word, Ordering::AcqRel).to_ne_bytes()))
    }
}

struct Counting(u64);

impl Wire for Counting {
    fn send(&mut self, _: &[u8]) -> bool {
        self.0 += 1;
        true
    }

    fn receive(&mut self, _: &mut Vec<u8>) -> bool {
        false
    }

    fn link(&self) -> LinkState {
        LinkState::Up
    }
}

/// A driver's half of one queue.
struct Driver<'m> {
    memory: &'m SharedMemory,
    number: u32,
    ring: u64,
    doorbell: u64,
    register: u64,
    half: u64,
    cq_ring: u64,
    buffer: u64,
    lkey: u32,
    pi: u16,
    done: u16,
    ci: u32,
}

impl Driver<'_> {
    /// Posts a burst of `count` WQEs of mixed shapes, and rings; a single one by BlueFlame where
    /// `blueflame`.
    fn post(&mut self, count: u16, blueflame: bool, lock: &Mutex<()>) {
        let mut last = (0, Vec::new());
        for _ in 0..count {
            while self.pi.wrapping_sub(self.done) + 3 > WQEBBS as u16 {
                self.reap();
            }
            let wqe = self.wqe();
            for (at, unit) in wqe.chunks(16).enumerate() {
                let offset = (u64::from(self.pi) * 64 + at as u64 * 16) % (u64::from(WQEBBS) * 64);
                self.memory.write(self.ring + offset, unit).unwrap();
            }
            last = (self.pi, wqe);
            self.pi = self.pi.wrapping_add(last.1.len().div_ceil(64) as u16);
        }
        self.memory.store_be32(self.doorbell, u32::from(self.pi)).unwrap();
        let register = self.register + self.half;
        self.half ^= 256;
        let _held = lock.lock().unwrap();
        let len = if blueflame && count == 1 { last.1.len().next_multiple_of(64) } else { 8 };
        last.1.resize(last.1.len().next_multiple_of(64), 0);
        // Copies from the ring, as drivers do: the bytes after the WQE are those in the ring.
        let copied = (0..len / 64).flat_map(|block| {
            let position = (u64::from(last.0) + block as u64) % u64::from(WQEBBS);
            self.memory.get(self.ring + position * 64, 64)
        });
        let bytes: Vec<u8> = if len == 8 { last.1[..8].to_vec() } else { copied.collect() };
        self.memory.write(register, &bytes).unwrap();
    }

    fn wqe(&self) -> Vec<u8> {
        let data = [self.pi as u8; 100];
        let segment = if self.pi.is_multiple_of(3) {
            inline(&data[..60 + usize::from(self.pi % 40)])
        } else {
            pointer(64, self.lkey, self.buffer).to_vec()
        };
        let units = 2 + segment.len() / 16;
        let mut wqe = (u32::from(self.pi) << 8 | 0x0a).to_be_bytes().to_vec();
        wqe.extend((self.number << 8 | units as u32).to_be_bytes());
        wqe.extend([0, 0, 0, 8, 0, 0, 0, 0]);
        wqe.extend(ethernet(0));
        wqe.extend(segment);
        wqe
    }

    /// Takes one completion, where there is one.
    fn reap(&mut self) {
        let cqe = self.memory.get(self.cq_ring + u64::from(self.ci % CQ_ENTRIES) * 64 + 56, 8);
        if cqe[7] >> 4 == 0xf || u32::from(cqe[7] & 1) != u32::from(self.ci & CQ_ENTRIES != 0) {
            std::thread::yield_now();
            return;
        }
        assert_eq!(cqe[7] >> 4, 0, "an error CQE for WQE {}", u16::from_be_bytes([cqe[4], cqe[5]]));
        let index = u16::from_be_bytes([cqe[4], cqe[5]]);
        let position = u64::from(index) % u64::from(WQEBBS);
        let units = self.memory.get(self.ring + position * 64 + 7, 1)[0];
        self.done = index.wrapping_add(u16::from(units).div_ceil(4));
        self.ci += 1;
    }
}

/// Two queues on these pages and registers post often. Returns how many writes were seen to be
/// BlueFlame.
fn check(places: [(u32, u64); 2]) -> u64 {
    let memory =
        SharedMemory { words: (0..0x8_0000).map(|_| AtomicU64::new(0)).collect(), reserved: AtomicU64::new(0) };
    let mut hca = Hca::new(Config { strict: true, ..Config::default() });
    let mut pages: Vec<(u32, u64)> = Vec::new();
    for (index, _) in places {
        if !pages.iter().any(|(known, _)| *known == index) {
            let address = memory.reserve(4096);
            hca.map_uar(index, address).unwrap();
            pages.push((index, address));
        }
    }
    let page = |index| pages.iter().find(|(known, _)| *known == index).unwrap().1;
    let mut drivers: Vec<_> =
        places.iter().map(|(index, register)| driver(&mut hca, &memory, *index, page(*index) + register)).collect();
    let (lock, stop) = (Mutex::new(()), AtomicBool::new(false));
    let good = std::thread::scope(|scope| {
        let running: Vec<_> = drivers
            .iter_mut()
            .map(|driver| {
                let lock = &lock;
                scope.spawn(move || {
                    for post in 0..POSTS {
                        // Now and then the engine catches up: then it sees each following write
                        // alone.
                        while post % 20 < 2 && driver.done != driver.pi {
                            driver.reap();
                        }
                        driver.post([1, 1, 3, 1, 8][post as usize % 5], post % 2 == 0, lock);
                    }
                    while driver.done != driver.pi {
                        driver.reap();
                    }
                })
            })
            .collect();
        let (hca, memory, stop) = (&mut hca, &memory, &stop);
        scope.spawn(move || {
            let (mut wire, clock) = (Counting(0), ManualClock::default());
            while !stop.load(Ordering::Relaxed) {
                if hca.step(64, &mut Environment { dma: memory, wire: &mut wire, clock: &clock }) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let ended: Vec<_> = running.into_iter().map(|driver| driver.join().is_ok()).collect();
        stop.store(true, Ordering::Relaxed);
        ended.iter().all(|good| *good)
    });
    assert_eq!(hca.take_diagnosis(), None);
    assert!(good, "a driver failed, see above");
    hca.counters().doorbells_blueflame
}

fn driver<'m>(hca: &mut Hca, memory: &'m SharedMemory, uar: u32, register: u64) -> Driver<'m> {
    let (cq_ring, cq_doorbell) = (memory.reserve(u64::from(CQ_ENTRIES) * 64), memory.reserve(8));
    for entry in 0..u64::from(CQ_ENTRIES) {
        memory.write(cq_ring + entry * 64 + 63, &[0xf0]).unwrap();
    }
    let request = CqRequest {
        entries: CQ_ENTRIES,
        ring: cq_ring,
        doorbell: cq_doorbell,
        entry_len: 64,
        ignore_overrun: true,
        ..CqRequest::default()
    };
    let cq = hca.create_cq(&request, memory).unwrap().handle;
    let pd = hca.alloc_pd();
    let buffer = memory.reserve(4096);
    let access = AccessFlags(1);
    let lkey = hca.register_memory(&MrRequest { pd, start: buffer, len: 4096, iova: buffer, access }).unwrap().lkey;
    let (ring, doorbell) = (memory.reserve(u64::from(WQEBBS) * 64), memory.reserve(8));
    let created = hca.create_qp(QpRequest {
        pd,
        kind: QpKind::RawPacket { send: Some(SqRing { ring, wqebb_count: WQEBBS, doorbell, cq, uar }), receive: None },
        user_handle: 0,
        user_index: 0,
        capabilities: QpCapabilities::default(),
        create_flags: 0,
        signal_all: false,
    });
    let QpCreated { handle, number, .. } = created.unwrap();
    for state in [QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend] {
        hca.modify_qp(handle, &QpChange { state: Some(state), port: Some(1), ..QpChange::default() }).unwrap();
    }
    Driver { memory, number, ring, doorbell, register, half: 0, cq_ring, buffer, lkey, pi: 0, done: 0, ci: 0 }
}

const POSTS: u32 = 10_000;

#[test]
fn queues_with_pages_of_their_own_are_never_punished() {
    let blueflame = check([(1, 0x800), (2, 0x800)]);
    assert!(blueflame > 0, "bytes were compared");
}

#[test]
fn queues_with_registers_of_their_own_are_never_punished() {
    check([(1, 0x800), (1, 0xa00)]);
}

#[test]
fn queues_that_share_a_register_are_never_punished_and_never_stuck() {
    check([(1, 0x800), (1, 0x800)]);
}
