//! The suite that each device passes, on queues whose frames a broker passes on. The broker here
//! knows no flows: what one client sends is the other's.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::forwarded::{ForwardedQueue, Taken};
use crate::counters::Block;
use crate::device::af_xdp::interface::Interface;
use crate::device::af_xdp::rings::sys::leave_namespace;
use crate::device::af_xdp::{AfXdpConfig, AfXdpDevice, AfXdpRx, AfXdpTx};
use crate::device::broker::message::{MESSAGE_LEN_MAX, Reply, Request, Welcome};
use crate::device::broker::request::QueueRequest;
use crate::device::broker::sys;
use crate::device::testing::conformance::{LinkUnderTest, Rig, assert_conforms};
use crate::device::{Device, Queue, RxQueue};
use crate::forward;
use crate::mem::{Burst, Pool};
use crate::time::Instant;

const RING_LEN: u32 = 64;
const NEAR: &str = "near";
const MTU: usize = 1_500;

/// The queues of the broker's clients, in pairs, and what was dropped between them.
#[derive(Default)]
struct Cable {
    queues: Mutex<Vec<ForwardedQueue>>,
    dropped: AtomicU64,
    is_over: AtomicBool,
}

impl Cable {
    fn queues(&self) -> MutexGuard<'_, Vec<ForwardedQueue>> {
        self.queues.lock().unwrap()
    }

    /// Moves frames until it is over.
    fn run(&self) {
        let mut bytes = vec![0; MTU + 18];
        while !self.is_over.load(Ordering::Relaxed) {
            let mut moved = 0;
            for pair in self.queues().chunks_exact_mut(2) {
                let (first, second) = pair.split_at_mut(1);
                moved += self.pass(&mut first[0], &mut second[0], &mut bytes);
                moved += self.pass(&mut second[0], &mut first[0], &mut bytes);
                pair.iter_mut().for_each(ForwardedQueue::publish);
            }
            if moved == 0 {
                thread::sleep(Duration::from_micros(10));
            }
        }
    }

    fn pass(&self, from: &mut ForwardedQueue, to: &mut ForwardedQueue, bytes: &mut [u8]) -> usize {
        let mut moved = 0;
        while moved < 64 {
            match from.take(bytes.len()) {
                Taken::Nothing => break,
                Taken::Frame(frame) => {
                    from.copy(&frame, &mut bytes[..frame.len]);
                    if to.deliver(&bytes[..frame.len]).is_err() {
                        self.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Taken::Invalid | Taken::RestOfInvalid => panic!("a client of ours sends frames"),
            }
            moved += 1;
        }
        moved
    }

    /// Replies to one client until it is gone.
    fn serve(&self, socket: &std::os::fd::OwnedFd, interface_idx: u32) {
        use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

        loop {
            let mut bytes = [0; MESSAGE_LEN_MAX];
            sys::wait(&[socket.as_raw_fd()], Duration::from_secs(60)).unwrap();
            let Ok(len @ 1..) = sys::receive(socket, &mut bytes, None) else { return };
            let send = |reply: Reply, descriptors: &[BorrowedFd<'_>]| {
                sys::send(socket, &reply.encode(), descriptors).unwrap();
            };
            match Request::decode(&bytes[..len]).unwrap() {
                Request::Hello { .. } => {
                    let (_ours, theirs) = UnixDatagram::pair().unwrap();
                    let welcome = Welcome {
                        interface_idx,
                        native: false,
                        has_rx_hints: false,
                        forwards: true,
                        steers: true,
                        nic: None,
                    };
                    send(Reply::Welcome(welcome), &[theirs.as_fd()]);
                }
                Request::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len, address } => {
                    let request = QueueRequest { umem_len, chunk_len, rx_ring_len, tx_ring_len, address };
                    request.check(256 << 20).unwrap();
                    let (queue, end) = ForwardedQueue::make(&request).unwrap();
                    self.queues().push(queue);
                    let reply = Reply::Opened { umem_len, zero_copy: false, multi_buffer: true, forwarded: true };
                    send(reply, &end.descriptors());
                }
                _ => send(Reply::Done, &[]),
            }
        }
    }
}

