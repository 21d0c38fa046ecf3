//! Random scripts of calls on UDP sockets and epoll sets, made of the kernel's over loopback and of
//! ours over plain memory: duplicated descriptors, two sets, level, edge and one shot. Each call
//! returns the same, `poll` reports the same of each socket after it, and each wait the same
//! events. A script that parts is named by its seed; `SEED=n` plays it alone, `SCRIPTS=n` plays so
//! many.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;
#[path = "common/scripts.rs"]
mod scripts;

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};

use common::{Wire, at, wire};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::ioctl_fionread;
use rustix::net::{self as kernel, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use scripts::{Random, play_all};
use sockets::{
    Closed, Descriptors, EpollEvent, Errno, File, Interest, Kind, Ready, Shutdown, SocketId, Stack, Trigger,
};

/// Scripts of one run, unless the environment sets the number.
const SCRIPTS: u64 = 100;
const CALLS: usize = 80;
/// A port without a socket.
const DEAD_PORT: u16 = 1;
const REPORTED: Ready = Ready(Ready::IN.0 | Ready::OUT.0 | Ready::ERR.0 | Ready::HUP.0 | Ready::RDHUP.0);
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
const EVENTS_MAX: usize = 64;

/// The result of a call, and the events of a wait: the handle and its readiness.
type Answer = Result<(usize, Vec<(u64, u32)>), Errno>;

/// A call; descriptors are named by the order in which they were made. Hosts are 1 and 2: sockets
/// of one send to those of the other.
#[derive(Clone, Copy, Debug)]
enum Call {
    Socket(u8),
    Bind(usize),
    Connect(usize, Option<usize>),
    Disconnect(usize),
    Send(usize, usize, bool),
    SendTo(usize, Option<usize>, usize, bool),
    Recv(usize, usize, bool, bool),
    Readable(usize),
    Shutdown(usize, Shutdown),
    TakeError(usize),
    Dup(usize),
    Close(usize),
    Add(usize, usize, Interest),
    Modify(usize, usize, Interest),
    Delete(usize, usize),
    Wait(usize),
}

/// The kernel's, over loopback.
struct Kernels {
    fds: Vec<Option<OwnedFd>>,
    sets: [OwnedFd; 2],
}

fn answer(result: rustix::io::Result<usize>) -> Answer {
    result.map(|count| (count, Vec::new())).map_err(|errno| Errno(errno.raw_os_error()))
}

fn flags_of(interest: &Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::from_bits_retain(interest.ready.0);
    flags.set(epoll::EventFlags::ET, interest.trigger == Trigger::Edge);
    flags.set(epoll::EventFlags::ONESHOT, interest.one_shot);
    flags
}

impl Kernels {
    fn new() -> Self {
        let set = || epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Self { fds: Vec::new(), sets: [set(), set()] }
    }

    fn with(&self, idx: usize, act: impl FnOnce(&OwnedFd) -> rustix::io::Result<usize>) -> Answer {
        answer(self.fds[idx].as_ref().map_or(Err(rustix::io::Errno::BADF), act))
    }

    fn local(&self, idx: usize) -> SocketAddrV4 {
        SocketAddrV4::try_from(kernel::getsockname(self.fds[idx].as_ref().unwrap()).unwrap()).unwrap()
    }

    fn port(&self, to: Option<usize>) -> SocketAddrV4 {
        let port = to.filter(|to| self.fds[*to].is_some()).map_or(0, |to| self.local(to).port());
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, if port == 0 { DEAD_PORT } else { port })
    }

    fn wait(&self, set: usize) -> Answer {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        epoll::wait(&self.sets[set], rustix::buffer::spare_capacity(&mut events), Some(&NOW)).unwrap();
        let mut events: Vec<_> = events.iter().map(|event| (event.data.u64(), { event.flags }.bits())).collect();
        events.sort_unstable();
        Ok((events.len(), events))
    }

    fn play(&mut self, call: Call, byte: u8) -> Answer {
        match call {
            Call::Socket(_) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                self.fds.push(Some(kernel::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).unwrap()));
                answer(Ok(0))
            }
            Call::Bind(idx) => {
                let any = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
                self.with(idx, |fd| kernel::bind(fd, &any).map(|()| 0))
            }
            Call::Connect(idx, to) => self.with(idx, |fd| kernel::connect(fd, &self.port(to)).map(|()| 0)),
            Call::Disconnect(idx) => self.with(idx, |fd| kernel::connect_unspec(fd).map(|()| 0)),
            Call::Send(idx, len, waits) => self.with(idx, |fd| {
                if waits {
                    kernel::send(fd, &vec![byte; len], SendFlags::MORE)?;
                }
                kernel::send(fd, &vec![byte; len], SendFlags::empty())
            }),
            Call::SendTo(idx, to, len, waits) => self.with(idx, |fd| {
                if waits {
                    kernel::sendto(fd, &vec![byte; len], SendFlags::MORE, &self.port(to))?;
                }
                kernel::sendto(fd, &vec![byte; len], SendFlags::empty(), &self.port(to))
            }),
            Call::Recv(idx, len, peeks, truncates) => {
                let mut flags = RecvFlags::empty();
                flags.set(RecvFlags::PEEK, peeks);
                flags.set(RecvFlags::TRUNC, truncates);
                let mut into = vec![0; len];
                let count = self.with(idx, |fd| kernel::recv(fd, &mut into[..], flags).map(|(_, count)| count));
                count.map(|(count, _)| (count, vec![(u64::from(into.first().copied().unwrap_or(0)), 0)]))
            }
            Call::Readable(idx) => self.with(idx, |fd| ioctl_fionread(fd).map(|len| len as usize)),
            Call::Shutdown(idx, how) => self.with(idx, |fd| kernel::shutdown(fd, ends_of(how)).map(|()| 0)),
            Call::TakeError(idx) => self.with(idx, |fd| {
                sockopt::socket_error(fd).map(|error| error.err().map_or(0, |error| error.raw_os_error() as usize))
            }),
            Call::Dup(idx) => {
                let Some(fd) = &self.fds[idx] else { return answer(Err(rustix::io::Errno::BADF)) };
                let fd = rustix::io::dup(fd).unwrap();
                self.fds.push(Some(fd));
                answer(Ok(0))
            }
            Call::Close(idx) => answer(self.fds[idx].take().map(|_| 0).ok_or(rustix::io::Errno::BADF)),
            Call::Add(set, idx, interest) => {
                let data = epoll::EventData::new_u64(interest.data);
                self.with(idx, |fd| epoll::add(&self.sets[set], fd, data, flags_of(&interest)).map(|()| 0))
            }
            Call::Modify(set, idx, interest) => {
                let data = epoll::EventData::new_u64(interest.data);
                self.with(idx, |fd| epoll::modify(&self.sets[set], fd, data, flags_of(&interest)).map(|()| 0))
            }
            Call::Delete(set, idx) => self.with(idx, |fd| epoll::delete(&self.sets[set], fd).map(|()| 0)),
            Call::Wait(set) => self.wait(set),
        }
    }

    fn ready(&self) -> Vec<Option<Ready>> {
        let asked = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let look = |fd: &OwnedFd| {
            let mut entry = [PollFd::new(fd, asked)];
            poll(&mut entry, Some(&NOW)).unwrap();
            Ready(entry[0].revents().bits().into()) & REPORTED
        };
        self.fds.iter().map(|fd| fd.as_ref().map(look)).collect()
    }
}

