//! Decides whether a socket is offloaded, when it first names an address: at `bind` of datagrams,
//! at `listen`, at `connect`. It checks in this order: addresses that we do not carry, loopback and
//! own addresses, routes by another interface, the rules. A socket that is not offloaded keeps to
//! its twin.

use core::ffi::c_int;
use core::net::{Ipv4Addr, SocketAddrV4};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use sockets::listing::file_name;
use sockets::rules::{Role, Traffic};
use sockets::{Errno, Interest as Watched, Kind, Ready, Shutdown, SocketId, Stack, Trigger};
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::proto::Resolution;
use wirepath::worker::live::LiveConfig;

use crate::address::{self, Address, Family};
use crate::calls::{epoll_twins, error_queue, groups, rights};
use crate::engine::file::{ANY, Groups, Owner, ShutdownMask, Socket, Watch};
use crate::engine::options::{self, HandledBy, OptionCall, Options, SO_BINDTOIFINDEX};
use crate::engine::table::FileId;
use crate::engine::{self, Engine, State, sets, thread};
use crate::{config, sys};

/// Sockets that may be open at one time, and more where there are many connections.
const SOCKETS_MAX: usize = 65_536;
/// Connections for each listener that there is room for, and the fewest listeners.
const CONNECTIONS_PER_LISTENER: usize = 64;
const LISTENERS_MIN: usize = 256;
/// TCP's buffers for each one in which a datagram may wait.
const BUFFERS_PER_HELD: usize = 8;

/// Whether to offload a socket at `local`, with the peer `remote` if it has one. The reason is
/// stored for the listing.
///
/// # Errors
/// `EACCES`: the rules refuse it.
pub(crate) fn is_ours(
    engine: &mut Engine,
    file: FileId,
    traffic: Traffic,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
) -> Result<bool, Errno> {
    let groups = engine.files.socket(file)?.groups;
    let stays = {
        let twin = engine.files.twin(file)?;
        engine.files.socket(file)?.stays_the_kernels(twin)
    };
    let (verdict, why) = match stays {
        Some(why) if !is_refused(engine, file, traffic, local, remote) => (Verdict::Kernel, why),
        _ => decide(engine, traffic, local, remote, &groups),
    };
    let socket = engine.files.socket(file)?;
    (socket.why, socket.is_refused) = (why, verdict == Verdict::Refused);
    socket.is_both = verdict == Verdict::Both;
    if verdict == Verdict::Refused {
        return Err(Errno::EACCES);
    }
    let is_ours = matches!(verdict, Verdict::Ours | Verdict::Both);
    if !is_ours {
        say_kept(why, remote.unwrap_or(local));
    }
    Ok(is_ours)
}

/// Whether the rules refuse what a socket does that is the kernel's for another reason: by our
/// interface it would do it all the same.
pub(crate) fn is_refused(
    engine: &mut Engine,
    file: FileId,
    traffic: Traffic,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
) -> bool {
    if config::get().is_none_or(|config| config.role(traffic, local, remote).role != Role::Refuse) {
        return false;
    }
    let Ok(twin) = engine.files.twin(file) else { return false };
    let Ok(&mut Socket { family, groups, .. }) = engine.files.socket(file) else { return false };
    let device = sys::getsockopt_int(twin, libc::SOL_SOCKET, SO_BINDTOIFINDEX).unwrap_or(0);
    let is_anothers = device != 0 && device.cast_unsigned() != config::system().interface_idx;
    let is_v6_only =
        family == Family::Inet6 && sys::getsockopt_int(twin, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Ok(1);
    !is_anothers && !is_v6_only && decide(engine, traffic, local, remote, &groups).0 == Verdict::Refused
}

/// A call that names a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerCall {
    Connect,
    Send,
    /// A send with `MSG_FASTOPEN`, by which a stream connects.
    FastOpen,
}

impl PeerCall {
    pub(crate) const fn of_send(flags: c_int) -> Self {
        if flags & libc::MSG_FASTOPEN != 0 { Self::FastOpen } else { Self::Send }
    }
}

