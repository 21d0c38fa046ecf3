//! `poll`, `select` and epoll over sockets of ours and descriptors of the kernel together.

use core::ffi::c_int;
use std::time::Duration;

use sockets::{Errno, Ready};

use crate::calls::offload::{set_of, watched};
use crate::engine::file::{Owner, Set, Watch, What};
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking, Sides, readable};
use crate::engine::{self, Engine, WaitFor};
use crate::{calls, sys};

/// `poll`: how many of `fds` have something to report.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let members = members_of(fds);
    let kernel = kernel_side(fds, &members);
    let interest = match (&members[..], &fds[..]) {
        ([State::Ours(member)], [one]) => WaitFor::Socket(member.id, Ready(u32::from(one.events as u16))),
        _ => WaitFor::Any,
    };
    let mut polled = kernel.clone();
    let ready = wait::until(Blocking::of_poll(timeout), interest, &kernel, |engine, sides| {
        let mut count = look_at_ours(engine, fds, &members);
        if sides == Sides::Both {
            count = look_at_kernel(fds, &members, &mut polled)?;
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    });
    match ready {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    }
}

/// Whether any of these descriptors is ours, so that the kernel alone cannot answer.
pub(crate) fn concerns_us(mut fds: impl Iterator<Item = c_int>) -> bool {
    fds.any(|fd| table::find_ours(fd).is_some())
}

fn members_of(fds: &[libc::pollfd]) -> Vec<State> {
    let mut engine = engine::enter();
    let states = fds.iter().map(|entry| match table::find_ours(entry.fd) {
        Some(file) => {
            // A listener becomes ours by being waited on; one that cannot stays the kernel's.
            let _ = calls::begin_to_accept(&mut engine, file);
            state_of(&mut engine, file)
        }
        None => State::Kernel,
    });
    states.collect()
}

/// What the kernel is asked of each: a descriptor of its own as the program asks, a twin for input.
fn kernel_side(fds: &[libc::pollfd], members: &[State]) -> Vec<libc::pollfd> {
    let sides = fds.iter().zip(members).map(|(entry, member)| match member {
        State::Ours(Member { hears_twin: true, .. }) => {
            libc::pollfd { fd: entry.fd, events: entry.events & libc::POLLIN, revents: 0 }
        }
        State::Ours(_) => libc::pollfd { fd: -1, events: 0, revents: 0 },
        State::Set(_) | State::Kernel => *entry,
    });
    sides.collect()
}

fn look_at_ours(engine: &mut Engine, fds: &mut [libc::pollfd], members: &[State]) -> usize {
    let mut count = 0;
    for (entry, member) in fds.iter_mut().zip(members) {
        entry.revents = match member {
            State::Ours(member) => match engine.look(|sockets, _| sockets.ready(member.id)) {
                Ok(ready) => (ready & (Ready(u32::from(entry.events as u16)) | Ready::ALWAYS)).0 as i16,
                Err(_) => libc::POLLERR | libc::POLLHUP,
            },
            State::Set(set) if entry.events & libc::POLLIN != 0 => {
                if engine.look(|sockets, _| sockets.epoll_ready(*set)).unwrap_or(false) { libc::POLLIN } else { 0 }
            }
            State::Set(_) | State::Kernel => 0,
        };
        count += usize::from(entry.revents != 0);
    }
    count
}

/// Adds what the kernel has to report, and counts all.
fn look_at_kernel(fds: &mut [libc::pollfd], members: &[State], polled: &mut [libc::pollfd]) -> Result<usize, Errno> {
    sys::ppoll(polled, Some(0))?;
    for ((entry, member), kernel) in fds.iter_mut().zip(members).zip(polled.iter()) {
        match member {
            // A twin is asked for input alone.
            State::Ours(_) => entry.revents |= kernel.revents & libc::POLLIN,
            State::Set(_) | State::Kernel => entry.revents |= kernel.revents,
        }
    }
    Ok(fds.iter().filter(|entry| entry.revents != 0).count())
}

/// `epoll_create`: the kernel's set stands; ours is made when a socket of ours comes in.
pub(crate) fn create_set(fd: c_int) {
    engine::enter().files.open(fd, false, What::Set(Set { ours: None, has_kernel: false }));
}

