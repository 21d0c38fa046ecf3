//! A broker's port, in the program that it lends a queue to.

use core::net::Ipv4Addr;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::message::{Flow, Half, MESSAGE_LEN_MAX, Reply, Request, VERSION, Welcome};
use super::nic::{NicFeatures, NicQueue};
use super::request::QueueRequest;
use super::sys;
use crate::device::DeviceError;
use crate::device::af_xdp::error::AfXdpSetupError;
use crate::device::af_xdp::interface::Interface;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::mem::Region;
use crate::sys::process;
use crate::wire::Protocol;

/// The longest time for a reply: a broker takes two seconds for a queue that is just being freed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same once a queue is lent: a rule is a system call. The caller may hold a lock meanwhile.
const PATIENCE_WITH_QUEUE: Duration = Duration::from_secs(3);
/// Where brokers listen.
const FOLDER: &str = "/run/wirepath";

/// The path at which the broker of `interface` listens, unless it was told another.
pub fn broker_of(interface: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{interface}.sock"))
}

/// Whether the broker at `path` serves `interface` to this process's user: asks it, and takes
/// nothing.
///
/// # Errors
/// No broker, another interface, a user that it does not serve.
pub fn check_broker(path: &Path, interface: &str) -> Result<(), DeviceError> {
    Ok(LentPort::open(path, interface).map(drop)?)
}

/// Whether a broker at `path` serves `interface` to this process's user now. Waits at most for
/// `patience`, and takes nothing.
pub fn does_broker_answer(path: &Path, interface: &str, patience: Duration) -> bool {
    LentPort::open_within(path, interface, patience).is_ok()
}

/// Whether the broker at `path` passes frames on, so that further programs share the interface.
///
/// # Errors
/// Those of [`check_broker`].
pub fn does_broker_forward(path: &Path, interface: &str) -> Result<bool, DeviceError> {
    Ok(LentPort::open(path, interface)?.welcome.forwards)
}

/// Asks the broker at `path` to serve `uid` as well, until it ends. It does so for root alone, and
/// only where it was started for programs, as by `wirepath run --user`: an operator's broker serves
/// whom the operator has named.
///
/// # Errors
/// Those of [`check_broker`], and that the broker does not serve this user.
pub fn ask_broker_to_serve(path: &Path, interface: &str, uid: u32) -> Result<(), DeviceError> {
    let port = LentPort::open(path, interface)?;
    match port.ask(Request::Serve { uid }) {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::Refused { errno, sentence }) => Err(AfXdpSetupError::Broker { errno, sentence }.into()),
        Ok(_) => Err(silent(path, &io::ErrorKind::InvalidData.into()).into()),
        Err(error) => Err(silent(path, &error).into()),
    }
}

/// The rule that the broker has taken back, and the error number of the reason; `None` where a
/// message of the socket that brings ICMP errors says nothing of the kind.
pub(crate) fn lost_rule(message: &[u8]) -> Option<(RuleId, i32)> {
    match Reply::decode(message) {
        Some(Reply::Lost { id, errno }) => Some((RuleId(id), errno)),
        _ => None,
    }
}

/// A port whose program, maps and rules are a broker's.
pub(crate) struct LentPort {
    path: PathBuf,
    interface: Interface,
    welcome: Welcome,
    awaited: AtomicUsize,
    channel: OwnedFd,
    /// Requests that have a reply are made one after the other.
    asking: Mutex<()>,
    /// Brings the ICMP errors about our flows, and the news of those that the broker has taken
    /// back, until someone listens.
    icmp_errors: Mutex<Option<OwnedFd>>,
    /// The broker has ended, or does not answer.
    is_lost: AtomicBool,
    /// It does not answer.
    is_silent: AtomicBool,
    /// It passes frames on.
    is_forwarded: AtomicBool,
    /// What whoever notices the end of the broker does, once.
    at_end: Mutex<Option<AtEnd>>,
}

type AtEnd = Box<dyn FnOnce() + Send>;

/// A bound socket with its memory, and the modes in which it was bound.
pub(crate) struct Lent {
    pub(crate) socket: OwnedFd,
    pub(crate) zero_copy: bool,
    pub(crate) multi_buffer: bool,
    /// The rings, where the broker passes frames on: then the socket only wakes.
    pub(crate) rings: Option<File>,
}