/// The same of a call on a socket that is the kernel's already.
pub(crate) fn is_kept_and_refused(file: FileId, remote: SocketAddrV4, call: PeerCall) -> bool {
    let Some(config) = config::get() else { return false };
    // Before the lock: mostly no rule refuses anything.
    if !config.may_refuse || (call == PeerCall::Send && config.role_of_sender(|| ANY, remote).is_none()) {
        return false;
    }
    let mut engine = engine::enter(file);
    let Ok(twin) = engine.files.twin(file) else { return false };
    let Ok(&mut Socket { kind, place, .. }) = engine.files.socket(file) else { return false };
    let traffic = match (kind, call) {
        (Kind::Datagram, PeerCall::Send | PeerCall::FastOpen) => Traffic::UdpSender,
        (Kind::Datagram, PeerCall::Connect) => Traffic::UdpConnect,
        (Kind::Stream, PeerCall::Connect | PeerCall::FastOpen) if peer_of(twin).is_none() => Traffic::TcpClient,
        (Kind::Stream, _) => return false,
    };
    let local = name_of(twin).unwrap_or(ANY);
    !matches!(place, Owner::Ours { .. }) && is_refused(&mut engine, file, traffic, local, Some(remote))
}

/// The reason of a socket whose address or peer is not reached by our interface.
pub(crate) const BY_ANOTHER: &str = "another interface, or this host's own address";

/// The reason of a socket that was made later.
pub(crate) const GONE: &str = "its interface is gone, or the interface's broker";

/// The reason of a socket whose flow the broker has taken back, by the error that it reports once.
pub(crate) fn why_taken_back(error: Errno) -> &'static str {
    match error {
        Errno::EADDRINUSE => "taken back by the broker: another user has bound its port",
        Errno::EACCES => "taken back by the broker: its rules do not give it any more",
        _ => "taken back by the broker",
    }
}

/// Who serves a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ours,
    /// Ours, and the kernel's side of it has equal rights.
    Both,
    Kernel,
    Refused,
}

/// A socket stays with the kernel, which the listing shows from now on. One line on standard error
/// for each reason.
pub(crate) fn say_kept(why: &'static str, address: SocketAddrV4) {
    static SAID: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    crate::background::ensure();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.contains(&why) {
        said.push(why);
        config::say(format_args!(
            "a socket stays with the kernel: {address}: {why}; `wirepath sockets` lists all of them"
        ));
    }
}

/// A receiver at all addresses shares its port. Returns the reason for the listing.
pub(crate) fn say_that_it_has_groups_alone(local: SocketAddrV4) -> &'static str {
    static HAS_SAID: AtomicBool = AtomicBool::new(false);
    if !HAS_SAID.swap(true, Ordering::Relaxed) {
        config::say(format_args!(
            "{local}: {GROUPS_ALONE}; bind its group, or another port, where it is to receive more"
        ));
    }
    GROUPS_ALONE
}

const GROUPS_ALONE: &str = "its groups alone: another one has the interface's address at this port";

/// Whether another engine of this process may have a port that the kernel has given to this one:
/// where each has queues of a NIC, which brings the datagrams of a port to one of them, and mostly
/// the connections as well.
pub(crate) fn is_engines_port(engine: &mut Engine) -> bool {
    config::engines() > 1 && engine.look(|sockets| Ok(sockets.is_forwarded())) == Ok(false)
}

/// The engines' queues are of a NIC that steers no flow: answers to what a socket sends come to the
/// queue that its hash names, and may be another engine's.
static IS_SPREAD: AtomicBool = AtomicBool::new(false);

/// The reason of a socket with a peer there.
const SPREAD: &str = "its answers may come to another engine's queue: the NIC steers none";

