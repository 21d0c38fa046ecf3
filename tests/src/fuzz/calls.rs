//! The calls of sockets by two hosts over a wire of plain memory, with arguments of any kind: calls
//! in any order, options of any number and length, control messages of any bytes, closed sockets.
//! No call panics, a closed socket is `EBADF`, `poll` tells of what can be read, and once all is
//! closed no socket, no connection and no buffer is left.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use sockets::{
    EpollEvent, Errno, Interest, Kind, Ready, RecvFlags, SendControl, SendFlags, Shutdown, SocketId, Sockets, Stack,
    Trigger,
};
use wirepath::counters::Block;
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::proto::InterfaceId;
use wirepath::time::{Clock, Duration, Instant};
use wirepath::worker::Worker;

use super::Input;

/// Sockets that a host has at a time: few, so that the table is full now and then.
const SOCKETS_MAX: usize = 12;
/// The longest message; longer ones than the MTU and than a datagram's limit are among them.
const LEN_MAX: usize = 70_000;
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const LEVELS: [i32; 6] = [0, 1, 6, 17, 41, -1];

#[derive(Clone, Default)]
struct SharedClock(Rc<Cell<Instant>>);

impl Clock for SharedClock {
    fn now(&mut self) -> Instant {
        self.0.get()
    }
}

struct Host {
    stack: Stack,
    open: Vec<SocketId>,
    closed: Vec<SocketId>,
    sets: Vec<usize>,
    /// Buffers in use before the first call.
    buffers: usize,
}

pub(super) fn socket_calls(data: &[u8]) {
    let (mut input, clock) = (Input::new(data), SharedClock::default());
    let bytes = vec![7; LEN_MAX];
    let mut hosts = hosts(&clock);
    while !input.is_empty() {
        let host = &mut hosts[usize::from(input.below(2))];
        host.step(&mut input, &bytes);
        let spans = [0, 0, 0, 50_000, 2_000_000, 1_500_000_000, 70_000_000_000];
        let span = Duration::from_nanos(input.pick(&spans));
        pass(&hosts, &clock, span, 3);
        hosts.iter().for_each(Host::check);
    }
    hosts.iter_mut().for_each(Host::close_all);
    // Beyond the longest timeouts of connections that nobody owns.
    for _ in 0..60 {
        if hosts.iter().all(|host| host.left() == (0, host.buffers)) {
            return;
        }
        pass(&hosts, &clock, Duration::from_secs(1), 10);
    }
    panic!("sockets and buffers are left: {:?} and {:?}", hosts[0].left(), hosts[1].left());
}

fn hosts(clock: &SharedClock) -> [Host; 2] {
    let (near, far) = pair("wire", MemoryConfig::default());
    let block = Block::heap();
    let host = |mut device, ip: Ipv4Addr, name: &str| {
        let tcp = TcpConfig { connections_max: 8, chunks_max: 64, ..TcpConfig::default() };
        let worker = Worker::builder(&mut device).expect("plain memory is there");
        let worker = worker.address(format!("{ip}/24").parse().expect("an address")).tcp(tcp);
        let worker = worker.build(Sockets::new(SOCKETS_MAX), &block.scope(name)).expect("a small worker");
        let stack = Stack::over(worker, clock.clone());
        stack.turn();
        let buffers = stack.call(|_, cx| cx.pool.in_use());
        Host { stack, open: Vec::new(), closed: Vec::new(), sets: Vec::new(), buffers }
    };
    [host(near, HOSTS[0], "near"), host(far, HOSTS[1], "far")]
}

/// Both hosts take turns, and time passes before each.
fn pass(hosts: &[Host], clock: &SharedClock, span: Duration, turns: usize) {
    for _ in 0..turns {
        clock.0.set(clock.0.get() + span);
        for host in hosts {
            host.stack.turn();
        }
    }
}

impl Host {
    fn step(&mut self, input: &mut Input<'_>, bytes: &[u8]) {
        let kind = input.below(24);
        let Some(id) = self.pick(input).filter(|_| kind > 2) else { return self.open(input) };
        let is_open = self.open.contains(&id);
        let done = match kind {
            3..=8 => self.connect(kind, id, input),
            9..=13 => self.transfer(kind, id, input, bytes),
            14 | 15 => self.options(kind, id, input),
            16..=19 => self.watch(kind, id, input),
            _ => self.end(kind, id, input),
        };
        assert!(is_open || done != Some(Ok(())), "a closed socket has done what call {kind} asks");
    }

    /// An open socket, or one that was closed before.
    fn pick(&self, input: &mut Input<'_>) -> Option<SocketId> {
        let idx = usize::from(input.u8()) % 16;
        let all = || self.open.iter().chain(&self.closed);
        all().nth(idx).or_else(|| all().next()).copied()
    }

    fn open(&mut self, input: &mut Input<'_>) {
        let kind = if input.u8() & 1 == 0 { Kind::Stream } else { Kind::Datagram };
        let made = self.stack.call(|sockets, _| sockets.socket(kind));
        assert!(made.is_ok() || self.open.len() + 1 >= SOCKETS_MAX / 2, "{made:?}");
        self.open.extend(made);
    }