impl LentPort {
    /// Asks the broker at `path` for its interface, which must be the one of this name.
    pub(crate) fn open(path: &Path, interface: &str) -> Result<Self, AfXdpSetupError> {
        Self::open_within(path, interface, PATIENCE)
    }

    fn open_within(path: &Path, interface: &str, patience: Duration) -> Result<Self, AfXdpSetupError> {
        let found = Interface::find(interface)?;
        let channel = sys::connect(path, patience).map_err(|error| unreachable(path, interface, &error))?;
        check_owner(path, &channel)?;
        let mut descriptors = Vec::new();
        let hello = Request::Hello { version: VERSION };
        let reply = exchange(&channel, hello, &[], &mut descriptors).map_err(|error| silent(path, &error))?;
        let welcome = match (reply, descriptors.len()) {
            (Reply::Welcome(welcome), 1) => welcome,
            (Reply::Refused { errno, sentence }, _) => return Err(AfXdpSetupError::Broker { errno, sentence }),
            _ => return Err(silent(path, &io::ErrorKind::InvalidData.into())),
        };
        if welcome.interface_idx != found.index {
            return Err(AfXdpSetupError::broker(
                libc::EINVAL,
                format!(
                    "the broker at {} serves another interface than {interface}: name its own, {}",
                    path.display(),
                    broker_of(interface).display()
                ),
            ));
        }
        Ok(Self {
            path: path.into(),
            interface: found,
            welcome,
            awaited: AtomicUsize::new(0),
            channel,
            asking: Mutex::new(()),
            icmp_errors: Mutex::new(descriptors.pop()),
            is_lost: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
            is_forwarded: AtomicBool::new(false),
            at_end: Mutex::new(None),
        })
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Whether the broker's program runs in the driver.
    pub(crate) fn is_native(&self) -> bool {
        self.welcome.native
    }

    pub(crate) fn has_rx_hints(&self) -> bool {
        self.welcome.has_rx_hints
    }

    /// Whether frames of our flows may come to the queues of others.
    pub(crate) fn is_unsteered(&self) -> bool {
        !self.welcome.steers && !self.welcome.forwards
    }

    pub(crate) fn awaited(&self) -> &AtomicUsize {
        &self.awaited
    }

    /// Borrows a queue: its socket, and the memory that its pool is cut from.
    pub(crate) fn borrow(&self, request: &QueueRequest) -> Result<(Lent, Region), AfXdpSetupError> {
        let umem_len = request.umem_len;
        let (reply, descriptors) = self.request_queue(request)?;
        let mut descriptors = descriptors.into_iter();
        match (reply, descriptors.next(), descriptors.next(), descriptors.next().map(File::from)) {
            (
                Reply::Opened { umem_len: given, zero_copy, multi_buffer, forwarded },
                Some(socket),
                Some(memory),
                rings,
            ) if given == umem_len && forwarded == rings.is_some() => {
                let region = Region::shared(&File::from(memory), umem_len as usize)
                    .map_err(|error| AfXdpSetupError::broker(libc::ENOMEM, error.to_string()))?;
                self.is_forwarded.store(forwarded, Ordering::Relaxed);
                self.has_queue();
                Ok((Lent { socket, zero_copy, multi_buffer, rings }, region))
            }
            (Reply::Refused { errno, sentence }, ..) => Err(AfXdpSetupError::Broker { errno, sentence }),
            _ => Err(silent(&self.path, &io::ErrorKind::InvalidData.into())),
        }
    }

    /// The features of the broker's NIC, if that steers and queues of it are lent.
    pub(crate) fn nic(&self) -> Option<NicFeatures> {
        self.welcome.nic
    }

    /// Borrows a queue of the NIC: its description, and its memory, the device's file and the
    /// socket that wakes.
    pub(crate) fn borrow_nic(&self, request: &QueueRequest) -> Result<(NicQueue, [OwnedFd; 3]), AfXdpSetupError> {
        let (reply, descriptors) = self.request_queue(request)?;
        match (reply, <[OwnedFd; 3]>::try_from(descriptors)) {
            (Reply::OpenedNic(queue), Ok(descriptors)) => {
                self.has_queue();
                Ok((queue, descriptors))
            }
            (Reply::Refused { errno, sentence }, _) => Err(AfXdpSetupError::Broker { errno, sentence }),
            _ => Err(silent(&self.path, &io::ErrorKind::InvalidData.into())),
        }
    }

    fn request_queue(&self, request: &QueueRequest) -> Result<(Reply, Vec<OwnedFd>), AfXdpSetupError> {
        let &QueueRequest { umem_len, chunk_len, rx_ring_len, tx_ring_len, address } = request;
        let mut descriptors = Vec::new();
        let request = Request::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len, address };
        let reply = self.ask_for(request, &[], &mut descriptors).map_err(|error| silent(&self.path, &error))?;
        Ok((reply, descriptors))
    }

