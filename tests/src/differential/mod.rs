//! One script of segments, losses and calls, drawn from a seed, is played on our TCP and on
//! smoltcp's. After each step both apps have the same bytes, both stacks acknowledge the same
//! number, and both are in the same state.
//!
//! ```text
//!            ┌─▶ side: our machine ──▶ bytes, answers ─┐
//!  seed ─▶ step                                        ├─▶ the same?
//!            └─▶ side: smoltcp     ──▶ bytes, answers ─┘
//! ```
//!
//! The peer is neither of them: it knows both streams in full, sends pieces of one in any order,
//! repeated, too late or too far ahead, and receives pieces of the other. Decisions that a stack
//! makes itself are not compared: when it sends which data, in which segments, and which window it
//! shows. No script contains the cases in which the two are known to differ:
//!
//! - smoltcp keeps four pieces out of order, and forgets a FIN beyond a hole. In *wild* scripts
//!   both happen: there ours may be ahead, never behind, until the peer has sent all again.
//! - It does not count the FIN where it looks whether a segment is in the window, and so forgets
//!   one behind data that it has.
//! - It accepts a reset anywhere in the window, as before RFC 5961: resets here are exact, or
//!   outside.
//! - Three duplicates of the acknowledgment before its FIN stop the FIN's timer for good: the peer
//!   acknowledges only data that has arrived.
//! - It drops data with an acknowledgment that is older than another; RFC 9293 3.10.7.4 lets the
//!   data count.

mod side;
mod smoltcp;
mod wirepath;

use self::side::{OddSegment, Side, Subject};
use crate::mutate::Random;

pub use self::smoltcp::forgets_a_fast_retransmission_that_finds_no_room;

/// The longest segment that the peer sends, and takes.
const MSS: u32 = 1_000;
/// Rounds of the end, of 50 ms each: time enough for timeouts that have doubled a few times.
const ROUNDS_MAX: usize = 2_000;

/// The coverage of a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Things that happened.
    pub steps: u64,
    /// Bytes that came to each app.
    pub received: u64,
    /// Bytes that each app sent.
    pub sent: u64,
    /// Scripts in which the two were ahead of each other on the way.
    pub wild: u64,
}

impl Tally {
    /// Adds the coverage of another script.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.received += other.received;
        self.sent += other.sent;
        self.wild += other.wild;
    }
}

/// Plays the script of a seed; the error says where the two part.
pub fn run(seed: u64) -> Result<Tally, String> {
    let mut play = Play::new(seed);
    play.begin()?;
    let steps = play.draw.below(150);
    for step in 0..steps {
        let what = play.step();
        play.tally.steps += 1;
        if play.is_reset {
            break;
        }
        play.compare().map_err(|why| format!("seed {seed}, step {step}, {what}: {why}"))?;
    }
    if !play.is_reset {
        play.finish().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    }
    play.compare_ends().map_err(|why| format!("seed {seed}, after all: {why}"))?;
    Ok(play.tally)
}

