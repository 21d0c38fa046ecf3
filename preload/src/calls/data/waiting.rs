//! Receives that wait: for anything, for the rest of the bytes that they ask for, or for the owner
//! of a socket that has none yet.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use std::io::IoSliceMut;

use sockets::{Errno, Kind, Ready};

use super::receive::{Received, receive_once};
use super::{Target, has_input, report_later};
use crate::calls::{self, Direction, back, offload};
use crate::engine::file::Owner;
use crate::engine::table::FileId;
use crate::engine::wait::{self, Blocking, Sides, readable};
use crate::engine::{self, Engine, WaitFor, thread};
use crate::{config, sys};

/// Receives by one timeout what a first attempt has not: anything where it had nothing, and the
/// rest of the bytes that it returns at least.
pub(super) fn receive_in_time(
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Option<Received>,
) -> Result<Option<Received>, Errno> {
    let mut blocking = match (calls::blocking(file, target.id, flags, Direction::Receive), first) {
        (Ok(blocking), _) => blocking,
        (Err(error), None) => return Err(error),
        (Err(_), first) => return Ok(first),
    };
    let first = match first {
        None => wait_to_receive(&mut blocking, file, target, parts, flags)?,
        first => first,
    };
    Ok(match first {
        Some(first) if (1..least).contains(&first.len) => {
            Some(receive_all(&mut blocking, file, target, parts, flags, least, first))
        }
        first => first,
    })
}

fn wait_to_receive(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
) -> Result<Option<Received>, Errno> {
    if blocking.is_nonblocking {
        return Err(Errno::EAGAIN);
    }
    let twin = [readable(target.twin)];
    let twin = if target.hears_twin { &twin[..] } else { &[] };
    // With a low water, bytes that are fewer do not make the stream readable, and are taken.
    let has_low_water = target.kind == Kind::Stream
        && SETS_LOW_WATER.load(Ordering::Relaxed)
        && engine::enter(file).look(|sockets| sockets.option(target.id, |options| options.receive_low_water > 1))?;
    let interest = match has_low_water {
        true => WaitFor::Any,
        false => WaitFor::Socket(target.id, Ready::IN),
    };
    wait::until(blocking, file.room(), interest, twin, |engine, sides| {
        match receive_once(engine, target, parts, flags, sides) {
            // After `SHUT_RD` a call that would wait returns 0.
            Err(Errno::EAGAIN) if target.kind == Kind::Datagram => {
                engine.look(|sockets| sockets.end_of_datagrams(target.id))?;
                // What the twin received before is read first.
                let has_more = target.hears_twin && has_input(engine, target);
                Ok(if has_more { None } else { Some(Received::nothing(target)) })
            }
            done => done,
        }
    })
}

/// Receives the rest of the bytes that a stream returns at least, as they come, until the end of
/// the stream, an error or a signal: bytes that were left until all are there would fill the
/// receive buffer, and then no more would come.
fn receive_all(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Received,
) -> Received {
    let mut filled = first.len;
    blocking.note_moved();
    if flags & libc::MSG_PEEK != 0 {
        return peek_all(blocking, file, target, parts, flags, least, first);
    }
    let mut rest: Vec<IoSliceMut<'_>> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
    let mut rest = &mut rest[..];
    IoSliceMut::advance_slices(&mut rest, filled);
    while filled < least {
        match wait_to_receive(blocking, file, target, rest, flags) {
            Ok(Some(Received { len: count @ 1.., .. })) => {
                filled += count;
                IoSliceMut::advance_slices(&mut rest, count);
            }
            Err(error) => {
                report_later(file, target, error);
                break;
            }
            Ok(_) => break,
        }
    }
    Received { len: filled, ..first }
}

