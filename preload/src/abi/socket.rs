//! Addresses, connections and options of sockets.
//!
//! Invariants:
//! 1. Those of `abi`: the types are libc's, and the caller keeps the promises of libc's functions.

use core::ffi::{c_int, c_void};

use sockets::Errno;

use super::descriptors::close;
use super::{give_none, is_refused, known, may_be_ours, memory, new_may_be_ours, ours};
use crate::calls::listener::Peer;
use crate::calls::offload::PeerCall;
use crate::calls::{self, Outcome};
use crate::engine::{self, table};
use crate::real::{self, fail};
use crate::{config, process};

/// Bytes of the options but for lists of groups' sources.
const ANSWER_LEN: usize = 512;
const LONGEST_ANSWER: usize = 64 << 10;

symbols! {
    fn bind(fd: c_int, address: *const c_void, len: u32) -> c_int {
        let file = known(fd);
        let named = file.zip(memory::address_of(address, len).ok());
        let is_unbound = named.is_some_and(|(file, local)| calls::ports::prepare_to_bind(file, fd, local));
        let result = pass!(real::bind(fd, address, len));
        match named {
            Some((file, local)) if result == 0 => give_none(calls::ports::bind(file, local)),
            Some((file, _)) if is_unbound => {
                // Without one it is the next `connect` that has the error. A broker that is asked
                // for the flow changes `errno`.
                let error = real::errno();
                let _ = calls::ports::rebind(file, fd);
                give_none(Err(error)) | result
            }
            _ => result,
        }
    }

    fn listen(fd: c_int, backlog: c_int) -> c_int {
        match known(fd) {
            Some(file) => give_none(calls::listener::listen(file, backlog)),
            None => pass!(real::listen(fd, backlog)),
        }
    }

    fn connect(fd: c_int, address: *const c_void, len: u32) -> c_int {
        let Some(file) = known(fd) else {
            if is_refused(fd, (address, len), PeerCall::Connect) {
                return fail(Errno::EACCES) as c_int;
            }
            return pass!(real::connect(fd, address, len));
        };
        match memory::address_of(address, len).map(|remote| calls::connect(file, remote)) {
            Ok(Outcome::Ours(result)) => give_none(result),
            _ => pass!(real::connect(fd, address, len)),
        }
    }

    fn __connect(fd: c_int, address: *const c_void, len: u32) -> c_int {
        pass!(connect(fd, address, len))
    }

    fn accept(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        pass!(accept4(fd, address, len, 0))
    }

    fn accept4(fd: c_int, address: *mut c_void, len: *mut u32, flags: c_int) -> c_int {
        let accepted = match ours(fd).map(|file| calls::listener::accept(file, flags)) {
            None | Some(Outcome::Pass) => {
                let accepted = pass!(real::accept4(fd, address, len, flags));
                process::given(accepted);
                if accepted >= 0 && new_may_be_ours() {
                    calls::listener::record_accepted_by_kernel(fd, accepted, flags);
                }
                return accepted;
            }
            Some(Outcome::Ours(accepted)) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                let stored = match accepted.peer {
                    Peer::Ours(peer, family) => memory::store_address((peer, family), address, len),
                    Peer::Kernel(name, name_len) => {
                        process::given(accepted.fd);
                        calls::listener::record_accepted_by_kernel(fd, accepted.fd, flags);
                        memory::store_bytes_of_address(&name[..name_len], address, len)
                    }
                };
                if let Err(error) = stored {
                    // As by the kernel, the connection is lost.
                    pass!(close(accepted.fd));
                    return fail(error) as c_int;
                }
                accepted.fd
            }
            Err(error) => fail(error) as c_int,
        }
    }

    fn shutdown(fd: c_int, how: c_int) -> c_int {
        match known(fd).map(|file| calls::shutdown(file, how)) {
            Some(Outcome::Ours(result)) => give_none(result),
            _ => pass!(real::shutdown(fd, how)),
        }
    }

    fn getsockname(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        match ours(fd).map(|file| calls::name(file, false)) {
            Some(Outcome::Ours(name)) => give_none(name.and_then(|name| memory::store_name(name, address, len))),
            _ => pass!(real::getsockname(fd, address, len)),
        }
    }

    fn getpeername(fd: c_int, address: *mut c_void, len: *mut u32) -> c_int {
        match ours(fd).map(|file| calls::name(file, true)) {
            Some(Outcome::Ours(name)) => give_none(name.and_then(|name| memory::store_name(name, address, len))),
            _ => pass!(real::getpeername(fd, address, len)),
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int {
        let Some(file) = known(fd) else {
            if is_refused_join(fd, level, name, (value, len)) {
                return fail(Errno::EACCES) as c_int;
            }
            let result = pass!(real::setsockopt(fd, level, name, value, len));
            if result == 0 && (level, name) == (libc::IPPROTO_IP, libc::IP_MULTICAST_IF) {
                note_of_the_kernels(fd, level, name, memory::begin_of(value, len as usize));
            }
            return result;
        };
        let Ok(bytes) = memory::value_of(value, len) else {
            // The kernel has the error, which may be another one, as of an unknown option. Of some
            // values it reads less than their length.
            let result = pass!(real::setsockopt(fd, level, name, value, len));
            if result == 0 {
                let _ = calls::setsockopt(file, level, name, memory::begin_of(value, len as usize));
            }
            return result;
        };
        if ours(fd).is_none() {
            if calls::groups::is_of_own_host(level, name, bytes) {
                // The kernel does not have the address that the option names.
                let _ = calls::setsockopt(file, level, name, bytes);
                return 0;
            }
            if is_refused_join(fd, level, name, (value, len)) {
                return fail(Errno::EACCES) as c_int;
            }
            let result = pass!(real::setsockopt(fd, level, name, value, len));
            if result == 0
                && let Outcome::Ours(Err(Errno::EADDRINUSE)) = calls::setsockopt(file, level, name, bytes)
            {
                // A group that another engine has.
                return fail(Errno::EADDRINUSE) as c_int;
            }
            return result;
        }
        match calls::setsockopt(file, level, name, bytes) {
            Outcome::Ours(result) => give_none(result),
            Outcome::Pass => pass!(real::setsockopt(fd, level, name, value, len)),
        }
    }

    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int {
        let Some(file) = ours(fd) else { return pass!(real::getsockopt(fd, level, name, value, len)) };
        // The kernel has the error, which may be that of an unknown option.
        let Ok(Some(room)) = memory::optional(len) else { return pass!(real::getsockopt(fd, level, name, value, len)) };
        let Ok(room) = usize::try_from(room as i32) else { return fail(Errno::EINVAL) as c_int };
        // The program may name more room than it has, and some options read what they answer about.
        let mut answer = [0; ANSWER_LEN];
        let mut longer = vec![0; if room > ANSWER_LEN { room.min(LONGEST_ANSWER) } else { 0 }];
        let into = if room > ANSWER_LEN { &mut longer[..] } else { &mut answer[..room] };
        let asked = memory::begin_of(value, into.len());
        into[..asked.len()].copy_from_slice(asked);
        match calls::getsockopt(file, level, name, into) {
            Outcome::Ours(Ok(written)) => {
                let stored = memory::bytes_mut(value, written).map(|value| value.copy_from_slice(&into[..written]));
                give_none(stored.and_then(|()| memory::store(len, written as u32)))
            }
            Outcome::Ours(Err(error)) => fail(error) as c_int,
            Outcome::Pass => pass!(real::getsockopt(fd, level, name, value, len)),
        }
    }
}

/// Whether a rule refuses a group that a datagram socket, which is not ours, is to join.
fn is_refused_join(fd: c_int, level: c_int, name: c_int, (value, len): (*const c_void, u32)) -> bool {
    if !calls::groups::is_of_groups(level, name) || !config::get().is_some_and(|config| config.may_refuse) {
        return false;
    }
    let Some(file) = table::find(fd).filter(|file| !file.is_set() && may_be_ours()) else { return false };
    memory::value_of(value, len).is_ok_and(|value| calls::groups::is_refused_of_twin(file, name, value))
}

/// A rule may refuse the groups that a socket of the kernel sends to by our interface.
fn note_of_the_kernels(fd: c_int, level: c_int, name: c_int, value: &[u8]) {
    if let Some(file) = table::find(fd).filter(|file| !file.is_set() && may_be_ours())
        && let Ok(socket) = engine::enter(file).files.socket(file)
    {
        calls::groups::note(socket, level, name, value);
    }
}