fn decide(
    engine: &mut Engine,
    traffic: Traffic,
    local: SocketAddrV4,
    remote: Option<SocketAddrV4>,
    groups: &Groups,
) -> (Verdict, &'static str) {
    let Some(config) = config::get() else { return (Verdict::Kernel, "no interface is named") };
    let named = remote.unwrap_or(local);
    if named.ip().is_loopback() || (remote.is_some() && (named.ip().is_unspecified() || named.ip().is_broadcast())) {
        return (Verdict::Kernel, "loopback or broadcast");
    }
    let decision = config.role(traffic, local, remote);
    let verdict = match decision.role {
        Role::Os => return (Verdict::Kernel, decision.why),
        Role::Refuse => Verdict::Refused,
        Role::Offload => Verdict::Ours,
        Role::Both => Verdict::Both,
    };
    if !open(engine) {
        // Whose the address is cannot be judged then.
        let kept = (Verdict::Kernel, "the interface could not be opened");
        return if verdict == Verdict::Refused { (verdict, decision.why) } else { kept };
    }
    if engine.lose_if_gone() {
        return (Verdict::Kernel, GONE);
    }
    if verdict != Verdict::Refused && rights::are_lost(engine) {
        return (Verdict::Kernel, rights::GIVEN_UP);
    }
    if remote.is_some_and(|remote| !remote.ip().is_multicast())
        && verdict != Verdict::Refused
        && IS_SPREAD.load(Ordering::Relaxed)
    {
        return (Verdict::Kernel, SPREAD);
    }
    let is_on_ours = match remote {
        Some(remote) if remote.ip().is_multicast() => groups::leave_by_ours(engine, groups, *local.ip(), *remote.ip()),
        // The kernel connects from any of its addresses, by whatever interface the peer is reached.
        Some(remote) => is_own(engine, *local.ip()) && goes_by_ours(engine, *remote.ip()),
        None => local.ip().is_multicast() || is_own(engine, *local.ip()),
    };
    if is_on_ours { (verdict, decision.why) } else { (Verdict::Kernel, BY_ANOTHER) }
}

/// Whether the kernel's route to `remote` leaves by our interface, judged by the route's source
/// address. A few system calls for each destination, cached until routes change.
pub(crate) fn goes_by_ours(engine: &mut Engine, remote: Ipv4Addr) -> bool {
    is_routed_by_ours(engine, remote)
}

/// The same, asked again where the worker has found no route there: the program and the worker hear
/// of a change of routes one after the other, and until both have, the kernel's routes decide.
pub(crate) fn still_goes_by_ours(engine: &mut Engine, remote: Ipv4Addr) -> bool {
    engine.destinations.forget(remote);
    goes_by_ours(engine, remote)
}

/// The same for groups, where the program names no interface.
pub(crate) fn is_routed_by_ours(engine: &mut Engine, remote: Ipv4Addr) -> bool {
    if let Some(is_ours) = engine.destinations.get(remote) {
        return is_ours;
    }
    let own = config::get().and_then(|config| config.own.as_ref());
    let is_ours = match (own, source_to(remote)) {
        (Some(_), Some(source)) if source == remote => false,
        // A host of our own has routes of its own.
        (Some(host), _) => {
            let is_near = host.addresses.iter().any(|network| network.contains(remote));
            (is_near || !host.routes.is_empty() || remote.is_multicast()) && !is_own(engine, remote)
        }
        (None, Some(source)) => source != remote && is_own(engine, source) && !is_own(engine, remote),
        // No route, or no descriptor to ask by: not kept, because either may change unheard.
        (None, None) => return false,
    };
    if is_ours && own.is_none() && !remote.is_multicast() && !has_route(engine, remote) {
        // Not kept, because the worker is about to hear of the route.
        return false;
    }
    engine.destinations.keep(remote, is_ours);
    is_ours
}

/// Whether the worker knows a route.
fn has_route(engine: &mut Engine, remote: Ipv4Addr) -> bool {
    engine.call(|_, cx| Ok(cx.host.resolve(remote, cx.now))) != Ok(Resolution::NoRoute)
}

