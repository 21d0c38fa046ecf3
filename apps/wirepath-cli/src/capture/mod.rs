//! `wirepath capture`: the frames that the queues of a running process receive and send, which no
//! tcpdump sees, into a pcap file, a pipe, or a line each.
//!
//! The process must run its port with a tap (`feed-handler` does). This program only reads: the
//! worker goes on even if this program is slow, stopped or killed. It counts the frames that it
//! missed.

mod filter;
mod line;
mod output;
mod queue;

use std::error::Error;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use wirepath::counters::{default_directory, printable};
use wirepath::device::tap::{Direction, Tapped};
use wirepath::worker::StopFlag;

use filter::Filter;
use output::Output;
use queue::Queue;

/// Interval of polling empty rings. The default ring of 8 MiB fills in 7 ms at 10 Gbit/s.
const IDLE_SPAN: Duration = Duration::from_millis(1);
/// Frames between two beats: far less than a second's worth.
const FRAMES_A_ROUND: usize = 4_096;
/// Rounds that a capture still makes after a stop, to write the frames recorded until then: enough
/// for all that the default ring holds, and a bound where frames come faster than they are written.
const LAST_ROUNDS: usize = 64;
/// A worker that polls answers within microseconds.
const ANSWER_SPAN: Duration = Duration::from_secs(1);

/// Shows the frames that the queues of a running process receive and send, as pcap or one line
/// each.
#[derive(Args)]
#[command(after_help = "Filters; a frame must match all of its words:\n  \
    udp | tcp | icmp | igmp | arp    the protocol\n  \
    [host] ADDRESS[:PORT]            either end\n  \
    from ADDRESS[:PORT]              the sender\n  \
    to | group ADDRESS[:PORT]        the destination\n  \
    port PORT                        the port of either end\n  \
    vlan NUMBER                      the outermost tag\n\
Example: wirepath capture feed-handler --rx --filter \"udp group 239.1.2.3:9000\" -w - | tcpdump -r -")]
pub(crate) struct CaptureOptions {
    /// The process, by its application's name or its id; may be omitted if only one can be captured
    #[arg(value_name = "PROCESS")]
    process: Option<String>,
    /// Only queues with this number
    #[arg(long, value_name = "N")]
    queue: Option<u16>,
    /// Only queues of this device
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only received frames
    #[arg(long, conflicts_with = "tx")]
    rx: bool,
    /// Only sent frames
    #[arg(long)]
    tx: bool,
    /// Keep only this many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value = "65528", value_parser = clap::value_parser!(u16).range(1..=65_528))]
    snap: u16,
    /// Stop after this many frames
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Only frames that match this filter, as below
    #[arg(long, value_name = "RULE", value_parser = Filter::parse)]
    filter: Option<Filter>,
    /// Write a pcap file; - is standard output, for a pipe
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// The directory of the shared files, if neither WIREPATH_SHM nor /dev/shm/wirepath
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &CaptureOptions) -> Result<(), Box<dyn Error>> {
    let taps = options.select()?;
    let process = name(&taps[0]);
    let stop = StopFlag::on_signals()?;
    let mut capture = Capture {
        options,
        output: Output::open(options.write.as_deref())?,
        queues: Vec::new(),
        written: 0,
        filtered: 0,
        deadline: options.seconds.map(|span| Instant::now() + span),
    };
    for tap in taps {
        capture.queues.push(Queue::listen(tap, options.snap_wanted())?);
    }
    let ended = capture.run(&stop);
    // The frames so far are written and reported, also after an error.
    let finished = capture.output.finish();
    if let Ok(End::ProcessEnded) = ended {
        eprintln!("wirepath: {process} has closed its queues or ended");
    }
    capture.print_totals();
    ended?;
    finished
}

/// A running capture.
struct Capture<'a> {
    options: &'a CaptureOptions,
    queues: Vec<Queue>,
    output: Output,
    written: u64,
    filtered: u64,
    deadline: Option<Instant>,
}

/// Why a capture is over.
enum End {
    /// A limit or the user ended it: frames, seconds, Ctrl-C, or the reader of the pipe is gone.
    Enough,
    ProcessEnded,
}