fn ends_of(how: Shutdown) -> kernel::Shutdown {
    match how {
        Shutdown::Read => kernel::Shutdown::Read,
        Shutdown::Write => kernel::Shutdown::Write,
        Shutdown::Both => kernel::Shutdown::Both,
    }
}

impl Call {
    /// The socket that it is made on, by its index.
    fn socket(self) -> usize {
        match self {
            Call::Socket(_) | Call::Wait(_) => 0,
            Call::Bind(idx)
            | Call::Connect(idx, _)
            | Call::Disconnect(idx)
            | Call::Send(idx, ..)
            | Call::SendTo(idx, ..)
            | Call::Recv(idx, ..)
            | Call::Readable(idx)
            | Call::Shutdown(idx, _)
            | Call::TakeError(idx)
            | Call::Dup(idx)
            | Call::Close(idx)
            | Call::Add(_, idx, _)
            | Call::Modify(_, idx, _)
            | Call::Delete(_, idx) => idx,
        }
    }
}

/// Ours, over plain memory.
struct Ours {
    wire: Wire,
    /// Each descriptor by its number in the kernel, and the host.
    fds: Vec<Option<(i32, u8)>>,
    files: Descriptors,
    /// Each set on both hosts.
    sets: [[usize; 2]; 2],
}