/// Offloads a socket: its options, its address, and its epoll sets. The twin is bound to `local`
/// already, so that the kernel gives the port to no other socket.
pub(crate) fn take(
    engine: &mut Engine,
    file: FileId,
    local: Option<SocketAddrV4>,
    hears_twin: bool,
) -> Result<SocketId, Errno> {
    let (kind, options, shut) = {
        let socket = engine.files.socket(file)?;
        (socket.kind, socket.options.clone(), socket.shut)
    };
    let id = engine.call(|sockets, _| sockets.socket(kind))?;
    claim(engine, file, kind);
    let made = replay(engine, file, id, &options).and_then(|()| match local {
        Some(local) => engine.call(|sockets, cx| sockets.bind(id, local, cx)),
        None => Ok(()),
    });
    if let Err(error) = made {
        let _ = engine.call(|sockets, cx| sockets.close(id, cx));
        return Err(error);
    }
    // An unconnected socket shuts the directions, although the call fails.
    match shut {
        ShutdownMask { reads: false, writes: false } => (),
        ShutdownMask { reads, writes } => {
            let how = match (reads, writes) {
                (true, true) => Shutdown::Both,
                (true, false) => Shutdown::Read,
                _ => Shutdown::Write,
            };
            let _ = engine.call(|sockets, cx| sockets.shutdown(id, how, cx));
        }
    }
    engine.gathering.has_datagrams |= kind == Kind::Datagram;
    if let Ok(twin) = engine.files.twin(file) {
        options.iter().for_each(|call| error_queue::withdraw(twin, call.level, call.name, &call.value));
    }
    engine.offloads += 1;
    let socket = engine.files.socket(file)?;
    socket.place = Owner::Ours { id, hears_twin };
    socket.set_left(false);
    let watches = epoll_twins::find_reported(core::mem::take(&mut socket.watches));
    engine.files.mark(file);
    epoll_twins::forget_reported(&watches);
    for watch in watches {
        move_watch(engine, id, &watch, hears_twin);
    }
    Ok(id)
}

/// Shows the broker the twin of a socket that is about to have a flow: it may be root's, and this
/// process another user's by now, or the other way round.
pub(super) fn claim(engine: &mut Engine, file: FileId, kind: Kind) {
    if let Ok(twin) = engine.files.twin(file) {
        claim_twin(engine, twin, kind);
    }
}

/// The same of a twin of another engine's socket.
pub(super) fn claim_twin(engine: &mut Engine, twin: i32, kind: Kind) {
    if config::broker().is_none() {
        return;
    }
    if let Some(local) = name_of(twin).filter(|local| local.port() != 0) {
        let _ = engine.call(|sockets, _| {
            sockets.claim(kind, sys::borrowed(twin), local.port());
            Ok(())
        });
    }
}

/// Returns a socket to its twin, after it could not be offloaded or its peer is elsewhere.
pub(crate) fn give_back(engine: &mut Engine, file: FileId) {
    let Ok(socket) = engine.files.socket(file) else { return };
    if let Owner::Ours { id, .. } = core::mem::replace(&mut socket.place, Owner::Undecided) {
        groups::restore_twin(engine, file, id);
        let watches = epoll_twins::watches_of(engine, id);
        let _ = engine.call(|sockets, cx| sockets.close(id, cx));
        watches.iter().for_each(epoll_twins::give_item_back);
        if let Ok(socket) = engine.files.socket(file) {
            socket.watches = watches;
        }
    }
    engine.files.mark(file);
}

/// Converts the events of `epoll_ctl`. `EPOLLWAKEUP` has no effect.
pub(crate) fn watched(event: libc::epoll_event) -> Watched {
    let libc::epoll_event { events, u64: data } = event;
    Watched {
        ready: Ready(events & 0x3fff),
        trigger: if events & libc::EPOLLET as u32 != 0 { Trigger::Edge } else { Trigger::Level },
        one_shot: events & libc::EPOLLONESHOT as u32 != 0,
        exclusive: events & libc::EPOLLEXCLUSIVE as u32 != 0,
        data,
    }
}

/// Opens the worker before the program begins, under the policy `refuse`: a program whose sockets
/// cannot be offloaded does not start. It is closed again, because the program may be a shell that
/// makes no socket, and the one that it starts by `vfork`, which no handler sees, needs the queue.
pub(crate) fn open_first() {
    let refuses = config::get().is_some_and(|config| config.policy == config::Policy::Refuse);
    let is_open = |number| open(&mut engine::enter_at(number));
    if refuses && !config::has_opened() && engine::all().iter().all(is_open) {
        engine::all().iter().for_each(|number| engine::enter_at(number).close());
        // The programs that a script starts need not wait for it again.
        sys::set_environment(config::OPENED, "1");
    }
}

