//! The table of targets: measures every figure that the project promises beside its competitors,
//! prints it with a verdict and writes it to `target/bench/report.json`. `QUICK=1` takes fewer
//! samples; `RECORD=1` appends the figures to `docs/figures/history.jsonl` and regenerates
//! `docs/figures.md`.
//!
//! The method: one core, pinned; contenders take turns (A B A B …); medians with the lowest and
//! highest sample; ratios turn by turn. Instructions come from callgrind, because other load on the
//! machine does not change them. This binary's global allocator counts allocations, strace counts
//! the system calls of the binary `packets`. A figure on two cores is dropped and measured again if
//! the distance of the cores has changed meanwhile.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, time};

use serde_json::json;
use wirepath::mem::{Burst, Pool};
use wirepath_benches::figures::{self, Figure, History, Machine, Run, Section, record};
use wirepath_benches::forwarder::Forwarder;
use wirepath_benches::frames::UdpChecksum;
use wirepath_benches::live::Live;
use wirepath_benches::measure::cores;
use wirepath_benches::measure::outside::Subject;
use wirepath_benches::measure::sampling::{Spread, interleave};
use wirepath_benches::measure::table::{DemuxMatch, Line, TargetOutcome, heading};
use wirepath_benches::receiver::{ROUND, Receiver, Reception};
use wirepath_benches::smoltcp_peer::{Reading, SmoltcpPeer};
use wirepath_benches::{connectx, decoding, handoff, is_quick, rdma, sockets, tcp, trading};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// The binary that valgrind and strace run.
const PACKETS: &str = env!("CARGO_BIN_EXE_packets");
/// The same on software NICs.
const CONNECTX: &str = env!("CARGO_BIN_EXE_connectx");
/// The binary that runs under the preload library.
const CALLER: &str = env!("CARGO_BIN_EXE_caller");
/// The trader of the libraries' example.
const TRADER: &str = env!("CARGO_BIN_EXE_trader");

/// The parts that may be measured alone: `cargo bench -p wirepath-benches --bench report -- tcp`.
const PARTS: [(&str, &str); 14] = [
    ("memory", "frames in memory"),
    ("tcp", "TCP in memory"),
    ("sockets", "calls of sockets in memory"),
    ("trading", "a feed's books, orders, FIX, the journal, matching and NATS, in memory and over loopback"),
    ("rdma", "RDMA in memory, and live-rdma"),
    ("connectx", "mlx5, alone and on software ConnectXs"),
    ("counts", "of these six what is counted, which is the same on a busy machine"),
    ("live", "AF_XDP on a veth pair, and live-tcp"),
    ("live-tcp", "TCP to a kernel over a veth pair"),
    ("live-orders", "of that orders behind a burst"),
    ("live-trade", "of that a tick and its order, as the venue sees them"),
    ("live-rdma", "RDMA over a veth pair, beside TCP"),
    ("live-sockets", "unmodified programs on wirepath, and on the kernel, over a veth pair"),
    ("live-echo", "TCP over a wire that loses much, ten minutes; only where it is asked for"),
];

fn main() -> ExitCode {
    // Cargo adds options of its own.
    let asked = env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let found = asked.as_ref().map(|asked| PARTS.iter().find(|(part, _)| part == asked));
    if let Some(None) = found {
        eprintln!("bench: the report has no part of that name; it has:");
        PARTS.iter().for_each(|(part, what)| eprintln!("  {part:<12} {what}"));
        return ExitCode::from(2);
    }
    let run = match record::is_wanted().then(begin).transpose() {
        Ok(run) => run,
        Err(why) => {
            eprintln!("bench: {why}");
            return ExitCode::FAILURE;
        }
    };
    let part = found.flatten().map(|(part, _)| *part);
    let samples = match part {
        Some("counts") => 0,
        _ if is_quick() => 101,
        _ => 801,
    };
    let mut report = Report::new(samples);
    println!("wirepath on {}, {samples} samples a line, interleaved\n\n{}", machine(), heading());
    if let Err(error) = cores::place_helpers() {
        eprintln!("bench: helpers share the core that is measured: {error}");
    }
    if let Some([_, second]) = report.cores {
        // The first core takes most of a machine's interrupts.
        cores::pin(second);
    }
    let distances = report.measure(part);
    report.finish(&distances, run)
}

/// A run that can be recorded when it has ended.
fn begin() -> Result<Run, String> {
    History::read(&figures::history_path(&figures::docs()))?;
    record::begin()
}

struct Report {
    samples: usize,
    /// Both for hand-offs; the second one for everything else.
    cores: Option<[usize; 2]>,
    lines: Vec<Line>,
    /// The same for the history, without skipped lines.
    figures: Vec<Figure>,
    /// The section of the next line, and the line that it belongs to if it is part of one.
    section: Section,
    head: String,
    start: time::Instant,
}

