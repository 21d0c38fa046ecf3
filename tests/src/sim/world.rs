//! Hosts and a network in virtual time: executes one event after the other, until all sessions have
//! ended. Nothing here reads a clock, and all random numbers come from the seed, so each run of a
//! seed is the same.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::any_host::AnyHost;
use super::end::mix;
use super::ledger::{Ledger, nanos};
use super::network::Network;
use super::packet;
use super::script::{FaultKind, MS, Script};

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The errors; empty if there are none.
    pub faults: Vec<String>,
    /// Virtual time that passed.
    pub lasted: u64,
    /// Frames that hosts have sent.
    pub frames: u64,
    /// Bytes that apps received.
    pub bytes: u64,
    /// Turns of workers.
    pub turns: u64,
}

/// Nanoseconds from a turn that had work to the next.
const BUSY_TURN_GAP: u64 = 2_000;
/// Nanoseconds between two checks of all hosts.
const CHECK_INTERVAL: u64 = 5 * MS;
/// Turns of all hosts between two further checks: one in each turn would be too expensive.
const CHECK_TURNS: u64 = 211;
/// Nanoseconds without work after which the gap between turns may exceed the host's own longest.
const IDLE_AFTER: u64 = 50 * MS;
/// Nanoseconds between the turns of such an idle host.
const IDLE_TURN_GAP: u64 = 10 * MS;

/// The most frames, and the most turns, of a run; a run that needs more is in a loop. A host that
/// sends takes a turn every 2 µs while a frame is on the line, so half a megabyte in segments of 88
/// bytes, a few in each round trip of a slow line, takes seven million turns (seed 4090).
const FRAMES_MAX: u64 = 2_000_000;
const TURNS_MAX: u64 = 20_000_000;
/// The number of turns within which a host must run out of work while time stands still: more than
/// its ring has frames.
const TURNS_TO_REST: u64 = 10_000;

struct ScheduledHost {
    host: AnyHost,
    /// The time of its next turn, and the interval to the one after it.
    turn_at: u64,
    gap: u64,
    turn_max: u64,
    /// The time of its last work.
    busy_at: u64,
    /// A frame is on the line.
    is_leaving: bool,
    clock: u64,
    drift_ppm: i64,
}

enum Event {
    Arrive(usize, Vec<u8>),
    Leave(usize),
    FaultBegins(usize),
    FaultEnds(usize),
    Check,
}

/// A run.
pub struct World {
    script: Script,
    ledger: Rc<RefCell<Ledger>>,
    network: Network,
    hosts: Vec<ScheduledHost>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    events_ever: u64,
    now: u64,
    turns: u64,
}

impl World {
    /// The hosts of a script, before the first event.
    pub fn new(script: Script, is_traced: bool) -> Self {
        let ledger = Rc::new(RefCell::new(Ledger::new(&script, is_traced)));
        let scheduled = |(idx, plan): (usize, &super::script::HostPlan)| ScheduledHost {
            host: AnyHost::new(&script, idx, &ledger),
            turn_at: 0,
            gap: BUSY_TURN_GAP,
            turn_max: plan.turn_max,
            busy_at: 0,
            is_leaving: false,
            clock: plan.clock,
            drift_ppm: plan.drift_ppm,
        };
        let hosts = script.hosts.iter().enumerate().map(scheduled).collect();
        let network = Network::new(&script);
        let mut world = Self {
            ledger,
            network,
            hosts,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            events_ever: 0,
            now: 0,
            turns: 0,
            script,
        };
        for idx in 0..world.script.injected_faults.len() {
            let fault = world.script.injected_faults[idx];
            world.schedule(fault.from, Event::FaultBegins(idx));
            world.schedule(fault.to, Event::FaultEnds(idx));
        }
        world.schedule(CHECK_INTERVAL, Event::Check);
        world
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        while self.ledger.borrow().faults.is_empty() && !self.is_over() {
            if self.now > self.script.ends_by || self.network.tally.frames > FRAMES_MAX || self.turns > TURNS_MAX {
                self.report_timeout();
                break;
            }
            self.step();
        }
        if self.ledger.borrow().faults.is_empty() {
            self.check_end();
        }
        let ledger = self.ledger.borrow();
        if ledger.is_traced {
            for (idx, scheduled) in self.hosts.iter().enumerate() {
                println!("host {idx}:\n{}", scheduled.host.counters());
            }
            println!("network: {:?}", self.network.tally);
        }
        Report {
            faults: ledger.faults.clone(),
            lasted: self.now,
            frames: self.network.tally.frames,
            bytes: ledger.bytes(),
            turns: self.turns,
        }
    }