/// Opens the worker unless it is open. Returns whether it is open afterwards.
pub(crate) fn open(engine: &mut Engine) -> bool {
    match engine.state {
        State::Open(_) => true,
        State::Failed => false,
        State::Closed => match open_anew(engine) {
            Ok(()) => true,
            Err(error) => {
                // By now it may have another reason, that of a process in a `chroot`.
                let why = engine.why_not_before.take().unwrap_or_else(|| error.to_string());
                config::fall_back_of(engine.number, why);
                false
            }
        },
    }
}

/// Opens the worker of an engine that is closed, while the process can. Where that fails it stays
/// closed, and the first socket tries again: the process may never have one.
pub(super) fn open_while_allowed(engine: &mut Engine) {
    if matches!(engine.state, State::Closed)
        && let Err(error) = open_anew(engine)
    {
        engine.state = State::Closed;
        engine.why_not_before = Some(error.to_string());
    }
}

/// Opens the worker of a closed engine. Where that fails, so has the engine.
pub(super) fn open_anew(engine: &mut Engine) -> Result<(), OpenError> {
    let config = config::get().ok_or("no interface is named")?;
    // The threads that start here block all signals, so that the program's signals reach its own
    // threads.
    let mask = sys::set_signal_mask(libc::SIG_SETMASK, sys::SIGNALS_OF_PROGRAMS);
    let opened = engine::guard(|| open_stack(config))
        .unwrap_or_else(|words| Err(format!("wirepath has failed while it opened the interface ({words})").into()));
    let opened = match opened {
        Ok(stack) => {
            number_anew(&stack);
            engine.state = State::Open(stack);
            let asks = sys::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            engine.asks = asks.ok().map(thread::move_high);
            engine.wake_all();
            crate::background::start_for(engine.number);
            Ok(())
        }
        Err(error) => {
            engine.state = State::Failed;
            Err(error)
        }
    };
    sys::set_signal_mask(libc::SIG_SETMASK, mask);
    opened
}

type OpenError = Box<dyn core::error::Error + Send + Sync>;

/// No stack gives its sockets the numbers that those of an earlier one had.
fn number_anew(stack: &Stack) {
    static STACKS: AtomicU32 = AtomicU32::new(0);
    let before = STACKS.fetch_add(1, Ordering::Relaxed);
    stack.with_sockets(|sockets| sockets.number_from(before.wrapping_mul(GENERATIONS)));
}

/// Sockets that a slot has had in the life of a stack, rounded up.
const GENERATIONS: u32 = 1 << 24;

fn open_stack(config: &config::Config) -> Result<Stack, OpenError> {
    engine::panic_in_tests("open");
    let (connections_max, buffers) = (config.connections, config.buffers);
    let tcp = TcpConfig {
        connections_max,
        chunks_max: buffers,
        listeners_max: (connections_max / CONNECTIONS_PER_LISTENER).max(LISTENERS_MIN),
        ..TcpConfig::default()
    };
    let live = LiveConfig::over(config.port.clone()).named(&file_name(&config.program)).tcp_with(tcp);
    let live = match &config.own {
        Some(host) => live.dedicated(host.clone()),
        None => live,
    };
    let stack = Stack::open_sized(&live, SOCKETS_MAX.max(2 * connections_max), buffers / BUFFERS_PER_HELD)?;
    match stack.with_sockets(|sockets| sockets.unsteered()) {
        unsteered if config::engines() > 1 => say_that_engines_are_spread(config.port.interface(), unsteered.is_some()),
        Some(sentence) => config::say(sentence),
        None => (),
    }
    stack.call(|sockets, _| sockets.follow_system(*config::system()));
    Ok(stack)
}

/// What engines have whose queues are of a NIC that steers no flow.
fn say_that_engines_are_spread(interface: &str, is_spread: bool) {
    if !IS_SPREAD.swap(is_spread, Ordering::Relaxed) && is_spread {
        config::say(format_args!(
            "{interface} spreads frames over its queues, and the NIC steers none: each engine has the connections and \
             datagrams that come to its queue, and sockets that name a peer are the kernel's; a broker with --forward \
             gives the engines all of them"
        ));
    }
}

