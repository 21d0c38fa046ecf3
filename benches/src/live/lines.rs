//! The lines of the table.

use core::time::Duration;

use super::echo::{self, Stack, Task, echo};
use super::goodput::{SendCounts, Sender, goodput};
use super::multicast::{self, PollMode, Reception};
use super::order::{self, Order, Verb};
use super::rdma::{self, Request};
use super::reflector::Lockstep;
use super::round_trip::{self, Kind, Times};
use super::tcp_round_trip::{Server, exchange};
use super::trading::{self, TickTimes, Trader, tick_to_trade};
use super::{forwarding, testpmd};
use crate::is_quick;
use crate::measure::outside::Subject;
use crate::measure::sampling::{Samples, Spread};
use crate::measure::table::{DemuxMatch, Line};

/// Measures, and passes on each line as soon as it is complete.
pub struct Live<'a> {
    /// Receives the lines.
    pub add: &'a mut dyn FnMut(Line),
    /// The cores to run on.
    pub cores: Option<[usize; 2]>,
    /// The binary that strace runs.
    pub packets: &'a str,
    /// The binary that runs on the kernel's sockets and on ours.
    pub caller: &'a str,
    /// The trader on wirepath.
    pub trader: &'a str,
}

/// Pairs of runs.
const PAIRS: usize = 9;

