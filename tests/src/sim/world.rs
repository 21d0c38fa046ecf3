//! Hosts and a network in virtual time: executes one event after the other, until all is over.
//! Nothing here reads a clock, and all random numbers come from the seed, so a run is the same each
//! time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::end::mix;
use super::ledger::{Ledger, nanos};
use super::network::Network;
use super::packet;
use super::script::{MS, MishapKind, Script};
use super::station::Station;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The errors; empty if there are none.
    pub faults: Vec<String>,
    /// Virtual time that passed.
    pub lasted: u64,
    /// Frames that the network was given.
    pub frames: u64,
    /// Bytes that apps received.
    pub bytes: u64,
    /// Turns of workers.
    pub turns: u64,
}

/// Nanoseconds from a turn that had something to do to the next.
const TURN: u64 = 2_000;
/// From one look at the whole to the next.
const LOOK: u64 = 5 * MS;
/// Turns of all hosts between two checks of the timers: each 2 µs would be too expensive.
const LOOK_TURNS: u64 = 211;
/// Turns that come to nothing until the pauses between them grow beyond the host's own longest.
const TIMEOUT: u64 = 50 * MS;
/// Nanoseconds between turns of a host where nothing happens for long.
const DOZE: u64 = 10 * MS;

/// The most frames, and the most turns, of a run; a run that needs more is in a loop. A host that
/// sends takes a turn every 2 µs while a frame is on the line, so half a megabyte in segments of 88
/// bytes, a few in each round trip of a slow line, takes seven million turns (seed 4090).
const FRAMES_MAX: u64 = 2_000_000;
const TURNS_MAX: u64 = 20_000_000;
/// The number of turns after which a host must have no more work while time stands still: more than
/// its ring has frames.
const TURNS_TO_REST: u64 = 10_000;

struct Place {
    host: Station,
    /// The time of its next turn, and the interval to the one after it.
    turn_at: u64,
    gap: u64,
    turn_max: u64,
    /// When something happened last.
    busy_at: u64,
    /// A frame is on the line and leaves then.
    is_leaving: bool,
    clock: u64,
    drift_ppm: i64,
}

enum Event {
    Arrive(usize, Vec<u8>),
    Leave(usize),
    Begin(usize),
    End(usize),
    Look,
}

/// A run.
pub struct World {
    script: Script,
    ledger: Rc<RefCell<Ledger>>,
    network: Network,
    places: Vec<Place>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    events_ever: u64,
    now: u64,
    turns: u64,
}

impl World {
    /// The hosts of a script, before anything has happened.
    pub fn new(script: Script, is_traced: bool) -> Self {
        let ledger = Rc::new(RefCell::new(Ledger::new(&script, is_traced)));
        let place = |(idx, plan): (usize, &super::script::HostPlan)| Place {
            host: Station::new(&script, idx, &ledger),
            turn_at: 0,
            gap: TURN,
            turn_max: plan.turn_max,
            busy_at: 0,
            is_leaving: false,
            clock: plan.clock,
            drift_ppm: plan.drift_ppm,
        };
        let places = script.hosts.iter().enumerate().map(place).collect();
        let network = Network::new(&script);
        let mut world = Self {
            ledger,
            network,
            places,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            events_ever: 0,
            now: 0,
            turns: 0,
            script,
        };
        for idx in 0..world.script.mishaps.len() {
            let mishap = world.script.mishaps[idx];
            world.schedule(mishap.from, Event::Begin(idx));
            world.schedule(mishap.to, Event::End(idx));
        }
        world.schedule(LOOK, Event::Look);
        world
    }