    fn connect(&mut self, kind: u8, id: SocketId, input: &mut Input<'_>) -> Option<Result<(), Errno>> {
        let address = address(input);
        Some(self.stack.call(|sockets, cx| match kind {
            3 => sockets.bind(id, address, cx),
            4 | 5 => sockets.connect(id, address, cx),
            6 => sockets.listen(id, input.u8().into(), cx),
            7 => {
                let (accepted, _) = sockets.accept(id)?;
                self.open.push(accepted);
                Ok(())
            }
            _ => match input.below(3) {
                0 => sockets.disconnect(id, cx),
                1 => sockets.join(id, *address.ip(), InterfaceId(0), None, cx),
                _ => sockets.leave(id, *address.ip(), InterfaceId(0), None, cx),
            },
        }))
    }

    fn transfer(&mut self, kind: u8, id: SocketId, input: &mut Input<'_>, bytes: &[u8]) -> Option<Result<(), Errno>> {
        let (len, flags) = (input.pick(&[0, 1, 100, 1_472, 1_473, 20_000, 65_507, LEN_MAX]), input.u8());
        let (first, second) = bytes[..len].split_at(len / 3);
        let parts = [IoSlice::new(first), IoSlice::new(second)];
        let to = (flags & 1 != 0).then(|| address(input));
        let sends = SendFlags { more: flags & 2 != 0, zerocopy: flags & 4 != 0, resumes: flags & 8 != 0 };
        let receives = RecvFlags { peek: flags & 2 != 0, truncate: flags & 4 != 0 };
        let mut room = [0; 2_000];
        let room = &mut room[..len.min(2_000)];
        Some(self.stack.call(|sockets, cx| {
            let count = match kind {
                9 | 10 => sockets.send_parts(id, &parts, to, sends, cx)?,
                11 => {
                    let control = SendControl::parse(Kind::Datagram, flags & 16 != 0, input.block())?;
                    sockets.send_controlled(id, &parts, to, sends, &control, cx)?
                }
                12 if flags & 32 != 0 => sockets.recv_error(id, &mut [IoSliceMut::new(room)])?.0,
                _ => {
                    let (head, tail) = room.split_at_mut(len.min(2_000) / 2);
                    let mut parts = [IoSliceMut::new(head), IoSliceMut::new(tail)];
                    sockets.recv_parts(id, &mut parts, receives, cx)?.0
                }
            };
            assert!(count <= len || receives.truncate, "{count} of {len} bytes");
            Ok(())
        }))
    }

    fn options(&mut self, kind: u8, id: SocketId, input: &mut Input<'_>) -> Option<Result<(), Errno>> {
        let (level, name) = (input.pick(&LEVELS), i32::from(input.u8()));
        let (len, value) = (input.pick(&[0, 1, 3, 4, 8, 12, 16, 40, 136, 300]), input.u32());
        let mut buffer = [input.u8(); 300];
        buffer[..4].copy_from_slice(&value.to_ne_bytes());
        if input.u8() & 3 != 0 {
            // Mostly small numbers.
            buffer[..4].copy_from_slice(&(value % 300).to_ne_bytes());
        }
        Some(self.stack.call(|sockets, cx| match kind {
            14 => sockets.setsockopt(id, level, name, &buffer[..len], cx),
            _ => {
                let stored = sockets.getsockopt(id, level, name, &mut buffer[..len], cx)?;
                assert!(stored <= len, "option {name} of level {level} stores {stored} bytes in {len}");
                Ok(())
            }
        }))
    }

    /// Returns no result where the call is about a set alone.
    fn watch(&mut self, kind: u8, id: SocketId, input: &mut Input<'_>) -> Option<Result<(), Errno>> {
        let set = usize::from(input.below(4));
        let (set, fd, how) = (self.sets.get(set).copied().unwrap_or(set), i32::from(input.below(3)), input.u8());
        let interest = Interest {
            ready: Ready(input.u16().into()),
            trigger: if how & 1 == 0 { Trigger::Level } else { Trigger::Edge },
            one_shot: how & 2 != 0,
            exclusive: how & 4 != 0,
            data: input.u8().into(),
        };
        match (kind, how % 8) {
            (16, 0) => self.sets.push(self.stack.with_sockets(Sockets::epoll_create)),
            (16, 1) => {
                let closed = self.stack.with_sockets(|sockets| sockets.epoll_close(set));
                assert_eq!(closed.is_ok(), self.sets.contains(&set));
                self.sets.retain(|other| *other != set);
            }
            (16 | 17, _) => return Some(self.stack.with_sockets(|sockets| sockets.epoll_add(set, id, fd, interest))),
            (18, 0..=3) => {
                return Some(self.stack.with_sockets(|sockets| sockets.epoll_modify(set, id, fd, interest)));
            }
            (18, _) => return Some(self.stack.with_sockets(|sockets| sockets.epoll_delete(set, id, fd))),
            _ => self.wait(set, usize::from(how) % 5),
        }
        None
    }

