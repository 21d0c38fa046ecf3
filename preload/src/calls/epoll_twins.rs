//! The twins of offloaded sockets in the kernel's epoll set, which receive by other interfaces:
//! their input is the program's, their errors are the socket's, and a one-shot item that the engine
//! and the kernel have both is reported once.

use core::ffi::c_int;
use std::fs;

use sockets::{Errno, Interest, Kind, Ready, SocketId, Trigger};

use crate::calls::error_queue;
use crate::calls::member::Member;
use crate::engine::file::{File, FileKind, Owner, Replica, Watch};
use crate::engine::group::Engines;
use crate::engine::sets::{self, OneShot};
use crate::engine::table::{self, FileId};
use crate::engine::{self, Engine, thread};
use crate::sys;

/// The same for the twin of a socket of ours, which receives by other interfaces. A one-shot item
/// is registered with a value of ours, by which the engine recognizes it.
pub(super) fn control_twin(
    file: FileId,
    member: &Member,
    epfd: c_int,
    op: c_int,
    fd: c_int,
    event: Option<libc::epoll_event>,
) -> Result<(), Errno> {
    let mut input = event.map(|event| libc::epoll_event { events: event.events & !(libc::EPOLLOUT as u32), ..event });
    sets::of(file, |set| {
        set.has_kernel = true;
        set.one_shots.retain(|item| item.fd != fd);
        if let (Some(input), true) = (&mut input, op != libc::EPOLL_CTL_DEL)
            && input.events & libc::EPOLLONESHOT as u32 != 0
        {
            let (data, events) = (input.u64, event.map_or(0, |event| event.events));
            let items = member.all().map(|Replica { engine, id }| OneShot { engine, id, fd, data, events });
            set.one_shots.extend(items);
            input.u64 = one_shot_value(fd);
        }
    })?;
    // The twin may or may not be in the set already: a one-shot item that was reported has left it.
    match sys::epoll_ctl(epfd, op, fd, input) {
        Err(Errno::ENOENT) if op == libc::EPOLL_CTL_MOD => _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, input),
        Err(Errno::EEXIST) => _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, fd, input),
        _ => (),
    }
    Ok(())
}

/// Has the kernel's item of a socket that was offloaded report what its twin receives alone.
pub(crate) fn keep_twin(engine: &Engine, id: SocketId, epfd: c_int, watch: &Watch) {
    let Watch { set: file, fd, event, is_reported, .. } = *watch;
    if is_reported {
        // A change would report its edge again. There is none yet of a descriptor that was closed.
        let input = libc::epoll_event { events: event.events & !(libc::EPOLLOUT as u32), ..event };
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, Some(input));
    } else if event.events & libc::EPOLLEXCLUSIVE as u32 == 0 {
        // An exclusive item cannot be changed; it is the twin's as it is.
        let member = Member { engine: engine.number, id, hears_twin: true, others: Vec::new() };
        let _ = control_twin(file, &member, epfd, libc::EPOLL_CTL_MOD, fd, Some(event));
    }
}

/// Notes which one-shot and edge-triggered items the kernel has reported, of sockets that are about
/// to be offloaded. Of one-shot items the kernel's table of the set says so, which is read where
/// there is such an item.
pub(crate) fn find_reported(mut watches: Vec<Watch>) -> Vec<Watch> {
    for watch in &mut watches {
        watch.is_reported |= sets::of(watch.set, |set| set.has_reported(watch.fd)).unwrap_or(false);
        if watch.event.events & libc::EPOLLONESHOT as u32 != 0
            && let Ok(epfd) = sets::twin(watch.set)
            && let Ok(table) = fs::read_to_string(format!("/proc/thread-self/fdinfo/{epfd}"))
        {
            watch.is_off |= is_off(&table, watch.fd, watch.event.u64);
        }
    }
    watches
}

/// Whether an item reports nothing, by the table of its set (Linux `ep_show_fdinfo`): it has none
/// of the events that the kernel adds to each item that does.
fn is_off(table: &str, fd: c_int, data: u64) -> bool {
    const HOW: c_int = libc::EPOLLWAKEUP | libc::EPOLLONESHOT | libc::EPOLLET | libc::EPOLLEXCLUSIVE;
    table.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        let mut after = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
        let item = after("tfd:").and_then(|fd| fd.parse::<c_int>().ok());
        let events = after("events:").and_then(|events| u32::from_str_radix(events, 16).ok());
        let value = after("data:").and_then(|data| u64::from_str_radix(data, 16).ok());
        item == Some(fd) && value == Some(data) && events.is_some_and(|events| events & !(HOW as u32) == 0)
    })
}

