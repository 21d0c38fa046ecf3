//! The loop makes no allocation and no system call: packets pass through a whole worker on the
//! memory device, from the wire to the app and back onto the wire, under an allocator that counts
//! and a filter that kills on a system call.
//!
//! Invariants of the unsafe code, which std offers in no safe form:
//! 1. The child of a fork has one thread and takes no lock that another thread may have held: it
//!    polls, makes only the system calls named here, and ends without a destructor.
//! 2. Pointers given to the kernel are of live locals of the right type.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)] // a panic here is the report

use wirepath::device::Device;
use wirepath::device::memory::MemoryDevice;
use wirepath::proto::Group;
use wirepath::time::{Clock, Duration, TscClock};
use wirepath_tests::frames::Frame;
use wirepath_tests::rig::{Rig, RigConfig, consumer};

/// Packets of a run; a debug build is some twenty times slower and must not take longer than a few
/// seconds.
const PACKETS: u64 = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
/// Packets before the counting begins.
const WARM_UP: u64 = 10_000;
const BURST: usize = 32;
const GROUP: std::net::Ipv4Addr = std::net::Ipv4Addr::new(239, 1, 2, 3);
const PORT: u16 = 1_000;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// A worker whose app keeps a few datagrams and answers all; and the frames sent to it, of which
/// one in sixteen comes in fragments, and one has no consumer.
struct Traffic {
    rig: Rig<<MemoryDevice as Device>::Queue>,
    frames: Vec<Vec<u8>>,
    next: usize,
}

impl Traffic {
    fn new() -> Self {
        let config = RigConfig { buffers: 256, slots: 128, held_max: 8, answers: true, ..RigConfig::default() };
        let mut rig = Rig::new(config, |wire| wire);
        rig.with_app(|_, cx| cx.sockets.join(consumer(0), Group::new(GROUP, PORT)).unwrap());
        let wanted = Frame::to(GROUP, PORT, &[7; 64]);
        let mut frames = vec![wanted.emit(); 13];
        frames.push(Frame::to(GROUP, PORT + 1, &[7; 64]).emit());
        frames.extend(Frame { identification: 1, ..wanted }.fragments(40));
        Self { rig, frames, next: 0 }
    }

    /// At least `packets` frames, in bursts; returns the frames that came back.
    fn run(&mut self, packets: u64) -> u64 {
        let (mut received, mut answers) = (0, 0);
        while received < packets {
            for _ in 0..BURST {
                assert!(self.rig.inject(&self.frames[self.next]), "the wire is drained in each turn");
                self.next = (self.next + 1) % self.frames.len();
            }
            received += self.rig.poll(Duration::from_micros(1)) as u64;
            answers += self.rig.take_sent(|_| ()) as u64;
        }
        answers
    }
}

#[test]
fn million_packets_allocate_nothing() {
    let mut traffic = Traffic::new();
    traffic.run(WARM_UP);
    let before = allocations::count();
    let answers = traffic.run(PACKETS);
    let allocations = allocations::count() - before;
    assert_eq!(allocations, 0, "in {PACKETS} packets");
    // 14 of 16 frames are datagrams or complete one.
    assert_eq!(answers, PACKETS.next_multiple_of(BURST as u64) / 16 * 14);
    traffic.rig.settle();
    traffic.rig.assert_settled(0);
}

#[test]
fn million_packets_make_no_system_call() {
    let mut traffic = Traffic::new();
    traffic.run(WARM_UP);
    let mut clock = TscClock::start();
    let ended = in_confined_child(|| {
        let answers = traffic.run(PACKETS);
        // The clock that the loop reads once a turn, on machines that have it.
        clock.as_mut().map(Clock::now);
        u8::from(answers < PACKETS / 2)
    });
    match ended {
        None => println!("SKIPPED million_packets_make_no_system_call: the kernel installs no seccomp filter here"),
        Some(status) => assert_eq!(status, Ended::Exit(0), "a system call in {PACKETS} packets"),
    }
    let control = in_confined_child(|| {
        // SAFETY: asks for a number.
        unsafe { libc::getppid() };
        0
    });
    assert!(matches!(control, None | Some(Ended::Signal(libc::SIGSYS))), "the filter lets a call through: {control:?}");
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Exit(i32),
    Signal(i32),
}

/// The child's answer where it cannot be confined.
const NO_FILTER: i32 = 77;

/// Runs `act` in a child process that every system call except the last one kills; `None` where the
/// kernel does not offer that. The result of `act` is the exit code.
fn in_confined_child(act: impl FnOnce() -> u8) -> Option<Ended> {
    // SAFETY: invariant 1.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process more");
    if child == 0 {
        let code = if confine() { i32::from(act()) } else { NO_FILTER };
        // SAFETY: ends the process; invariant 1.
        unsafe { libc::_exit(code) }
    }
    let mut status = 0;
    // SAFETY: invariant 2.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSIGNALED(status) {
        return Some(Ended::Signal(libc::WTERMSIG(status)));
    }
    Some(Ended::Exit(libc::WEXITSTATUS(status))).filter(|ended| *ended != Ended::Exit(NO_FILTER))
}

/// Forbids all system calls but `exit_group`. A filter and not seccomp's strict mode, which also
/// forbids to read the time stamp counter, and that is allowed to a worker.
fn confine() -> bool {
    const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const SKIP_UNLESS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jf| libc::sock_filter { code, jt: 0, jf, k };
    let mut filter = [
        step(LOAD_NUMBER, 0, 0),
        step(SKIP_UNLESS_EQUAL, libc::SYS_exit_group as u32, 1),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0),
        step(RETURN, libc::SECCOMP_RET_KILL_PROCESS, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: invariant 2; the kernel copies the program.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}