    /// Runs to the end.
    pub fn run(mut self) -> Report {
        while self.ledger.borrow().faults.is_empty() && !self.is_over() {
            if self.now > self.script.ends_by || self.network.tally.frames > FRAMES_MAX || self.turns > TURNS_MAX {
                self.complain();
                break;
            }
            self.step();
        }
        if self.ledger.borrow().faults.is_empty() {
            self.check_end();
        }
        let ledger = self.ledger.borrow();
        if ledger.is_traced {
            for (idx, place) in self.places.iter().enumerate() {
                println!("host {idx}:\n{}", place.host.counters());
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
        self.ledger.borrow().is_over() && self.places.iter().all(|place| place.host.is_quiet())
    }

    /// The next thing happens.
    fn step(&mut self) {
        let turn = self.places.iter().map(|place| place.turn_at).enumerate().min_by_key(|(_, at)| *at);
        let (host, turn_at) = turn.expect("a world has hosts");
        match self.queue.peek() {
            Some(&Reverse((at, number))) if at <= turn_at => {
                self.queue.pop();
                self.pass_to(at);
                let event = self.events.remove(&number).expect("an event happens once");
                self.happen(event);
            }
            _ => {
                self.pass_to(turn_at);
                self.turn(host);
            }
        }
    }

    fn pass_to(&mut self, at: u64) {
        self.now = self.now.max(at);
        self.ledger.borrow_mut().now = self.now;
    }

    fn schedule(&mut self, at: u64, event: Event) {
        self.events_ever += 1;
        self.events.insert(self.events_ever, event);
        self.queue.push(Reverse((at.max(self.now), self.events_ever)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(host, frame) => {
                self.ledger.borrow().trace(|| format!("host {host} <- {}", packet::describe(&frame)));
                let wakes = self.now + mix(self.now, host as u64) % TURN;
                let place = &mut self.places[host];
                place.host.arrive(frame);
                place.turn_at = place.turn_at.min(wakes.max(self.now));
                place.busy_at = self.now;
            }
            Event::Leave(host) => {
                self.places[host].is_leaving = false;
                for frame in self.places[host].host.leave() {
                    self.ledger.borrow().trace(|| format!("host {host} -> {}", packet::describe(&frame)));
                    for arrival in self.network.carry(&frame, host, self.now) {
                        self.schedule(arrival.at, Event::Arrive(arrival.host, arrival.frame));
                    }
                }
                self.send_next(host);
            }
            Event::Begin(idx) => self.begin(idx),
            Event::End(idx) => self.end(idx),
            Event::Look => {
                (0..self.places.len()).for_each(|idx| self.look(idx));
                self.schedule(self.now + LOOK, Event::Look);
            }
        }
    }

    fn look(&mut self, host: usize) {
        if let Err(what) = self.places[host].host.check() {
            self.ledger.borrow_mut().fail(format!("host {host}: {what}"));
        }
    }

    fn begin(&mut self, idx: usize) {
        let mishap = self.script.mishaps[idx];
        self.ledger.borrow().trace(|| format!("host {}: {:?} until {}", mishap.host, mishap.kind, nanos(mishap.to)));
        let now = self.clock(mishap.host);
        let place = &mut self.places[mishap.host];
        match mishap.kind {
            MishapKind::RingFull => place.host.stall(true),
            MishapKind::PoolEmpty(leave) => place.host.steal(Some(leave), now),
            MishapKind::ClockJump(by) => place.clock += by,
            MishapKind::Blackout | MishapKind::Deaf | MishapKind::Stall | MishapKind::Mtu(..) => (),
        }
    }

    fn end(&mut self, idx: usize) {
        let mishap = self.script.mishaps[idx];
        self.ledger.borrow().trace(|| format!("host {}: {:?} is over", mishap.host, mishap.kind));
        let now = self.clock(mishap.host);
        let place = &mut self.places[mishap.host];
        match mishap.kind {
            MishapKind::RingFull => place.host.stall(false),
            MishapKind::PoolEmpty(_) => place.host.steal(None, now),
            _ => (),
        }
    }

    /// The time of a host's clock.
    fn clock(&self, host: usize) -> u64 {
        let place = &self.places[host];
        let drift = self.now as i128 * i128::from(place.drift_ppm) / 1_000_000;
        place.clock + (self.now as i128 + drift) as u64
    }

    fn turn(&mut self, host: usize) {
        if let Some(until) = self.stalls_until(host) {
            self.places[host].turn_at = until;
            return;
        }
        self.turns += 1;
        let now = self.clock(host);
        let place = &mut self.places[host];
        let had = place.host.poll(now);
        let is_busy = had || place.host.waiting() > 0 || place.host.next_len().is_some();
        if is_busy {
            (place.gap, place.busy_at) = (TURN, self.now);
        } else {
            let most = if self.now > place.busy_at + TIMEOUT { DOZE.max(place.turn_max) } else { place.turn_max };
            place.gap = (place.gap * 2).min(most);
        }
        place.turn_at = self.now + place.gap;
        if self.turns.is_multiple_of(LOOK_TURNS) {
            self.look(host);
        }
        self.send_next(host);
    }

    fn stalls_until(&self, host: usize) -> Option<u64> {
        let stalls = self.script.mishaps.iter().filter(|mishap| {
            mishap.host == host && mishap.kind == MishapKind::Stall && mishap.from <= self.now && self.now < mishap.to
        });
        stalls.map(|mishap| mishap.to).max()
    }

    /// The next frame of a host gets onto the line.
    fn send_next(&mut self, host: usize) {
        let place = &mut self.places[host];
        let Some(len) = place.host.next_len().filter(|_| !place.is_leaving) else { return };
        place.is_leaving = true;
        let at = self.now + self.network.time_of(len);
        self.schedule(at, Event::Leave(host));
    }

    /// It has taken too long.
    fn complain(&mut self) {
        let mut ledger = self.ledger.borrow_mut();
        let unfinished = ledger.unfinished();
        let since = nanos(self.now.saturating_sub(self.script.heals_at));
        let (frames, turns) = (self.network.tally.frames, self.turns);
        ledger.fail(format!("not over {since} after all was well, {frames} frames and {turns} turns"));
        unfinished.into_iter().for_each(|what| ledger.fail(what));
        for (idx, place) in self.places.iter().enumerate() {
            if !place.host.is_quiet() {
                ledger.fail(format!("host {idx} has connections left"));
            }
        }
    }

    /// All is over: nothing may be left.
    fn check_end(&mut self) {
        self.ledger.borrow_mut().check_end();
        for host in 0..self.places.len() {
            let now = self.clock(host);
            while !self.places[host].host.leave().is_empty() {}
            let place = &mut self.places[host];
            place.host.let_go(now);
            // Buffers of frames that left in one turn are freed in the next turn, which may itself
            // have to send a frame, such as a request for a neighbor.
            let mut rests = |_: u64| {
                let received = place.host.poll(now);
                place.host.leave().is_empty() && !received
            };
            if !(0..TURNS_TO_REST).any(&mut rests) {
                self.ledger.borrow_mut().fail(format!("host {host}, at the end: it never rests"));
                continue;
            }
            if let Err(what) = place.host.check_end() {
                self.ledger.borrow_mut().fail(format!("host {host}, at the end: {what}"));
            }
        }
    }
}