/// A link: two clients of a broker of their own.
struct Link {
    cable: Arc<Cable>,
    mover: Option<JoinHandle<()>>,
    _devices: [AfXdpDevice; 2],
    _other_halves: (AfXdpRx, AfXdpTx),
    _folder: tempfile::TempDir,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.cable.is_over.store(true, Ordering::Relaxed);
        let ended = self.mover.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()), "the thread that passes frames on has failed");
    }
}

/// Sleeps a moment in each empty poll: the frames come by a thread.
struct WaitingRx {
    inner: AfXdpRx,
}

impl RxQueue for WaitingRx {
    fn receive(&mut self, burst: &mut Burst, limit: usize, pool: &Pool, now: Instant) -> usize {
        let received = self.inner.receive(burst, limit, pool, now);
        if received == 0 {
            thread::sleep(Duration::from_micros(10));
        }
        received
    }

    forward!(inner: state, wait_fd, refresh_counters);
}

struct ForwardedRig;

fn serve(cable: &Arc<Cable>, path: &Path, interface_idx: u32) {
    let (cable, listener) = (Arc::clone(cable), sys::listen(path).unwrap());
    thread::spawn(move || {
        use std::os::fd::AsRawFd;

        for _ in 0..2 {
            sys::wait(&[listener.as_raw_fd()], Duration::from_secs(60)).unwrap();
            let Ok(Some(socket)) = sys::accept(&listener) else { return };
            let cable = Arc::clone(&cable);
            thread::spawn(move || cable.serve(&socket, interface_idx));
        }
    });
}

impl Rig for ForwardedRig {
    fn link(&mut self, buffers: usize) -> LinkUnderTest {
        let (folder, cable, block) = (tempfile::tempdir().unwrap(), Arc::new(Cable::default()), Block::heap());
        let path = folder.path().join("broker.sock");
        serve(&cable, &path, Interface::find(NEAR).unwrap().index);
        let open = |name: &str| {
            let (rx_ring_len, tx_ring_len, broker) = (RING_LEN, RING_LEN, Some(path.clone()));
            let config = AfXdpConfig { rx_ring_len, tx_ring_len, broker, ..AfXdpConfig::new(NEAR) };
            let mut device = AfXdpDevice::open(&config).unwrap();
            let mut queue = device.take_queue(0).unwrap();
            let layout = queue.layout(MTU + 18);
            // The buffers of the fill ring do not count for the suite.
            let region = queue.region(layout, buffers + 2 * RING_LEN as usize).unwrap().unwrap();
            let pool = Pool::new(Arc::new(region), layout).unwrap();
            let (rx, tx) = queue.open(&pool, &block.scope(name)).unwrap();
            (device, pool, rx, tx)
        };
        let (near, tx_pool, near_rx, tx) = open("near");
        let (far, rx_pool, mut rx, far_tx) = open("far");
        // The first poll gives the broker chunks to deliver to.
        rx.receive(&mut Burst::new(), 1, &rx_pool, Instant::from_nanos(1));
        let mover = Some(thread::spawn({
            let cable = Arc::clone(&cable);
            move || cable.run()
        }));
        let _other_halves = (near_rx, far_tx);
        let link = Link { cable, mover, _devices: [near, far], _other_halves, _folder: folder };
        let dropped = Box::new(move || {
            let too_long = block.snapshot().count("near/tx/drop/too_long").unwrap();
            too_long + link.cable.dropped.load(Ordering::Relaxed)
        });
        LinkUnderTest { tx: Box::new(tx), tx_pool, rx: Box::new(WaitingRx { inner: rx }), rx_pool, dropped }
    }

    fn frame_len_max(&self) -> usize {
        MTU + 18
    }

    fn ring_len(&self) -> Option<usize> {
        Some(RING_LEN as usize)
    }

    fn tx_segments_max(&self) -> usize {
        17
    }

    fn buffers_lent(&self) -> usize {
        RING_LEN as usize
    }
}

#[test]
fn queue_whose_frames_are_passed_on_conforms() {
    let tried = thread::spawn(|| {
        leave_namespace()?;
        let words = format!("link add {NEAR} type veth peer name far");
        Command::new("ip").args(words.split(' ')).status()?;
        assert_conforms(&mut ForwardedRig);
        std::io::Result::Ok(())
    });
    if let Err(error) = tried.join().unwrap() {
        println!("SKIPPED queue_whose_frames_are_passed_on_conforms: {error}; run as root");
    }
}