impl Report {
    fn new(samples: usize) -> Self {
        let (lines, figures, head) = Default::default();
        let (section, start) = (Section::Memory, time::Instant::now());
        Self { samples, cores: cores::two(), lines, figures, section, head, start }
    }

    /// Measures one part, or all that do not need to be requested. Returns the result of
    /// [`Self::two_cores`].
    fn measure(&mut self, part: Option<&str>) -> Vec<[f64; 2]> {
        let is_wanted = |names: &[&str]| part.is_none_or(|part| names.contains(&part));
        if is_wanted(&["memory", "counts"]) {
            self.in_memory();
        }
        if is_wanted(&["tcp", "counts"]) {
            self.section = Section::Tcp;
            tcp::lines::lines(self.samples / 8, instructions, |line| self.add(line));
        }
        if is_wanted(&["sockets", "counts"]) {
            self.section = Section::Sockets;
            sockets::lines(self.samples / 8, instructions, |line| self.add(line));
        }
        if is_wanted(&["trading", "counts"]) {
            self.section = Section::Trading;
            trading::lines(self.samples / 4, instructions, |line| self.add(line));
        }
        if is_wanted(&["rdma", "counts"]) {
            self.section = Section::Rdma;
            rdma::lines(self.samples / 4, &Subject::new(PACKETS), |line| self.add(line));
        }
        if is_wanted(&["rdma", "live-rdma"]) {
            self.live(Section::Rdma, |live| live.rdma());
        }
        if is_wanted(&["connectx", "counts"]) {
            self.connectx();
        }
        if is_wanted(&["live"]) {
            self.live(Section::Live, |live| live.frames());
        }
        if is_wanted(&["live", "live-tcp"]) {
            self.live(Section::LiveTcp, |live| live.tcp());
        }
        if is_wanted(&["live-sockets"]) {
            self.live(Section::LiveSockets, |live| live.programs());
        }
        match part {
            Some("live-orders") => self.live(Section::LiveTcp, |live| live.orders()),
            Some("live-trade") => self.live(Section::LiveTcp, |live| live.trades()),
            Some("live-echo") => self.live(Section::LiveEcho, |live| live.echoes()),
            _ => (),
        }
        if is_wanted(&["memory"]) { self.two_cores() } else { Vec::new() }
    }

    fn add(&mut self, line: Line) {
        println!("{line}");
        if !line.is_part() {
            line.what().clone_into(&mut self.head);
        }
        self.figures.extend(line.figure(self.section, &self.head));
        self.lines.push(line);
    }

    /// The figures of one core, in memory.
    fn in_memory(&mut self) {
        self.section = Section::Memory;
        self.receiving();
        self.peers();
        self.forwarding();
        self.mbufs();
        self.decoders();
        self.what_a_packet_must_not_cost();
    }

    /// The receive path, and the effect of its conditions.
    fn receiving(&mut self) {
        const ROUNDS: usize = 32;
        let usual = Reception::default();
        let mut one = Receiver::new(usual);
        let mut verified = Receiver::new(Reception { checksum: UdpChecksum::Right, ..usual });
        let mut thousand = Receiver::new(Reception { groups: 1000, ..usual });
        let mut single = Receiver::new(Reception { burst_len: 1, ..usual });
        let [one, verified, thousand, single] = interleave(
            self.samples,
            [&mut || one.time(ROUNDS), &mut || verified.time(ROUNDS), &mut || thousand.time(ROUNDS), &mut || {
                single.time(ROUNDS)
            }],
        );
        self.add(
            Line::new("UDP multicast, memory device to app, 64 B, burst 32", "ns", one.spread())
                .at_most(18.0)
                .hoping(13.0)
                .over_floor(9.0),
        );
        self.add(Line::new("  instructions", "instr", instructions("udp")).at_most(220.0).over_floor(132.0));
        self.add(Line::new("  with the UDP checksum verified", "ns", verified.spread()));
        self.add(Line::new("  with the UDP checksum verified, instructions", "instr", instructions("udp-verified")));
        self.add(Line::new("  with 1000 groups", "ns", thousand.spread()));
        self.add(Line::new("  1000 groups over 1 group", "x", thousand.over(&one)).at_most(1.3));
        self.add(Line::new("  burst 1", "ns", single.spread()));
        self.add(Line::new("  burst 1 over burst 32", "x", single.over(&one)).at_most(2.0));
        self.add(Line::new("  burst 1, instructions", "instr", instructions("udp-burst-1")));
        self.add(Line::new("  a turn that receives nothing, instructions", "instr", instructions("idle")));
    }