    /// From now on replies come soon.
    fn has_queue(&self) {
        // Where it fails the patience is the longer one.
        let _ = sys::set_patience(&self.channel, PATIENCE_WITH_QUEUE);
    }

    /// Has the broker arm the completion queue of our NIC queue: returns whether it was told. There
    /// is no reply, so a broker that is busy keeps nobody from going to sleep.
    pub(crate) fn arm(&self, word: u32) -> bool {
        !self.is_lost() && sys::send_now(&self.channel, &Request::Arm { word }.encode()).is_ok()
    }

    /// Has the NIC release a ring of ours.
    pub(crate) fn reset(&self, half: Half) -> io::Result<()> {
        self.ask(Request::Reset { half }).and_then(done)
    }

    /// Gives it back to the NIC.
    pub(crate) fn ready(&self, half: Half) -> io::Result<()> {
        self.ask(Request::Ready { half }).and_then(done)
    }

    /// The frames of our flows come to us.
    pub(crate) fn connect(&self) -> io::Result<()> {
        self.ask(Request::Connect).and_then(done)
    }

    /// The kernel receives them.
    pub(crate) fn disconnect(&self) {
        // Where the broker is gone, so is its program.
        let _ = self.ask(Request::Disconnect);
    }

    pub(crate) fn add(&self, rule: &Rule) -> Result<RuleId, SteerError> {
        let Some(flow) = Flow::of(rule) else {
            return Err(SteerError::Broker { errno: libc::EOPNOTSUPP });
        };
        match self.ask(Request::Steer(flow)) {
            Ok(Reply::Steered { id }) => Ok(RuleId(id)),
            Ok(Reply::Refused { errno, .. }) => Err(SteerError::Broker { errno }),
            Ok(_) | Err(_) => Err(SteerError::Broker { errno: libc::EPIPE }),
        }
    }

    pub(crate) fn remove(&self, id: RuleId) -> Result<(), SteerError> {
        match self.ask(Request::Unsteer { id: id.0 }) {
            Ok(Reply::Done) => Ok(()),
            _ => Err(SteerError::NoRule { id }),
        }
    }

    /// Whether connections that begin may come to us by the rule with this number.
    pub(crate) fn set_listening(&self, id: RuleId, listening: bool) {
        // Where it fails, the broker is gone.
        let _ = self.ask(Request::SetListening { id: id.0, listening });
    }

    /// Shows the broker a kernel socket that we have at this port, where another user has made it:
    /// one that root has made before this process has become another user's. It counts as ours from
    /// then on.
    pub(crate) fn claim(&self, socket: BorrowedFd<'_>, protocol: Protocol, port: u16) -> io::Result<()> {
        if port == 0 || sys::owner_of(socket)? == process::effective_user() {
            return Ok(());
        }
        self.ask_for(Request::Claim { protocol, port }, &[socket], &mut Vec::new()).and_then(done)
    }

    /// Whether the broker passes frames on, and connections to others who listen.
    pub(crate) fn is_forwarded(&self) -> bool {
        self.is_forwarded.load(Ordering::Relaxed)
    }

    /// Has the kernel resolve a neighbor.
    pub(crate) fn resolve(&self, address: Ipv4Addr) -> io::Result<()> {
        self.ask(Request::Resolve(address)).and_then(done)
    }

