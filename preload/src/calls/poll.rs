//! `poll`, `select` and epoll over offloaded sockets and descriptors of the kernel together.

use core::ffi::c_int;
use std::time::Duration;

use sockets::{Errno, Kind, Ready, SocketId};

use crate::calls::offload::{set_of, watched};
use crate::calls::{error_queue, listener};
use crate::engine::file::{FileKind, Owner, Replica, Socket, Watch};
use crate::engine::group::{EngineMask, Engines};
use crate::engine::sets::{self, OneShot};
use crate::engine::table::{self, FileId};
use crate::engine::wait::{self, Blocking, Sides, Waits, readable};
use crate::engine::{self, Engine, WaitFor, thread};
use crate::sys;

/// `poll`: returns how many of `fds` have events.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
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
        State::Ours(member) => engines.and(member.engines()),
        State::Set(_) | State::Kernel => engines,
    });
    let waits = Waits { engines, sets: &sets, interest, listeners: &listeners, kernel: &kernel };
    let mut polled = kernel.clone();
    let ready = wait::until_any(Blocking::of_poll(timeout), &waits, |engines, sides| {
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
    });
    match ready {
        Err(Errno::EAGAIN) => Ok(0),
        done => done,
    }
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

/// The same for the twin of a socket of ours, which receives by other interfaces. A one-shot item
/// is registered with a value of ours, by which the engine recognizes it.
fn control_twin(
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
            let items = member.all().map(|Replica { engine, id }| OneShot { engine, id, fd, data: input.u64 });
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
pub(crate) fn keep_twin(engine: &Engine, file: FileId, id: SocketId, epfd: c_int, fd: c_int, event: libc::epoll_event) {
    // An exclusive item cannot be changed; it is the twin's as it is.
    if event.events & libc::EPOLLEXCLUSIVE as u32 == 0 {
        let member = Member { engine: engine.number, id, hears_twin: true, others: Vec::new() };
        let _ = control_twin(file, &member, epfd, libc::EPOLL_CTL_MOD, fd, Some(event));
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
fn settle_one_shots(engines: &mut Engines, file: FileId, events: &mut [libc::epoll_event]) -> Result<(), Errno> {
    let items = sets::of(file, |set| set.one_shots.clone())?;
    if items.is_empty() {
        return Ok(());
    }
    for event in events {
        let value = event.u64;
        for item in items.iter().filter(|item| one_shot_value(item.fd) == value) {
            event.u64 = item.data;
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
fn silence_twins(engines: &mut Engines, number: usize, file: FileId, part: usize, epfd: c_int) -> Result<(), Errno> {
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
    // Another thread may add offloaded sockets or descriptors of the kernel while this one waits.
    let kernel = [readable(epfd)];
    let waits = Waits {
        engines: EngineMask::NONE,
        sets: &[file],
        interest: WaitFor::Set(file),
        listeners: &[],
        kernel: &kernel,
    };
    let count = wait::until_any(Blocking::of_poll(timeout), &waits, |engines, sides| {
        let set = sets::of(file, |set| set.view())?;
        if set.has_failed {
            return Err(Errno(libc::EIO));
        }
        let mut count = 0;
        if sides == Sides::Both && set.has_kernel {
            sets::hide_events(file)?;
            count = sys::epoll_poll(epfd, events)?;
            count = leave_errors_of_twins(engines, file, epfd, &mut events[..count])?;
            settle_one_shots(engines, file, &mut events[..count])?;
        }
        for idx in 0..engines.count() {
            let Some(engine) = engines.at(idx) else { continue };
            let number = engine.number;
            let Some(part) = set.parts.of(number) else { continue };
            let answers = events_of_ours(engine, part, &mut events[count..])?;
            engine.begin_answers(answers);
            count += answers;
            if set.has_one_shots {
                silence_twins(engines, number, file, part, epfd)?;
            }
        }
        if count == events.len() || count >= BATCH {
            // There may be more, for another thread that waits.
            engines.iter_mut().for_each(|engine| engine.pass_on(file));
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
    if let Some(event) = event
        && op != libc::EPOLL_CTL_DEL
    {
        socket.watches.push(Watch { set, fd, event });
    }
}

/// An offloaded socket among the polled descriptors.
struct Member {
    engine: usize,
    id: SocketId,
    hears_twin: bool,
    /// Of a listener: those of other engines for it.
    others: Vec<Replica>,
}

impl Member {
    /// It and those of other engines for it.
    fn all(&self) -> impl Iterator<Item = Replica> {
        [Replica { engine: self.engine, id: self.id }].into_iter().chain(self.others.iter().copied())
    }

    /// Their engines.
    fn engines(&self) -> EngineMask {
        self.all().map(|replica| replica.engine).collect()
    }

    /// What it is ready for.
    fn look(&self, engines: &mut Engines) -> Result<Ready, Errno> {
        let ready = engines.of(self.engine).ok_or(Errno::EBADF)?.look(|sockets| sockets.ready(self.id))?;
        Ok(self.others.iter().fold(ready, |ready, other| {
            let its = engines.of(other.engine).and_then(|engine| engine.look(|sockets| sockets.ready(other.id)).ok());
            ready | its.unwrap_or(Ready::NONE)
        }))
    }
}

enum State {
    Ours(Member),
    /// An epoll set: the kernel's part, and the engine's.
    Set(FileId),
    Kernel,
}

fn state_of(engine: &mut Engine, file: FileId) -> State {
    if file.is_set() {
        return State::Set(file);
    }
    match engine.files.socket(file) {
        Ok(Socket { place: Owner::Ours { id, hears_twin }, replicas, .. }) => {
            State::Ours(Member { engine: engine.number, id: *id, hears_twin: *hears_twin, others: replicas.clone() })
        }
        Ok(_) | Err(_) => State::Kernel,
    }
}