/// A descriptor of a socket is about to be closed, while others name it. Its items stay in the
/// kernel's sets, where no call could reach them by its number any more once the socket is
/// offloaded: a duplicate of our own stands in for it.
pub(crate) fn keep_items(file: FileId, fd: c_int) {
    let mut engine = engine::enter(file);
    let Some(File { fds, what: FileKind::Socket(socket), .. }) = engine.files.get(file) else {
        return;
    };
    let is_in_a_set = socket.watches.iter().any(|watch| watch.fd == fd);
    if fds.len() < 2 || socket.place != Owner::Undecided || !is_in_a_set {
        return;
    }
    let Ok(stand_in) = thread::duplicate_high(fd) else { return };
    socket.stand_ins.push(stand_in);
    let watches = core::mem::take(&mut socket.watches).into_iter();
    let (kept, others) = watches.partition(|watch| watch.fd == fd);
    socket.watches = others;
    for mut watch in find_reported(kept) {
        let Ok(epfd) = sets::twin(watch.set) else { continue };
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, None);
        watch.fd = stand_in;
        // The kernel would report an edge again: such an item waits for the owner of its socket.
        if !watch.is_off && !watch.is_reported {
            let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, stand_in, Some(watch.event));
        }
        let _ = sets::of(watch.set, |set| {
            set.note_edge(fd, None);
            set.note_edge(stand_in, Some(watch.event));
        });
        socket.watches.push(watch);
    }
}

/// Leaves a socket, and its items, to the kernel for good.
pub(crate) fn leave_to_kernel(engine: &mut Engine, file: FileId) {
    if let Ok(socket) = engine.files.socket(file) {
        forget_reported(&socket.watches);
        for watch in socket.watches.iter().filter(|watch| watch.is_reported) {
            let _ = sets::twin(watch.set)
                .and_then(|epfd| sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, watch.fd, Some(watch.event)));
        }
    }
    engine.files.keep(file);
}

/// Forgets what the kernel's sets have reported of the items of a socket whose owner is decided.
pub(crate) fn forget_reported(watches: &[Watch]) {
    for watch in watches.iter().filter(|watch| watch.event.events & libc::EPOLLET as u32 != 0) {
        let _ = sets::of(watch.set, |set| set.note_edge(watch.fd, None));
    }
}

/// Has the twin of a stream of ours be heard from now on, as that of a listener is, or no more: the
/// kernel's epoll sets have it or not.
pub(crate) fn hear_twin(engine: &mut Engine, file: FileId, hears: bool) {
    let Ok(socket) = engine.files.socket(file) else { return };
    let Owner::Ours { id, hears_twin } = &mut socket.place else { return };
    if core::mem::replace(hears_twin, hears) == hears {
        return;
    }
    let id = *id;
    for watch in watches_of(engine, id) {
        let Ok(epfd) = sets::twin(watch.set) else { continue };
        if hears {
            let member = Member { engine: engine.number, id, hears_twin: true, others: Vec::new() };
            let _ = control_twin(watch.set, &member, epfd, libc::EPOLL_CTL_ADD, watch.fd, Some(watch.event));
        } else {
            let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, watch.fd, None);
            let _ = sets::of(watch.set, |set| set.one_shots.retain(|item| item.fd != watch.fd));
        }
    }
}

/// Gives the kernel's epoll set the item of a socket that was ours, with all its events.
pub(super) fn give_item_back(watch: &Watch) {
    let Ok(epfd) = sets::twin(watch.set) else { return };
    let _ = sets::of(watch.set, |set| {
        set.has_kernel = true;
        set.one_shots.retain(|item| item.fd != watch.fd);
    });
    // An item that was reported once reports errors alone until `EPOLL_CTL_MOD`: the kernel lets
    // nobody make one that is off.
    let events = if watch.is_off { libc::EPOLLONESHOT as u32 } else { watch.event.events };
    let event = Some(libc::epoll_event { events, ..watch.event });
    // The twin may be there already. An exclusive item cannot be changed, and is as it was.
    if sys::epoll_ctl(epfd, libc::EPOLL_CTL_ADD, watch.fd, event) == Err(Errno::EEXIST) {
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_MOD, watch.fd, event);
    }
}

/// The epoll sets of a socket of ours.
pub(super) fn watches_of(engine: &mut Engine, id: SocketId) -> Vec<Watch> {
    let mut watches = Vec::new();
    for (set, part) in sets::parts_in(engine.number) {
        let items = engine.look(|sockets| sockets.epoll_items(part)).unwrap_or_default();
        for (_, fd, interest) in items.into_iter().filter(|(member, ..)| *member == id) {
            let is_off = engine.look(|sockets| sockets.epoll_is_armed(part, id, fd)) == Ok(false);
            watches.push(Watch { set, fd, event: event_of(interest), is_off, is_reported: false });
        }
    }
    watches
}