    /// The socket that brings ICMP errors; `None` from the second time on.
    pub(crate) fn take_icmp_errors(&self) -> Option<OwnedFd> {
        self.icmp_errors.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Notices that the broker has ended. One system call.
    pub(crate) fn look(&self) {
        // If the lock is taken, its holder makes a request and notices the end itself.
        if let Ok(_alone) = self.asking.try_lock()
            && sys::is_closed(&self.channel)
        {
            self.lose();
        }
    }

    /// Has `act` run once the broker has ended, by whoever notices that.
    #[cfg_attr(not(feature = "mlx5"), allow(dead_code))] // a queue of AF_XDP has nothing to let go of
    pub(crate) fn at_end(&self, act: impl FnOnce() + Send + 'static) {
        *self.at_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(act));
        if self.is_lost() {
            self.lose();
        }
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        let act = self.at_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(act) = act {
            act();
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Why no frame will come any more, if that is so. One system call.
    pub(crate) fn lost(&self) -> Option<String> {
        self.look();
        let (name, is_silent) = (&self.interface.name, self.is_silent.load(Ordering::Relaxed));
        self.is_lost().then(|| {
            let what = if is_silent { "does not answer" } else { "has ended, and its program with it" };
            format!("the broker of {name} {what}: start it again")
        })
    }

    fn ask(&self, request: Request) -> io::Result<Reply> {
        self.ask_for(request, &[], &mut Vec::new())
    }

    /// Sends a request with the files that go with it; those of the reply are added to
    /// `descriptors`.
    fn ask_for(&self, request: Request, shown: &[BorrowedFd<'_>], descriptors: &mut Vec<OwnedFd>) -> io::Result<Reply> {
        let _alone = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_lost() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        exchange(&self.channel, request, shown, descriptors).inspect_err(|error| {
            // A reply may still come, to a request that is not the next one. A broker that has only
            // stalled gives our flows back to the kernel when it sees this end.
            sys::hang_up(&self.channel);
            self.is_silent.store(error.kind() == io::ErrorKind::WouldBlock, Ordering::Relaxed);
            self.lose();
        })
    }
}

fn exchange(
    channel: &OwnedFd,
    request: Request,
    shown: &[BorrowedFd<'_>],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<Reply> {
    let sent = unbroken(|| sys::send(channel, &request.encode(), shown));
    let mut bytes = [0; MESSAGE_LEN_MAX];
    let mut receive = || unbroken(|| sys::receive(channel, &mut bytes, Some(&mut *descriptors)));
    let received = match sent {
        // A broker that refuses a user does not wait for his first request: its refusal is there,
        // and it has closed its end. The error that comes of that comes once.
        Ok(()) => receive().or_else(|error| if has_closed(&error) { receive() } else { Err(error) }),
        Err(error) if has_closed(&error) => receive().or_else(|_| receive()),
        Err(error) => Err(error),
    };
    match received? {
        0 => Err(io::ErrorKind::ConnectionAborted.into()),
        len => Reply::decode(&bytes[..len]).ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Whether an error says that the other end is closed.
fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// Makes a call again that a signal of the program has broken off.
fn unbroken<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            made => return made,
        }
    }
}

fn done(reply: Reply) -> io::Result<()> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Refused { errno, .. } => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A broker sees the memory that it lends: it must be root's, or our own user's.
fn check_owner(path: &Path, channel: &OwnedFd) -> Result<(), AfXdpSetupError> {
    let owner = sys::peer(channel).map_err(|error| silent(path, &error))?.uid;
    if owner == 0 || owner == process::effective_user() {
        return Ok(());
    }
    Err(AfXdpSetupError::broker(
        libc::EACCES,
        format!("the broker at {} is user {owner}'s, who would see every frame: use one of root's", path.display()),
    ))
}

fn unreachable(path: &Path, interface: &str, error: &io::Error) -> AfXdpSetupError {
    let path = path.display();
    let start = format!("start `wirepath broker --interface {interface} --uid USER` as root");
    let errno = error.raw_os_error().unwrap_or(libc::EIO);
    AfXdpSetupError::broker(
        errno,
        match error.raw_os_error() {
            Some(libc::ENOENT) => format!("no broker listens at {path}: {start}"),
            Some(libc::ECONNREFUSED) => format!("the broker that listened at {path} has ended: {start}"),
            _ => format!("the broker at {path} cannot be reached ({error}): see who may open that path, or {start}"),
        },
    )
}

fn silent(path: &Path, error: &io::Error) -> AfXdpSetupError {
    AfXdpSetupError::broker(
        libc::EIO,
        format!(
            "the broker at {} does not answer as expected ({error}): see its log, and start one of this release",
            path.display()
        ),
    )
}
