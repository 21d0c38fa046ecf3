//! Random `setsockopt` and `getsockopt` calls on the kernel's sockets and on ours: each returns the
//! same, for any length and value. A failure prints the seed of its script; `SEED=n` plays that
//! script alone, `SCRIPTS=n` plays n scripts.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod common;
#[path = "common/scripts.rs"]
mod scripts;
#[path = "common/sys.rs"]
mod sys;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use common::{Wire, at, wire};
use rustix::net::{self as kernel, AddressFamily, SocketType};
use scripts::{Random, play_all};
use sockets::{Errno, Kind, SocketId, Stack, System};

/// Scripts of one run, unless the environment sets the number.
const SCRIPTS: u64 = 300;
const CALLS: usize = 60;

/// `lo`, as the kernel has it in each network namespace.
const INTERFACE_IDX: u32 = 1;
/// Addresses of the interface, the kernel's and ours.
const KERNELS: [u8; 4] = [127, 0, 0, 1];
const OURS: [u8; 4] = [192, 0, 2, 1];

const SOCKET: i32 = 1;
const IP: i32 = 0;
const TCP: i32 = 6;
const UDP: i32 = 17;

/// The form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Int,
    /// Not for numbers that only we limit.
    SmallInt,
    Linger,
    Timeval,
    /// Flags of `SO_TIMESTAMPING`, those that each supported kernel has.
    Stamps,
    Rate,
    Name,
    InterfaceAddress,
    Member,
    SourceMember,
    GroupReq,
    GroupSourceReq,
    Filter,
    GroupFilter,
    /// Read only, with a value that belongs to the state.
    Length,
}

use Form::*;

/// Options of any socket.
const OPTIONS: &[(i32, i32, Form)] = &[
    (SOCKET, 2, Int),
    (SOCKET, 3, Int),
    (SOCKET, 4, Int),
    (SOCKET, 6, Int),
    (SOCKET, 7, Int),
    (SOCKET, 8, Int),
    (SOCKET, 9, Int),
    (SOCKET, 13, Linger),
    (SOCKET, 15, Int),
    (SOCKET, 18, Int),
    (SOCKET, 19, Int),
    (SOCKET, 20, Timeval),
    (SOCKET, 21, Timeval),
    (SOCKET, 66, Timeval),
    (SOCKET, 67, Timeval),
    (SOCKET, 29, Int),
    (SOCKET, 35, Int),
    (SOCKET, 63, Int),
    (SOCKET, 64, Int),
    (SOCKET, 37, Stamps),
    (SOCKET, 65, Stamps),
    (SOCKET, 45, Int),
    (SOCKET, 60, Int),
    (SOCKET, 30, Int),
    (SOCKET, 32, SmallInt),
    (SOCKET, 33, SmallInt),
    (SOCKET, 38, Int),
    (SOCKET, 39, Int),
    (SOCKET, 40, Int),
    (SOCKET, 57, Length),
    (SOCKET, 9_999, Int),
    (IP, 1, Int),
    (IP, 2, Int),
    (IP, 8, Int),
    (IP, 11, Int),
    (IP, 12, Int),
    (IP, 13, Int),
    (IP, 20, Int),
    (IP, 24, Int),
    (IP, 32, InterfaceAddress),
    (IP, 33, Int),
    (IP, 34, Int),
    (IP, 49, Int),
    (IP, 9_999, Int),
    (4_242, 1, Int),
];
const STREAM_OPTIONS: &[(i32, i32, Form)] = &[
    (TCP, 1, Int),
    (TCP, 2, Int),
    (TCP, 3, Int),
    (TCP, 4, Int),
    (TCP, 5, Int),
    (TCP, 6, Int),
    (TCP, 7, Int),
    (TCP, 8, Int),
    (TCP, 9, Int),
    (TCP, 10, Int),
    (TCP, 25, Int),
    (TCP, 11, Length),
    (TCP, 12, Int),
    (TCP, 13, Name),
    (TCP, 18, Int),
    (TCP, 9_999, Int),
    (SOCKET, 47, Rate),
    (IP, 35, Member),
    (IP, 36, Member),
    (UDP, 100, Int),
];
const DATAGRAM_OPTIONS: &[(i32, i32, Form)] = &[
    (IP, 10, Int),
    (IP, 21, Int),
    (IP, 41, Filter),
    (IP, 48, GroupFilter),
    (IP, 35, Member),
    (IP, 36, Member),
    (IP, 37, SourceMember),
    (IP, 38, SourceMember),
    (IP, 39, SourceMember),
    (IP, 40, SourceMember),
    (IP, 42, GroupReq),
    (IP, 45, GroupReq),
    (IP, 43, GroupSourceReq),
    (IP, 44, GroupSourceReq),
    (IP, 46, GroupSourceReq),
    (IP, 47, GroupSourceReq),
    (TCP, 1, Int),
    (UDP, 1, Int),
];

