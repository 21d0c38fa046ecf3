//! Ports: `bind`, and the ports that the kernel chooses for the twins of sockets of ours, so that
//! it gives them to no other socket.

use core::ffi::c_int;
use core::net::SocketAddrV4;

use sockets::rules::Traffic;
use sockets::{Errno, Kind, Sockets};

use super::listener::ANOTHER_ENGINE;
use super::{IPV6, fresh_twin, groups, has_lost_interface, keep, offload};
use crate::address::{self, Address, Family};
use crate::engine::file::ANY;
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::{config, sys};

/// `bind`: the twin is bound already, so the kernel gives its port to no other socket.
pub(crate) fn bind(file: FileId, local: &[u8]) -> Result<(), Errno> {
    let mut engine = engine::enter(file);
    let twin = engine.files.twin(file)?;
    let socket = engine.files.socket(file)?;
    let is_named = matches!(address::parse(local), Address::V4(local) if local.port() != 0);
    if socket.kind == Kind::Stream {
        // `listen` or `connect` decides the owner of a stream, and `prepare_to_bind` has unbound
        // one of ours.
        let Some(id) = socket.ours() else {
            socket.has_named_port = is_named;
            return Ok(());
        };
        let Some(local) = offload::name_of(twin) else {
            offload::give_back(&mut engine, file);
            return keep(&mut engine, file, IPV6);
        };
        if !offload::is_own(&mut engine, *local.ip()) {
            offload::give_back(&mut engine, file);
            return keep(&mut engine, file, offload::BY_ANOTHER);
        }
        engine.call(|sockets, cx| sockets.bind(id, local, cx))?;
        engine.files.socket(file)?.has_named_port = is_named;
        return Ok(());
    }
    socket.has_named_port = is_named;
    bind_datagrams(&mut engine, file, twin).inspect_err(|_| fresh_twin::replace_twin(&mut engine, file))
}

/// Decides whose a datagram socket is whose twin was bound.
pub(super) fn bind_datagrams(engine: &mut Engine, file: FileId, twin: c_int) -> Result<(), Errno> {
    let Some(local) = offload::name_of(twin) else { return keep(engine, file, IPV6) };
    let by_address = offload::is_ours(engine, file, Traffic::UdpReceiver, local, None)?;
    if by_address || groups::one_is_ours(engine, file)? {
        match offload::take(engine, file, Some(local), true) {
            Err(error) if has_lost_interface(engine, file, error) => (),
            Err(error)
                if groups::has_some(engine, file, local) && groups::is_another_engines(engine, error, local.port()) =>
            {
                return Err(error);
            }
            Err(Errno::EADDRINUSE) if offload::is_engines_port(engine) => return keep(engine, file, ANOTHER_ENGINE),
            done => {
                let id = done?;
                if engine.look(|sockets| sockets.has_groups_alone(id)) == Ok(true) {
                    // The twin receives what comes by other interfaces.
                    engine.call(|sockets, _| sockets.excuse_lack_of_port(id))?;
                    engine.files.socket(file)?.why = offload::say_that_it_has_groups_alone(local);
                }
            }
        }
    }
    Ok(())
}

/// Prepares the twin of a socket for `bind`: the port that `connect` or `listen` chose for a stream
/// of ours is free again when its connection has failed or ended (Linux `tcp_done`). While it is
/// connected the twin has a port, so that the kernel refuses the call.
///
/// Returns whether it is unbound now, although it was bound.
pub(crate) fn prepare_to_bind(file: FileId, twin: c_int, local: &[u8]) -> bool {
    name_own_host(twin, local);
    let mut engine = engine::enter(file);
    let Ok(socket) = engine.files.socket(file) else { return false };
    let family = socket.family;
    let Some(id) = socket.ours().filter(|_| socket.kind == Kind::Stream && !socket.has_named_port) else {
        return false;
    };
    let is_unbound = engine.call(|sockets, _| sockets.unbind(id)) == Ok(true);
    if is_unbound {
        take_port_back(twin);
    } else {
        // The twin of an accepted stream has none yet.
        let _ = bind_twin(twin, family, ANY);
    }
    is_unbound
}

/// `bind` has failed on a socket that [`prepare_to_bind`] has unbound: it gets another port.
pub(crate) fn rebind(file: FileId, twin: c_int) -> Result<(), Errno> {
    replace_port(&mut engine::enter(file), file, twin)
}

/// A stream of ours listens no more, or was disconnected (Linux `tcp_disconnect`).
pub(super) fn keep_a_port(engine: &mut Engine, file: FileId, twin: c_int) {
    if engine.files.socket(file).is_ok_and(|socket| !socket.has_named_port) {
        // Without one it is the next `connect` or `listen` that has the error.
        let _ = replace_port(engine, file, twin);
    }
}

/// Gives a stream without a connection another port, after the kernel has taken back the one that
/// it had chosen: so the kernel gives the port of its next connection to no other socket.
fn replace_port(engine: &mut Engine, file: FileId, twin: c_int) -> Result<(), Errno> {
    let socket = engine.files.socket(file)?;
    let (family, id) = (socket.family, socket.ours().ok_or(Errno::ENOTSOCK)?);
    let ip = *offload::name_of(twin).unwrap_or(ANY).ip();
    engine.call(|sockets, _| sockets.unbind(id))?;
    let local = match rebind_twin(twin, family, SocketAddrV4::new(ip, 0)) {
        // The twin of a stream that never listened has kept its port.
        Err(Errno::EINVAL) => offload::name_of(twin).ok_or(Errno::EADDRNOTAVAIL),
        done => done,
    }?;
    engine.call(|sockets, cx| sockets.bind(id, local, cx))
}

