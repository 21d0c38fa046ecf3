//! The uverbs front end of the software ConnectX: any system calls of a client, and steps of the
//! NIC between them. Nothing panics, a refused call makes no object, and after the descriptor is
//! closed the NIC has no object left.

use std::cell::RefCell;
use std::collections::HashMap;

use softhca::hca::testing::{CableEnd, ManualClock};
use softhca::hca::{Config, Dma, Environment, Errno, Hca, Unmapped, Wire};
use softhca::uverbs::testing::{Attribute, CALL, Client, Command, Numbers, Recorded, VERBS, extended};
use softhca::uverbs::{Kernel, Mapping, Protocol, Session};

use crate::fuzz::Input;

/// The steps of the plan.
mod step {
    pub(super) const WRITE: u8 = 0;
    pub(super) const IOCTL: u8 = 1;
    pub(super) const MMAP: u8 = 2;
    pub(super) const STEP: u8 = 3;
    pub(super) const MEMORY: u8 = 4;
    pub(super) const CLOSE: u8 = 5;
    pub(super) const KINDS: u8 = 6;
}

/// Steps of a plan: more than DPDK takes to bring up a port, with a step of the NIC after each of
/// its own.
const STEPS_MAX: usize = 500;

/// The first byte is the protocol, and the number before that of the first descriptor; then steps,
/// each with its kind in front.
pub(in crate::fuzz) fn uverbs(data: &[u8]) {
    let mut input = Input::new(data);
    let first = input.u8();
    let protocol = if first.is_multiple_of(2) { Protocol::Write } else { Protocol::Ioctl };
    let mut bench = Bench::new(protocol, (first / 2).into());
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        bench.step(&mut input);
    }
    bench.session.close(&mut bench.hca);
    assert_eq!(bench.session.objects(), 0, "a closed session has nothing");
    assert_eq!((bench.hca.alloc_pd(), bench.hca.alloc_uar()), (0, 0), "the NIC has nothing left of it");
}

struct Bench {
    memory: Sparse,
    hca: Hca,
    session: Session,
    process: Numbers,
    wire: CableEnd,
    far: CableEnd,
    clock: ManualClock,
}