impl Capture<'_> {
    fn run(&mut self, stop: &StopFlag) -> Result<End, Box<dyn Error>> {
        let begun = Instant::now();
        let mut is_printed = false;
        loop {
            let mut alive = 0;
            let mut waiting = Vec::new();
            for queue in &mut self.queues {
                queue.poll()?;
                alive += usize::from(!queue.has_ended());
                waiting.extend(queue.is_waiting().then(|| queue.name().to_owned()));
            }
            if !is_printed && (waiting.is_empty() || begun.elapsed() > ANSWER_SPAN) {
                is_printed = true;
                self.print_begin(&waiting);
            }
            // The end was checked before the last read of the rings, so that read gets the last
            // frame.
            let moved = self.round()?;
            if stop.is_stopping() || self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.last_rounds()?;
                return Ok(End::Enough);
            }
            if self.is_over() {
                return Ok(End::Enough);
            }
            if moved > 0 {
                continue;
            }
            if alive == 0 {
                return Ok(End::ProcessEnded);
            }
            self.output.flush();
            sleep(IDLE_SPAN);
        }
    }

    fn last_rounds(&mut self) -> Result<(), Box<dyn Error>> {
        for _ in 0..LAST_ROUNDS {
            if self.is_over() || self.round()? == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Moves frames from the rings to the output, the oldest of all queues first, and returns how
    /// many it read.
    fn round(&mut self) -> Result<usize, Box<dyn Error>> {
        for moved in 0..FRAMES_A_ROUND {
            if self.is_over() {
                return Ok(moved);
            }
            for queue in &mut self.queues {
                queue.fill()?;
            }
            let waiting = self.queues.iter().enumerate().filter_map(|(idx, queue)| Some((queue.next_ns()?, idx)));
            let Some((_, idx)) = waiting.min() else { return Ok(moved) };
            self.take(idx)?;
        }
        Ok(FRAMES_A_ROUND)
    }

    /// Writes the next frame of a queue, if it is wanted.
    fn take(&mut self, idx: usize) -> Result<(), Box<dyn Error>> {
        let Some(frame) = self.queues[idx].take() else { return Ok(()) };
        if !self.options.wants(frame.direction) {
            return Ok(());
        }
        if self.options.filter.as_ref().is_some_and(|filter| !filter.matches(frame.bytes)) {
            self.filtered += 1;
            return Ok(());
        }
        self.written += 1;
        self.output.write(&frame, self.options.snap.into())
    }

    /// Whether the requested number of frames is written, or the output is closed.
    fn is_over(&self) -> bool {
        self.options.count.is_some_and(|count| self.written >= count) || self.output.is_closed()
    }

    fn print_begin(&self, waiting: &[String]) {
        let names: Vec<_> = self.queues.iter().map(Queue::name).collect();
        eprintln!("wirepath: listening to {}", names.join(", "));
        if !waiting.is_empty() {
            eprintln!("wirepath: no worker polls {}: frames appear when one does", waiting.join(", "));
        }
    }

    fn print_totals(&self) {
        let missed: u64 = self.queues.iter().map(|queue| self.options.missed(queue)).sum();
        let Self { written, filtered, .. } = self;
        eprintln!("wirepath: {written} frames written, {missed} missed, {filtered} filtered out");
        if missed > 0 {
            eprintln!("wirepath: missed frames came faster than they were read: write with -w, keep less with --snap");
        }
    }
}

impl CaptureOptions {
    /// The requested queues of one process: at least one.
    fn select(&self) -> Result<Vec<Tapped>, Box<dyn Error>> {
        let directory = self.dir.clone().unwrap_or_else(default_directory);
        let taps = Tapped::list(&directory)?;
        let (mut selected, others): (Vec<_>, Vec<_>) = taps.running.into_iter().partition(|tap| self.selects(tap));
        // Another user's tap may claim the name and the number of another process.
        if selected.iter().any(Tapped::is_credible) {
            selected.retain(Tapped::is_credible);
        }
        if let Some(first) = selected.first() {
            let (app, pid, user) = (first.app.clone(), first.pid, first.user);
            if selected.iter().any(|tap| (&tap.app, tap.pid, tap.user) != (&app, pid, user)) {
                return Err(format!("several processes can be listened to: name one of {}", list(&selected)).into());
            }
            selected.retain(|tap| tap.pid == pid);
            return Ok(selected);
        }
        if !others.is_empty() {
            return Err(format!("no such queue can be listened to; these can: {}", list(&others)).into());
        }
        // Perhaps it exists and belongs to another user.
        if let Some(closed) = taps.closed.into_iter().next() {
            return Err(closed.into());
        }
        let directory = printable(directory.display());
        Err(format!(
            "no process can be listened to in {directory}: start one whose port has a tap, or name another directory with \
             --dir or WIREPATH_SHM"
        )
        .into())
    }

    fn selects(&self, tap: &Tapped) -> bool {
        self.process.as_ref().is_none_or(|process| *process == tap.app || *process == tap.pid.to_string())
            && self.queue.is_none_or(|queue| queue == tap.queue)
            && self.device.as_ref().is_none_or(|device| *device == tap.device)
    }

    /// The bytes that the worker is asked to copy: a filter and a line read more of a frame than is
    /// kept.
    fn snap_wanted(&self) -> usize {
        let looks_deeper = self.filter.is_some() || self.write.is_none();
        if looks_deeper { u16::MAX.into() } else { self.snap.into() }
    }

    fn wants(&self, direction: Direction) -> bool {
        match direction {
            Direction::Rx => !self.tx,
            Direction::Tx => !self.rx,
        }
    }

    fn missed(&self, queue: &Queue) -> u64 {
        let missed = queue.missed();
        [(Direction::Rx, missed.rx), (Direction::Tx, missed.tx)]
            .into_iter()
            .filter(|(direction, _)| self.wants(*direction))
            .map(|(_, count)| count)
            .sum()
    }
}

/// The process of a tap, with its user where that is neither root nor us.
fn name(tap: &Tapped) -> String {
    let whose = tap.user.map_or(String::new(), |user| format!(" of user {user}"));
    format!("{} (pid {}{whose})", printable(&tap.app), tap.pid)
}

fn list(taps: &[Tapped]) -> String {
    let names = taps.iter().map(|tap| format!("{} {} queue {}", name(tap), printable(&tap.device), tap.queue));
    names.collect::<Vec<_>>().join(", ")
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    // A year is long enough.
    if !(0.0..=31_536_000.0).contains(&seconds) {
        return Err("give 0 to 31536000 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
