//! Readers that behave and readers that do not, over a wire without time.

use rdma::cm::{ConnectOptions, Resolved};
use rdma::roce::{Addresses, Buffer, Data, Link, Mr, Path, Remote, RoceFrame, SendOperation, SendRequest, Sge, Status};
use rdma::snapshot::{Publisher, parse};
use wirepath::counters::Block;

use super::*;

const SLOT_LEN: usize = slot_len(BookSnapshot::LEN);
const SLOTS: usize = 4;
const MS: u64 = 1_000_000;

/// A device with its connection manager.
struct End {
    device: Device,
    manager: Manager,
}

struct Rig {
    server: End,
    readers: Readers,
    client: End,
    pd: PdHandle,
    cq: CqHandle,
    memory: Buffer,
    mr: Mr,
    publisher: Publisher,
    block: Block,
    now: u64,
}

/// A connection of the client.
#[derive(Clone)]
struct Connection {
    id: CmId,
    qp: QpHandle,
}

fn addresses(end: u8) -> Addresses {
    let address = |end: u8| Ipv4Addr::new(10, 0, 0, 1 + end);
    Addresses::Ipv4 { source: address(end), destination: address(1 - end) }
}

fn resolve(addresses: Addresses) -> Resolved {
    let link = Link { destination: [2; 6], source: [4; 6], vlan: None };
    Resolved::Known(Path::new(link, addresses))
}

impl End {
    fn new(seed: u64) -> Self {
        let device = Device::new(&DeviceConfig { key_seed: seed, rd_atomics: READS, ..DeviceConfig::default() });
        Self { device, manager: Manager::new(&CmConfig { seed, connections: 8, ..CmConfig::default() }) }
    }

    fn poll(&mut self, now: u64) {
        self.device.on_timer(now);
        self.manager.poll(now, &mut self.device, resolve);
    }

    /// Hands over all frames; returns how many there were.
    fn carry_to(&mut self, now: u64, to: &mut Self) -> usize {
        let mut bytes = vec![0; self.device.frame_len_max()];
        let mut count = 0;
        while let Some(len) = self.device.transmit(now, &mut bytes) {
            let frame = RoceFrame::parse(&bytes[..len]).unwrap();
            to.device.receive(now, frame.network, frame.roce);
            count += 1;
        }
        count
    }
}

impl Rig {
    fn new(readers: u32) -> Self {
        let (mut server, mut client) = (End::new(1), End::new(2));
        let plan = ExposePlan { readers, ..ExposePlan::new("unused") };
        let listen = ListenOptions { space: PortSpace::Tcp, port: plan.port, backlog: readers };
        server.manager.cm_mut().listen(&listen).unwrap();
        let (publisher, block) = (Publisher::new(SLOTS, BookSnapshot::LEN), Block::heap());
        let counters = ExposeCounters::new(&block.scope("expose"));
        let readers = Readers::new(&plan, &mut server.device, vec![publisher.region()], counters).unwrap();
        let (pd, cq) = (client.device.create_pd().unwrap(), client.device.create_cq(16).unwrap());
        let memory = Buffer::zeroed((SLOTS + 1) * SLOT_LEN);
        let mr = client.device.register(pd, Region::from(&memory), Access::LOCAL_WRITE).unwrap();
        Self { server, readers, client, pd, cq, memory, mr, publisher, block, now: 0 }
    }

    /// Until nothing moves any more.
    fn settle(&mut self) {
        loop {
            self.client.poll(self.now);
            self.server.poll(self.now);
            self.readers.turn(self.now, &mut self.server.manager, &mut self.server.device);
            self.server.poll(self.now);
            let moved =
                self.client.carry_to(self.now, &mut self.server) + self.server.carry_to(self.now, &mut self.client);
            if moved == 0 {
                return;
            }
        }
    }

    fn events(&mut self) -> Vec<CmEvent> {
        core::iter::from_fn(|| self.client.manager.next_event()).collect()
    }

