//! `poll`, `select` and epoll over offloaded sockets and descriptors of the kernel together.

use core::ffi::c_int;
use std::time::Duration;

use sockets::{Errno, Kind, Ready, SocketId};

use crate::calls::error_queue;
use crate::calls::offload::{set_of, watched};
use crate::engine::file::{FileKind, OneShot, Owner, Set, Watch};
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking, Sides, readable};
use crate::engine::{self, Engine, WaitFor, thread};
use crate::{calls, sys};

/// `poll`: returns how many of `fds` have events.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    let (mut members, mut known) = {
        let mut engine = engine::enter();
        (members_of(&mut engine, fds), engine.offloads)
    };
    let kernel = kernel_side(fds, &members);
    let interest = match (&members[..], &fds[..]) {
        ([State::Ours(member)], [one]) => WaitFor::Socket(member.id, Ready(u32::from(one.events as u16))),
        _ => WaitFor::Any,
    };
    let mut polled = kernel.clone();
    let ready = wait::until(Blocking::of_poll(timeout), interest, &kernel, |engine, sides| {
        if engine.offloads != known {
            // Another thread has offloaded a socket, maybe one of these by its first send.
            members = members_of(engine, fds);
            (polled, known) = (kernel_side(fds, &members), engine.offloads);
        }
        let has_kernel = members.iter().any(|member| matches!(member, State::Kernel));
        let mut count = look_at_ours(engine, fds, &members);
        // A call that returns reports all that is ready, on both sides.
        if sides == Sides::Both || (count > 0 && has_kernel) {
            count = look_at_kernel(engine, fds, &members, &mut polled)?;
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    });
    match ready {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    }
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
    let mut engine = engine::enter();
    undecided.any(|file| {
        let socket = engine.files.socket(file);
        socket.is_ok_and(|socket| socket.kind == Kind::Datagram && socket.place == Owner::Undecided)
    })
}

fn members_of(engine: &mut Engine, fds: &[libc::pollfd]) -> Vec<State> {
    let states = fds.iter().map(|entry| match table::find_ours(entry.fd) {
        Some(file) => {
            // The first wait offloads a listener; if that fails, it stays with the kernel.
            let _ = calls::begin_to_accept(engine, file);
            state_of(engine, file)
        }
        None => State::Kernel,
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

fn look_at_ours(engine: &mut Engine, fds: &mut [libc::pollfd], members: &[State]) -> usize {
    let mut count = 0;
    for (entry, member) in fds.iter_mut().zip(members) {
        entry.revents = match member {
            State::Ours(member) => match engine.look(|sockets| sockets.ready(member.id)) {
                Ok(ready) => ready.among(Ready(u32::from(entry.events as u16))).0 as i16,
                Err(_) => libc::POLLERR | libc::POLLHUP,
            },
            State::Set(file) if entry.events & libc::POLLIN != 0 => match engine.files.set(*file).map(|set| set.ours) {
                Ok(Some(set)) if engine.look(|sockets| sockets.epoll_ready(set)).unwrap_or(false) => libc::POLLIN,
                _ => 0,
            },
            State::Set(_) | State::Kernel => 0,
        };
        count += usize::from(entry.revents != 0);
    }
    count
}

/// Adds the kernel's events, and counts the entries that have any.
fn look_at_kernel(
    engine: &mut Engine,
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
                if kernel.revents & libc::POLLERR != 0 {
                    error_queue::absorb(engine, member.id, entry.fd);
                    let ready = engine.look(|sockets| sockets.ready(member.id)).unwrap_or(Ready::ERR);
                    entry.revents |= (ready & Ready::ALWAYS).0 as i16;
                }
            }
            State::Set(_) | State::Kernel => entry.revents |= kernel.revents,
        }
    }
    Ok(fds.iter().filter(|entry| entry.revents != 0).count())
}

/// `epoll_create`: the kernel has made its set; the engine makes its own with the first offloaded
/// socket.
pub(crate) fn create_set(fd: c_int) {
    engine::enter().files.open(fd, false, FileKind::Set(Set::new()));
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
                control_twin(&mut engine, file, &member, epfd, op, fd, event)?;
            }
            Ok(())
        }
        state => {
            sys::epoll_ctl(epfd, op, fd, event)?;
            engine.files.set(file)?.has_kernel |= op == libc::EPOLL_CTL_ADD;
            match (state, target) {
                (Some(State::Set(inner)), _) => show_outside(&mut engine, inner, fd),
                (_, Some(target)) => remember_watch(&mut engine, target, file, op, fd, event),
                _ => (),
            }
            Ok(())
        }
    }
}