/// Whether an address is the wildcard or one of the interface.
pub(crate) fn is_own(engine: &mut Engine, ip: Ipv4Addr) -> bool {
    ip.is_unspecified() || engine.ask(|_, cx| Ok(cx.host.is_own(ip))).unwrap_or(false)
}

fn replay(engine: &mut Engine, file: FileId, id: SocketId, options: &Options) -> Result<(), Errno> {
    groups::leave_loop_to_twin(engine, id)?;
    let &mut Socket { kind, family, .. } = engine.files.socket(file)?;
    if family == Family::Inet6 {
        // Linux sets it on sockets of IPv4 alone (`inet6_create`).
        let off = 0_i32.to_ne_bytes();
        let _ = engine.call(|sockets, cx| sockets.setsockopt(id, libc::IPPROTO_IP, groups::IP_MULTICAST_ALL, &off, cx));
    }
    for OptionCall { level, name, value } in options.iter() {
        if groups::is_of_groups(*level, *name) {
            groups::apply(engine, file, id, *name, value)?;
            continue;
        }
        // The other options are the twin's alone, which has taken them.
        if options::handled_by(kind, *level, *name, value) == HandledBy::Engine {
            engine.call(|sockets, cx| sockets.setsockopt(id, *level, *name, value, cx))?;
        }
    }
    Ok(())
}

/// Moves a socket from the kernel's epoll set to the engine's.
fn move_watch(engine: &mut Engine, id: SocketId, watch: &Watch, hears_twin: bool) {
    let Ok(epfd) = sets::twin(watch.set) else { return };
    if hears_twin {
        epoll_twins::keep_twin(engine, id, epfd, watch);
    }
    if !hears_twin || watch.is_off {
        let _ = sys::epoll_ctl(epfd, libc::EPOLL_CTL_DEL, watch.fd, None);
    }
    add_watch(engine, id, watch);
}

/// Adds a socket to the engine's part of an epoll set.
pub(crate) fn add_watch(engine: &mut Engine, id: SocketId, watch: &Watch) {
    let Ok(set) = set_of(engine, watch.set) else { return };
    let _ = engine.call(|sockets, _| {
        sockets.epoll_add(set, id, watch.fd, watched(watch.event))?;
        if watch.is_reported {
            sockets.epoll_unlist(set, id, watch.fd)?;
        }
        if watch.is_off { sockets.epoll_disarm(set, id, watch.fd) } else { Ok(()) }
    });
}

/// The engine's part of an epoll set, made if there is none.
pub(crate) fn set_of(engine: &mut Engine, file: FileId) -> Result<usize, Errno> {
    if let Some(set) = sets::part(file, engine.number)? {
        return Ok(set);
    }
    let made = engine.call(|sockets, _| Ok(sockets.epoll_create()))?;
    sets::set_part(file, engine.number, made)?;
    Ok(made)
}

/// The address that the kernel would send from.
fn source_to(remote: Ipv4Addr) -> Option<Ipv4Addr> {
    let probe = sys::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).ok()?;
    let (bytes, len) = address::format(SocketAddrV4::new(remote, 9), Family::Inet);
    let local = sys::connect(probe, &bytes[..len]).ok().and_then(|()| name_of(probe));
    sys::close(probe);
    local.map(|local| *local.ip())
}

/// The twin's peer by `getpeername`, if it is an IPv4 address.
pub(crate) fn peer_of(twin: i32) -> Option<SocketAddrV4> {
    let mut bytes = [0; 128];
    let len = sys::getpeername(twin, &mut bytes).ok()?;
    match address::parse(&bytes[..len]) {
        Address::V4(address) => Some(address),
        Address::Unspecified | Address::Other => None,
    }
}

/// The twin's address by `getsockname`, if it is an IPv4 address.
pub(crate) fn name_of(twin: i32) -> Option<SocketAddrV4> {
    let mut bytes = [0; 128];
    let len = sys::getsockname(twin, &mut bytes).ok()?;
    match address::parse(&bytes[..len]) {
        Address::V4(address) => Some(address),
        Address::Unspecified | Address::Other => None,
    }
}