    /// smoltcp on the same wire, with as many sockets as we have groups.
    fn peers(&mut self) {
        let mut ours_1 = Receiver::new(Reception::default());
        let mut ours_1000 = Receiver::new(Reception { groups: 1000, ..Reception::default() });
        let mut theirs_1 = SmoltcpPeer::new(1, Reading::AskEach);
        let mut theirs_1000 = SmoltcpPeer::new(1000, Reading::AskEach);
        let mut known_1 = SmoltcpPeer::new(1, Reading::KnownSocket);
        let mut known_1000 = SmoltcpPeer::new(1000, Reading::KnownSocket);
        let [ours_1, theirs_1, known_1, ours_1000, theirs_1000, known_1000] = interleave(
            self.samples,
            [
                &mut || ours_1.time(32),
                &mut || theirs_1.time(16),
                &mut || known_1.time(16),
                &mut || ours_1000.time(32),
                &mut || theirs_1000.time(4),
                &mut || known_1000.time(4),
            ],
        );
        self.add(Line::new("smoltcp 0.14 on the same wire, 1 socket", "ns", theirs_1.spread()));
        self.add(Line::new("  if it knew which socket to read", "ns", known_1.spread()));
        self.add(Line::new("  wirepath in the same run, 1 group", "ns", ours_1.spread()));
        self.add(Line::new("  smoltcp over wirepath", "x", theirs_1.over(&ours_1)).at_least(2.0));
        self.add(Line::new("smoltcp 0.14 on the same wire, 1000 sockets", "ns", theirs_1000.spread()));
        self.add(Line::new("  if it knew which socket to read", "ns", known_1000.spread()));
        self.add(Line::new("  wirepath in the same run, 1000 groups", "ns", ours_1000.spread()));
        self.add(Line::new("  smoltcp over wirepath", "x", theirs_1000.over(&ours_1000)).at_least(40.0));
    }

    fn forwarding(&mut self) {
        let mut forwarder = Forwarder::new();
        let [packets] = interleave(self.samples, [&mut || forwarder.time(32)]);
        let what = "4 nodes with work, memory device to memory device, one core";
        self.add(Line::new(what, "Mpps", packets.rate()).at_least(42.0).hoping(50.0).over_floor(54.0));
        self.add(Line::new("  instructions", "instr", instructions("forward")));
    }

    fn mbufs(&mut self) {
        let pool = Pool::heap(256).expect("256 buffers are 480 KB");
        let [pairs] = interleave(self.samples, [&mut || alloc_and_free(&pool)]);
        self.add(Line::new("mbuf alloc and free, bursts of 32", "ns", pairs.spread()).at_most(3.0));
    }

    fn decoders(&mut self) {
        let (mut itch, mut tops) = (decoding::itch(), decoding::tops());
        let [itch, tops] = interleave(self.samples, [&mut || itch.time(2), &mut || tops.time(2)]);
        let (itch, tops) = (itch.rate(), tops.rate());
        self.add(Line::new("ITCH 5.0 in MoldUDP64 to events, a day's mix", "M/s", itch).at_least(50.0).hoping(100.0));
        self.add(Line::new("TOPS 1.6 in IEX-TP to events, a day's mix", "M/s", tops).at_least(50.0).hoping(100.0));
    }

    fn what_a_packet_must_not_cost(&mut self) {
        let mut receiver = Receiver::new(Reception { groups: 1000, ..Reception::default() });
        let before = allocations::count();
        for _ in 0..1_000_000_usize.div_ceil(ROUND) {
            receiver.feed();
            receiver.drain();
        }
        let allocated = Ok(Spread::exactly((allocations::count() - before) as f64));
        let calls = Subject::new(PACKETS).system_calls("udp").map(Spread::exactly);
        self.add(
            Line::new("allocations in a million packets, by a counting allocator", "count", allocated).at_most(0.0),
        );
        self.add(Line::new("system calls a packet, by strace of a million packets", "count", calls).at_most(0.0));
    }

    /// The mlx5 device against libmlx5, on software NICs.
    fn connectx(&mut self) {
        self.section = Section::Mlx5;
        let (samples, directory) = (self.samples, &target_directory().join("bench"));
        let add = &mut |line| self.add(line);
        connectx::Lines { add, connectx: CONNECTX, packets: PACKETS, directory, samples }.measure();
    }