/// The same for the twin of a socket of ours, which receives by other interfaces. A one-shot item
/// is registered with a value of ours, by which the engine recognizes it.
fn control_twin(
    engine: &mut Engine,
    file: FileId,
    member: &Member,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let set = engine.files.set(file)?;
    set.has_kernel = true;
    set.one_shots.retain(|item| item.fd != fd);
    let mut input = event.map(|event| libc::epoll_event { events: event.events & !(libc::EPOLLOUT as u32), ..event });
    if let (Some(input), true) = (&mut input, op != libc::EPOLL_CTL_DEL)
        && input.events & libc::EPOLLONESHOT as u32 != 0
    {
        set.one_shots.push(OneShot { id: member.id, fd, data: input.u64 });
        input.u64 = one_shot_value(fd);
    }
    // The twin may or may not be in the set already: a one-shot item that was reported has left it.
    match sys::epoll_ctl(epfd, op, fd, input) {
        Err(Errno::ENOENT) if op == libc::EPOLL_CTL_MOD => _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, input),
        Err(Errno::EEXIST) => _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, input),
        _ => (),
    }
    Ok(())
}

/// Has the kernel's item of a socket that was offloaded report what its twin receives alone.
pub(crate) fn keep_twin(
    engine: &mut Engine,
    file: FileId,
    id: SocketId,
    epfd: c_int,
    fd: c_int,
    event: libc::epoll_event,
) {
    // An exclusive item cannot be changed; it is the twin's as it is.
    if event.events & libc::EPOLLEXCLUSIVE as u32 == 0 {
        let member = Member { id, hears_twin: true };
        let _ = control_twin(engine, file, &member, epfd, libc::EPOLL_CTL_MOD, fd, Some(event));
    }
}

/// The value that the kernel reports for a one-shot item of a twin: no pointer and no small number
/// has these upper bits, so it is hardly one of the program's.
fn one_shot_value(fd: c_int) -> u64 {
    0x7769_7265_0000_0000 | u64::from(fd as u32)
}

/// Leaves out what the kernel reports of the errors of twins, and returns how many events remain.
/// The engine reports a socket's errors. One about a flow of ours may reach it after the twin: a
/// program that was woken by the kernel's event would not find it.
fn leave_errors_of_twins(
    engine: &mut Engine,
    file: FileId,
    epfd: c_int,
    events: &mut [libc::epoll_event],
) -> Result<usize, Errno> {
    const ERROR: u32 = libc::EPOLLERR as u32;
    let ours = engine.files.set(file)?.ours;
    let (Some(ours), true) = (ours, events.iter().any(|event| event.events & ERROR != 0)) else {
        return Ok(events.len());
    };
    let items = engine.look(|sockets| sockets.epoll_items(ours))?;
    let mut remaining = 0;
    for idx in 0..events.len() {
        let mut event = events[idx];
        if event.events & ERROR != 0 {
            for (id, fd, interest) in &items {
                let is_one_shot = one_shot_value(*fd) == event.u64;
                if (is_one_shot || interest.data == event.u64) && take_errors_of_twin(engine, *id, *fd) {
                    event.events &= !(ERROR | libc::EPOLLPRI as u32);
                    if is_one_shot && event.events == 0 {
                        arm_twin_again(epfd, *fd, interest.ready);
                    }
                }
            }
        }
        if event.events != 0 {
            events[remaining] = event;
            remaining += 1;
        }
    }
    Ok(remaining)
}

/// Turns the kernel's one-shot item of a twin on again, whose only event was left out.
fn arm_twin_again(epfd: c_int, fd: c_int, ready: Ready) {
    let events = ready.0 & !(libc::EPOLLOUT as u32) | libc::EPOLLONESHOT as u32;
    let event = libc::epoll_event { events, u64: one_shot_value(fd) };
    // A descriptor that was closed meanwhile has no item.
    let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, Some(event));
}

/// Takes the errors of a datagram socket's twin; `false` if it has none.
fn take_errors_of_twin(engine: &mut Engine, id: SocketId, fd: c_int) -> bool {
    let is_datagrams = table::find_ours(fd)
        .and_then(|file| engine.files.socket(file).ok())
        .is_some_and(|socket| socket.ours() == Some(id) && socket.kind == Kind::Datagram);
    let mut twin = [libc::pollfd { fd, events: 0, revents: 0 }];
    if !is_datagrams || sys::ppoll(&mut twin, Some(0)) != Ok(1) || twin[0].revents & libc::POLLERR == 0 {
        return false;
    }
    error_queue::absorb(engine, id, fd);
    true
}

