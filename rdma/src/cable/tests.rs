//! A program over each cable, and ends that break the rules.

use core::net::Ipv4Addr;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

use super::shared_memory::{FILE_LEN, HALF_OPEN_MAX, LANE_LEN, MAGIC, SEALS, hand_over, receive};
use super::*;
use crate::provider::Provider;
use crate::roce::{
    Access, Addresses, Buffer, CqHandle, Data, Device, DeviceConfig, Mr, Mtu, Path, QpAttributes, QpHandle, QpOptions,
    Region, Remote, SendOperation, SendRequest, Sge, Status,
};
use crate::wire::opcode::Transport;
use crate::wire::qpn::Qpn;

fn shared_memory() -> [SharedMemory; 2] {
    let mut listener = SharedMemoryListener::new().unwrap();
    let made = SharedMemory::connect(&listener.ticket()).unwrap();
    [made, listener.accept().unwrap()]
}

/// A file that is handed over as a cable, as a hostile other end does.
fn file(len: usize, first: u64, seals: SealFlags) -> File {
    let file = File::from(memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
    file.set_len(len as u64).unwrap();
    file.write_all_at(&first.to_ne_bytes(), 0).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// What is made of it here.
fn taken(file: &File) -> io::Result<SharedMemory> {
    let mut listener = SharedMemoryListener::new().unwrap();
    let address = SocketAddr::from_abstract_name(listener.ticket().name()).unwrap();
    hand_over(&UnixStream::connect_addr(&address).unwrap(), file).unwrap();
    listener.accept()
}

fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [here, listener.accept().unwrap().0]
}

/// A device at an end of a cable, with a queue pair and memory.
struct End<C> {
    device: CabledDevice<C>,
    qp: QpHandle,
    cq: CqHandle,
    memory: Buffer,
    mr: Mr,
}

const MEMORY: usize = 1 << 20;

impl<C: Cable> End<C> {
    fn new(cable: C) -> Self {
        let mut device = Device::new(&DeviceConfig { mtu: Mtu::B4096, ..DeviceConfig::default() });
        let (pd, cq) = (device.create_pd().unwrap(), device.create_cq(64).unwrap());
        let memory = Buffer::zeroed(MEMORY);
        let mr = device.register(pd, Region::from(&memory), Access::LOCAL_WRITE | access()).unwrap();
        let options = QpOptions {
            transport: Transport::Rc,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: 16,
            recv_depth: 16,
            srq: None,
            signals_all: true,
        };
        let qp = device.create_qp(&options).unwrap();
        Self { device: CabledDevice::new(device, cable), qp, cq, memory, mr }
    }

    fn connect(&mut self, peer: Qpn) {
        let (source, destination) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        let link = crate::roce::Link { destination: [0; 6], source: [0; 6], vlan: None };
        let path = Path::new(link, Addresses::Ipv4 { source, destination });
        let connection = QpAttributes {
            access: Some(access()),
            mtu: Some(Mtu::B4096),
            max_dest_rd_atomic: Some(4),
            min_rnr_timer: Some(1),
            max_rd_atomic: Some(4),
            timeout: Some(ACK_TIMEOUT),
            ..QpAttributes::connection(path, peer)
        };
        self.device.device_mut().connect_qp(self.qp, Transport::Rc, &connection).unwrap();
    }
}

fn access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// Connects an end with a peer that is never turned, posts a WRITE of 128 packets, and turns the
/// end for `turns` steps of 100 ms; the completion, if there is one.
fn write_to_a_dead_peer<C: Cable>(mut end: End<C>, turns: u64) -> Option<Status> {
    end.connect(Qpn::new(2));
    let sges = [Sge { address: end.mr.address, len: MEMORY as u32 / 2, lkey: end.mr.key }];
    let write = SendOperation::Write(Remote { address: end.mr.address, rkey: end.mr.key });
    end.device.device_mut().post_send(end.qp, &SendRequest::new(1, write, Data::Sges(&sges))).unwrap();
    (1..=turns).find_map(|turn| {
        let _ = end.device.turn(turn * 100_000_000);
        end.device.device_mut().poll_cq(end.cq).map(|done| done.status)
    })
}

#[test]
fn queue_pair_over_a_full_ring_ends_by_its_timeouts_when_the_peer_stands_still() {
    let [here, _there] = shared_memory().map(End::new);
    assert_eq!(write_to_a_dead_peer(here, 1000), Some(Status::RetryExceeded));
}

#[test]
fn queue_pair_over_a_full_connection_ends_by_its_timeouts_when_the_peer_stands_still() {
    let [here, _there] = connection();
    rustix::net::sockopt::set_socket_send_buffer_size(&here, 4096).unwrap();
    let here = End::new(FramedTcp::new(here).unwrap());
    assert_eq!(write_to_a_dead_peer(here, 1000), Some(Status::RetryExceeded));
}

#[test]
fn queue_pair_over_a_broken_cable_ends_by_its_timeouts() {
    let [here, there] = connection();
    drop(there);
    let here = End::new(FramedTcp::new(here).unwrap());
    assert_eq!(write_to_a_dead_peer(here, 1000), Some(Status::RetryExceeded));
}

#[test]
fn request_that_found_no_room_from_the_first_packet_on_ends_by_its_timeouts() {
    let [mut here, _there] = shared_memory();
    while here.has_room().unwrap() {
        here.send(&[1]).unwrap();
    }
    assert_eq!(write_to_a_dead_peer(End::new(here), 1000), Some(Status::RetryExceeded));
}

/// Writes the first half of A's memory into B's, and reads it back into the second: more packets
/// than any cable holds.
fn write_and_read(cables: [impl Cable; 2]) {
    let [mut a, mut b] = cables.map(End::new);
    let numbers = [&a, &b].map(|end| end.device.device().qpn(end.qp).unwrap());
    a.connect(numbers[1]);
    b.connect(numbers[0]);
    let half = MEMORY / 2;
    let bytes: Vec<u8> = (0..half).map(|at| (at / 251) as u8 ^ at as u8).collect();
    a.memory.write(0, &bytes);
    let remote = Remote { address: b.mr.address, rkey: b.mr.key };
    let mut now = 0;
    for (operation, at) in [(SendOperation::Write(remote), 0), (SendOperation::Read(remote), half)] {
        let sges = [Sge { address: a.mr.address + at as u64, len: half as u32, lkey: a.mr.key }];
        a.device.device_mut().post_send(a.qp, &SendRequest::new(1, operation, Data::Sges(&sges))).unwrap();
        let done = (0..100_000).find_map(|_| {
            now += 1000;
            a.device.turn(now).unwrap();
            b.device.turn(now).unwrap();
            a.device.device_mut().poll_cq(a.cq)
        });
        assert_eq!(done.map(|done| done.status), Some(Status::Success));
    }
    let mut found = vec![0; half];
    for (memory, at) in [(&b.memory, 0), (&a.memory, half)] {
        memory.read(at, &mut found);
        assert!(found == bytes, "bytes changed on the way");
    }
    assert_eq!(a.device.device().qp_counters(a.qp).unwrap().retransmits, 0, "a cable loses nothing");
}

#[test]
fn shared_memory_carries_a_write_and_a_read() {
    write_and_read(shared_memory());
}

#[test]
fn tcp_carries_a_write_and_a_read() {
    write_and_read(connection().map(|stream| FramedTcp::new(stream).unwrap()));
}

#[test]
fn full_ring_has_room_again_when_the_other_end_has_received() {
    let [mut here, mut there] = shared_memory();
    let mut frame = [0; FRAME_LEN_MAX];
    let mut sent = 0_u64;
    while here.has_room().unwrap() {
        here.send(&sent.to_be_bytes()).unwrap();
        sent += 1;
    }
    assert_eq!(sent, 256);
    for number in 0..sent {
        assert_eq!(there.receive(&mut frame).unwrap(), Some(8));
        assert_eq!(frame[..8], number.to_be_bytes());
    }
    assert!(there.receive(&mut frame).unwrap().is_none() && here.has_room().unwrap());
}

/// Writes a word of the file, as a hostile other end would, and receives.
fn receives_after(at: u64, word: u64) -> CableError {
    let file = file(FILE_LEN, MAGIC, SEALS);
    let mut here = taken(&file).unwrap();
    // A frame from the maker.
    file.write_all_at(&1_u64.to_ne_bytes(), 192).unwrap();
    file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    let mut frame = [0; FRAME_LEN_MAX];
    here.receive(&mut frame).unwrap_err()
}

#[test]
fn numbers_and_lengths_of_a_hostile_end_are_refused() {
    let slot = 4096 + LANE_LEN as u64;
    for (at, word) in [(192, 257), (192, u64::MAX), (slot, FRAME_LEN_MAX as u64 + 1), (slot, u64::MAX)] {
        let error = receives_after(at, word);
        assert!(matches!(error, CableError::Broken(_)), "{word:#x} at {at}: {error}");
    }
    let file = file(FILE_LEN, MAGIC, SEALS);
    let mut here = taken(&file).unwrap();
    while here.has_room().unwrap() {
        here.send(&[1]).unwrap();
    }
    file.write_all_at(&1000_u64.to_ne_bytes(), 128).unwrap();
    assert!(matches!(here.has_room(), Err(CableError::Broken(_))), "more frames read than were sent");
}

/// A peer that has connected, and not yet handed its file over.
fn half_open(listener: &SharedMemoryListener) -> UnixStream {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(listener.ticket().name()).unwrap()).unwrap()
}