impl Ours {
    fn new() -> Self {
        let wire = wire();
        let set = |stack: &Stack| stack.call(|sockets, _| sockets.epoll_create());
        let sets = [0; 2].map(|_| [set(&wire.left), set(&wire.right)]);
        Self { wire, fds: Vec::new(), files: Descriptors::new(), sets }
    }

    fn stack(&self, host: u8) -> Stack {
        if host == 1 { self.wire.left.clone() } else { self.wire.right.clone() }
    }

    fn find(&self, idx: usize) -> Result<(Stack, SocketId, i32, u8), Errno> {
        let (fd, host) = self.fds[idx].ok_or(Errno::EBADF)?;
        match self.files.get(fd).map(|file| file.file) {
            Some(File::Socket(id)) => Ok((self.stack(host), id, fd, host)),
            _ => Err(Errno::EBADF),
        }
    }

    fn address(&self, from: u8, to: Option<usize>) -> SocketAddrV4 {
        let port = to
            .and_then(|to| self.find(to).ok())
            .map_or(0, |(stack, id, ..)| stack.call(|sockets, _| sockets.local_addr(id)).unwrap().port());
        at(3 - from, if port == 0 { DEAD_PORT } else { port })
    }

    fn play(&mut self, call: Call, byte: u8, new_fd: i32) -> Answer {
        let result = self.make(call, byte, new_fd);
        self.wire.settle();
        result
    }

    fn wait(&self, set: usize) -> Answer {
        let mut all = Vec::new();
        for (host, set) in [1, 2].into_iter().zip(self.sets[set]) {
            let mut events = [EpollEvent { ready: Ready::NONE, data: 0 }; EVENTS_MAX];
            let count = self.stack(host).call(|sockets, _| sockets.epoll_wait(set, &mut events))?;
            all.extend(events[..count].iter().map(|event| (event.data, event.ready.0)));
        }
        all.sort_unstable();
        Ok((all.len(), all))
    }