/// Puts the program's values in the kernel's events of one-shot items, and turns the engine's items
/// off.
fn settle_one_shots(engine: &mut Engine, file: FileId, events: &mut [libc::epoll_event]) -> Result<(), Errno> {
    let set = engine.files.set(file)?;
    if set.one_shots.is_empty() {
        return Ok(());
    }
    let (ours, items) = (set.ours, set.one_shots.clone());
    for event in events {
        let value = event.u64;
        let Some(item) = items.iter().find(|item| one_shot_value(item.fd) == value) else { continue };
        event.u64 = item.data;
        if let Some(set) = ours {
            let _ = engine.call(|sockets, _| sockets.epoll_disarm(set, item.id, item.fd));
        }
    }
    Ok(())
}

/// Takes the twins of one-shot items that the engine has reported out of the kernel's set.
fn silence_twins(engine: &mut Engine, file: FileId, epfd: c_int) -> Result<(), Errno> {
    let set = engine.files.set(file)?;
    if set.one_shots.is_empty() {
        return Ok(());
    }
    let (Some(ours), items) = (set.ours, set.one_shots.clone()) else { return Ok(()) };
    for item in items {
        let is_armed = engine.look(|sockets| sockets.epoll_is_armed(ours, item.id, item.fd));
        if is_armed == Ok(false) {
            let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, item.fd, None);
        }
    }
    Ok(())
}

/// Has the kernel see what the engine's part of a set reports, because another set has it as a
/// member.
fn show_outside(engine: &mut Engine, file: FileId, epfd: c_int) {
    let Ok(Set { outside: None, .. }) = engine.files.set(file) else { return };
    let Ok(outside) = thread::wake_descriptor() else { return };
    let event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    if sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, outside, Some(event)).is_err() {
        table::clear(outside);
        sys::close(outside);
        return;
    }
    if let Ok(set) = engine.files.set(file) {
        set.outside = Some(outside);
        engine.shown.push(file);
    }
}

/// The part that others see of the engine's part of a set is no event of the set itself.
fn hide_outside(engine: &mut Engine, file: FileId) -> Result<(), Errno> {
    let set = engine.files.set(file)?;
    if let Some(outside) = set.outside.filter(|_| set.is_shown) {
        let _ = sys::read(outside, &mut [0; 8]);
        set.is_shown = false;
    }
    Ok(())
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
    // Another thread may add offloaded sockets or descriptors of the kernel while this one waits.
    let kernel = [readable(epfd)];
    let count = wait::until(Blocking::of_poll(timeout), WaitFor::Set(file), &kernel, |engine, sides| {
        let &mut Set { ours, has_kernel, has_failed, .. } = engine.files.set(file)?;
        if has_failed {
            return Err(Errno(libc::EIO));
        }
        let mut count = 0;
        if sides == Sides::Both && has_kernel {
            hide_outside(engine, file)?;
            count = sys::epoll_poll(epfd, events)?;
            count = leave_errors_of_twins(engine, file, epfd, &mut events[..count])?;
            settle_one_shots(engine, file, &mut events[..count])?;
        }
        if let Some(ours) = ours {
            let answers = events_of_ours(engine, ours, &mut events[count..])?;
            engine.begin_answers(answers);
            count += answers;
            silence_twins(engine, file, epfd)?;
        }
        if count == events.len() || count >= BATCH {
            // There may be more, for another thread that waits.
            engine.pass_on(file);
        }
        if count > 0 { Ok(count) } else { Err(Errno::EAGAIN) }
    });
    Some(match count {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    })
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
    if let Some(event) = event
        && op != libc::EPOLL_CTL_DEL
    {
        socket.watches.push(Watch { set, fd, event });
    }
}

/// An offloaded socket among the polled descriptors.
#[derive(Clone, Copy)]
struct Member {
    id: SocketId,
    hears_twin: bool,
}

enum State {
    Ours(Member),
    /// An epoll set: the kernel's part, and the engine's.
    Set(FileId),
    Kernel,
}

fn state_of(engine: &mut Engine, file: FileId) -> State {
    match engine.files.get(file).map(|file| &file.what) {
        Some(FileKind::Socket(socket)) => match socket.place {
            Owner::Ours { id, hears_twin } => State::Ours(Member { id, hears_twin }),
            Owner::Undecided | Owner::Kernel => State::Kernel,
        },
        Some(FileKind::Set(_)) => State::Set(file),
        None => State::Kernel,
    }
}