fn is_would_block(taken: &io::Result<SharedMemory>) -> bool {
    taken.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn peer_that_hands_over_after_it_was_met_is_taken() {
    let mut listener = SharedMemoryListener::new().unwrap();
    let peer = half_open(&listener);
    assert!(is_would_block(&listener.accept()), "its file has not come");
    hand_over(&peer, &file(FILE_LEN, MAGIC, SEALS)).unwrap();
    assert!(listener.accept().is_ok());
}

#[test]
fn peer_that_hands_nothing_over_keeps_no_other_from_being_taken() {
    let mut listener = SharedMemoryListener::new().unwrap();
    let silent = half_open(&listener);
    assert!(is_would_block(&listener.accept()));
    let _made = SharedMemory::connect(&listener.ticket()).unwrap();
    assert!(listener.accept().is_ok());
    drop(silent);
    let gone = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(gone, Err(io::ErrorKind::InvalidData), "it has closed");
    assert!(is_would_block(&listener.accept()), "and is forgotten");
}

#[test]
fn peers_behind_the_most_that_are_half_open_wait_until_one_of_those_is_gone() {
    let mut listener = SharedMemoryListener::new().unwrap();
    let mut silent: Vec<_> = (0..HALF_OPEN_MAX).map(|_| half_open(&listener)).collect();
    let _made = SharedMemory::connect(&listener.ticket()).unwrap();
    assert!(is_would_block(&listener.accept()), "all places are taken");
    silent.pop();
    assert!(listener.accept().is_ok());
}

#[test]
fn file_of_a_cable_is_neither_shortened_nor_lengthened() {
    let listener = SharedMemoryListener::new().unwrap();
    let _made = SharedMemory::connect(&listener.ticket()).unwrap();
    let file = receive(&listener.listener.accept().unwrap().0).unwrap();
    let len = file.metadata().unwrap().len();
    assert!([0, len - 1, len + 1].iter().all(|len| file.set_len(*len).is_err()));
}

#[test]
fn file_that_is_no_cable_is_not_taken() {
    assert!(taken(&file(FILE_LEN, MAGIC, SEALS)).is_ok());
    let wrong = [
        (0, MAGIC, SEALS, "no bytes"),
        (FILE_LEN - 1, MAGIC, SEALS, "too short"),
        (FILE_LEN, MAGIC, SealFlags::SHRINK | SealFlags::GROW, "a seal is missing"),
        (FILE_LEN, MAGIC, SealFlags::empty(), "no seals"),
        (FILE_LEN, MAGIC + 1, SEALS, "another version"),
    ];
    for (len, first, seals, what) in wrong {
        assert!(taken(&file(len.max(8), first, seals)).is_err(), "{what}");
    }
    let mut listener = SharedMemoryListener::new().unwrap();
    assert_eq!(Ticket::parse(&listener.ticket().encode()), listener.ticket());
    assert!(listener.accept().is_err(), "nobody has come");
    let ticket = listener.ticket();
    drop(listener);
    assert!(SharedMemory::connect(&ticket).is_err(), "nobody listens");
}

#[test]
fn cable_of_shared_memory_is_closed_behind_the_last_frame_of_an_end_that_is_gone() {
    let [mut here, mut there] = shared_memory();
    there.send(&[7]).unwrap();
    drop(there);
    let mut frame = [0; FRAME_LEN_MAX];
    assert_eq!(here.receive(&mut frame).unwrap(), Some(1));
    let gone = (0..10_000).find_map(|_| here.receive(&mut frame).err());
    assert!(matches!(gone, Some(CableError::Closed)), "{gone:?}");
    assert!(matches!(here.receive(&mut frame), Err(CableError::Closed)), "and stays so");
    let [mut here, there] = shared_memory();
    drop(there);
    while matches!(here.has_room(), Ok(true)) {
        here.send(&[1]).unwrap();
    }
    let gone = (0..10_000).find_map(|_| here.has_room().err());
    assert!(matches!(gone, Some(CableError::Closed)), "{gone:?}");
}

/// A TCP connection repeats a lost segment after 200 ms and more, and a peer may be stopped as
/// long: over a cable that is no reason to send anything again.
#[test]
fn peer_that_stands_still_for_a_second_has_nothing_sent_again() {
    let [mut a, mut b] = connection().map(|stream| End::new(FramedTcp::new(stream).unwrap()));
    let numbers = [&a, &b].map(|end| end.device.device().qpn(end.qp).unwrap());
    a.connect(numbers[1]);
    b.connect(numbers[0]);
    let sges = [Sge { address: a.mr.address, len: MEMORY as u32 / 2, lkey: a.mr.key }];
    let write = SendOperation::Write(Remote { address: b.mr.address, rkey: b.mr.key });
    a.device.device_mut().post_send(a.qp, &SendRequest::new(1, write, Data::Sges(&sges))).unwrap();
    let mut now = 0;
    while now < 1_000_000_000 {
        now += 10_000_000;
        a.device.turn(now).unwrap();
    }
    let done = (0..100_000).find_map(|_| {
        now += 1000;
        b.device.turn(now).unwrap();
        a.device.turn(now).unwrap();
        a.device.device_mut().poll_cq(a.cq)
    });
    assert_eq!(done.map(|done| done.status), Some(Status::Success));
    assert_eq!(a.device.device().qp_counters(a.qp).unwrap().retransmits, 0);
}

#[test]
fn tcp_cable_says_that_the_other_end_is_gone_or_wrote_nonsense() {
    let [here, mut there] = connection();
    let (mut cable, mut frame) = (FramedTcp::new(here).unwrap(), [0; FRAME_LEN_MAX]);
    there.write_all(&[0, 3, 1, 2]).unwrap();
    assert!(cable.receive(&mut frame).unwrap().is_none(), "a byte is missing");
    there.write_all(&[3, 0xff, 0xff]).unwrap();
    let taken = (0..1_000_000).find_map(|_| cable.receive(&mut frame).unwrap());
    assert!(taken == Some(3) && frame[..3] == [1, 2, 3]);
    assert!(matches!(cable.receive(&mut frame), Err(CableError::Broken(_))));
    let [here, there] = connection();
    let mut cable = FramedTcp::new(here).unwrap();
    drop(there);
    let gone = (0..1_000_000).find_map(|_| cable.receive(&mut frame).err());
    assert!(matches!(gone, Some(CableError::Closed)), "{gone:?}");
}