    fn make(&mut self, call: Call, byte: u8, new_fd: i32) -> Answer {
        let of = call.socket();
        if let Call::Socket(host) = call {
            let id = self.stack(host).call(|sockets, _| sockets.socket(Kind::Datagram))?;
            self.files.open(new_fd, File::Socket(id), true, true)?;
            self.fds.push(Some((new_fd, host)));
            return Ok((0, Vec::new()));
        }
        if let Call::Wait(set) = call {
            return self.wait(set);
        }
        let (stack, id, fd, host) = self.find(of)?;
        let set_of = |set: usize| self.sets[set][usize::from(host) - 1];
        let count = match call {
            Call::Bind(_) => stack.call(|sockets, cx| sockets.bind(id, at(host, 0), cx)).map(|()| 0),
            Call::Connect(_, to) => {
                let to = self.address(host, to);
                stack.call(|sockets, cx| sockets.connect(id, to, cx)).map(|()| 0)
            }
            Call::Disconnect(_) => stack.call(|sockets, cx| sockets.disconnect(id, cx)).map(|()| 0),
            Call::Send(_, len, waits) => send(&stack, id, &vec![byte; len], None, waits),
            Call::SendTo(_, to, len, waits) => {
                let to = self.address(host, to);
                send(&stack, id, &vec![byte; len], Some(to), waits)
            }
            Call::Recv(_, len, peek, truncate) => {
                let mut into = vec![0; len];
                let flags = sockets::RecvFlags { peek, truncate };
                let (count, _) = stack.call(|sockets, cx| {
                    sockets.recv_parts(id, &mut [std::io::IoSliceMut::new(&mut into)], flags, cx)
                })?;
                return Ok((count, vec![(u64::from(into.first().copied().unwrap_or(0)), 0)]));
            }
            Call::Readable(_) => stack.call(|sockets, _| sockets.readable_len(id)),
            Call::Shutdown(_, how) => stack.call(|sockets, cx| sockets.shutdown(id, how, cx)).map(|()| 0),
            Call::TakeError(_) => {
                stack.call(|sockets, _| sockets.take_error(id)).map(|error| error.map_or(0, |error| error.0 as usize))
            }
            Call::Dup(_) => {
                self.files.duplicate(fd, new_fd, false)?;
                self.fds.push(Some((new_fd, host)));
                Ok(0)
            }
            Call::Close(_) => {
                self.fds[of] = None;
                match self.files.close(fd)? {
                    Closed::Last(File::Socket(id)) => stack.call(|sockets, cx| sockets.close(id, cx)).map(|()| 0),
                    _ => Ok(0),
                }
            }
            Call::Add(set, _, interest) => {
                stack.call(|sockets, _| sockets.epoll_add(set_of(set), id, fd, interest)).map(|()| 0)
            }
            Call::Modify(set, _, interest) => {
                stack.call(|sockets, _| sockets.epoll_modify(set_of(set), id, fd, interest)).map(|()| 0)
            }
            Call::Delete(set, _) => stack.call(|sockets, _| sockets.epoll_delete(set_of(set), id, fd)).map(|()| 0),
            Call::Socket(_) | Call::Wait(_) => Ok(0),
        };
        count.map(|count| (count, Vec::new()))
    }

    fn ready(&self) -> Vec<Option<Ready>> {
        let look = |idx: usize| {
            let (stack, id, ..) = self.find(idx).ok()?;
            Some(stack.call(|sockets, _| sockets.ready(id)).unwrap() & REPORTED)
        };
        (0..self.fds.len()).map(look).collect()
    }

    /// At the end of a script.
    fn close_all(&mut self) {
        for idx in 0..self.fds.len() {
            let _ = self.play(Call::Close(idx), 0, 0);
        }
        self.fds.clear();
        for set in self.sets.as_flattened() {
            assert_eq!(self.wire.left.call(|sockets, _| sockets.epoll_ready(*set)), Ok(false), "nothing is left in it");
        }
    }
}

/// With `waits` the bytes twice, as one datagram.
fn send(stack: &Stack, id: SocketId, bytes: &[u8], to: Option<SocketAddrV4>, waits: bool) -> Result<usize, Errno> {
    stack.call(|sockets, cx| {
        let parts = [IoSlice::new(bytes)];
        if waits {
            sockets.send_parts(id, &parts, to, sockets::SendFlags { more: true, ..Default::default() }, cx)?;
        }
        sockets.send_parts(id, &parts, to, sockets::SendFlags::default(), cx)
    })
}

impl Random {
    fn interest(&mut self, idx: usize) -> Interest {
        let ready = [Ready::IN, Ready::OUT, Ready::IN | Ready::OUT, Ready::IN | Ready::RDHUP][self.below(4)];
        let trigger = if self.below(2) == 0 { Trigger::Level } else { Trigger::Edge };
        Interest { ready, trigger, one_shot: self.below(4) == 0, exclusive: false, data: idx as u64 }
    }