    /// AF_XDP against DPDK and the kernel's sockets.
    fn live(&mut self, section: Section, measure: fn(&mut Live<'_>)) {
        self.section = section;
        let cores = self.cores;
        measure(&mut Live { add: &mut |line| self.add(line), cores, packets: PACKETS, caller: CALLER, trader: TRADER });
    }

    /// The hand-off, between two measurements of the cores' distance. Returns those, in ns one way.
    fn two_cores(&mut self) -> Vec<[f64; 2]> {
        const TRIES: usize = 5;
        self.section = Section::Memory;
        let mut looks = Vec::new();
        let mut found = Err("this process may use one core only".to_owned());
        for _ in 0..TRIES {
            let Some(pair) = self.cores else { break };
            let before = cores::line_ns(pair);
            let runs = handoff::time_runs(pair, self.samples as u32);
            let after = cores::line_ns(pair);
            looks.push([before, after]);
            if before.max(after) <= 1.25 * before.min(after) {
                found = Ok(Spread::of(runs));
                break;
            }
            println!("   run dropped: from core to core {before:.0} ns before, {after:.0} ns after");
            found = Err(format!("the distance of the cores changed in each of {TRIES} runs"));
        }
        let what = "SPSC hand-off of 8 bytes across cores, burst 32";
        match (&found, looks.last()) {
            (Ok(_), Some(&[before, after])) if before > NEIGHBORS_NS => {
                println!("   from core to core {before:.0} ns before, {after:.0} ns after");
                self.add(Line::new(&format!("{what}, far apart"), "ns", found));
                found = Err(format!("the cores are {before:.0} ns apart, which is not one cache; run it again later"));
            }
            (Ok(_), Some(&[before, after])) => {
                println!("   from core to core {before:.0} ns before, {after:.0} ns after");
            }
            _ => (),
        }
        self.add(Line::new(what, "ns", found).at_most(2.0).hoping(1.5).over_floor(1.4));
        looks
    }

    fn finish(self, looks: &[[f64; 2]], run: Option<Run>) -> ExitCode {
        let seconds = self.start.elapsed().as_secs_f64();
        let path = target_directory().join("bench/report.json");
        let lines: Vec<_> = self.lines.iter().map(Line::to_json).collect();
        let report = json!({
            "machine": machine(),
            "samples": self.samples,
            "seconds": seconds,
            "core_to_core_ns_before_and_after": looks,
            "lines": lines,
        });
        let written =
            fs::create_dir_all(path.with_file_name("")).and_then(|()| fs::write(&path, format!("{report:#}\n")));
        let count = |verdict| self.lines.iter().filter(|line| line.verdict() == verdict).count();
        let (missed, skipped) = (count(TargetOutcome::Missed), count(TargetOutcome::Skipped));
        println!("\n{} lines, {missed} missed, {skipped} skipped, {seconds:.0} s", self.lines.len());
        match written {
            Ok(()) => println!("written to {}", path.display()),
            Err(error) => eprintln!("bench: {} was not written: {error}; make the directory writable", path.display()),
        }
        self.record(run)
    }

    /// Appends the run to the history, where that is requested.
    fn record(self, run: Option<Run>) -> ExitCode {
        let Some(run) = run else {
            println!(
                "not recorded: `make bench`, or `make bench PART=name`, without QUICK, appends to docs/figures/history.jsonl"
            );
            return ExitCode::SUCCESS;
        };
        if self.figures.is_empty() {
            println!("not recorded: nothing was measured");
            return ExitCode::SUCCESS;
        }
        match figures::append(&figures::docs(), &Run { figures: self.figures, ..run }) {
            Ok(()) => {
                println!("recorded in docs/figures/history.jsonl, docs/figures.md made again; commit both");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("bench: {why}");
                ExitCode::FAILURE
            }
        }
    }
}

/// The promise about hand-offs is for two cores that share a cache, as on the machine on which the
/// competitor was measured: there a cache line takes 20 to 65 ns from one core to the other. A
/// virtual machine may get cores of two dies for minutes: 190 ns and more.
const NEIGHBORS_NS: f64 = 100.0;

/// Nanoseconds for allocating an mbuf and freeing it, 32 at a time, as a burst does.
fn alloc_and_free(pool: &Pool) -> f64 {
    const BURSTS: usize = 2_000;
    let start = time::Instant::now();
    for _ in 0..BURSTS {
        let mut burst = Burst::new();
        for _ in 0..32 {
            burst.extend(pool.alloc());
        }
        for mbuf in std::hint::black_box(burst) {
            mbuf.free();
        }
    }
    start.elapsed().as_nanos() as f64 / (BURSTS * 32) as f64
}

fn instructions(path: &str) -> DemuxMatch {
    Subject::new(PACKETS).instructions(path).map(Spread::exactly)
}

/// The machine in a line.
fn machine() -> String {
    let Machine { cpu, cores, kernel } = record::machine();
    format!("{cores} x {cpu}, Linux {kernel}")
}

/// Cargo's build directory: this binary is in `<target>/<profile>/deps`.
fn target_directory() -> PathBuf {
    let binary = env::current_exe().unwrap_or_default();
    binary.ancestors().nth(3).unwrap_or(Path::new("target")).to_owned()
}
