//! Receives what is there, without a wait.

use core::ffi::c_int;
use core::net::SocketAddrV4;
use std::io::IoSliceMut;

use sockets::{ControlMessage, DatagramInfo, Errno, Kind, Options, RecvFlags, Sockets};
use wirepath::pipeline::Cx;

use super::control::control_messages;
use super::waiting::{least_of, receive_in_time};
use super::{Target, has_input, target};
use crate::address::Family;
use crate::calls::Outcome::{self, Ours, Pass};
use crate::calls::{Direction, back, error_queue, stamp};
use crate::engine::table::FileId;
use crate::engine::wait::{self, Sides};
use crate::engine::{self, Engine, EngineGuard, thread};
use crate::probe;

/// The result of a receive call, beside the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    /// Bytes in the caller's buffers; with `MSG_TRUNC` the length of the whole datagram.
    pub(crate) len: usize,
    /// For a datagram: its sender and other metadata.
    pub(crate) info: Option<DatagramInfo>,
    /// The address to return: the datagram's sender, or the destination of one that failed.
    pub(crate) name: Option<SocketAddrV4>,
    pub(crate) family: Family,
    /// `msg_flags`.
    pub(crate) flags: c_int,
    /// The program has asked for control messages.
    pub(crate) has_control: bool,
}

impl Received {
    pub(super) fn nothing(target: &Target) -> Self {
        Self { len: 0, info: None, name: None, family: target.family, flags: 0, has_control: false }
    }
}