struct Play {
    draw: Random,
    sides: [Side; 2],
    /// The peer's data, and the app's data.
    inward: Vec<u8>,
    outward: Vec<u8>,
    /// The peer has sent so much for the first time.
    frontier: u32,
    /// Which bytes of `inward` were given to both.
    given: Vec<bool>,
    now: u64,
    is_wild: bool,
    /// The number of steps for which the app does not read, and the peer does not receive.
    paused: usize,
    deaf: usize,
    written: usize,
    is_shut: bool,
    is_reset: bool,
    tally: Tally,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut draw = Random::new(seed ^ 0xd1ff);
        let buffer = [2_000, 4_096, 16_384, 60_000][draw.below(4)];
        let window = [1_500, 10_000, 60_000][draw.below(3)];
        let irs = if draw.below(2) == 0 { u32::MAX - draw.below(5_000) as u32 } else { draw.draw() as u32 };
        let (inward_len, outward_len) = (1 + draw.below(40_000), draw.below(20_000));
        let (inward, outward) = (draw.bytes(inward_len), draw.bytes(outward_len));
        let subjects: [Box<dyn Subject>; 2] =
            [Box::new(wirepath::Ours::new(seed, buffer)), Box::new(smoltcp::Theirs::new(seed, buffer))];
        Self {
            sides: subjects.map(|subject| Side::new(subject, irs, window)),
            given: vec![false; inward.len()],
            inward,
            outward,
            frontier: 0,
            now: 1_000_000_000,
            is_wild: draw.below(3) == 0,
            paused: 0,
            deaf: 0,
            written: 0,
            is_shut: false,
            is_reset: false,
            tally: Tally::default(),
            draw,
        }
    }

    /// The peer calls, and both answer.
    fn begin(&mut self) -> Result<(), String> {
        for side in &mut self.sides {
            side.call(self.now)?;
        }
        Ok(())
    }

    /// Makes an event happen to both stacks; returns its name.
    fn step(&mut self) -> &'static str {
        (self.paused, self.deaf) = (self.paused.saturating_sub(1), self.deaf.saturating_sub(1));
        let what = match self.draw.below(24) {
            0..8 => self.next(),
            8..11 => self.missing(),
            11 => self.lost(),
            12 => self.old(),
            13 => self.beyond(),
            14 => self.across_the_edge(),
            15 => self.nothing_but_an_ack(),
            16 => self.acknowledgment_of_the_future(),
            17 => self.stranger(),
            18 => self.pass(),
            19..22 => self.write(),
            22 => self.pause(),
            _ => self.rarely(),
        };
        for side in &mut self.sides {
            side.turn(self.now, self.paused == 0, self.deaf == 0);
        }
        what
    }

    /// The next piece that was never sent, as far as both windows allow.
    fn next(&mut self) -> &'static str {
        let len = 1 + self.draw.below(MSS as usize) as u32;
        self.piece(self.frontier, len);
        "the next piece"
    }

    /// A piece that begins somewhere before the end of the sent data: it may fill a hole, overlap,
    /// or be known already.
    fn missing(&mut self) -> &'static str {
        let first = self.given.iter().position(|given| !given).unwrap_or(0) as u32;
        let from = if self.draw.below(3) == 0 { self.draw.below(self.frontier as usize + 1) as u32 } else { first };
        let len = 1 + self.draw.below(MSS as usize) as u32;
        self.piece(from, len);
        "a piece that may be missing"
    }

    fn piece(&mut self, from: u32, len: u32) {
        let edge = self.sides.iter().map(Side::edge).min().unwrap_or(0);
        let mut end = (from + len).min(self.inward.len() as u32).min(edge);
        if end <= from {
            return;
        }
        if !self.is_wild && self.holes_with(from, end) > 3 {
            // smoltcp keeps at most four pieces out of order.
            let first = self.given.iter().position(|given| !given).unwrap_or(0) as u32;
            return self.give(first, (first + len).min(end.max(first + 1)).min(self.inward.len() as u32));
        }
        end = end.max(from + 1);
        self.give(from, end);
    }

    /// The number of holes after the data in order, once a piece has come.
    fn holes_with(&self, from: u32, end: u32) -> usize {
        let is_there = |at: usize| self.given[at] || (from as usize..end as usize).contains(&at);
        (1..self.given.len()).filter(|&at| is_there(at) && !is_there(at - 1)).count()
    }

    fn give(&mut self, from: u32, end: u32) {
        let is_last = end as usize == self.inward.len();
        let in_order = self.given[..from as usize].iter().all(|given| *given);
        let is_new = !self.given[end as usize - 1];
        let has_fin = is_last && is_new && (in_order || self.is_wild) && self.draw.below(2) == 0;
        self.given[from as usize..end as usize].fill(true);
        self.frontier = self.frontier.max(end);
        for side in &mut self.sides {
            side.send(from, &self.inward[from as usize..end as usize], has_fin, self.now);
        }
    }

    fn lost(&mut self) -> &'static str {
        let len = 1 + self.draw.below(MSS as usize) as u32;
        let edge = self.sides.iter().map(Side::edge).min().unwrap_or(0);
        self.frontier = (self.frontier + len).min(self.inward.len() as u32).min(edge.max(self.frontier));
        "a piece that is lost"
    }

    /// Data that both have acknowledged.
    fn old(&mut self) -> &'static str {
        let acked = self.sides.iter().map(|side| side.acked).min().unwrap_or(0).min(self.inward.len() as u32);
        if acked > 0 {
            let from = self.draw.below(acked as usize);
            let end = (from + 1 + self.draw.below(MSS as usize)).min(acked as usize);
            for side in &mut self.sides {
                side.send(from as u32, &self.inward[from..end], false, self.now);
            }
        }
        "an old piece"
    }

    /// Bytes behind every window.
    fn beyond(&mut self) -> &'static str {
        let edge = self.sides.iter().map(Side::edge).max().unwrap_or(0);
        let from = edge + 60_000 + self.draw.below(1_000_000) as u32;
        for side in &mut self.sides {
            side.send(from, &[0xee; 100], self.is_shut, self.now);
        }
        "a piece beyond the window"
    }

    /// The next piece, followed by bytes beyond every window, which are cut off. Only while the app
    /// reads, because then both stacks have room for as much as their buffer.
    fn across_the_edge(&mut self) -> &'static str {
        let edge = self.sides.iter().map(|side| side.acked).min().unwrap_or(0) + self.sides[0].buffer();
        let first = self.given.iter().position(|given| !given).unwrap_or(self.inward.len());
        let is_near = edge > first as u32 && edge - (first as u32) < MSS && (edge as usize) < self.inward.len();
        if self.paused == 0 && is_near && !self.is_wild {
            let mut bytes = self.inward[first..edge as usize].to_vec();
            bytes.extend([0xee; 50]);
            self.given[first..edge as usize].fill(true);
            self.frontier = self.frontier.max(edge);
            for side in &mut self.sides {
                side.send(first as u32, &bytes, false, self.now);
            }
        }
        "a piece that ends behind the window"
    }

    fn nothing_but_an_ack(&mut self) -> &'static str {
        for side in &mut self.sides {
            side.acknowledge(self.now);
        }
        "an acknowledgment"
    }

    /// Data with an acknowledgment of data that was never sent: both stacks discard it
    /// (RFC 5961 5.2).
    fn acknowledgment_of_the_future(&mut self) -> &'static str {
        let ahead = 100_000 + self.draw.below(1_000_000) as u32;
        for side in &mut self.sides {
            side.send_with(side.acked, &[0xee; 10], OddSegment::Ahead(ahead), self.now);
        }
        "an acknowledgment of what was never sent"
    }

    /// A SYN within the window, or a reset without.
    fn stranger(&mut self) -> &'static str {
        let is_reset = self.draw.below(2) == 0;
        let edge = self.sides.iter().map(Side::edge).max().unwrap_or(0);
        let far = edge + 60_000 + self.draw.below(1_000_000) as u32;
        for side in &mut self.sides {
            let (at, what) = if is_reset { (far, OddSegment::Reset) } else { (side.acked + 1, OddSegment::Syn) };
            side.send_with(at, &[], what, self.now);
        }
        "a SYN in the window, or a reset out of it"
    }

    fn pass(&mut self) -> &'static str {
        self.now += 1_000_000 * (1 + self.draw.below(400) as u64);
        "time"
    }

    fn write(&mut self) -> &'static str {
        let end = (self.written + 1 + self.draw.below(3_000)).min(self.outward.len());
        if !self.is_shut {
            for side in &mut self.sides {
                side.subject.write(&self.outward[self.written..end], self.now);
            }
            self.written = end;
        }
        "a write"
    }

    fn pause(&mut self) -> &'static str {
        if self.draw.below(2) == 0 {
            self.paused = self.draw.below(12);
        } else {
            self.deaf = self.draw.below(6);
        }
        "an app that pauses, or a peer that receives nothing"
    }

    fn rarely(&mut self) -> &'static str {
        match self.draw.below(8) {
            0 if self.written == self.outward.len() => {
                self.shut();
                "the app closes"
            }
            1 if !self.is_wild && self.deaf == 0 => {
                for side in &mut self.sides {
                    side.send_with(side.acked, &[], OddSegment::Reset, self.now);
                }
                self.is_reset = true;
                "a reset"
            }
            _ => "nothing",
        }
    }

    fn shut(&mut self) {
        if !self.is_shut {
            self.is_shut = true;
            self.sides.iter_mut().for_each(|side| side.subject.shut(self.now));
        }
    }

    /// Compares the state that must be equal after each step.
    fn compare(&self) -> Result<(), String> {
        let [ours, theirs] = &self.sides;
        for side in &self.sides {
            side.check(&self.inward, &self.outward)?;
        }
        if self.is_wild {
            let is_behind = ours.read.len() < theirs.read.len() || ours.acked < theirs.acked;
            return if is_behind { Err(format!("ours is behind: {ours}; smoltcp: {theirs}")) } else { Ok(()) };
        }
        let is_same = ours.read.len() == theirs.read.len()
            && ours.acked == theirs.acked
            && phase(&ours.subject.state()) == phase(&theirs.subject.state());
        if is_same { Ok(()) } else { Err(format!("ours: {ours}; smoltcp: {theirs}")) }
    }

    /// All is sent until it has arrived, and both sides close.
    fn finish(&mut self) -> Result<(), String> {
        (self.paused, self.deaf) = (0, 0);
        for _ in 0..ROUNDS_MAX {
            let from = self.sides.iter().map(|side| side.acked).min().unwrap_or(0).min(self.inward.len() as u32);
            let edge = self.sides.iter().map(Side::edge).min().unwrap_or(0);
            let end = (from + MSS).min(self.inward.len() as u32).min(edge.max(from));
            let has_fin = end as usize == self.inward.len();
            for side in &mut self.sides {
                if side.acked as usize > self.inward.len() {
                    side.acknowledge(self.now);
                } else {
                    side.send(from, &self.inward[from as usize..end as usize], has_fin, self.now);
                }
            }
            self.write();
            if self.written == self.outward.len() && self.sides.iter().all(|side| side.has_read(&self.inward)) {
                self.shut();
            }
            self.now += 50_000_000;
            for side in &mut self.sides {
                side.turn(self.now, true, true);
                side.check(&self.inward, &self.outward)?;
            }
            if self.sides.iter().all(|side| side.is_done(&self.inward, &self.outward)) {
                return Ok(());
            }
        }
        Err(format!("it never ends; ours: {}; smoltcp: {}", self.sides[0], self.sides[1]))
    }

    /// Compares the state that must be equal at the end.
    fn compare_ends(&mut self) -> Result<(), String> {
        let [ours, theirs] = &self.sides;
        // After a reset each side has sent the data that its own windows allowed.
        let has_listener = self.is_reset || ours.outward() == theirs.outward();
        let is_same = ours.read == theirs.read && ours.acked == theirs.acked && has_listener;
        // Where a FIN came early at one of them only, the app closed before it in the other: a
        // different path to the same end.
        let is_same_state = ours.ended() == theirs.ended() || self.is_wild;
        if !is_same || !is_same_state {
            return Err(format!("ours: {ours}; smoltcp: {theirs}"));
        }
        self.tally.received = ours.read.len() as u64;
        self.tally.sent = ours.outward().len() as u64;
        self.tally.wild = u64::from(self.is_wild);
        Ok(())
    }
}

/// A state without whether the FIN that was sent is acknowledged: that follows from when it was
/// sent, which is the stack's own affair.
fn phase(state: &str) -> &str {
    match state {
        "FIN-WAIT-1" => "FIN-WAIT-2",
        "CLOSING" => "TIME-WAIT",
        "LAST-ACK" => "CLOSED",
        _ => state,
    }
}
