//! `poll` and `select` over offloaded sockets, epoll sets and descriptors of the kernel together.

use core::ffi::c_int;
use std::time::Duration;

use sockets::{Errno, Kind, Ready};

use crate::calls::member::{Member, State, state_of};
use crate::calls::{back, error_queue, listener};
use crate::engine::file::Owner;
use crate::engine::group::{EngineMask, Engines};
use crate::engine::sets;
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking, Sides, Waits};
use crate::engine::{self, WaitFor};
use crate::sys;

/// `poll`: returns how many of `fds` have events.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let mut blocking = Blocking::of_poll(timeout);
    match back::wait_through(&mut blocking, |blocking| poll_until(blocking, fds)) {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    }
}

fn poll_until(blocking: &mut Blocking, fds: &mut [libc::pollfd]) -> Result<usize, Errno> {
    let (rooms, sets) = rooms_of(fds);
    let (mut members, mut known) = first_members(rooms, fds);
    let kernel = kernel_side(fds, &members);
    let (interest, listeners) = match (&members[..], &fds[..]) {
        ([State::Ours(member)], [one]) => {
            let listeners = if member.others.is_empty() { Vec::new() } else { member.all().collect() };
            (WaitFor::Socket(member.id, Ready(u32::from(one.events as u16))), listeners)
        }
        _ => (WaitFor::Any, Vec::new()),
    };
    let engines = members.iter().fold(rooms, |engines, state| match state {
        State::Ours(member) => engines.union(member.engines()),
        State::Set(_) | State::Kernel => engines,
    });
    let waits = Waits { engines, sets: &sets, interest, listeners: &listeners, kernel: &kernel };
    let mut polled = kernel.clone();
    wait::until_any(blocking, &waits, |engines, sides| {
        let now = offloads(engines, rooms);
        if now != known
            && let Ok(anew) = members_of(engines, fds)
        {
            // Another thread has offloaded a socket, maybe one of these by its first send.
            members = anew;
            (polled, known) = (kernel_side(fds, &members), now);
        }
        let has_kernel = members.iter().any(|member| matches!(member, State::Kernel));
        let mut count = look_at_ours(engines, fds, &members);
        // A call that returns reports all that is ready, on both sides. Only where our side has
        // input already, what a twin has waits for a later call, because the look is a system call.
        if sides == Sides::Both || (count > 0 && (has_kernel || is_room_alone(fds, &members))) {
            count = look_at_kernel(engines, fds, &members, &mut polled)?;
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    })
}

/// The engines of the files among these descriptors that are sockets, which may be offloaded while
/// a call waits, and the epoll sets among them.
fn rooms_of(fds: &[libc::pollfd]) -> (EngineMask, Vec<FileId>) {
    let (mut rooms, mut sets) = (EngineMask::NONE, Vec::new());
    for file in fds.iter().filter_map(|entry| table::find_possible(entry.fd)) {
        if file.is_set() {
            sets.push(file);
        } else {
            rooms = rooms.with(file.room());
        }
    }
    (rooms, sets)
}

/// The states of the descriptors of a call that begins, and how many sockets were offloaded before.
/// The first wait offloads a listener; if that fails, it stays with the kernel.
fn first_members(rooms: EngineMask, fds: &[libc::pollfd]) -> (Vec<State>, u64) {
    loop {
        let idle = {
            let mut engines = Engines::enter(rooms);
            match members_of(&mut engines, fds) {
                Ok(members) => return (members, offloads(&mut engines, rooms)),
                Err(idle) => idle,
            }
        };
        let _ = listener::begin_to_accept(idle);
    }
}

/// Counts the sockets that were offloaded in some of the engines.
fn offloads(engines: &mut Engines, numbers: EngineMask) -> u64 {
    engines.iter_mut().filter(|engine| numbers.has(engine.number)).map(|engine| engine.offloads).sum()
}

/// Whether any of these descriptors is offloaded, or a datagram socket that another thread may
/// offload meanwhile, so that the kernel alone cannot answer.
pub(crate) fn concerns_us(fds: impl Iterator<Item = c_int> + Clone) -> bool {
    if fds.clone().any(|fd| table::find_ours(fd).is_some()) {
        return true;
    }
    let mut undecided = fds.filter_map(table::find_possible).peekable();
    if undecided.peek().is_none() {
        return false;
    }
    undecided.any(|file| {
        let mut engine = engine::enter(file);
        let socket = engine.files.socket(file);
        socket.is_ok_and(|socket| socket.kind == Kind::Datagram && socket.place == Owner::Undecided)
    })
}

/// The states of descriptors, or a listener among them that is to be begun before.
fn members_of(engines: &mut Engines, fds: &[libc::pollfd]) -> Result<Vec<State>, FileId> {
    let states = fds.iter().map(|entry| {
        let Some(file) = table::find_ours(entry.fd) else { return Ok(State::Kernel) };
        if file.is_set() {
            return Ok(State::Set(file));
        }
        // The descriptor may name a socket of another engine meanwhile: then the kernel answers.
        let Some(engine) = engines.of(file.room()) else { return Ok(State::Kernel) };
        if listener::is_idle(engine, file) { Err(file) } else { Ok(state_of(engine, file)) }
    });
    states.collect()
}

/// The entries for the kernel's `poll`: a descriptor of its own with the program's events, a twin
/// for input.
fn kernel_side(fds: &[libc::pollfd], members: &[State]) -> Vec<libc::pollfd> {
    let sides = fds.iter().zip(members).map(|(entry, member)| match member {
        State::Ours(Member { hears_twin: true, .. }) => {
            libc::pollfd { fd: entry.fd, events: entry.events & INPUT, revents: 0 }
        }
        State::Ours(_) => libc::pollfd { fd: -1, events: 0, revents: 0 },
        State::Set(_) | State::Kernel => *entry,
    });
    sides.collect()
}

/// Both names of input.
const INPUT: i16 = libc::POLLIN | libc::POLLRDNORM;

/// Whether nothing but room to send is reported, where input of a twin is asked for.
fn is_room_alone(fds: &[libc::pollfd], members: &[State]) -> bool {
    let asks_twin = |(entry, member): (&libc::pollfd, &State)| {
        entry.events & INPUT != 0 && matches!(member, State::Ours(Member { hears_twin: true, .. }))
    };
    fds.iter().all(|entry| entry.revents & INPUT == 0) && fds.iter().zip(members).any(asks_twin)
}

fn look_at_ours(engines: &mut Engines, fds: &mut [libc::pollfd], members: &[State]) -> usize {
    let mut count = 0;
    for (entry, member) in fds.iter_mut().zip(members) {
        entry.revents = match member {
            State::Ours(member) => match member.look(engines) {
                Ok(ready) => ready.among(Ready(u32::from(entry.events as u16))).0 as i16,
                Err(_) => libc::POLLERR | libc::POLLHUP,
            },
            State::Set(file) if entry.events & libc::POLLIN != 0 && is_set_ready(engines, *file) => libc::POLLIN,
            State::Set(_) | State::Kernel => 0,
        };
        count += usize::from(entry.revents != 0);
    }
    count
}

/// Whether a set has events of any engine.
fn is_set_ready(engines: &mut Engines, file: FileId) -> bool {
    engines.iter_mut().any(|engine| match sets::part(file, engine.number) {
        Ok(Some(set)) => engine.look(|sockets| sockets.epoll_ready(set)).unwrap_or(false),
        _ => false,
    })
}

/// Adds the kernel's events, and counts the entries that have any.
fn look_at_kernel(
    engines: &mut Engines,
    fds: &mut [libc::pollfd],
    members: &[State],
    polled: &mut [libc::pollfd],
) -> Result<usize, Errno> {
    sys::ppoll(polled, Some(0))?;
    for ((entry, member), kernel) in fds.iter_mut().zip(members).zip(polled.iter()) {
        match member {
            // A twin is polled for input alone; its errors become those of the socket.
            State::Ours(member) => {
                entry.revents |= kernel.revents & INPUT;
                if kernel.revents & libc::POLLERR != 0
                    && let Some(engine) = engines.of(member.engine)
                {
                    error_queue::absorb(engine, member.id, entry.fd);
                    let ready = member.look(engines).unwrap_or(Ready::ERR);
                    entry.revents |= (ready & Ready::ALWAYS).0 as i16;
                }
            }
            State::Set(_) | State::Kernel => entry.revents |= kernel.revents,
        }
    }
    Ok(fds.iter().filter(|entry| entry.revents != 0).count())
}