/// In which state the socket is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    FreshStream,
    Listener,
    Connected,
    FreshDatagrams,
    BoundDatagrams,
    ConnectedDatagrams,
}

impl Of {
    const ALL: [Self; 6] = [
        Self::FreshStream,
        Self::Listener,
        Self::Connected,
        Self::FreshDatagrams,
        Self::BoundDatagrams,
        Self::ConnectedDatagrams,
    ];

    fn is_stream(self) -> bool {
        matches!(self, Self::FreshStream | Self::Listener | Self::Connected)
    }
}

#[derive(Clone, Debug)]
enum Call {
    Set(i32, i32, Vec<u8>),
    Get(i32, i32, usize),
}

impl Random {
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn int(&mut self, form: Form) -> i32 {
        let all = [
            0,
            1,
            2,
            3,
            -1,
            -2,
            5,
            6,
            64,
            87,
            88,
            127,
            128,
            255,
            256,
            1_000,
            4_096,
            32_767,
            32_768,
            1 << 20,
            i32::MAX,
            i32::MIN,
        ];
        loop {
            match (self.pick(&all), form) {
                // No value is above a GiB.
                (i32::MAX, SmallInt) => (),
                // A rate of nothing.
                (0, Rate) => (),
                (int, _) => return int,
            }
        }
    }

    fn group(&mut self) -> [u8; 4] {
        self.pick(&[[239, 1, 1, 1], [239, 1, 1, 2], [10, 0, 0, 1]])
    }

    fn address(&mut self) -> [u8; 4] {
        self.pick(&[KERNELS, KERNELS, KERNELS, [198, 51, 100, 77]])
    }

    fn idx(&mut self) -> u32 {
        self.pick(&[INTERFACE_IDX, INTERFACE_IDX, 4_242])
    }

    fn source(&mut self) -> [u8; 4] {
        self.pick(&[[198, 51, 100, 1], [198, 51, 100, 2], [198, 51, 100, 3]])
    }

    /// A mode, and different sources.
    fn filter(&mut self) -> (u32, Vec<[u8; 4]>) {
        let count = self.pick(&[0, 0, 1, 2, 3, 10, 11]);
        (self.pick(&[0, 0, 1, 1, 2]), (0..count).map(|last| [198, 51, 100, 1 + last]).collect())
    }

    /// A `struct sockaddr_storage`.
    fn storage(&mut self, address: [u8; 4]) -> Vec<u8> {
        let family = self.pick(&[2u16, 2, 2, 2, 10]);
        [&family.to_ne_bytes()[..], &[0, 0], &address, &[0; 120]].concat()
    }

