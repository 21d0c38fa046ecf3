//! Random scripts of calls on TCP sockets, played on the kernel's sockets over loopback and on ours
//! over plain memory: each call returns the same, and after it `poll` reports the same for each
//! socket. A failure prints the seed of its script; `SEED=n` plays that script alone, `SCRIPTS=n`
//! plays n scripts.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;
#[path = "common/scripts.rs"]
mod scripts;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use common::{Wire, at, wire};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{self as kernel, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use scripts::{Random, play_all};
use sockets::{Errno, Kind, Ready, Shutdown, SocketId, Stack};

/// The number of scripts in a run, where the environment does not set it.
const SCRIPTS: u64 = 100;
/// Calls of a script.
const CALLS: usize = 60;
/// A port on which no socket listens.
const DEAD_PORT: u16 = 1;
const REPORTED: Ready = Ready(Ready::IN.0 | Ready::OUT.0 | Ready::ERR.0 | Ready::HUP.0 | Ready::RDHUP.0);

type Answer = Result<usize, Errno>;

/// A call; sockets are named by the order in which they were made.
#[derive(Clone, Copy, Debug)]
enum Call {
    Socket,
    Listen(usize),
    Connect(usize, Option<usize>),
    Accept(usize),
    Send(usize, usize),
    Recv(usize, usize),
    Peek(usize, usize),
    Shutdown(usize, Shutdown),
    TakeError(usize),
    Close(usize),
}

/// Sockets that calls are made of.
trait Side {
    fn play(&mut self, call: Call) -> Answer;
    /// The readiness that `poll` reports for each socket; `None` for a closed one.
    fn ready(&mut self) -> Vec<Option<Ready>>;
}

/// The kernel's, over loopback.
#[derive(Default)]
struct Kernels {
    sockets: Vec<Option<OwnedFd>>,
    /// The port of each that listens.
    ports: Vec<Option<u16>>,
}

impl Side for Kernels {
    fn play(&mut self, call: Call) -> Answer {
        let result = match call {
            Call::Socket => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                kernel::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).map(|fd| self.push(fd, None))
            }
            Call::Listen(idx) => self.with(idx, |fd| kernel::listen(fd, 8).map(|()| 0)).inspect(|_| {
                let fd = self.sockets[idx].as_ref().unwrap();
                let local = SocketAddrV4::try_from(kernel::getsockname(fd).unwrap()).unwrap();
                self.ports[idx] = Some(local.port());
            }),
            Call::Connect(idx, to) => {
                let port = to.and_then(|to| self.ports[to]).unwrap_or(DEAD_PORT);
                let remote = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
                self.with(idx, |fd| kernel::connect(fd, &remote).map(|()| 0))
            }
            Call::Accept(idx) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                match self.sockets[idx].as_ref() {
                    Some(fd) => kernel::accept_with(fd, flags).map(|fd| self.push(fd, None)),
                    None => Err(rustix::io::Errno::BADF),
                }
            }
            Call::Send(idx, len) => self.with(idx, |fd| kernel::send(fd, &vec![7; len], SendFlags::NOSIGNAL)),
            Call::Recv(idx, len) => self.recv(idx, len, RecvFlags::empty()),
            Call::Peek(idx, len) => self.recv(idx, len, RecvFlags::PEEK),
            Call::Shutdown(idx, how) => {
                let how = match how {
                    Shutdown::Read => kernel::Shutdown::Read,
                    Shutdown::Write => kernel::Shutdown::Write,
                    Shutdown::Both => kernel::Shutdown::Both,
                };
                self.with(idx, |fd| kernel::shutdown(fd, how).map(|()| 0))
            }
            Call::TakeError(idx) => self.with(idx, |fd| {
                sockopt::socket_error(fd).map(|error| error.err().map_or(0, |error| error.raw_os_error() as usize))
            }),
            Call::Close(idx) => {
                self.ports[idx] = None;
                self.sockets[idx].take().map(|_| 0).ok_or(rustix::io::Errno::BADF)
            }
        };
        result.map_err(|errno| Errno(errno.raw_os_error()))
    }

    fn ready(&mut self) -> Vec<Option<Ready>> {
        let asked = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
        let look = |fd: &OwnedFd| {
            let mut entry = [PollFd::new(fd, asked)];
            poll(&mut entry, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
            Ready(entry[0].revents().bits().into()) & REPORTED
        };
        self.sockets.iter().map(|fd| fd.as_ref().map(look)).collect()
    }
}