impl Live<'_> {
    /// All lines but those of TCP. Without root, or with one core only, they are skipped, with the
    /// reason.
    pub fn frames(&mut self) {
        self.forwarding();
        self.share();
        self.multicast();
        self.round_trips();
        self.what_a_frame_must_not_cost();
    }

    /// The lines of TCP.
    pub fn tcp(&mut self) {
        self.exchanges();
        self.orders();
        self.trades();
        self.goodputs();
    }

    /// Of those, the delay of an order behind a burst.
    pub fn orders(&mut self) {
        let count = if is_quick() { 300 } else { 2_000 };
        let found = self.cores().and_then(|_| {
            take_turns(|| order::behind_a_burst(Verb::Fire, count), || order::behind_a_burst(Verb::Post, count))
        });
        let (fired, posted, ratio) = apart(&found, |order: &Order| order.tick_to_wire);
        self.add(Line::new(
            "order on the first of 32 datagrams of 2 us work each, fired: tick to wire, p50",
            "ns",
            fired,
        ));
        self.add(Line::new("  posted, and rung for at the turn's end, in the same run", "ns", posted));
        self.add(Line::new("  fired over posted", "x", ratio).at_most(0.25).hoping(0.1));
        let (fired, posted, _) = apart(&found, |order: &Order| order.call);
        self.add(Line::new("  within the call of fire, its system call included, p50", "ns", fired));
        self.add(Line::new("  within the call of post, p50", "ns", posted));
    }

    /// A tick and its order as the venue sees them, of our trader and of one over kernel sockets.
    pub fn trades(&mut self) {
        let (rounds, count) = if is_quick() { (2, 300) } else { (5, 1_000) };
        let found = self.cores().and_then(|cores| {
            let incumbent = trading::incumbent(&std::env::temp_dir().join("wirepath-bench"))?;
            let run = |trader| tick_to_trade(cores, trader, count);
            let both = || Ok([run(Trader::Ours(self.trader))?, run(Trader::Bare(self.trader))?]);
            turns(rounds, both, || run(Trader::Incumbent(&incumbent)).map(|times| [times; 2]))
        });
        let (ours, theirs, ratio) = apart(&found, |[times, _]: &[TickTimes; 2]| times.order.p50);
        self.add(Line::new("a tick to its order over veth, seen by a venue on kernel sockets, p50", "ns", ours));
        self.add(Line::new("  a C program over kernel sockets in the same run, p50", "ns", theirs));
        self.add(Line::new("  wirepath over the C program, p50", "x", ratio).at_most(0.65).hoping(0.55));
        let (ours, theirs, ratio) = apart(&found, |[times, _]: &[TickTimes; 2]| times.order.p99);
        self.add(Line::new("  p99", "ns", ours));
        self.add(Line::new("  the C program, p99", "ns", theirs));
        self.add(Line::new("  wirepath over the C program, p99", "x", ratio).at_most(0.7));
        let (bare, _, ratio) = apart(&found, |[_, bare]: &[TickTimes; 2]| bare.order.p50);
        self.add(Line::new("  the floor: an order at once, without feed, books, checks and journal, p50", "ns", bare));
        self.add(Line::new("  the floor over the C program, p50", "x", ratio));
        let (ours, theirs, _) = apart(&found, |[times, _]: &[TickTimes; 2]| times.send.p50);
        self.add(Line::new("  of each, the venue's call that sends the tick, to our trader, p50", "ns", ours));
        self.add(Line::new("  of each, the venue's call that sends the tick, to the C program, p50", "ns", theirs));
    }

    /// RDMA over a veth, beside TCP.
    pub fn rdma(&mut self) {
        let count = if is_quick() { 3_000 } else { 10_000 };
        let found = self.cores().and_then(|cores| {
            turns(
                PAIRS,
                || Ok([rdma::requests(cores, Request::Read, count)?, rdma::requests(cores, Request::Write, count)?]),
                || Ok([exchange(cores, Server::Kernel, count)?, exchange(cores, Server::Ours, count)?]),
            )
        });
        let (read, kernel, ratio) = apart(&found, |[times, _]: &[Times; 2]| times.p50);
        self.add(Line::new("READ of 64 B over veth, post to completion, both ends spin, p50", "ns", read));
        self.add(Line::new("  TCP between kernel sockets, 64 B and back, in the same run, p50", "ns", kernel));
        self.add(Line::new("  READ over the kernel's TCP, p50", "x", ratio).at_most(0.5).hoping(0.42));
        let (.., ratio) = apart(&found, |[times, _]: &[Times; 2]| times.p99);
        self.add(Line::new("  READ over the kernel's TCP, p99", "x", ratio));
        let (write, ours, ratio) = apart(&found, |[_, times]: &[Times; 2]| times.p50);
        self.add(Line::new("  WRITE of 64 B, post to completion, p50", "ns", write));
        self.add(Line::new("  TCP of a kernel's client to our server, 64 B and back, p50", "ns", ours));
        self.add(Line::new("  WRITE over that, p50", "x", ratio));
    }

    fn forwarding(&mut self) {
        let window = window();
        let found = self.cores().and_then(|cores| {
            println!("   against: {}", testpmd::command_line(cores));
            take_turns(|| forwarding::ours(cores, window), || forwarding::theirs(cores, window))
        });
        let (ours, theirs, ratio) = apart(&found, |&figure| figure);
        self.add(Line::new("AF_XDP on veth, forwarding frames of 60 B", "Mpps", ours));
        self.add(Line::new("  DPDK's testpmd (net_af_xdp) in the same run", "Mpps", theirs));
        self.add(Line::new("  wirepath over DPDK", "x", ratio).at_least(1.0).hoping(1.1));
    }

    fn share(&mut self) {
        let runs = if is_quick() { 1 } else { 5 };
        let shares: Result<Vec<_>, String> =
            self.cores().and_then(|cores| (0..runs).map(|_| forwarding::share(cores, window())).collect());
        let spread = |of: fn(&forwarding::Share) -> f64| match &shares {
            Ok(shares) => Ok(Spread::of(shares.iter().map(of).collect())),
            Err(why) => Err(why.clone()),
        };
        let (ours, kernel, burst) =
            (spread(|share| share.ours), spread(|share| share.kernel), spread(|share| share.burst));
        self.add(Line::new("  of a forwarded frame, in user space", "ns", ours).at_most(60.0).hoping(40.0));
        self.add(Line::new("  of a forwarded frame, in the doorbell's system call", "ns", kernel));
        self.add(Line::new("  frames a turn", "frames", burst));
    }

    fn multicast(&mut self) {
        let run = |poll_mode, of: fn(Reception) -> f64| {
            let found = self.cores().and_then(|cores| {
                take_turns(
                    || multicast::ours(cores, poll_mode, window()).map(of),
                    || multicast::theirs(cores, poll_mode, window()).map(of),
                )
            });
            apart(&found, |&figure| figure)
        };
        let (ours, theirs, cpu) = run(PollMode::Pause, |reception| reception.cpu);
        let (our_rate, their_rate, rate) = run(PollMode::Spin, |reception| reception.rate);
        self.add(Line::new("multicast of 64 B from a kernel's sender, receiver's CPU time", "ns", ours));
        self.add(Line::new("  a kernel's socket with recvmmsg in the same run", "ns", theirs));
        self.add(Line::new("  receiver's CPU time, wirepath over the kernel", "x", cpu).at_most(0.4).hoping(0.2));
        self.add(Line::new("  datagrams delivered, both spinning", "M/s", our_rate));
        self.add(Line::new("  datagrams delivered by that socket, spinning", "M/s", their_rate));
        self.add(Line::new("  datagrams delivered, wirepath over the kernel", "x", rate).at_least(1.0).hoping(1.5));
    }

    fn round_trips(&mut self) {
        let count = if is_quick() { 5_000 } else { 20_000 };
        let run = |client, server| {
            let found = self.cores().and_then(|cores| {
                take_turns(
                    || round_trip::times_of(cores, client, server, count).map(|times| times.p50),
                    || round_trip::times_of(cores, Kind::Kernel, Kind::Kernel, count).map(|times| times.p50),
                )
            });
            apart(&found, |&figure| figure)
        };
        let (ours, theirs, ratio) = run(Kind::Ours, Kind::Ours);
        let (mixed, _, mixed_ratio) = run(Kind::Kernel, Kind::Ours);
        self.add(Line::new("UDP round trip of 64 B over veth, both ends spin, p50", "ns", ours));
        self.add(Line::new("  kernel sockets in the same run", "ns", theirs));
        self.add(Line::new("  wirepath over kernel sockets", "x", ratio).at_most(0.5).hoping(0.45));
        self.add(Line::new("  wirepath serves a kernel's client", "ns", mixed));
        self.add(Line::new("  wirepath serves a kernel's client, over kernel sockets", "x", mixed_ratio));
    }

    fn exchanges(&mut self) {
        // Many short runs rather than few long ones: the distance between the cores changes from
        // one second to the next, and with it the time of a kernel server, by half.
        let count = if is_quick() { 3_000 } else { 10_000 };
        let run = |server| {
            self.cores().and_then(|cores| {
                turns(PAIRS, || exchange(cores, server, count), || exchange(cores, Server::Kernel, count))
            })
        };
        let (found, without) = (run(Server::Ours), run(Server::NoTcp));
        let (ours, theirs, ratio) = apart(&found, |exchange: &Times| exchange.p50);
        self.add(Line::new("TCP, a kernel's client asks our server over veth, 64 B, both spin, p50", "ns", ours));
        self.add(Line::new("  a kernel's server in the same run, p50", "ns", theirs));
        self.add(Line::new("  wirepath over the kernel, p50", "x", ratio).at_most(0.75).hoping(0.65));
        let (ours, theirs, ratio) = apart(&found, |exchange: &Times| exchange.p99);
        self.add(Line::new("  p99", "ns", ours));
        self.add(Line::new("  a kernel's server in the same run, p99", "ns", theirs));
        self.add(Line::new("  wirepath over the kernel, p99", "x", ratio));
        let (least, _, ratio) = apart(&without, |exchange: &Times| exchange.p50);
        self.add(Line::new("  the same without our TCP, each request its own answer, p50", "ns", least));
        self.add(Line::new("  without our TCP over the kernel, p50: the floor of AF_XDP here", "x", ratio));
    }

    fn goodputs(&mut self) {
        let window = Duration::from_secs(if is_quick() { 1 } else { 3 });
        for per_mille in [0, 10, 20, 50] {
            let run = |cores, sender| goodput(cores, sender, per_mille, window);
            let found = self
                .cores()
                .and_then(|cores| take_turns(|| run(cores, Sender::Ours), || run(cores, Sender::Kernel("cubic"))));
            let (ours, theirs, ratio) = apart(&found, |sent: &SendCounts| sent.rate);
            let per_cent = per_mille / 10;
            self.add(Line::new(&format!("TCP to a kernel over veth, {per_cent} % of frames lost"), "Gbit/s", ours));
            self.add(Line::new("  from a kernel in the same run, CUBIC as ours", "Gbit/s", theirs));
            let ratio = Line::new("  wirepath over the kernel", "x", ratio);
            self.add(if per_mille == 0 { ratio } else { ratio.at_least(1.0).hoping(1.2) });
            let bbr = self.cores().and_then(|cores| run(cores, Sender::Kernel("bbr")));
            self.add(Line::new("  from a kernel with BBR, once", "Gbit/s", bbr.map(|sent| Spread::exactly(sent.rate))));
            if let Ok(runs) = &found {
                println!("   ours:   {}", summary(runs.iter().map(|(ours, _)| ours)));
                println!("   kernel: {}", summary(runs.iter().map(|(_, theirs)| theirs)));
            }
        }
    }

    /// Echoes over a wire that loses many frames in both directions. They are separate because the
    /// kernel's echoes take minutes: ten in all. With higher loss an echo is shorter, so that a
    /// stack that waits for timeouts finishes before [`echo::LIMIT`].
    pub fn echoes(&mut self) {
        const CUBIC: Stack = Stack::Kernel("cubic");
        const RENO: Stack = Stack::Kernel("reno");
        /// Client and server. Data that a kernel sends to our worker takes as long as the kernel's
        /// sender needs.
        const CONTENDERS: [(Stack, Stack); 5] =
            [(Stack::Ours, Stack::Ours), (Stack::Ours, CUBIC), (CUBIC, Stack::Ours), (CUBIC, CUBIC), (RENO, RENO)];
        for (per_mille, kib, runs) in [(50, 2048, PAIRS), (100, 2048, 7), (200, 256, PAIRS), (300, 128, 5)] {
            let task = Task { per_mille, len: kib << 10 };
            let runs: Result<Vec<[f64; 5]>, String> = self.cores().and_then(|cores| {
                let run = |idx: usize| echo(cores, CONTENDERS[idx].0, CONTENDERS[idx].1, task);
                (0..runs).map(|_| Ok([run(0)?, run(1)?, run(2)?, run(3)?, run(4)?])).collect()
            });
            let found = |of: &dyn Fn(&[f64; 5]) -> f64| match &runs {
                Ok(runs) => Ok(Spread::of(runs.iter().map(of).collect())),
                Err(why) => Err(why.clone()),
            };
            let [ours, to_kernel, of_kernel, cubic, reno] = [0, 1, 2, 3, 4].map(|idx| found(&|run| run[idx]));
            let over = |contender: &DemuxMatch, kernel: &DemuxMatch| match (contender, kernel) {
                (Ok(ours), Ok(kernel)) => Ok(Spread::exactly(ours.median / kernel.median)),
                _ => contender.clone(),
            };
            let (per_cent, limit) = (per_mille / 10, echo::LIMIT.as_secs());
            let title =
                format!("TCP echo of {kib} KiB over veth, {per_cent} % of frames lost each way, {limit} s at most");
            self.add(Line::new(&title, "s", ours.clone()));
            self.add(Line::new("  of ours with a kernel's server, CUBIC", "s", to_kernel.clone()));
            self.add(Line::new("  of a kernel's client, CUBIC, with ours", "s", of_kernel.clone()));
            self.add(Line::new("  between kernels in the same run, CUBIC", "s", cubic.clone()));
            self.add(Line::new("  between kernels in the same run, Reno", "s", reno.clone()));
            for (who, contender, hope) in [
                ("wirepath", &ours, 0.5),
                ("wirepath with a kernel's server", &to_kernel, 1.0),
                ("wirepath with a kernel's client", &of_kernel, 1.0),
            ] {
                for (congestion, kernel) in [("CUBIC", &cubic), ("Reno", &reno)] {
                    let what = format!("  {who} over {congestion}, medians");
                    self.add(Line::new(&what, "x", over(contender, kernel)).at_most(1.5).hoping(hope));
                }
            }
        }
    }

    fn what_a_frame_must_not_cost(&mut self) {
        let calls = Subject::new(self.packets).system_calls("forward-live").map(Spread::exactly);
        self.add(
            Line::new("system calls a frame forwarded by AF_XDP, burst 32, by strace", "calls", calls).at_most(0.1),
        );
        self.add(Line::new("allocations in a million such frames", "count", allocations_of_a_million()).at_most(0.0));
    }

    pub(super) fn add(&mut self, line: Line) {
        (self.add)(line);
    }

    pub(super) fn cores(&self) -> Result<[usize; 2], String> {
        self.cores.ok_or_else(|| "this process may use one core only".to_owned())
    }
}