    /// Asks for a connection; the offer, or why there is none.
    fn connect(&mut self) -> Result<(Connection, Offer), CmEvent> {
        let options = QpOptions {
            transport: Transport::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            send_depth: 4,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let device = &mut self.client.device;
        let qp = device.create_qp(&options).unwrap();
        device.modify_qp(qp, &QpAttributes::init(Access::default())).unwrap();
        let options = ConnectOptions {
            addresses: addresses(1),
            port: rdma::snapshot::OFFER_PORT,
            qp: LocalQp {
                qpn: device.qpn(qp).unwrap(),
                psn: first_psn(),
                responder_resources: READS,
                initiator_depth: READS,
                rnr_retry: 7,
                srq: false,
            },
            transport: Transport::Rc,
            mtu: rdma::roce::Mtu::B1024,
            retry_cnt: 7,
            private_data: &[],
        };
        let id = self.client.manager.connect(self.now, qp, &options).unwrap();
        self.settle();
        match self.events().into_iter().find(|event| event.id() == id).unwrap() {
            CmEvent::Established(_) => {
                let data = self.client.manager.cm().private_data(id).unwrap();
                Ok((Connection { id, qp }, Offer::parse(data).unwrap()))
            }
            other => Err(other),
        }
    }

    /// Posts a request over `len` bytes of the client's memory, and returns its status.
    fn request(&mut self, connection: &Connection, operation: SendOperation, len: usize) -> Status {
        let sge = [Sge { address: self.mr.address, len: len as u32, lkey: self.mr.key }];
        let request = SendRequest::new(0, operation, Data::Sges(&sge));
        self.client.device.post_send(connection.qp, &request).unwrap();
        self.settle();
        self.client.device.poll_cq(self.cq).expect("a completion").status
    }

    fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("expose/{name}")).unwrap()
    }
}

fn remote(offer: &Offer, slot: u32) -> Remote {
    let table = offer.tables[0];
    Remote { address: table.slot_address(slot, offer.value_len), rkey: table.rkey }
}

#[test]
fn reader_needs_nothing_but_the_connection() {
    let mut rig = Rig::new(4);
    rig.publisher.publish(3, &[7; BookSnapshot::LEN]);
    let (reader, offer) = rig.connect().unwrap();
    assert_eq!((offer.schema, offer.value_len), (BookSnapshot::SCHEMA, BookSnapshot::LEN as u32));
    assert_eq!((offer.tables.len(), offer.tables[0].slots), (1, SLOTS as u32));
    assert_eq!(rig.request(&reader, SendOperation::Read(remote(&offer, 3)), SLOT_LEN), Status::Success);
    let mut slot = vec![0; SLOT_LEN];
    rig.memory.read(0, &mut slot);
    assert_eq!(parse(&slot, BookSnapshot::LEN), Ok((2, &[7; BookSnapshot::LEN][..])));
    assert_eq!((rig.count("readers"), rig.count("connected"), rig.count("violations")), (1, 1, 0));
}

/// Each is refused by a NAK, its connection ends, and no byte of the slots has changed.
#[test]
fn reader_that_does_more_than_read_the_slots_is_refused_and_disturbs_no_other() {
    let mut rig = Rig::new(8);
    rig.publisher.publish(0, &[7; BookSnapshot::LEN]);
    let (honest, offer) = rig.connect().unwrap();
    let whole = remote(&offer, 0);
    let Remote { address, rkey } = whole;
    // The queue pair takes READs alone; those must be of the slots.
    let (no_request, no_access) = (Status::RemoteInvalidRequest, Status::RemoteAccess);
    let hostile = [
        (SendOperation::Write(whole), SLOT_LEN, no_request),
        (SendOperation::FetchAdd { remote: whole, add: 1 }, 8, no_request),
        (SendOperation::Read(Remote { rkey: rkey ^ 1, address }), SLOT_LEN, no_access),
        (SendOperation::Read(Remote { rkey: rkey ^ 0x100, address }), SLOT_LEN, no_access),
        (SendOperation::Read(Remote { address: address - 8, rkey }), SLOT_LEN, no_access),
        (SendOperation::Read(Remote { address: address + 8, rkey }), SLOTS * SLOT_LEN, no_access),
        (SendOperation::Read(Remote { address: u64::MAX - 7, rkey }), SLOT_LEN, no_access),
    ];
    let before = slots(&rig);
    for (violations, (operation, len, status)) in (1..).zip(hostile) {
        let (reader, _) = rig.connect().unwrap();
        assert_eq!(rig.request(&reader, operation, len), status, "{operation:?}");
        assert_eq!(rig.count("violations"), violations);
        assert!(rig.events().contains(&CmEvent::Disconnected(reader.id)), "{operation:?}");
        rig.client.manager.destroy(rig.now, &mut rig.client.device, reader.id).unwrap();
        // Nothing late can come any more: its place is free.
        rig.now += 10_000 * MS;
        rig.settle();
        assert_eq!(rig.count("readers"), 1);
    }
    assert_eq!(slots(&rig), before);
    assert_eq!(rig.request(&honest, SendOperation::Read(whole), SLOT_LEN), Status::Success);
}