/// An item of the engine's as one of the kernel's.
fn event_of(interest: Interest) -> libc::epoll_event {
    let flag = |is_set: bool, flag: c_int| if is_set { flag as u32 } else { 0 };
    let how = flag(interest.trigger == Trigger::Edge, libc::EPOLLET)
        | flag(interest.one_shot, libc::EPOLLONESHOT)
        | flag(interest.exclusive, libc::EPOLLEXCLUSIVE);
    libc::epoll_event { events: interest.ready.0 | how, u64: interest.data }
}

/// The value that the kernel reports for a one-shot item of a twin: no pointer and no small number
/// has these upper bits, so it is hardly one of the program's.
fn one_shot_value(fd: c_int) -> u64 {
    0x7769_7265_0000_0000 | u64::from(fd as u32)
}

/// Leaves out what the kernel reports of the errors of twins, and returns how many events remain.
/// The engine reports a socket's errors. One about a flow of ours may reach it after the twin: a
/// program that was woken by the kernel's event would not find it.
pub(super) fn leave_errors_of_twins(
    engines: &mut Engines,
    file: FileId,
    epfd: c_int,
    events: &mut [libc::epoll_event],
) -> Result<usize, Errno> {
    let mut remaining = events.len();
    if events.iter().all(|event| event.events & ERROR == 0) {
        return Ok(remaining);
    }
    for engine in engines.iter_mut() {
        let Some(part) = sets::part(file, engine.number)? else { continue };
        let items = engine.look(|sockets| sockets.epoll_items(part))?;
        let mut kept = 0;
        for idx in 0..remaining {
            let mut event = events[idx];
            for (id, fd, interest) in &items {
                let is_one_shot = one_shot_value(*fd) == event.u64;
                let is_of_it = is_one_shot || interest.data == event.u64;
                if event.events & ERROR != 0 && is_of_it && take_errors_of_twin(engine, *id, *fd) {
                    event.events &= !(ERROR | libc::EPOLLPRI as u32);
                    if is_one_shot && event.events == 0 {
                        arm_twin_again(epfd, *fd, interest.ready);
                    }
                }
            }
            if event.events != 0 {
                events[kept] = event;
                kept += 1;
            }
        }
        remaining = kept;
    }
    Ok(remaining)
}

const ERROR: u32 = libc::EPOLLERR as u32;

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

/// Puts the program's values in the kernel's events of one-shot items, and turns the engines' items
/// off.
pub(super) fn settle_one_shots(
    engines: &mut Engines,
    file: FileId,
    events: &mut [libc::epoll_event],
) -> Result<(), Errno> {
    let items = sets::of(file, |set| set.one_shots.clone())?;
    if items.is_empty() {
        return Ok(());
    }
    for event in events {
        let value = event.u64;
        for item in items.iter().filter(|item| one_shot_value(item.fd) == value) {
            event.u64 = item.data;
            // What the engine has of the same socket is reported now, or not until the next
            // `EPOLL_CTL_MOD`.
            if let Some(engine) = engines.of(item.engine) {
                let ready = engine.look(|sockets| sockets.ready(item.id)).unwrap_or(Ready::NONE);
                event.events |= (ready & (Ready(item.events) | Ready::ALWAYS)).0;
            }
            disarm(engines, file, item)?;
        }
    }
    Ok(())
}

/// Turns the one-shot item of an engine off.
fn disarm(engines: &mut Engines, file: FileId, item: &OneShot) -> Result<(), Errno> {
    if let Some(part) = sets::part(file, item.engine)?
        && let Some(engine) = engines.of(item.engine)
    {
        let _ = engine.call(|sockets, _| sockets.epoll_disarm(part, item.id, item.fd));
    }
    Ok(())
}

/// Takes the twins of one-shot items that an engine has reported out of the kernel's set, and turns
/// the items of other engines for the same descriptor off.
pub(super) fn silence_twins(
    engines: &mut Engines,
    number: usize,
    file: FileId,
    part: usize,
    epfd: c_int,
) -> Result<(), Errno> {
    let items = sets::of(file, |set| set.one_shots.clone())?;
    for item in items.iter().filter(|item| item.engine == number) {
        let Some(engine) = engines.of(number) else { continue };
        let is_armed = engine.look(|sockets| sockets.epoll_is_armed(part, item.id, item.fd));
        if is_armed != Ok(false) {
            continue;
        }
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, item.fd, None);
        for other in items.iter().filter(|other| other.fd == item.fd && other.engine != number) {
            disarm(engines, file, other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn item_that_was_reported_once_is_off_by_the_kernels_table() {
        let table = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1057\n\
                     tfd:        7 events: 40000000 data:                5  pos:0 ino:8f sdev:8\n\
                     tfd:        8 events: 40000019 data: 7fff00000000abcd  pos:0 ino:90 sdev:8\n";
        assert!(is_off(table, 7, 5));
        assert!(!is_off(table, 8, 0x7fff_0000_0000_abcd), "it reports input");
        assert!(!is_off(table, 7, 6), "another file that had the number before");
        assert!(!is_off(table, 9, 5), "not in the set");
    }
}