    fn wait(&self, set: usize, room: usize) {
        let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; 5];
        let (is_ready, count) = self.stack.with_sockets(|sockets| {
            let is_ready = sockets.epoll_ready(set);
            (is_ready, sockets.epoll_wait(set, &mut events[..room]))
        });
        assert_eq!(is_ready.is_ok(), self.sets.contains(&set));
        let Ok(count) = count else { return };
        assert!(count == 0 || is_ready == Ok(true), "{count} events of a set that has none");
        assert!(events[..count].iter().all(|event| !event.ready.is_none()), "an event of nothing");
    }

    fn end(&mut self, kind: u8, id: SocketId, input: &mut Input<'_>) -> Option<Result<(), Errno>> {
        match kind {
            20 => {
                let how = input.pick(&[Shutdown::Read, Shutdown::Write, Shutdown::Both]);
                Some(self.stack.call(|sockets, cx| sockets.shutdown(id, how, cx)))
            }
            21 => Some(self.stack.call(|sockets, cx| sockets.unsent_len(id, cx).map(drop))),
            22 => Some(self.stack.call(|sockets, _| sockets.unbind(id).map(drop))),
            _ => {
                let lingers = input.u8() & 1 != 0;
                let done = self.stack.call(|sockets, cx| match lingers {
                    true => sockets.close_lingering(id, cx).map(drop),
                    false => sockets.close(id, cx),
                });
                assert_eq!(done.is_ok(), self.open.contains(&id), "close: {done:?}");
                self.open.retain(|open| *open != id);
                self.closed.insert(0, id);
                self.closed.truncate(3);
                None
            }
        }
    }

    /// What holds for each socket after each call.
    fn check(&self) {
        for id in &self.open {
            let looked = self.stack.with_sockets(|sockets| {
                let waits_for = sockets.options(*id)?.receive_low_water;
                Ok::<_, Errno>((sockets.ready(*id)?, sockets.readable_len(*id).unwrap_or(0), waits_for))
            });
            let (ready, len, waits_for) = looked.expect("an open socket has a state");
            assert!(len < waits_for.max(1) as usize || ready.has(Ready::IN), "{len} bytes wait behind {ready:?}");
        }
        for id in &self.closed {
            assert_eq!(self.stack.with_sockets(|sockets| sockets.ready(*id)), Err(Errno::EBADF));
        }
    }

    /// Sockets, and buffers in use.
    fn left(&self) -> (usize, usize) {
        self.stack.call(|sockets, cx| (sockets.len(), cx.pool.in_use()))
    }

    fn close_all(&mut self) {
        for id in std::mem::take(&mut self.open) {
            let done = self.stack.call(|sockets, cx| sockets.close(id, cx));
            assert_eq!(done, Ok(()));
        }
    }
}

fn address(input: &mut Input<'_>) -> SocketAddrV4 {
    let others = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST, Ipv4Addr::new(198, 51, 100, 1)];
    let ip = input.pick(&[HOSTS[0], HOSTS[1], HOSTS[0], HOSTS[1], GROUP, others[0], others[1], others[2], others[3]]);
    SocketAddrV4::new(ip, input.pick(&[7, 7, 7, 8, 8, 0, 40_000]))
}

/// Plans of any bytes, and two that reach far: a connection over which both sides send, in an epoll
/// set, that one side shuts and both close; and datagrams with a group, options and control
/// messages. A step is the host, the call, the socket, its arguments, and the time that passes.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let connection: [&[u8]; 14] = [
        &[1, 0, 0, 0, 0],
        &[1, 3, 0, 1, 0, 0],
        &[1, 6, 0, 1, 0, 5, 0],
        &[0, 0, 0, 0, 0],
        &[0, 4, 0, 1, 0, 3],
        &[1, 7, 0, 0, 0, 3],
        &[1, 16, 1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 16, 1, 0, 0, 2, 0x20, 5, 9, 0],
        &[0, 9, 0, 5, 0, 3],
        &[1, 19, 0, 0, 0, 3, 0, 0, 0, 3],
        &[1, 13, 1, 5, 0, 3],
        &[1, 9, 1, 2, 2, 4],
        &[0, 20, 0, 1, 3],
        &[1, 23, 1, 0, 3],
    ];
    let datagrams: [&[u8]; 8] = [
        &[0, 0, 0, 1, 0],
        &[1, 0, 0, 1, 0],
        &[1, 3, 0, 0, 0, 0],
        &[1, 8, 0, 4, 0, 1, 0],
        &[0, 14, 0, 0, 11, 3, 0, 0, 0, 1, 0, 1, 0],
        &[0, 9, 0, 5, 1, 4, 0, 3],
        &[0, 11, 0, 2, 1, 4, 0, 0, 20, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 3],
        &[1, 13, 0, 5, 6, 3],
    ];
    let mut seeds = super::seeds::plans();
    seeds.extend([connection.concat(), datagrams.concat()]);
    seeds
}