fn slots(rig: &Rig) -> Vec<u8> {
    let mut bytes = vec![0; SLOTS * SLOT_LEN];
    rig.publisher.memory().read(0, &mut bytes);
    bytes
}

#[test]
fn reader_that_was_silent_makes_room_and_one_that_was_not_stays() {
    let mut rig = Rig::new(1);
    let (first, offer) = rig.connect().unwrap();
    assert_eq!(rig.request(&first, SendOperation::Read(remote(&offer, 0)), SLOT_LEN), Status::Success);
    rig.now += SILENCE_NS - MS;
    assert_eq!(rig.request(&first, SendOperation::Read(remote(&offer, 0)), SLOT_LEN), Status::Success);
    rig.now += SILENCE_NS / 2;
    assert!(matches!(rig.connect(), Err(CmEvent::Rejected(_, RejectReason::NoResources))));
    assert_eq!((rig.count("refused"), rig.count("readers")), (1, 1));
    rig.now += SILENCE_NS;
    assert!(rig.connect().is_ok());
    assert_eq!((rig.count("silent"), rig.count("readers")), (1, 1));
}

#[test]
fn reader_that_goes_gives_its_place_back() {
    let mut rig = Rig::new(1);
    for connected in 1..4 {
        let (reader, _) = rig.connect().unwrap();
        assert_eq!((rig.count("connected"), rig.count("readers")), (connected, 1));
        let End { device, manager } = &mut rig.client;
        manager.disconnect(rig.now, device, reader.id).unwrap();
        rig.settle();
        rig.now += 10_000 * MS;
        rig.settle();
        rig.events();
        assert_eq!(rig.count("readers"), 0);
    }
}

/// The number of its queue pair is kept for 67 ms more, and its place is not.
#[test]
fn reader_takes_the_place_of_one_that_has_just_ended() {
    let mut rig = Rig::new(1);
    let (first, _) = rig.connect().unwrap();
    let End { device, manager } = &mut rig.client;
    manager.disconnect(rig.now, device, first.id).unwrap();
    rig.settle();
    rig.events();
    assert_eq!(rig.count("readers"), 0);
    assert!(rig.connect().is_ok());
    assert_eq!((rig.count("connected"), rig.count("refused"), rig.count("readers")), (2, 0, 1));
}

/// It has no receive: the device answers that it is not ready, and the reader would ask for ever.
#[test]
fn reader_that_sends_a_message_is_ended_within_a_second() {
    let mut rig = Rig::new(1);
    let (reader, _) = rig.connect().unwrap();
    let sge = [Sge { address: rig.mr.address, len: 8, lkey: rig.mr.key }];
    let request = SendRequest::new(0, SendOperation::Send, Data::Sges(&sge));
    rig.client.device.post_send(reader.qp, &request).unwrap();
    rig.settle();
    assert_eq!(rig.count("violations"), 0);
    rig.now += LOOK_NS / 1_000_000 * MS;
    rig.settle();
    assert_eq!((rig.count("violations"), rig.count("readers")), (1, 0));
    assert!(rig.events().contains(&CmEvent::Disconnected(reader.id)));
}