impl Bench {
    fn new(protocol: Protocol, descriptor: i32) -> Self {
        let (wire, far) = CableEnd::pair();
        Self {
            memory: Sparse::default(),
            hca: Hca::new(Config { flows_max: 4, strict: true, ..Config::default() }),
            session: Session::new(protocol),
            process: Numbers { next: descriptor, raw: true, locked_len_max: Some(1 << 40) },
            wire,
            far,
            clock: ManualClock::default(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let before = self.session.objects();
        let mut kernel = Kernel { hca: &mut self.hca, dma: &self.memory, process: &mut self.process };
        let answer = match input.below(step::KINDS) {
            step::WRITE => {
                let frame = input.block();
                self.session.write(frame, &mut kernel).map(|len| assert_eq!(len, frame.len()))
            }
            step::IOCTL => {
                // Where memory is full the call reads the bytes that are there.
                let _ = self.memory.write(CALL, input.block());
                self.session.ioctl(VERBS, CALL, &mut kernel)
            }
            step::MMAP => self.map(u64::from(input.u32()), input.u8() % 2 == 1),
            step::MEMORY => {
                let address = input.u64();
                let _ = self.memory.write(address, input.block());
                Ok(())
            }
            step::CLOSE => {
                self.session.descriptor_closed(input.u8().into());
                Ok(())
            }
            _ => {
                self.work();
                Ok(())
            }
        };
        if let Err(Errno(number)) = answer {
            assert!(number > 0, "an errno is positive");
            assert_eq!(self.session.objects(), before, "what is refused makes and destroys nothing");
        }
    }

    fn map(&mut self, page: u64, writable: bool) -> Result<(), Errno> {
        let mapping = self.session.mmap(page * 4096, 4096, writable, &mut self.hca)?;
        if let Mapping::Uar(index) = mapping {
            self.hca.map_uar(index, UARS + u64::from(index) * 4096).expect("a page of the session can be mapped");
        }
        Ok(())
    }

    /// The NIC works on all objects that exist, while a frame comes in.
    fn work(&mut self) {
        self.far.send(&[0xff; 60]);
        self.clock.advance(1_000);
        let mut environment = Environment { dma: &self.memory, wire: &mut self.wire, clock: &self.clock };
        self.hca.step(4, &mut environment);
        while let Some(event) = self.hca.take_event() {
            let _ = self.session.concerns(&event);
        }
        while self.far.take().is_some() {}
    }
}

/// Where pages of doorbell registers are mapped.
const UARS: u64 = 0x5000_0000;

/// Memory at all addresses that a process may have, zeros where nothing was written: frames that
/// were recorded anywhere find theirs.
#[derive(Default)]
struct Sparse(RefCell<HashMap<u64, Vec<u8>>>);

const PAGE_LEN: u64 = 4096;

/// Below this range is memory that every process leaves unmapped, above it is the kernel.
const ADDRESSES: std::ops::Range<u64> = 0x1_0000..1 << 47;

/// More pages than real clients of a few queues touch.
const PAGES_MAX: usize = 512;

impl Sparse {
    fn check(address: u64, len: usize) -> Result<(), Unmapped> {
        let end = address.checked_add(len as u64).ok_or(Unmapped)?;
        if len == 0 || ADDRESSES.contains(&address) && end <= ADDRESSES.end { Ok(()) } else { Err(Unmapped) }
    }
}

/// The page of an address, and the place in it.
fn place(address: u64) -> (u64, usize) {
    (address / PAGE_LEN, (address % PAGE_LEN) as usize)
}

impl Dma for Sparse {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        Self::check(address, into.len())?;
        let pages = self.0.borrow();
        for (at, byte) in (address..).zip(into) {
            let (page, at) = place(at);
            *byte = pages.get(&page).map_or(0, |page| page[at]);
        }
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        Self::check(address, from.len())?;
        let mut pages = self.0.borrow_mut();
        for (at, byte) in (address..).zip(from) {
            let (page, at) = place(at);
            if !pages.contains_key(&page) && pages.len() == PAGES_MAX {
                return Err(Unmapped);
            }
            pages.entry(page).or_insert_with(|| vec![0; PAGE_LEN as usize])[at] = *byte;
        }
        Ok(())
    }
}

/// Usual sequences of calls of clients, as plans.
pub(in crate::fuzz) fn seeds() -> Vec<Vec<u8>> {
    let mut older = Client::new(Protocol::Write, Config::default());
    life(&mut older);
    let mut newer = Client::new(Protocol::Ioctl, Config::default());
    newer_life(&mut newer);
    let mut questions = Client::new(Protocol::Ioctl, Config::default());
    ask(&mut questions);
    vec![plan(Protocol::Write, &older), plan(Protocol::Ioctl, &newer), plan(Protocol::Ioctl, &questions)]
}

const MADE: &str = "the software ConnectX takes what clients send";

/// A context, a queue pair that goes to work, a rule, and the end of all of it.
fn life(client: &mut Client) {
    client.open().expect(MADE);
    let pd = client.pd().expect(MADE);
    let (core, _) = client.command(&Command { number: 17, core_room: 4, ..Command::default() }).expect(MADE);
    let cq = client.cq(16, Some(Client::word(&core, 0) as i32), 0x1234).expect(MADE);
    let qp = client.qp(pd, cq, 8).expect(MADE);
    for (mask, state) in [(1 | 1 << 5, 1), (1, 2), (1, 3)] {
        let mut core = vec![0; 112];
        core[64..68].copy_from_slice(&qp.to_ne_bytes());
        core[68..72].copy_from_slice(&u32::to_ne_bytes(mask));
        (core[96], core[104]) = (state, 1);
        client.command(&Command { number: 26, core, ..Command::default() }).expect(MADE);
    }
    let flow = Command { number: extended(50), core: flow(qp), core_room: 8, ..Command::default() };
    // The receiving side may not have rules.
    let flow = client.command(&flow).map(|(core, _)| Client::word(&core, 4));
    client.command(&Command { number: 25, core: words(&[qp, 1]), core_room: 128, ..Command::default() }).expect(MADE);
    if let Ok(flow) = flow {
        client.command(&Command { number: extended(51), core: words(&[0, flow]), ..Command::default() }).expect(MADE);
    }
    client.command(&Command { number: 27, core: words(&[qp, 0]), core_room: 4, ..Command::default() }).expect(MADE);
    client.command(&Command { number: 20, core: words(&[cq, 0]), core_room: 8, ..Command::default() }).expect(MADE);
    client.destroy(4, pd).expect(MADE);
}

/// A rule for UDP to a port, with a tag.
fn flow(qp: u32) -> Vec<u8> {
    let ethernet = [vec![0x20, 0, 0, 0, 40, 0, 0, 0], vec![2; 14], vec![0; 2], vec![0xff; 14], vec![0; 2]].concat();
    let udp = [0x41, 0, 0, 0, 16, 0, 0, 0, 0x12, 0x34, 0, 0, 0xff, 0xff, 0, 0];
    let tag = [0, 0x10, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    let specs = [&ethernet[..], &udp, &tag].concat();
    let attr = [words(&[0]), vec![specs.len() as u8, 0, 0, 0, 3, 0, 0, 1], words(&[0])].concat();
    [words(&[0, qp]), attr, specs].concat()
}

/// The same by methods: a page of doorbells, a CQ, a WQ, its table.
fn newer_life(client: &mut Client) {
    client.open().expect(MADE);
    let pd = client.pd().expect(MADE);
    let long = |id, value: u64| Attribute::In(id, value.to_ne_bytes().to_vec());
    let word = |id, value: u32| Attribute::In(id, value.to_ne_bytes().to_vec());
    let page = [
        Attribute::New(0x1000),
        long(0x1001, 0),
        Attribute::Out(0x1002, 8),
        Attribute::Out(0x1003, 4),
        Attribute::Out(0x1004, 4),
    ];
    client.ioctl(0x1008, 0x1000, &page).expect(MADE);
    let (ring, doorbell) = (client.memory.reserve(4096, 4096), client.memory.reserve(64, 64));
    let driver = [ring.to_ne_bytes().to_vec(), doorbell.to_ne_bytes().to_vec(), words(&[64, 0, 0, 0])].concat();
    let cq = [
        Attribute::New(0),
        word(1, 15),
        long(2, 0x1234),
        word(4, 0),
        Attribute::Out(6, 4),
        Attribute::In(0x1000, driver),
        Attribute::Out(0x1001, 8),
    ];
    let cq = Client::word(&client.ioctl(3, 0, &cq).expect(MADE)[0], 0);
    let driver =
        [ring.to_ne_bytes().to_vec(), doorbell.to_ne_bytes().to_vec(), words(&[8, 4, 7, 0, 0, 0, 0, 0])].concat();
    let wq = [
        Attribute::New(0),
        Attribute::Number(1, pd.into()),
        Attribute::Number(2, cq.into()),
        long(3, 0x5678),
        long(4, 0),
        word(6, 8),
        word(7, 1),
        word(8, 0),
        Attribute::Out(9, 4),
        Attribute::Out(10, 4),
        Attribute::Out(11, 4),
        Attribute::In(0x1000, driver),
        Attribute::Out(0x1001, 8),
    ];
    let Ok(answer) = client.ioctl(12, 0, &wq) else { return };
    let wq = Client::word(&answer[0], 0);
    let table = Command { number: extended(55), core: words(&[0, 0, wq, 0]), core_room: 16, ..Command::default() };
    let (core, _) = client.tunnel(&table).expect(MADE);
    client.ioctl(11, 0, &[Attribute::Number(0, Client::word(&core, 8).into())]).expect(MADE);
    client.ioctl(12, 1, &[Attribute::Number(0, wq.into()), Attribute::Out(1, 4)]).expect(MADE);
    client.ioctl(3, 1, &[Attribute::Number(0, cq.into()), Attribute::Out(1, 8)]).expect(MADE);
    client.ioctl(1, 0, &[Attribute::Number(0, pd.into())]).expect(MADE);
}

/// The queries of `ibv_devinfo`.
fn ask(client: &mut Client) {
    let driver = words(&[16, 4, 0, 0, 1, 0, 3, 0]);
    let open = [Attribute::Out(0, 4), Attribute::Out(1, 8), Attribute::In(0x1000, driver), Attribute::Out(0x1001, 72)];
    client.ioctl(0, 3, &open).expect(MADE);
    client.ioctl(16, 0, &[Attribute::New(0)]).expect(MADE);
    let device =
        Command { number: extended(1), core: vec![0; 8], core_room: 304, driver_room: 104, ..Command::default() };
    client.tunnel(&device).expect(MADE);
    client.ioctl(0, 2, &[Attribute::In(0, vec![1]), Attribute::Out(1, 48)]).expect(MADE);
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The number before that of a client's first descriptor.
const FIRST_DESCRIPTOR: u8 = 100;

/// The client's calls as a plan, with a step of the NIC after each.
fn plan(protocol: Protocol, client: &Client) -> Vec<u8> {
    let mut plan = vec![FIRST_DESCRIPTOR * 2 + u8::from(protocol == Protocol::Ioctl)];
    for call in &client.recorded {
        let (kind, bytes) = match call {
            Recorded::Write(bytes) => (step::WRITE, bytes),
            Recorded::Ioctl(bytes) => (step::IOCTL, bytes),
        };
        plan.push(kind);
        plan.extend((bytes.len() as u16).to_be_bytes());
        plan.extend(bytes);
        plan.push(step::STEP);
    }
    plan
}
