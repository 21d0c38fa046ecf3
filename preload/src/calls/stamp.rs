//! `SIOCGSTAMP` and its kin: when the datagram arrived that the program has received last. As on
//! Linux, times are kept from the first such call on, which itself has that of the call.

use std::time::SystemTime;

use sockets::{DatagramInfo, Errno, Kind};

use super::Outcome::{self, Ours, Pass};
use crate::engine::file::{Owner, Stamp};
use crate::engine::table::FileId;
use crate::engine::{self, Engine};
use crate::sys;

/// Nanoseconds since 1970. [`Pass`]: the twin has received the last datagram; a stream has no time.
pub(crate) fn last(file: FileId) -> Outcome<u64> {
    let mut engine = engine::enter(file);
    let Ok(socket) = engine.files.socket(file) else { return Pass };
    let Owner::Ours { id, .. } = socket.place else { return Pass };
    if socket.kind == Kind::Stream {
        return Pass;
    }
    match socket.stamp {
        Stamp::Twins => Pass,
        Stamp::Of(at) => Ours(Ok(at)),
        Stamp::Nothing => Ours(Err(Errno::ENOENT)),
        Stamp::Off => {
            let by_twin = socket.twin_reads > 0;
            let now = SystemTime::now();
            let by_ours = engine.ask(|sockets, cx| sockets.entry(id, now, cx)).is_ok_and(|entry| entry.rx_packets > 0);
            let since = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            let stamp = if by_ours || by_twin { Stamp::Of(since) } else { Stamp::Nothing };
            // From its first such call on the twin keeps times too.
            let mut unused = [0; 2];
            let _ = engine.files.twin(file).and_then(|twin| sys::last_stamp(twin, &mut unused));
            if let Ok(socket) = engine.files.socket(file) {
                socket.stamp = stamp;
            }
            if stamp == Stamp::Nothing { Ours(Err(Errno::ENOENT)) } else { Ours(Ok(since)) }
        }
    }
}

/// The program has received a datagram of a socket that keeps times; `None`: the twin has it.
#[cold]
pub(super) fn keep(engine: &mut Engine, file: FileId, info: Option<&DatagramInfo>) {
    let at = match info {
        None => Ok(Stamp::Twins),
        Some(info) => engine.look(|sockets| Ok(Stamp::Of(sockets.wall_at(info.arrived).as_nanos()))),
    };
    if let (Ok(at), Ok(socket)) = (at, engine.files.socket(file)) {
        socket.stamp = at;
    }
}