/// Has the kernel take back the port that it chose for a twin: it does so where a listener ends.
fn take_port_back(twin: c_int) {
    let _ = sys::listen(twin, 0).and_then(|()| sys::shutdown(twin, libc::SHUT_RD));
}

/// Gives a twin an option that a socket of ours has just taken, if it says with whom the socket
/// shares its port: the kernel judges that by the twins.
pub(super) fn mirror(twin: c_int, level: c_int, name: c_int, value: &[u8]) {
    if level == libc::SOL_SOCKET && matches!(name, libc::SO_REUSEADDR | libc::SO_REUSEPORT) {
        // The engine has checked the value.
        let _ = sys::setsockopt(twin, level, name, value);
    }
}

/// Lets a twin bind an address of a host of our own: the kernel does not have it.
fn name_own_host(twin: c_int, local: &[u8]) {
    let Some(host) = config::get().and_then(|config| config.own.as_ref()) else { return };
    if let Address::V4(local) = address::parse(local)
        && host.addresses.iter().any(|own| own.address() == *local.ip())
    {
        let _ = sys::setsockopt(twin, libc::IPPROTO_IP, libc::IP_FREEBIND, &1_i32.to_ne_bytes());
    }
}

/// The most ports that the kernel is asked for before a connection is refused.
const PORTS_MAX: usize = 32;

/// Ports that are unsuitable: each stays taken until the search for a better one ends, so that the
/// kernel gives another one.
#[derive(Default)]
pub(super) struct TakenPorts(Vec<c_int>);

impl TakenPorts {
    /// A socket that is to have an unsuitable port. `None` ends the search.
    fn add(&mut self, family: Family) -> Option<c_int> {
        if self.0.len() == PORTS_MAX {
            return None;
        }
        let probe = sys::socket(family.number(), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0).ok()?;
        self.0.push(probe);
        Some(probe)
    }

    /// Gives a stream of ours without a connection another port than the one that the kernel chose.
    /// `false`: it was not the kernel that chose it, or there is no other.
    pub(super) fn replace_port_of(&mut self, engine: &mut Engine, file: FileId) -> bool {
        let (Ok(twin), Ok(socket)) = (engine.files.twin(file), engine.files.socket(file)) else { return false };
        let family = socket.family;
        let Some(unsuitable) = offload::name_of(twin).filter(|_| !socket.has_named_port) else { return false };
        let Some(probe) = self.add(family) else { return false };
        take_port_back(twin);
        // Another socket may be faster, and has the port then.
        let _ = rebind_twin(probe, family, unsuitable);
        replace_port(engine, file, twin).is_ok()
    }
}

impl Drop for TakenPorts {
    fn drop(&mut self) {
        self.0.iter().for_each(|probe| sys::close(*probe));
    }
}

/// As [`bind_twin`], of a stream that connects to `remote`. The kernel does not know our
/// connections, so it may choose the port of one to the same peer that has just ended.
pub(super) fn bind_stream(
    engine: &mut Engine,
    twin: c_int,
    family: Family,
    remote: SocketAddrV4,
) -> Result<SocketAddrV4, Errno> {
    // An address without a port is that of `IP_BIND_ADDRESS_NO_PORT`.
    let from = offload::name_of(twin).unwrap_or(ANY);
    let bound = from.port() != 0;
    if !bound {
        // A port that the kernel chooses, unlike one that is named, can be given back.
        let local = bind_twin(twin, family, from)?;
        let is_chosen = local.port() != 0;
        if is_chosen && engine.ask(|_, cx| Ok(Sockets::is_free(local, remote, cx))).unwrap_or(true) {
            return Ok(local);
        }
    }
    let mut probes = TakenPorts::default();
    let mut local = Ok(ANY);
    while !bound && let Some(probe) = probes.add(family) {
        local = bind_twin(probe, family, from);
        let Ok(candidate) = local else { break };
        if engine.ask(|_, cx| Ok(Sockets::is_free(candidate, remote, cx))).unwrap_or(true) {
            break;
        }
    }
    drop(probes);
    if bound {
        return Ok(from);
    }
    take_port_back(twin);
    match rebind_twin(twin, family, local?) {
        // Another socket was faster.
        Err(Errno::EADDRINUSE) => rebind_twin(twin, family, from),
        done => done,
    }
}

/// Binds an unbound twin, so that the kernel gives its port to no other socket, and returns its
/// address. Port 0 lets the kernel choose.
pub(super) fn bind_twin(twin: c_int, family: Family, local: SocketAddrV4) -> Result<SocketAddrV4, Errno> {
    if let Some(local) = offload::name_of(twin).filter(|local| local.port() != 0) {
        return Ok(local);
    }
    rebind_twin(twin, family, local)
}

/// Binds a twin whose old name may be that of a port that the kernel has taken back.
fn rebind_twin(twin: c_int, family: Family, local: SocketAddrV4) -> Result<SocketAddrV4, Errno> {
    let (bytes, len) = address::format(local, family);
    sys::bind(twin, &bytes[..len])?;
    offload::name_of(twin).ok_or(Errno::EADDRNOTAVAIL)
}
