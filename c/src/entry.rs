//! The exported functions: each checks its pointers, finds its stack, and turns the result into a
//! number. `wirepath.h` describes them.
//!
//! Invariants:
//! 1. Those of `foreign`, which the caller keeps. Pointers are used only through its functions.
//! 2. No panic unwinds out of a function: every call runs under [`catch_unwind`].
//! 3. The names are those of the header, `wp_` in front, and no other library of the process has
//!    them.

use core::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::sockaddr_in;
use wirepath::pipeline::UdpOptions;
use wirepath::pipeline::tcp::{ConnectionOptions, ListenOptions};

use crate::abi::{self, Event, Handle, StackOptions, Stat, TcpInfo, TcpOptions};
use crate::error::{self, Code, Fault, Result};
use crate::foreign;
use crate::registry;
use crate::returned;
use crate::stack::{ANY, Settings, Stack, check_flags, tcp_options, udp_options};

/// Runs a call. An error becomes its code, and is stored for `wp_last_error`.
fn run<T: From<i32>>(act: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(result)) => result,
        Ok(Err(fault)) => T::from(error::note(fault)),
        Err(panic) => T::from(error::note(broken(&*panic))),
    }
}

#[cold]
fn broken(panic: &(dyn core::any::Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Fault::because(
        Code::Broken,
        format!("the stack failed by a fault of its own, close it: {}", text.unwrap_or("no message")),
    )
}

/// Runs a call of a stack. An error becomes its code where it occurs, so that the result of the
/// call stays in a register.
#[inline(always)]
fn on<T: From<i32>>(stack: Handle, act: impl FnOnce(&mut Stack) -> Result<T>) -> T {
    let act = |stack: &mut Stack| act(stack).unwrap_or_else(|fault| T::from(error::note(fault)));
    match catch_unwind(AssertUnwindSafe(|| registry::with(stack, act))) {
        Ok(Ok(result)) => result,
        Ok(Err(code)) => T::from(error::note(code.into())),
        Err(panic) => {
            registry::refuse_calls(stack);
            T::from(error::note(broken(&*panic)))
        }
    }
}

/// Runs a call of a stack that returns nothing.
#[inline(always)]
fn done(stack: Handle, act: impl FnOnce(&mut Stack) -> Result<()>) -> c_int {
    on(stack, |stack| act(stack).map(|()| 0))
}

/// Runs a call that makes an object, and writes its handle to `place`.
fn make(stack: Handle, place: *mut Handle, act: impl FnOnce(&mut Stack) -> Result<Handle>) -> c_int {
    done(stack, |stack| {
        foreign::check_place(place)?;
        foreign::write(place, act(stack)?)
    })
}

fn connection_options(options: *const TcpOptions, base: ConnectionOptions) -> Result<Option<ConnectionOptions>> {
    foreign::options(options)?.map(|options| tcp_options(&options, base)).transpose()
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_strerror(code: c_int) -> *const c_char {
    error::sentence(code).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_last_error() -> *const c_char {
    error::with_last(|sentence| sentence.as_ptr())
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_closed_reason(reason: c_int) -> *const c_char {
    crate::collector::reason(reason).as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_open(port: *const c_char, options: *const StackOptions, stack: *mut Handle) -> c_int {
    run(|| {
        foreign::check_place(stack)?;
        let port = foreign::required(port, "the name of the port")?;
        let options = foreign::options(options)?;
        let settings = match &options {
            None => Settings::default(),
            Some(options) => {
                check_flags(options.flags, abi::WP_LOG | abi::WP_ACCEPT_CHECKSUMS | abi::WP_TIMESTAMPS)?;
                let owned = |text, what| Ok::<_, Fault>(foreign::text(text, what)?.map(str::to_owned));
                Settings {
                    flags: options.flags,
                    name: owned(options.name, "wp_options.name")?,
                    address: owned(options.address, "wp_options.address")?,
                    gateway: owned(options.gateway, "wp_options.gateway")?,
                    connections: options.connections,
                    held: options.held,
                }
            }
        };
        wirepath::port::note_descriptors();
        let opened = registry::add(Box::new(Stack::open(port, &settings)?))?;
        foreign::write(stack, opened).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_close(stack: Handle) -> c_int {
    run(|| {
        drop(registry::remove(stack)?);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_poll(stack: Handle, events: *mut Event, max: c_int) -> c_int {
    on(stack, |stack| {
        let room = usize::try_from(max).map_err(|_| Fault::because(Code::Argument, "fewer than no events"))?;
        stack.poll(events, room)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_flush(stack: Handle) -> c_int {
    done(stack, |stack| {
        stack.flush();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_now(stack: Handle) -> i64 {
    on(stack, |stack| Ok(stack.now()))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_wait_fd(stack: Handle) -> c_int {
    on(stack, |stack| stack.wait_fd())
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_time_to_next(stack: Handle) -> i64 {
    on(stack, |stack| Ok(stack.time_to_next()))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_wait(stack: Handle, timeout_ns: i64) -> c_int {
    done(stack, |stack| {
        stack.wait(timeout_ns);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_hold(stack: Handle, event: *const Event, buffer: *mut Handle) -> c_int {
    make(stack, buffer, |stack| stack.hold(foreign::chunk(event)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_release(stack: Handle, buffer: Handle) -> c_int {
    if registry::is_elsewhere(stack) {
        return run(|| returned::hand_over(stack, buffer).map(|()| 0));
    }
    done(stack, |stack| stack.release(buffer))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_bind(stack: Handle, local: *const sockaddr_in, tag: u32, sub: *mut Handle) -> c_int {
    make(stack, sub, |stack| stack.bind(foreign::required_address(local)?, tag))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_join(
    stack: Handle,
    group: *const sockaddr_in,
    sources: *const sockaddr_in,
    count: usize,
    tag: u32,
    sub: *mut Handle,
) -> c_int {
    make(stack, sub, |stack| stack.join(foreign::required_address(group)?, foreign::addresses(sources, count)?, tag))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_listen(
    stack: Handle,
    local: *const sockaddr_in,
    options: *const TcpOptions,
    tag: u32,
    sub: *mut Handle,
) -> c_int {
    make(stack, sub, |stack| {
        let options = connection_options(options, ListenOptions::default().connection)?;
        stack.listen(foreign::required_address(local)?, options, tag)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_unsubscribe(stack: Handle, sub: Handle) -> c_int {
    done(stack, |stack| stack.unsubscribe(sub))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_connect(
    stack: Handle,
    local: *const sockaddr_in,
    remote: *const sockaddr_in,
    options: *const abi::UdpOptions,
    flow: *mut Handle,
) -> c_int {
    make(stack, flow, |stack| {
        let options = foreign::options(options)?.map(|options| udp_options(&options)).transpose()?;
        let local = foreign::address(local)?.unwrap_or(ANY);
        stack.flow(local, foreign::required_address(remote)?, &options.unwrap_or(UdpOptions::default()))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_close(stack: Handle, flow: Handle) -> c_int {
    done(stack, |stack| stack.close_flow(flow))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_send(stack: Handle, flow: Handle, data: *const c_void, len: usize, flags: u32) -> c_int {
    on(stack, |stack| {
        check_flags(flags, abi::WP_MORE)?;
        stack.udp_send(flow, foreign::bytes(data.cast(), len)?, flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_udp_send_to(
    stack: Handle,
    local: *const sockaddr_in,
    remote: *const sockaddr_in,
    data: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    on(stack, |stack| {
        check_flags(flags, abi::WP_MORE)?;
        let (local, remote) = (foreign::required_address(local)?, foreign::required_address(remote)?);
        stack.udp_send_to(local, remote, foreign::bytes(data.cast(), len)?, flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_connect(
    stack: Handle,
    local: *const sockaddr_in,
    remote: *const sockaddr_in,
    options: *const TcpOptions,
    tag: u32,
    conn: *mut Handle,
) -> c_int {
    make(stack, conn, |stack| {
        let options = connection_options(options, ConnectionOptions::default())?;
        let local = foreign::address(local)?.unwrap_or(ANY);
        stack.connect(local, foreign::required_address(remote)?, options, tag)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_send(stack: Handle, conn: Handle, data: *const c_void, len: usize, flags: u32) -> i64 {
    on(stack, |stack| {
        check_flags(flags, abi::WP_MORE)?;
        stack.tcp_send(conn, foreign::bytes(data.cast(), len)?, flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_get_info(stack: Handle, conn: Handle, info: *mut TcpInfo) -> c_int {
    done(stack, |stack| foreign::write_sized(info, || stack.tcp_info(conn)))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_shutdown(stack: Handle, conn: Handle) -> c_int {
    done(stack, |stack| stack.shutdown(conn))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_close(stack: Handle, conn: Handle) -> c_int {
    done(stack, |stack| stack.close(conn))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_abort(stack: Handle, conn: Handle) -> c_int {
    done(stack, |stack| stack.abort(conn))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_pause(stack: Handle, conn: Handle) -> c_int {
    done(stack, |stack| stack.pause(conn))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_tcp_resume(stack: Handle, conn: Handle) -> c_int {
    done(stack, |stack| stack.resume(conn))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_order_prepare(
    stack: Handle,
    conn: Handle,
    data: *const c_void,
    len: usize,
    order: *mut Handle,
) -> c_int {
    make(stack, order, |stack| stack.prepare(conn, foreign::bytes(data.cast(), len)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_order_patch(
    stack: Handle,
    order: Handle,
    offset: usize,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(stack, |stack| stack.patch(order, offset, foreign::bytes(data.cast(), len)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_order_fire(stack: Handle, order: Handle, flags: u32) -> c_int {
    on(stack, |stack| {
        check_flags(flags, abi::WP_MORE | abi::WP_NOW_OR_NEVER)?;
        stack.fire(order, flags)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_order_warm(stack: Handle, order: Handle) -> c_int {
    on(stack, |stack| stack.warm(order))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_order_free(stack: Handle, order: Handle) -> c_int {
    done(stack, |stack| stack.free_order(order))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_after(stack: Handle, delay_ns: u64, token: u64, timer: *mut Handle) -> c_int {
    make(stack, timer, |stack| stack.after(delay_ns, token))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_cancel(stack: Handle, timer: Handle) -> c_int {
    done(stack, |stack| stack.cancel(timer))
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_counter(stack: Handle, name: *const c_char, value: *mut u64) -> c_int {
    done(stack, |stack| {
        foreign::check_place(value)?;
        foreign::write(value, stack.counter(foreign::required(name, "the name of the counter")?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_stats(stack: Handle, stats: *mut Stat, max: c_int) -> c_int {
    on(stack, |stack| {
        let room = usize::try_from(max).map_err(|_| Fault::because(Code::Argument, "fewer than no counters"))?;
        foreign::fill(stats, room, || stack.stats())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn wp_stamp(stack: Handle, token: u64) -> c_int {
    done(stack, |stack| stack.stamp(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stack over one end of a wire.
    fn stack(wire: &std::ffi::CStr) -> Handle {
        let mut stack = Handle::default();
        assert_eq!(wp_open(wire.as_ptr(), core::ptr::null(), &raw mut stack), 0);
        stack
    }

    fn last() -> String {
        error::with_last(|sentence| sentence.to_str().unwrap().to_owned())
    }

    #[test]
    fn panic_becomes_a_code_and_the_stack_is_only_good_to_be_closed() {
        let (broken, fine) = (stack(c"memory:panics"), stack(c"memory:panics"));
        assert_eq!(on::<c_int>(broken, |_| panic!("a bug of ours")), Code::Broken as c_int);
        assert_eq!(last(), "the stack failed by a fault of its own, close it: a bug of ours");
        assert_eq!(wp_poll(broken, core::ptr::null_mut(), 0), Code::Broken as c_int);
        assert_eq!(wp_poll(fine, core::ptr::null_mut(), 0), 0, "others go on");
        assert_eq!([wp_close(broken), wp_close(fine)], [0, 0]);
        assert_eq!(wp_poll(broken, core::ptr::null_mut(), 0), Code::Stale as c_int);
    }

    #[test]
    fn handle_of_a_closed_stack_is_not_that_of_the_next_in_its_place() {
        let first = stack(c"memory:places");
        assert_eq!(wp_close(first), 0);
        let second = stack(c"memory:places");
        assert_ne!(first, second);
        assert_eq!(wp_now(first), i64::from(Code::Stale as c_int));
        assert!(wp_now(second) >= 0);
        assert_eq!(wp_close(second), 0);
    }
}