    fn value(&mut self, form: Form) -> Vec<u8> {
        let whole = match form {
            Int | SmallInt | Length => self.int(form).to_ne_bytes().to_vec(),
            Rate => [self.int(form).to_ne_bytes(), self.pick(&[[0; 4], [0xff; 4], [1, 0, 0, 0]])].concat(),
            Stamps => {
                let bits = self.pick(&[0x7f, 0xff, 0x80, 0x6fff, 0x0218, 0x10, 0x18, 0x2000, 1 << 24]);
                (bits & (self.below(1 << 15) as i32 | self.pick(&[0, 0x80, 1 << 24]))).to_ne_bytes().to_vec()
            }
            Linger => [self.pick(&[0, 1, 7]), self.pick(&[0, 1, 5, 100_000])].map(i32::to_ne_bytes).concat(),
            Timeval => {
                let micros = self.pick(&[0i64, 0, 20_000, 500_000, 1_000_000, -1]);
                [self.pick(&[0, 0, 1, 5, -1, i64::MAX]), micros].map(i64::to_ne_bytes).concat()
            }
            Name => {
                self.pick(&[&b"cubic"[..], b"reno", b"reno\0", b"cubic\0\0\0\0\0\0\0\0\0\0\0\0\0", b"nosuch"]).to_vec()
            }
            InterfaceAddress => match self.below(3) {
                0 => self.pick(&[KERNELS, [0; 4], [198, 51, 100, 77]]).to_vec(),
                1 => [self.group(), self.address()].concat(),
                _ => [self.group(), self.address(), self.idx().to_ne_bytes()].concat(),
            },
            Member => match self.below(2) {
                0 => [self.group(), self.address()].concat(),
                _ => [self.group(), self.address(), self.idx().to_ne_bytes()].concat(),
            },
            SourceMember => [self.group(), self.address(), self.source()].concat(),
            GroupReq => {
                let group = self.group();
                [&self.idx().to_ne_bytes()[..], &[0; 4], &self.storage(group)].concat()
            }
            Filter => {
                let (group, address) = (self.group(), self.address());
                let (mode, sources) = self.filter();
                let head = [group, address, mode.to_ne_bytes(), (sources.len() as u32).to_ne_bytes()];
                [head.concat(), sources.concat()].concat()
            }
            GroupFilter => {
                let (group, (mode, sources)) = (self.group(), self.filter());
                let (group, idx) = (self.storage(group), self.idx());
                let count = (sources.len() as u32).to_ne_bytes();
                let sources = sources.into_iter().flat_map(|source| self.storage(source)).collect::<Vec<u8>>();
                let head = [&idx.to_ne_bytes()[..], &[0; 4], &group, &mode.to_ne_bytes(), &count].concat();
                [head, sources].concat()
            }
            GroupSourceReq => {
                let (group, source) = (self.group(), self.source());
                let (group, source) = (self.storage(group), self.storage(source));
                [&self.idx().to_ne_bytes()[..], &[0; 4], &group, &source].concat()
            }
        };
        match self.below(6) {
            // Too short, or with ignored bytes at the end.
            0 => whole[..self.below(whole.len() + 1)].to_vec(),
            1 if !matches!(form, Name) => [&whole[..], &vec![0; self.below(20)]].concat(),
            _ => whole,
        }
    }

    fn call(&mut self, of: Of) -> Call {
        let more = if of.is_stream() { STREAM_OPTIONS } else { DATAGRAM_OPTIONS };
        let place = self.below(OPTIONS.len() + more.len());
        let (level, name, form) = *OPTIONS.iter().chain(more).nth(place).unwrap();
        let gets = matches!(form, Length) || self.below(2) == 0;
        if gets && !matches!(form, Member | SourceMember | GroupReq | GroupSourceReq | Filter | GroupFilter) {
            let len = self.pick(&[0, 1, 2, 3, 4, 4, 4, 5, 7, 8, 12, 15, 16, 17, 100, 248]);
            return Call::Get(level, name, len);
        }
        Call::Set(level, name, self.value(form))
    }
}

/// The kernel's and ours, in the same state.
struct Both {
    kernel: OwnedFd,
    /// The socket's peer.
    _peer: Option<OwnedFd>,
    ours: (Stack, SocketId),
}

const LOOPBACK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

fn local(fd: &OwnedFd) -> SocketAddrV4 {
    SocketAddrV4::try_from(kernel::getsockname(fd).unwrap()).unwrap()
}