    /// The next call, where these descriptors were made so far, each with its host.
    fn call(&mut self, hosts: &[u8]) -> Call {
        if hosts.len() < 4 {
            return Call::Socket(1 + (hosts.len() % 2) as u8);
        }
        let (idx, set) = (self.below(hosts.len()), self.below(2));
        let across: Vec<usize> = (0..hosts.len()).filter(|other| hosts[*other] != hosts[idx]).collect();
        let to = if self.below(8) == 0 { None } else { Some(across[self.below(across.len())]) };
        let (len, waits) = ([0, 1, 100, 3_000][self.below(4)], self.below(6) == 0);
        match self.below(32) {
            0 => Call::Socket(1 + self.below(2) as u8),
            1 | 2 => Call::Bind(idx),
            3 | 4 => Call::Connect(idx, to),
            5 => Call::Disconnect(idx),
            6 | 7 => Call::Send(idx, len, waits),
            8..=13 => Call::SendTo(idx, to, len, waits),
            14..=17 => Call::Recv(idx, len, self.below(4) == 0, self.below(4) == 0),
            18 => Call::Readable(idx),
            19 => match self.below(4) {
                0 => Call::Shutdown(idx, Shutdown::Read),
                1 => Call::Shutdown(idx, Shutdown::Write),
                2 => Call::Shutdown(idx, Shutdown::Both),
                _ => Call::TakeError(idx),
            },
            20 => Call::Dup(idx),
            21 => Call::Close(idx),
            22..=24 => Call::Add(set, idx, self.interest(idx)),
            25 | 26 => Call::Modify(set, idx, self.interest(idx)),
            27 => Call::Delete(set, idx),
            _ => Call::Wait(set),
        }
    }
}

/// Of a connected socket Linux keeps one place for its peer and for the destination of a datagram
/// that is not whole, and sends to either.
///
/// The kernel refuses a datagram to a socket that is connected to another peer, because no socket
/// takes it; ours drops it silently.
fn is_beside(call: Call, ours: &Ours) -> bool {
    let peer = |idx: usize| {
        let (stack, id, _, host) = ours.find(idx).ok()?;
        Some((
            stack.call(|sockets, _| sockets.peer_addr(id)).ok(),
            stack.call(|sockets, _| sockets.local_addr(id)).ok()?,
            host,
        ))
    };
    let (from, to) = match call {
        Call::Send(from, ..) => (from, None),
        Call::SendTo(from, to, ..) => (from, to),
        Call::Connect(from, to) => (from, to),
        _ => return false,
    };
    let Some((remote, local, host)) = peer(from) else { return false };
    if remote.is_some() && matches!(call, Call::SendTo(.., true)) {
        return true;
    }
    let to = match (to, remote) {
        (Some(to), _) => ours.address(host, Some(to)),
        (None, Some(remote)) => remote,
        (None, None) => return false,
    };
    // A socket at the destination is connected to another peer, or may become so.
    (0..ours.fds.len()).filter_map(peer).any(|(remote, other, _)| {
        let is_there = other.port() == to.port() && remote.is_some_and(|remote| remote != local);
        is_there || (matches!(call, Call::Connect(..)) && remote.is_some_and(|remote| remote.port() == local.port()))
    })
}

fn play(seed: u64, ours: &mut Ours) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut kernels = Kernels::new();
    let (mut calls, mut hosts) = (Vec::new(), Vec::new());
    for byte in 0..CALLS {
        let call = random.call(&hosts);
        if is_beside(call, ours) {
            continue;
        }
        calls.push(call);
        let byte = byte as u8 + 1;
        let kernels_answer = kernels.play(call, byte);
        let made = kernels.fds.last().and_then(Option::as_ref).map_or(-1, AsRawFd::as_raw_fd);
        let our_answer = ours.play(call, byte, made);
        match call {
            Call::Socket(host) => hosts.push(host),
            Call::Dup(idx) if kernels_answer.is_ok() => hosts.push(hosts[idx]),
            _ => (),
        }
        let (mut before, mine) = (kernels.ready(), ours.ready());
        for _ in 0..200 {
            if before == mine {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
            before = kernels.ready();
        }
        if kernels_answer != our_answer || before != mine {
            let calls = calls.iter().map(|call| format!("  {call:?}\n")).collect::<String>();
            return Err(format!(
                "SEED={seed} parts at the last of these calls:\n{calls}kernel: {kernels_answer:?} {before:x?}\nours:   {our_answer:?} {mine:x?}"
            ));
        }
    }
    Ok(())
}

#[test]
fn datagrams_and_sets_do_what_the_kernels_do() {
    let mut ours = Ours::new();
    play_all(SCRIPTS, |seed| {
        let played = play(seed, &mut ours);
        ours.close_all();
        played
    });
}
