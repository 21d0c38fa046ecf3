//! epoll over offloaded sockets and descriptors of the kernel together. The kernel's set of the
//! same descriptor has those of the kernel, and [the twins](super::epoll_twins) of ours.

use core::ffi::c_int;
use std::time::Duration;

use sockets::{Errno, Ready, SocketId};

use crate::calls::epoll_twins::{control_twin, leave_errors_of_twins, settle_one_shots, silence_twins};
use crate::calls::member::{State, state_of};
use crate::calls::offload::{set_of, watched};
use crate::calls::{back, listener};
use crate::engine::file::{FileKind, Owner, Watch};
use crate::engine::group::{EngineMask, Engines};
use crate::engine::sets;
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking, Sides, Waits, readable};
use crate::engine::{self, Engine, WaitFor, thread};
use crate::sys;

/// `epoll_create`: the kernel has made its set; an engine makes its part with the first offloaded
/// socket.
pub(crate) fn create_set(fd: c_int) {
    sets::open(fd);
}

/// `close` of a descriptor of a set. All engines are held, because another set may get the number
/// of this one as soon as the table has let it go, and the engines forget the old one's here.
pub(crate) fn close_set(file: FileId, fd: c_int) {
    let mut engines = Engines::enter(engine::all());
    let Some(FileKind::Set(set)) = sets::with(|sets| sets.close(file, fd)).map(|file| file.what) else { return };
    if let Some(outside) = set.outside {
        table::clear(outside);
        sys::close(outside);
    }
    for engine in engines.iter_mut() {
        engine.files.forget_watches(file);
        if let Some(part) = set.part(engine.number) {
            let _ = engine.call(|sockets, _| sockets.epoll_close(part));
        }
    }
}

/// Whether an item may not be exclusive: one that is changed, or that asks for more than Linux lets
/// it (`EPOLLEXCLUSIVE_OK_BITS`).
fn is_wrongly_exclusive(op: c_int, event: libc::epoll_event) -> bool {
    const ALLOWED: c_int = libc::EPOLLIN
        | libc::EPOLLOUT
        | libc::EPOLLERR
        | libc::EPOLLHUP
        | libc::EPOLLWAKEUP
        | libc::EPOLLET
        | libc::EPOLLEXCLUSIVE;
    let events = event.events;
    events & libc::EPOLLEXCLUSIVE as u32 != 0
        && (op == libc::EPOLL_CTL_MOD || (op == libc::EPOLL_CTL_ADD && events & !(ALLOWED as u32) != 0))
}

/// `epoll_ctl`.
pub(crate) fn control(epfd: c_int, op: c_int, fd: c_int, event: Option<libc::epoll_event>) -> Result<(), Errno> {
    let target = table::find(fd);
    let rooms = target.filter(|target| !target.is_set()).map_or(EngineMask::NONE, |file| EngineMask::one(file.room()));
    let mut engines = Engines::enter(rooms);
    if let Some(target) = target
        && op == libc::EPOLL_CTL_ADD
        && listener::is_idle(&mut engines.first, target)
    {
        drop(engines);
        let _ = listener::begin_to_accept(target);
        engines = Engines::enter(rooms);
    }
    let Some(file) = table::find(epfd) else { return sys::epoll_ctl(epfd, op, fd, event) };
    match target.map(|target| state_of(&mut engines.first, target)) {
        Some(State::Ours(_)) if event.is_some_and(|event| is_wrongly_exclusive(op, event)) => Err(Errno::EINVAL),
        Some(State::Ours(member)) => {
            if !member.others.is_empty() {
                drop(engines);
                engines = Engines::enter(member.engines());
            }
            let engine = engines.of(member.engine).ok_or(Errno::EBADF)?;
            control_ours(engine, file, member.id, op, fd, event)?;
            for other in &member.others {
                if let Some(engine) = engines.of(other.engine) {
                    let _ = control_ours(engine, file, other.id, op, fd, event);
                }
            }
            if member.hears_twin {
                control_twin(file, &member, epfd, op, fd, event)?;
            }
            Ok(())
        }
        state => {
            sys::epoll_ctl(epfd, op, fd, event)?;
            sets::of(file, |set| set.has_kernel |= op == libc::EPOLL_CTL_ADD)?;
            match (state, target) {
                (Some(State::Set(inner)), _) => show_outside(inner, fd),
                (_, Some(target)) => remember_watch(&mut engines.first, target, file, op, fd, event),
                _ => (),
            }
            Ok(())
        }
    }
}

/// Has the kernel see what the parts of a set report, because another set has it as a member.
fn show_outside(file: FileId, epfd: c_int) {
    if !matches!(sets::of(file, |set| set.outside), Ok(None)) {
        return;
    }
    let Ok(outside) = thread::wake_descriptor() else { return };
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    if sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, outside, Some(event)).is_err() {
        table::clear(outside);
        sys::close(outside);
        return;
    }
    sets::show(file, outside);
}