/// Waits until that many bytes are there, or no more come, and looks at them (`MSG_PEEK` with
/// `MSG_WAITALL`, or with a low water). A full receive buffer ends the wait: Linux would merge
/// short segments, and so have room for more, and waits for ever where that is not enough.
fn peek_all(
    blocking: &mut Blocking,
    file: FileId,
    target: &Target,
    parts: &mut [IoSliceMut<'_>],
    flags: c_int,
    least: usize,
    first: Received,
) -> Received {
    if !blocking.is_nonblocking {
        // Whatever ends the wait, there are bytes to report.
        let _ = await_bytes(blocking, file, target, least);
    }
    let seen = receive_once(&mut engine::enter(file), target, parts, flags, Sides::Ours);
    seen.ok().flatten().unwrap_or(first)
}

/// Waits until a stream has that many bytes, or no more come.
fn await_bytes(blocking: &mut Blocking, file: FileId, target: &Target, wanted: usize) -> Result<(), Errno> {
    wait::until(blocking, file.room(), WaitFor::Any, &[], |engine, _| {
        let (len, is_full, ready) = engine.look(|sockets| {
            Ok((sockets.readable_len(target.id)?, sockets.is_full(target.id)?, sockets.ready(target.id)?))
        })?;
        let has_ended = !ready.among(Ready::RDHUP | Ready::HUP | Ready::ERR).is_none();
        if len >= wanted || is_full || has_ended { Ok(()) } else { Err(Errno::EAGAIN) }
    })
}

/// A socket of the process was given a low water above 1 once (`SO_RCVLOWAT`): from then on the
/// receives on streams look for that of their own.
pub(in crate::calls) static SETS_LOW_WATER: AtomicBool = AtomicBool::new(false);

/// The bytes that a receive returns at least, where it may wait and more come: on a stream all that
/// it asks for with `MSG_WAITALL`, and otherwise those of the low water (Linux `sock_rcvlowat`).
pub(super) fn least_of(engine: &mut Engine, target: &Target, parts: &[IoSliceMut<'_>], flags: c_int) -> usize {
    let asked = || parts.iter().map(|part| part.len()).sum::<usize>();
    let has_low_water = || SETS_LOW_WATER.load(Ordering::Relaxed);
    let may_wait = !target.is_nonblocking && flags & libc::MSG_DONTWAIT == 0;
    match target.kind {
        Kind::Stream if flags & libc::MSG_WAITALL != 0 => asked(),
        Kind::Stream if may_wait && has_low_water() => {
            let low_water =
                engine.look(|sockets| sockets.option(target.id, |options| options.receive_low_water as usize));
            asked().min(low_water.unwrap_or(1))
        }
        _ => 1,
    }
}

/// Waits before a receive that would wait in the kernel for a datagram socket without an address:
/// another thread's first send may offload it meanwhile, and then its datagrams never reach the
/// twin. Returns once the socket is offloaded, or the twin has something.
///
/// # Errors
/// Those of the receive: `EAGAIN` after `SO_RCVTIMEO`, `EINTR`.
pub(crate) fn await_owner(file: FileId, flags: c_int) -> Result<(), Errno> {
    thread::set_time_left(None);
    let is_undecided = |engine: &mut Engine| {
        let socket = engine.files.socket(file);
        socket.is_ok_and(|socket| socket.kind == Kind::Datagram && socket.place == Owner::Undecided)
    };
    let twin = {
        let mut engine = engine::enter(file);
        if flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) != 0
            || !is_undecided(&mut engine)
            || engine.files.is_nonblocking(file)
        {
            return Ok(());
        }
        engine.files.twin(file)?
    };
    // `bind` has decided about one that has a port, unless a group may give it to us.
    let gives_groups = config::get().is_some_and(|config| config.gives_groups);
    if offload::name_of(twin).is_none_or(|local| local.port() != 0 && !gives_groups) {
        return Ok(());
    }
    thread::test_cancel();
    thread::begin_call();
    let mut blocking = Blocking::of_socket(false, sys::receive_timeout(twin));
    back::wait_through(&mut blocking, |blocking| {
        wait::until(blocking, file.room(), WaitFor::Any, &[readable(twin)], |engine, _| {
            if is_undecided(engine) && sys::ppoll(&mut [readable(twin)], Some(0)) == Ok(0) {
                return Err(Errno::EAGAIN);
            }
            Ok(())
        })
    })
}