/// `epoll_ctl`.
pub(crate) fn control(epfd: c_int, op: c_int, fd: c_int, event: Option<libc::epoll_event>) -> Result<(), Errno> {
    let mut engine = engine::enter();
    let Some(file) = table::find(epfd) else { return sys::epoll_ctl(epfd, op, fd, event) };
    let target = table::find(fd);
    if let Some(target) = target
        && op == libc::EPOLL_CTL_ADD
    {
        let _ = calls::begin_to_accept(&mut engine, target);
    }
    match target.map(|target| state_of(&mut engine, target)) {
        Some(State::Ours(member)) => {
            control_ours(&mut engine, file, &member, op, fd, event)?;
            if member.hears_twin {
                let input =
                    event.map(|event| libc::epoll_event { events: event.events & !(libc::EPOLLOUT as u32), ..event });
                // It may have been there before the socket became ours, or not.
                let _ = sys::epoll_ctl(epfd, op, fd, input);
                engine.files.set(file)?.has_kernel = true;
            }
            Ok(())
        }
        _ => {
            sys::epoll_ctl(epfd, op, fd, event)?;
            engine.files.set(file)?.has_kernel |= op == libc::EPOLL_CTL_ADD;
            if let Some(target) = target {
                remember_watch(&mut engine, target, file, op, fd, event);
            }
            Ok(())
        }
    }
}

/// `epoll_wait`: how many of `events` were filled in.
/// `None`: it is no set that we know.
pub(crate) fn wait_for_events(
    epfd: c_int,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    let file = table::find(epfd)?;
    if events.is_empty() {
        return Some(Err(Errno::EINVAL));
    }
    // Another thread may add what is ours, or the kernel's, while this one waits.
    let kernel = [readable(epfd)];
    let count = wait::until(Blocking::of_poll(timeout), WaitFor::Set(file), &kernel, |engine, sides| {
        let set = *engine.files.set(file)?;
        let mut count = 0;
        if sides == Sides::Both && set.has_kernel {
            count = sys::epoll_poll(epfd, events)?;
        }
        if let Some(ours) = set.ours {
            count += events_of_ours(engine, ours, &mut events[count..])?;
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    });
    Some(match count {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    })
}

fn events_of_ours(engine: &mut Engine, set: usize, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    const BATCH: usize = 64;
    let mut batch = [sockets::EpollEvent { ready: Ready::NONE, data: 0 }; BATCH];
    let len = events.len().min(BATCH);
    if len == 0 {
        return Ok(0);
    }
    let count = engine.look(|sockets, _| sockets.epoll_wait(set, &mut batch[..len]))?;
    for (event, reported) in events.iter_mut().zip(&batch[..count]) {
        *event = libc::epoll_event { events: reported.ready.0, u64: reported.data };
    }
    Ok(count)
}

fn control_ours(
    engine: &mut Engine,
    file: FileId,
    member: &Member,
    op: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let set = set_of(engine, file)?;
    let watched = event.map(watched);
    match (op, watched) {
        (libc::EPOLL_CTL_ADD, Some(watched)) => {
            engine.call(|sockets, _| sockets.epoll_add(set, member.id, fd, watched))
        }
        (libc::EPOLL_CTL_MOD, Some(watched)) => {
            engine.call(|sockets, _| sockets.epoll_modify(set, member.id, fd, watched))
        }
        (libc::EPOLL_CTL_DEL, _) => engine.call(|sockets, _| sockets.epoll_delete(set, member.id, fd)),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(Errno(libc::EFAULT)),
        _ => Err(Errno::EINVAL),
    }
}

/// A twin of a socket that may become ours is in a set of the kernel's.
fn remember_watch(
    engine: &mut Engine,
    target: FileId,
    set: FileId,
    op: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) {
    let Ok(socket) = engine.files.socket(target) else { return };
    socket.watches.retain(|watch| watch.set != set || watch.fd != fd);
    if let Some(event) = event
        && op != libc::EPOLL_CTL_DEL
    {
        socket.watches.push(Watch { set, fd, event });
    }
}

/// A socket of ours among what is polled.
#[derive(Clone, Copy)]
struct Member {
    id: sockets::SocketId,
    hears_twin: bool,
}

enum State {
    Ours(Member),
    /// The engine's side of an epoll set.
    Set(usize),
    Kernel,
}

fn state_of(engine: &mut Engine, file: FileId) -> State {
    match engine.files.get(file).map(|file| &file.what) {
        Some(What::Socket(socket)) => match socket.place {
            Owner::Ours { id, hears_twin } => State::Ours(Member { id, hears_twin }),
            Owner::Twin => State::Kernel,
        },
        Some(What::Set(Set { ours: Some(set), .. })) => State::Set(*set),
        _ => State::Kernel,
    }
}