impl Kernels {
    fn push(&mut self, fd: OwnedFd, port: Option<u16>) -> usize {
        self.sockets.push(Some(fd));
        self.ports.push(port);
        0
    }

    fn with(&self, idx: usize, act: impl FnOnce(&OwnedFd) -> rustix::io::Result<usize>) -> rustix::io::Result<usize> {
        self.sockets[idx].as_ref().map_or(Err(rustix::io::Errno::BADF), act)
    }

    fn recv(&self, idx: usize, len: usize, flags: RecvFlags) -> rustix::io::Result<usize> {
        self.with(idx, |fd| kernel::recv(fd, &mut vec![0; len][..], flags).map(|(count, _)| count))
    }
}

/// Our sockets, over plain memory: listeners and the connections that they accept are at the right
/// host, the others at the left.
struct Ours {
    wire: Wire,
    sockets: Vec<Option<(Stack, SocketId)>>,
    ports: Vec<Option<u16>>,
}

impl Side for Ours {
    fn play(&mut self, call: Call) -> Answer {
        let answer = match call {
            Call::Socket => {
                let left = self.wire.left.clone();
                left.call(|sockets, _| sockets.socket(Kind::Stream)).map(|id| self.push(left.clone(), id))
            }
            Call::Listen(idx) => self.listen(idx),
            Call::Connect(idx, to) => {
                let port = to.and_then(|to| self.ports[to]).unwrap_or(DEAD_PORT);
                self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.connect(id, at(2, port), cx).map(|()| 0)))
            }
            Call::Accept(idx) => match self.sockets[idx].clone() {
                Some((stack, id)) => {
                    let accepted = stack.call(|sockets, _| sockets.accept(id));
                    accepted.map(|(id, _)| self.push(stack, id))
                }
                None => Err(Errno::EBADF),
            },
            Call::Send(idx, len) => {
                self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.send(id, &vec![7; len], cx)))
            }
            Call::Recv(idx, len) => {
                self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.recv(id, &mut vec![0; len], cx)))
            }
            Call::Peek(idx, len) => {
                self.with(idx, |stack, id| stack.call(|sockets, _| sockets.peek(id, &mut vec![0; len])))
            }
            Call::Shutdown(idx, how) => {
                let shut =
                    self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.shutdown(id, how, cx).map(|()| 0)));
                if how != Shutdown::Write && self.ports[idx].take().is_some() {
                    // The socket listens no more, and may connect from the left host again.
                    let fresh = self.wire.left.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
                    let (stack, id) = self.sockets[idx].replace((self.wire.left.clone(), fresh)).unwrap();
                    stack.call(|sockets, cx| sockets.close(id, cx)).unwrap();
                }
                shut
            }
            Call::TakeError(idx) => self.with(idx, |stack, id| {
                stack.call(|sockets, _| sockets.take_error(id)).map(|error| error.map_or(0, |error| error.0 as usize))
            }),
            Call::Close(idx) => {
                self.ports[idx] = None;
                let closed = self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.close(id, cx).map(|()| 0)));
                self.sockets[idx] = None;
                closed
            }
        };
        self.wire.settle();
        answer
    }

    fn ready(&mut self) -> Vec<Option<Ready>> {
        let look = |(stack, id): &(Stack, SocketId)| stack.call(|sockets, _| sockets.ready(*id)).unwrap() & REPORTED;
        self.sockets.iter().map(|socket| socket.as_ref().map(look)).collect()
    }
}

impl Ours {
    fn new() -> Self {
        Self { wire: wire(), sockets: Vec::new(), ports: Vec::new() }
    }

    /// At the end of a script.
    fn close_all(&mut self) {
        for (stack, id) in self.sockets.drain(..).flatten() {
            stack.call(|sockets, cx| sockets.close(id, cx)).unwrap();
        }
        self.ports.clear();
        self.wire.settle();
    }

