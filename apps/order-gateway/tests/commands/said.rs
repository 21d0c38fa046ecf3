//! Whoever reads what a gateway says may stand still, or have gone: orders and the kill switch do
//! not wait for them.

use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Instant;

use order_entry::journal::Entry;
use order_entry::risk::KillCause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{PATIENCE, Running, command, limits};

/// A gateway that says what it says to these, and that has made its socket.
fn start(stderr: Stdio, stdout: Stdio) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let child = command(&directory, &limits(1, "ZIEXT", "")).stderr(stderr).stdout(stdout).spawn().unwrap();
    let running = Running { child, said: channel().1, directory };
    let deadline = Instant::now() + PATIENCE;
    while !running.path("socket").exists() && Instant::now() < deadline {
        thread::yield_now();
    }
    running
}

/// Nobody reads the pipe, and it is full.
fn fill(mut pipe: PipeWriter) {
    let probe = pipe.try_clone().unwrap();
    thread::spawn(move || while pipe.write_all(&[b'.'; 4_096]).is_ok() {});
    let has_room = || {
        let mut fds = [PollFd::new(&probe, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    };
    while has_room() {
        thread::yield_now();
    }
}

fn stalled() -> (PipeReader, PipeWriter) {
    pipe().unwrap()
}

/// One whose reader has ended.
fn broken() -> PipeWriter {
    pipe().unwrap().1
}

pub(crate) fn was_killed(gateway: &Running, by: KillCause) -> bool {
    gateway.has_soon(|entry| *entry == Entry::Killed(by))
}

/// Its exit code, where it ends.
pub(crate) fn end(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        thread::yield_now();
    }
    None
}

#[test]
fn kill_is_obeyed_while_nobody_reads_standard_error() {
    let (_reader, writer) = stalled();
    let gateway = start(writer.try_clone().unwrap().into(), Stdio::null());
    fill(writer);
    std::fs::write(gateway.path("limits"), "nonsense").unwrap();
    gateway.signal("HUP");
    std::fs::write(gateway.path("KILL"), "").unwrap();
    assert!(was_killed(&gateway, KillCause::File));
    gateway.becomes("killed by the kill file");
}

#[test]
fn kill_is_obeyed_behind_a_reader_of_standard_error_that_has_ended_and_the_status_counts_what_is_lost() {
    let gateway = start(broken().into(), Stdio::null());
    std::fs::write(gateway.path("limits"), "nonsense").unwrap();
    gateway.signal("HUP");
    gateway.becomes("disarmed");
    gateway.signal("USR1");
    assert!(was_killed(&gateway, KillCause::Signal));
    gateway.becomes("killed by a signal");
    assert!(gateway.tell("status").1.contains("sentences for people were lost"));
}

#[test]
fn gateway_ends_whoever_reads_its_counts() {
    let (_reader, writer) = stalled();
    let full = writer.try_clone().unwrap();
    fill(writer);
    for stdout in [full, broken()] {
        let mut gateway = start(Stdio::null(), stdout.into());
        gateway.becomes("disarmed");
        gateway.signal("INT");
        assert_eq!(end(&mut gateway.child), Some(0));
    }
}