/// `recv` and its family. [`Pass`] if the twin has the next bytes or datagram.
pub(crate) fn receive(file: FileId, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<Received> {
    thread::test_cancel();
    match flags {
        _ if flags & libc::MSG_OOB != 0 => Ours(Err(Errno::EINVAL)),
        _ if flags & libc::MSG_ERRQUEUE != 0 => {
            let Some(received) = error_queue::receive(file, parts) else { return Pass };
            Ours(received.map(|received| Received {
                len: received.len,
                info: None,
                name: received.destination,
                family: received.family,
                flags: libc::MSG_ERRQUEUE,
                has_control: false,
            }))
        }
        _ => back::call_through(file, (Direction::Receive, flags), || receive_bytes(file, parts, flags)),
    }
}

fn receive_bytes(file: FileId, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Outcome<Received> {
    let (target, least, first) = {
        let mut engine = engine::enter(file);
        let Ok(target) = target(&mut engine, file) else { return Pass };
        let least = least_of(&mut engine, &target, parts, flags);
        let first = receive_at_once(&mut engine, &target, parts, flags);
        if matches!(first, Err(Errno::EAGAIN))
            && (target.is_nonblocking || flags & libc::MSG_DONTWAIT != 0)
            && let Ok(socket) = engine.files.socket(file)
        {
            socket.would_block += 1;
        }
        (target, least, first)
    };
    let received = match first {
        Err(Errno::EAGAIN) if !target.is_nonblocking && flags & libc::MSG_DONTWAIT == 0 => {
            receive_in_time(file, &target, parts, flags, least, None)
        }
        Ok(Some(received)) if (1..least).contains(&received.len) => {
            receive_in_time(file, &target, parts, flags, least, Some(received))
        }
        Ok(None) => {
            // The call may begin again, and has not waited.
            thread::set_time_left(None);
            Ok(None)
        }
        done => done,
    };
    match received {
        Ok(Some(received)) => {
            if target.keeps_stamp && received.info.is_some() {
                stamp::keep(&mut engine::enter(file), file, received.info.as_ref());
            }
            Ours(Ok(received))
        }
        Ok(None) => {
            let mut engine = engine::enter(file);
            if let Ok(socket) = engine.files.socket(file) {
                socket.twin_reads += 1;
            }
            if target.keeps_stamp {
                stamp::keep(&mut engine, file, None);
            }
            Pass
        }
        Err(error) => Ours(Err(error)),
    }
}

/// Receives what is there. The kernel's side is checked only by a call that does not wait: one that
/// does begins with the engine's, and checks the kernel's while it polls.
fn receive_at_once(
    engine: &mut Engine,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<Option<Received>, Errno> {
    let first = wait::attempt_and_turn(engine, Sides::Ours, &mut |engine, sides| {
        receive_once(engine, target, parts, flags, sides)
    });
    let is_last = target.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
    match first {
        Err(Errno::EAGAIN) if is_last && target.hears_twin => receive_once(engine, target, parts, flags, Sides::Both),
        done => done,
    }
}

/// Receives several datagrams without waiting, as `recvmmsg` does after the first one: under one
/// lock, and with one turn of the worker for all of them.
pub(crate) struct Batch {
    engine: EngineGuard,
    file: FileId,
    target: Target,
    has_turned: bool,
}

impl Batch {
    /// `None` if the socket is no longer ours.
    pub(crate) fn begin(file: FileId) -> Option<Self> {
        let mut engine = engine::enter(file);
        let target = target(&mut engine, file).ok()?;
        Some(Self { engine, file, target, has_turned: false })
    }

    /// The next datagram of the engine's; `EAGAIN` if there is none.
    pub(crate) fn receive(&mut self, parts: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Received, Errno> {
        let Self { engine, target, has_turned, .. } = self;
        let mut received = receive_once(engine, target, parts, flags, Sides::Ours);
        if received.as_ref().is_err_and(|error| *error == Errno::EAGAIN) && !core::mem::replace(has_turned, true) {
            engine.turn();
            received = receive_once(engine, target, parts, flags, Sides::Ours);
        }
        if let Ok(Some(received)) = &received
            && target.keeps_stamp
        {
            stamp::keep(engine, self.file, received.info.as_ref());
        }
        received.and_then(|received| received.ok_or(Errno::EAGAIN))
    }

    /// The control messages of a datagram.
    pub(crate) fn control(&mut self, received: &Received) -> Vec<ControlMessage> {
        control_messages(&mut self.engine, self.file, received)
    }
}

/// Receives once; `None` if the twin has the next bytes or datagram.
pub(super) fn receive_once(
    engine: &mut Engine,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    sides: Sides,
) -> Result<Option<Received>, Errno> {
    if target.is_both && target.hears_twin && engine::is_twins_turn() && has_input(engine, target) {
        return Ok(None);
    }
    let asked = RecvFlags { peek: flags & libc::MSG_PEEK != 0, truncate: flags & libc::MSG_TRUNC != 0 };
    let received = engine.receive(|sockets, cx| {
        refuse_bad_buffers(sockets, target, parts, asked, cx)?;
        let (len, info) = sockets.recv_parts(target.id, parts, asked, cx)?;
        Ok((len, info, sockets.option(target.id, Options::asks_for_control)?))
    });
    match received {
        Ok((len, info, asks)) => {
            let is_cut = info.is_some_and(|info| info.len > parts.iter().map(|part| part.len()).sum());
            let flags = if is_cut { libc::MSG_TRUNC } else { 0 };
            let (name, has_control) = (info.map(|info| info.source), asks | target.receives_info6);
            Ok(Some(Received { len, info, name, family: target.family, flags, has_control }))
        }
        Err(Errno::EAGAIN) if sides == Sides::Both && target.hears_twin && has_input(engine, target) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `EFAULT` if the bytes that wait do not fit in memory of the program. As on Linux, it is reported
/// when there are bytes to store, a datagram is lost, and the bytes of a stream are not.
#[inline]
fn refuse_bad_buffers(
    sockets: &mut Sockets,
    target: &Target,
    parts: &[IoSliceMut<'_>],
    asked: RecvFlags,
    cx: &mut Cx<'_>,
) -> Result<(), Errno> {
    // A listener has no bytes: to receive is the error.
    let len = sockets.readable_len(target.id).unwrap_or(0);
    let is_discarded = target.kind == Kind::Stream && asked.truncate;
    if is_discarded || probe::are_writable(parts, len) {
        return Ok(());
    }
    if target.kind == Kind::Datagram {
        sockets.recv_parts(target.id, &mut [], asked, cx)?;
    }
    Err(Errno(libc::EFAULT))
}