    fn push(&mut self, stack: Stack, id: SocketId) -> usize {
        self.sockets.push(Some((stack, id)));
        self.ports.push(None);
        0
    }

    fn with(&self, idx: usize, act: impl FnOnce(&Stack, SocketId) -> Answer) -> Answer {
        self.sockets[idx].as_ref().map_or(Err(Errno::EBADF), |(stack, id)| act(stack, *id))
    }

    /// A fresh socket that listens moves to the right host, because our hosts cannot connect to
    /// themselves.
    fn listen(&mut self, idx: usize) -> Answer {
        let listened = self.with(idx, |stack, id| stack.call(|sockets, cx| sockets.listen(id, 8, cx).map(|()| 0)));
        let (Ok(_), Some((stack, id))) = (listened, self.sockets[idx].clone()) else { return listened };
        if self.ports[idx].is_some() {
            return listened;
        }
        stack.call(|sockets, cx| sockets.close(id, cx))?;
        let right = self.wire.right.clone();
        let id = right.call(|sockets, _| sockets.socket(Kind::Stream))?;
        right.call(|sockets, cx| sockets.listen(id, 8, cx))?;
        self.ports[idx] = Some(right.call(|sockets, _| sockets.local_addr(id))?.port());
        self.sockets[idx] = Some((right, id));
        Ok(0)
    }
}

impl Random {
    /// The next call where `count` sockets were made so far.
    fn call(&mut self, count: usize) -> Call {
        if count < 3 {
            return Call::Socket;
        }
        let (idx, other) = (self.below(count), self.below(count));
        let len = [0, 1, 100, 5_000][self.below(4)];
        match self.below(20) {
            0 | 1 => Call::Socket,
            2 | 3 => Call::Listen(idx),
            4 => Call::Connect(idx, None),
            5..=8 => Call::Connect(idx, Some(other)),
            9 | 10 => Call::Accept(idx),
            11..=13 => Call::Send(idx, len),
            14..=16 => Call::Recv(idx, len),
            17 => Call::Peek(idx, len),
            18 => match self.below(5) {
                0 => Call::Shutdown(idx, Shutdown::Read),
                1 | 2 => Call::Shutdown(idx, Shutdown::Write),
                3 => Call::Shutdown(idx, Shutdown::Both),
                _ => Call::TakeError(idx),
            },
            _ => Call::Close(idx),
        }
    }
}

/// Where the two parted.
struct Parted {
    seed: u64,
    calls: Vec<Call>,
    kernel: String,
    ours: String,
}

impl fmt::Display for Parted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SEED={} parts at the last of these calls:", self.seed)?;
        self.calls.iter().try_for_each(|call| writeln!(f, "  {call:?}"))?;
        writeln!(f, "kernel: {}\nours:   {}", self.kernel, self.ours)
    }
}

fn play(seed: u64, ours: &mut Ours) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut kernel = Kernels::default();
    let mut calls = Vec::new();
    for _ in 0..CALLS {
        let call = match random.call(kernel.sockets.len()) {
            // The kernel remembers the shutdown of a fresh socket; ours forgets it, because its
            // listener is another socket than the fresh one.
            Call::Shutdown(idx, _) if kernel.ready()[idx] == Some(Ready::OUT | Ready::HUP) => Call::TakeError(idx),
            call => call,
        };
        calls.push(call);
        let answers = [kernel.play(call), ours.play(call)];
        // Loopback delivers within the call, except for segments that a softirq on the other core
        // still holds.
        let mut kernels = kernel.ready();
        let mine = ours.ready();
        for _ in 0..200 {
            if kernels == mine {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
            kernels = kernel.ready();
        }
        if answers[0] != answers[1] || kernels != mine {
            let [kernel, ours] =
                [(answers[0], kernels), (answers[1], mine)].map(|(answer, ready)| format!("{answer:?} {ready:x?}"));
            return Err(Parted { seed, calls, kernel, ours }.to_string());
        }
    }
    Ok(())
}

#[test]
fn calls_return_and_poll_reports_what_the_kernels_do() {
    let mut ours = Ours::new();
    play_all(SCRIPTS, |seed| {
        let played = play(seed, &mut ours);
        ours.close_all();
        played
    });
}