/// `epoll_wait`: returns how many `events` it stored. `None` if this set is unknown.
pub(crate) fn wait_for_events(
    epfd: c_int,
    events: &mut [libc::epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    let file = table::find(epfd)?;
    if events.is_empty() {
        return Some(Err(Errno::EINVAL));
    }
    let mut blocking = Blocking::of_poll(timeout);
    let count = back::wait_through(&mut blocking, |blocking| {
        listener::begin_to_accept_in(file);
        wait_until(blocking, epfd, file, events)
    });
    Some(match count {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    })
}

fn wait_until(
    blocking: &mut Blocking,
    epfd: c_int,
    file: FileId,
    events: &mut [libc::epoll_event],
) -> Result<usize, Errno> {
    // Another thread may add offloaded sockets or descriptors of the kernel while this one waits.
    let kernel = [readable(epfd)];
    let waits = Waits {
        engines: EngineMask::NONE,
        sets: &[file],
        interest: WaitFor::Set(file),
        listeners: &[],
        kernel: &kernel,
    };
    wait::until_any(blocking, &waits, |engines, sides| {
        let set = sets::of(file, |set| set.view())?;
        if set.has_failed {
            return Err(Errno(libc::EIO));
        }
        let mut count = 0;
        if sides == Sides::Both && set.has_kernel {
            sets::hide_events(file)?;
            count = sys::epoll_poll(epfd, events)?;
            if set.has_edges && count > 0 {
                sets::of(file, |set| set.note_reported(&events[..count]))?;
            }
            count = leave_errors_of_twins(engines, file, epfd, &mut events[..count])?;
            settle_one_shots(engines, file, &mut events[..count])?;
        }
        let mut is_full = false;
        for idx in 0..engines.count() {
            let Some(engine) = engines.at(idx) else { continue };
            let number = engine.number;
            let Some(part) = set.parts.of(number) else { continue };
            let answers = events_of_ours(engine, part, &mut events[count..])?;
            engine.begin_answers(answers);
            is_full |= answers == BATCH || count + answers == events.len();
            count = merge(events, count, answers);
            if set.has_one_shots {
                silence_twins(engines, number, file, part, epfd)?;
            }
        }
        if is_full || count == events.len() || count >= BATCH {
            // There may be more, for another thread that waits.
            engines.iter_mut().for_each(|engine| engine.pass_on(file));
        } else if count > 0 {
            // A level item stays ready: as Linux `ep_done_scan` does, it wakes the next thread.
            engines.iter_mut().filter(|engine| engine.has_sleeper_on(file)).for_each(|engine| engine.pass_on(file));
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    })
}

/// Merges `added` events behind the first `count` with those of the same value, because a socket
/// may be ready on both sides and the kernel reports an item once a call. Returns how many remain.
fn merge(events: &mut [libc::epoll_event], count: usize, added: usize) -> usize {
    if count == 0 {
        return added;
    }
    let mut end = count;
    for idx in count..count + added {
        let event = events[idx];
        match events[..count].iter_mut().find(|before| before.u64 == event.u64) {
            Some(before) => before.events |= event.events,
            None => {
                events[end] = event;
                end += 1;
            }
        }
    }
    end
}

/// Events that are taken of the engine at once.
const BATCH: usize = 64;

fn events_of_ours(engine: &mut Engine, set: usize, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
    if !engine.look(|sockets| Ok(sockets.epoll_has_listed(set)))? {
        return Ok(0);
    }
    let mut batch = [sockets::EpollEvent { ready: Ready::NONE, data: 0 }; BATCH];
    let len = events.len().min(BATCH);
    if len == 0 {
        return Ok(0);
    }
    let count = engine.look(|sockets| sockets.epoll_wait(set, &mut batch[..len]))?;
    for (event, reported) in events.iter_mut().zip(&batch[..count]) {
        *event = libc::epoll_event { events: reported.ready.0, u64: reported.data };
    }
    Ok(count)
}

fn control_ours(
    engine: &mut Engine,
    file: FileId,
    id: SocketId,
    op: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let set = set_of(engine, file)?;
    let watched = event.map(watched);
    match (op, watched) {
        (libc::EPOLL_CTL_ADD, Some(watched)) => engine.call(|sockets, _| sockets.epoll_add(set, id, fd, watched)),
        (libc::EPOLL_CTL_MOD, Some(watched)) => engine.call(|sockets, _| sockets.epoll_modify(set, id, fd, watched)),
        (libc::EPOLL_CTL_DEL, _) => engine.call(|sockets, _| sockets.epoll_delete(set, id, fd)),
        (libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD, None) => Err(Errno(libc::EFAULT)),
        _ => Err(Errno::EINVAL),
    }
}

/// Records that the twin of a socket that may be offloaded is in an epoll set of the kernel.
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
    let event = event.filter(|_| op != libc::EPOLL_CTL_DEL);
    if let Some(event) = event {
        socket.watches.push(Watch { set, fd, event, is_off: false, is_reported: false });
    }
    if socket.place == Owner::Undecided {
        let _ = sets::of(set, |set| set.note_edge(fd, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_that_is_ready_on_both_sides_is_one_event() {
        let event = |events: u32, u64: u64| libc::epoll_event { events, u64 };
        let mut events = [event(1, 7), event(1, 8), event(4, 8), event(4, 9), event(0, 0)];
        assert_eq!(merge(&mut events, 2, 2), 3);
        let reported = events[..3].iter().map(|event| (event.events, event.u64)).collect::<Vec<_>>();
        assert_eq!(reported, [(1, 7), (5, 8), (4, 9)]);
        assert_eq!(merge(&mut events, 0, 2), 2);
    }
}