fn make(of: Of, wire: &Wire) -> Both {
    let stack = wire.left.clone();
    let (kind, type_) = match of.is_stream() {
        true => (Kind::Stream, SocketType::STREAM),
        false => (Kind::Datagram, SocketType::DGRAM),
    };
    let fresh = || kernel::socket(AddressFamily::INET, type_, None).unwrap();
    let fd = fresh();
    let id = stack.call(|sockets, _| sockets.socket(kind)).unwrap();
    let mut peer = None;
    match of {
        Of::FreshStream | Of::FreshDatagrams => (),
        Of::Listener => {
            kernel::listen(&fd, 8).unwrap();
            stack.call(|sockets, cx| sockets.listen(id, 8, cx)).unwrap();
        }
        Of::Connected => {
            let listener = fresh();
            kernel::bind(&listener, &LOOPBACK).unwrap();
            kernel::listen(&listener, 8).unwrap();
            kernel::connect(&fd, &local(&listener)).unwrap();
            peer = Some(listener);
            let _ = stack.call(|sockets, cx| sockets.connect(id, at(2, 80), cx));
            wire.settle();
        }
        Of::BoundDatagrams => {
            kernel::bind(&fd, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
            stack.call(|sockets, cx| sockets.bind(id, any, cx)).unwrap();
        }
        Of::ConnectedDatagrams => {
            let other = fresh();
            kernel::bind(&other, &LOOPBACK).unwrap();
            kernel::connect(&fd, &local(&other)).unwrap();
            peer = Some(other);
            stack.call(|sockets, cx| sockets.connect(id, at(2, 9), cx)).unwrap();
        }
    }
    Both { kernel: fd, _peer: peer, ours: (stack, id) }
}

/// The kernel's address in a value, as ours.
fn translated(form: Form, value: &[u8]) -> Vec<u8> {
    let mut value = value.to_vec();
    if form == InterfaceAddress && value.len() < 4 && value.first() == KERNELS.first() {
        return OURS[..value.len()].to_vec();
    }
    if matches!(form, InterfaceAddress | Member | SourceMember | Filter) {
        for place in value.chunks_exact_mut(4).filter(|place| **place == KERNELS) {
            place.copy_from_slice(&OURS);
        }
    }
    value
}

type Answer = Result<Vec<u8>, Errno>;

impl Both {
    fn play(&self, call: &Call) -> [Answer; 2] {
        let (stack, id) = &self.ours;
        match call {
            Call::Set(level, name, value) => {
                let form = form_of(*level, *name);
                let translated = translated(form, value);
                let ours = stack.call(|sockets, cx| sockets.setsockopt(*id, *level, *name, &translated, cx));
                [sys::setsockopt(&self.kernel, *level, *name, value), ours].map(|answer| answer.map(|()| Vec::new()))
            }
            Call::Get(level, name, len) => {
                let form = form_of(*level, *name);
                let mut outs = [vec![0xee; *len], vec![0xee; *len]];
                let [kernels, ours] = &mut outs;
                let kernel_len = sys::getsockopt(&self.kernel, *level, *name, kernels);
                let our_len = stack.call(|sockets, cx| sockets.getsockopt(*id, *level, *name, ours, cx));
                if form == Length {
                    outs.iter_mut().for_each(|out| out.fill(0));
                }
                let [kernels, ours] = outs;
                [kernel_len.map(|len| translated(form, &kernels[..len])), our_len.map(|len| ours[..len].to_vec())]
            }
        }
    }
}

fn form_of(level: i32, name: i32) -> Form {
    let mut all = OPTIONS.iter().chain(STREAM_OPTIONS).chain(DATAGRAM_OPTIONS);
    all.find(|(other, number, _)| (*other, *number) == (level, name)).unwrap().2
}

fn play(seed: u64, wire: &Wire) -> Result<(), String> {
    let mut random = Random::new(seed);
    let of = random.pick(&Of::ALL);
    let both = make(of, wire);
    // The defaults of the buffers are the machine's.
    let buffer = 100_000i32.to_ne_bytes().to_vec();
    let mut calls = vec![Call::Set(SOCKET, 7, buffer.clone()), Call::Set(SOCKET, 8, buffer)];
    if of.is_stream() {
        calls.push(Call::Set(TCP, 13, b"cubic".to_vec()));
    }
    calls.extend((0..CALLS).map(|_| random.call(of)));
    if of == Of::Connected {
        // Values that depend on the path, or that traffic has changed.
        calls.retain(|call| !matches!(call, Call::Get(TCP, 2 | 10 | 12, _)));
    }
    let parted = calls.iter().position(|call| {
        let [kernel, ours] = both.play(call);
        kernel != ours
    });
    let result = parted.map_or(Ok(()), |place| {
        let [kernel, ours] = both.play(&calls[place]);
        let calls = calls[..=place].iter().map(|call| format!("  {call:?}\n")).collect::<String>();
        Err(format!(
            "SEED={seed}, {of:?} parts at the last of\n{calls}again kernel: {kernel:x?}\nagain ours:   {ours:x?}"
        ))
    });
    let (stack, id) = &both.ours;
    stack.call(|sockets, cx| sockets.close(*id, cx)).unwrap();
    wire.settle();
    result
}

#[test]
fn options_are_set_and_read_as_the_kernels_are() {
    let max =
        |name: &str| std::fs::read_to_string(format!("/proc/sys/net/core/{name}")).unwrap().trim().parse().unwrap();
    let system =
        System { receive_buffer_max: max("rmem_max"), send_buffer_max: max("wmem_max"), interface_idx: INTERFACE_IDX };
    let wire = wire();
    wire.left.call(|sockets, _| sockets.follow_system(system));
    let listener = wire.right.call(|sockets, _| sockets.socket(Kind::Stream)).unwrap();
    wire.right.call(|sockets, cx| sockets.bind(listener, at(2, 80), cx)).unwrap();
    wire.right.call(|sockets, cx| sockets.listen(listener, 8, cx)).unwrap();
    play_all(SCRIPTS, |seed| {
        let played = play(seed, &wire);
        while let Ok((id, _)) = wire.right.call(|sockets, _| sockets.accept(listener)) {
            wire.right.call(|sockets, cx| sockets.close(id, cx)).unwrap();
        }
        played
    });
}