fn window() -> Duration {
    Duration::from_millis(if is_quick() { 500 } else { 1_000 })
}

/// The results of runs in turn, ours and theirs.
pub(super) type Runs<T> = Result<Vec<(T, T)>, String>;

/// Runs of both in turn.
fn take_turns<T>(ours: impl FnMut() -> Result<T, String>, theirs: impl FnMut() -> Result<T, String>) -> Runs<T> {
    turns(if is_quick() { 3 } else { PAIRS }, ours, theirs)
}

/// So many pairs of them.
pub(super) fn turns<T>(
    pairs: usize,
    mut ours: impl FnMut() -> Result<T, String>,
    mut theirs: impl FnMut() -> Result<T, String>,
) -> Runs<T> {
    (0..pairs).map(|_| Ok((ours()?, theirs()?))).collect()
}

/// Our figure, theirs, and their ratio, pair by pair.
pub(super) fn apart<T>(found: &Runs<T>, figure: impl Fn(&T) -> f64) -> (DemuxMatch, DemuxMatch, DemuxMatch) {
    match found {
        Ok(runs) => {
            let (ours, theirs): (Samples, Samples) =
                runs.iter().map(|(ours, theirs)| (figure(ours), figure(theirs))).unzip();
            (ours.spread(), theirs.spread(), ours.over(&theirs))
        }
        Err(why) => (Err(why.clone()), Err(why.clone()), Err(why.clone())),
    }
}

/// The counts of a sender, summed over all its runs.
fn summary<'a>(runs: impl Iterator<Item = &'a SendCounts> + Clone) -> String {
    let sum = |of: fn(&SendCounts) -> u64| runs.clone().map(of).sum::<u64>();
    let (resent, duplicates) = (sum(|sent| sent.resent), sum(|sent| sent.duplicates));
    let (timeouts, probes) = (sum(|sent| sent.timeouts), sum(|sent| sent.probes));
    let (refused, acks_dropped) = (sum(|sent| sent.refused), sum(|sent| sent.acks_dropped));
    format!(
        "{resent} segments resent, {duplicates} of them for nothing, {timeouts} timeouts, {probes} probes; \
         {refused} had no room in the receiver's kernel, {acks_dropped} acknowledgments none at the sender's interface"
    )
}

/// Allocations during a million forwarded frames, by a counting allocator.
fn allocations_of_a_million() -> DemuxMatch {
    Lockstep::run(|lockstep| {
        lockstep.round()?;
        let (before, mut frames) = (allocations::count(), 0);
        while frames < 1_000_000 {
            frames += lockstep.round()?;
        }
        Ok(Spread::exactly((allocations::count() - before) as f64))
    })?
}