    fn is_over(&self) -> bool {
        self.ledger.borrow().is_over() && self.hosts.iter().all(|scheduled| scheduled.host.is_quiet())
    }

    /// Executes the next event or the next turn, whichever is earlier.
    fn step(&mut self) {
        let turn = self.hosts.iter().map(|scheduled| scheduled.turn_at).enumerate().min_by_key(|(_, at)| *at);
        let (host, turn_at) = turn.expect("a world has hosts");
        match self.queue.peek() {
            Some(&Reverse((at, number))) if at <= turn_at => {
                self.queue.pop();
                self.advance_to(at);
                let event = self.events.remove(&number).expect("an event happens once");
                self.execute(event);
            }
            _ => {
                self.advance_to(turn_at);
                self.run_turn(host);
            }
        }
    }

    fn advance_to(&mut self, at: u64) {
        self.now = self.now.max(at);
        self.ledger.borrow_mut().now = self.now;
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.events_ever += 1;
        self.events.insert(self.events_ever, event);
        self.queue.push(Reverse((at.max(self.now), self.events_ever)));
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Arrive(host, frame) => {
                self.ledger.borrow().trace(|| format!("host {host} <- {}", packet::describe(&frame)));
                let wakes = self.now + mix(self.now, host as u64) % BUSY_TURN_GAP;
                let scheduled = &mut self.hosts[host];
                scheduled.host.arrive(frame);
                scheduled.turn_at = scheduled.turn_at.min(wakes.max(self.now));
                scheduled.busy_at = self.now;
            }
            Event::Leave(host) => {
                self.hosts[host].is_leaving = false;
                for frame in self.hosts[host].host.leave() {
                    self.ledger.borrow().trace(|| format!("host {host} -> {}", packet::describe(&frame)));
                    for arrival in self.network.carry(&frame, host, self.now) {
                        self.schedule(arrival.at, Event::Arrive(arrival.host, arrival.frame));
                    }
                }
                self.send_next(host);
            }
            Event::FaultBegins(idx) => self.begin_fault(idx),
            Event::FaultEnds(idx) => self.end_fault(idx),
            Event::Check => {
                (0..self.hosts.len()).for_each(|idx| self.check(idx));
                self.schedule(self.now + CHECK_INTERVAL, Event::Check);
            }
        }
    }

    fn check(&mut self, host: usize) {
        if let Err(what) = self.hosts[host].host.check() {
            self.ledger.borrow_mut().fail(format!("host {host}: {what}"));
        }
    }

    fn begin_fault(&mut self, idx: usize) {
        let fault = self.script.injected_faults[idx];
        self.ledger.borrow().trace(|| format!("host {}: {:?} until {}", fault.host, fault.kind, nanos(fault.to)));
        let now = self.clock(fault.host);
        let scheduled = &mut self.hosts[fault.host];
        match fault.kind {
            FaultKind::RingFull => scheduled.host.stall(true),
            FaultKind::PoolEmpty(leave) => scheduled.host.steal(Some(leave), now),
            FaultKind::ClockJump(by) => scheduled.clock += by,
            FaultKind::Blackout | FaultKind::RxBlackout | FaultKind::Stall | FaultKind::Mtu(..) => (),
        }
    }

    fn end_fault(&mut self, idx: usize) {
        let fault = self.script.injected_faults[idx];
        self.ledger.borrow().trace(|| format!("host {}: {:?} is over", fault.host, fault.kind));
        let now = self.clock(fault.host);
        let scheduled = &mut self.hosts[fault.host];
        match fault.kind {
            FaultKind::RingFull => scheduled.host.stall(false),
            FaultKind::PoolEmpty(_) => scheduled.host.steal(None, now),
            _ => (),
        }
    }

    /// The time of a host's clock.
    fn clock(&self, host: usize) -> u64 {
        let scheduled = &self.hosts[host];
        let drift = self.now as i128 * i128::from(scheduled.drift_ppm) / 1_000_000;
        scheduled.clock + (self.now as i128 + drift) as u64
    }

    fn run_turn(&mut self, host: usize) {
        if let Some(until) = self.stalls_until(host) {
            self.hosts[host].turn_at = until;
            return;
        }
        self.turns += 1;
        let now = self.clock(host);
        let scheduled = &mut self.hosts[host];
        let had = scheduled.host.poll(now);
        let is_busy = had || scheduled.host.waiting() > 0 || scheduled.host.next_len().is_some();
        if is_busy {
            (scheduled.gap, scheduled.busy_at) = (BUSY_TURN_GAP, self.now);
        } else {
            let most = if self.now > scheduled.busy_at + IDLE_AFTER {
                IDLE_TURN_GAP.max(scheduled.turn_max)
            } else {
                scheduled.turn_max
            };
            scheduled.gap = (scheduled.gap * 2).min(most);
        }
        scheduled.turn_at = self.now + scheduled.gap;
        if self.turns.is_multiple_of(CHECK_TURNS) {
            self.check(host);
        }
        self.send_next(host);
    }

    fn stalls_until(&self, host: usize) -> Option<u64> {
        let stalls = self.script.injected_faults.iter().filter(|fault| {
            fault.host == host && fault.kind == FaultKind::Stall && fault.from <= self.now && self.now < fault.to
        });
        stalls.map(|fault| fault.to).max()
    }

    /// Puts the next frame of a host on the line, if the line is free.
    fn send_next(&mut self, host: usize) {
        let scheduled = &mut self.hosts[host];
        let Some(len) = scheduled.host.next_len().filter(|_| !scheduled.is_leaving) else { return };
        scheduled.is_leaving = true;
        let at = self.now + self.network.time_of(len);
        self.schedule(at, Event::Leave(host));
    }

    /// Records why the run has not ended in time.
    fn report_timeout(&mut self) {
        let mut ledger = self.ledger.borrow_mut();
        let unfinished = ledger.unfinished();
        let since = nanos(self.now.saturating_sub(self.script.heals_at));
        let (frames, turns) = (self.network.tally.frames, self.turns);
        ledger.fail(format!("not over {since} after the faults ended, {frames} frames and {turns} turns"));
        unfinished.into_iter().for_each(|what| ledger.fail(what));
        for (idx, scheduled) in self.hosts.iter().enumerate() {
            if !scheduled.host.is_quiet() {
                ledger.fail(format!("host {idx} has connections left"));
            }
        }
    }

    /// Checks, after all sessions have ended, that nothing is left.
    fn check_end(&mut self) {
        self.ledger.borrow_mut().check_end();
        for host in 0..self.hosts.len() {
            let now = self.clock(host);
            while !self.hosts[host].host.leave().is_empty() {}
            let scheduled = &mut self.hosts[host];
            scheduled.host.let_go(now);
            // Buffers of frames that left in one turn are freed in the next turn, which may itself
            // have to send a frame, such as a request for a neighbor.
            let mut rests = |_: u64| {
                let received = scheduled.host.poll(now);
                scheduled.host.leave().is_empty() && !received
            };
            if !(0..TURNS_TO_REST).any(&mut rests) {
                self.ledger.borrow_mut().fail(format!("host {host}, at the end: it never rests"));
                continue;
            }
            if let Err(what) = scheduled.host.check_end() {
                self.ledger.borrow_mut().fail(format!("host {host}, at the end: {what}"));
            }
        }
    }
}
