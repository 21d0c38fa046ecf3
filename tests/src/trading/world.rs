//! The machines, what happens to them, and what must hold.

use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use exchange_sim::{Fault, FaultPlan, FaultRule};
use market::{Price, Side};
use order_entry::orders::{Order, OrderType};
use order_entry::risk::{InstrumentIdx, KillSwitch, Limits};
use order_entry::session::VenueSession;
use order_gateway::control::Command;
use order_gateway::host::Host;
use order_gateway::standby::{Followed, Follower, FollowerLink, StandbyLink};
use order_gateway::{BookEvent, LineConfig, Run};

use super::gateway::{CREDIT_MAX, Disk, JOURNAL_LEN, SimGateway, SimSession, Trader, begin, limits, recover};
use super::network::{Network, Shared, SimHost, address};
use super::rates::RateJudge;
use super::script::{Disturbance, STEPS, Script};
use super::venue::{OPENING, SYMBOLS, SimVenue, UNPRICED};
use crate::mutate::Random;

/// Between two turns.
const STEP_NS: u64 = 5_000_000;
/// Steps at most, after the disturbances, until all is settled.
const SETTLE_STEPS: u64 = 12_000;
const VENUE: usize = 0;
const ORDERS: u16 = 9_000;
const LINK: u16 = 9_300;
const LEASE: Duration = Duration::from_millis(400);

enum Process<S> {
    /// Until this step, with what is on the disk.
    Down(u64, Option<Disk>),
    Gateway(Box<Run<Trader, S, Disk>>, Sender<Command>, KillSwitch),
    Standby(Box<FollowerLink<Disk>>),
}

struct Machine<S> {
    host: SimHost,
    process: Process<S>,
    /// Follows, and does not trade.
    is_standby: bool,
    /// The name of the copy.
    name: u64,
    /// A disk keeps its process until then.
    stalled_until_ns: u64,
}

/// A run.
pub(super) struct World<S> {
    script: Script,
    network: Shared,
    venue: SimVenue,
    machines: Vec<Machine<S>>,
    active: usize,
    names: u64,
    random: Random,
    step: u64,
    heals_at: [u64; 3],
    limits_version: u64,
    position_max: i64,
    position_max_ever: i64,
    /// The greatest exposure in each instrument that is right now.
    exposure_max: [i64; SYMBOLS.len()],
    is_reloading: bool,
    /// A power cut came between cancels of a stop, which wait for no disk, and the end of their
    /// sync: the venue may have requests that the journal lacks. The next request goes behind a
    /// login that has told it, and takes all to the disk.
    may_lack_stop: bool,
    rates: RateJudge,
    pub takeovers: u64,
    /// Turns that a disk has kept for longer than a lease.
    pub stalls: u64,
    pub restarts: u64,
    pub story: Vec<String>,
}

impl<S: SimSession> World<S> {
    pub(super) fn new(script: Script) -> Self {
        let network: Shared = Rc::new(std::cell::RefCell::new(Network::new(script.seed, 3)));
        network.borrow_mut().per_mille = script.per_mille;
        network.borrow_mut().slow_per_mille = script.slow_per_mille;
        let mut random = Random::new(!script.seed);
        let rules = [Fault::LostAck, Fault::HalfOpen, Fault::Throttle, Fault::CrossingFill];
        let chances = [0.01, 0.003, 0.01, 0.05];
        let rules = rules.into_iter().zip(chances).map(|(fault, chance)| FaultRule::Chance(fault, chance));
        let rules = if script.has_venue_faults { rules.collect() } else { Vec::new() };
        let plan = FaultPlan { seed: script.seed, rules };
        let venue = SimVenue::new(&network, VENUE, S::PROTOCOL, plan, random.below(2) == 0);
        let machines = (1..3).map(|machine| {
            let rate = 960 + random.below(81) as u64;
            let host = SimHost { network: Rc::clone(&network), machine, rate };
            let process = Process::Down(0, None);
            Machine { host, process, is_standby: machine == 2, name: machine as u64, stalled_until_ns: 0 }
        });
        let machines = machines.collect();
        let world = Self {
            script,
            network,
            venue,
            machines,
            active: 0,
            names: 2,
            random,
            step: 0,
            heals_at: [0; 3],
            limits_version: 1,
            position_max: 1_500,
            position_max_ever: 1_500,
            exposure_max: [1_500; SYMBOLS.len()],
            is_reloading: false,
            may_lack_stop: false,
            rates: RateJudge::new(),
            takeovers: 0,
            stalls: 0,
            restarts: 0,
            story: Vec::new(),
        };
        world.network.borrow_mut().listen(VENUE, ORDERS);
        world
    }

    fn tell(&mut self, what: impl Into<String>) {
        let at_ms = self.step * STEP_NS / 1_000_000;
        let what = what.into();
        self.story.push(format!("{at_ms:>6} ms  {what}"));
    }

    /// To the end; an error names the broken rule.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while self.step < STEPS {
            self.disturb();
            self.turn(true)?;
        }
        self.heal();
        while self.step < STEPS + SETTLE_STEPS {
            self.turn(false)?;
            if self.step.is_multiple_of(64) && self.is_settled() {
                // What is on its way arrives.
                (0..400).try_for_each(|_| self.turn(false))?;
                if self.is_settled() {
                    return self.compare();
                }
            }
        }
        Err(format!("not settled: {}", self.describe()))
    }

    fn disturb(&mut self) {
        let due = self.script.disturbances.iter().filter(|(at, _)| *at == self.step).map(|(_, what)| *what);
        for what in due.collect::<Vec<_>>() {
            self.tell(format!("{what:?}"));
            self.apply(what);
        }
        for idx in 0..3 {
            if self.heals_at[idx] == self.step && self.step > 0 {
                self.network.borrow_mut().cut(idx, false);
            }
        }
    }

    fn apply(&mut self, what: Disturbance) {
        let now_ns = self.network.borrow().now_ns();
        match what {
            Disturbance::Die => self.stop(self.active, false),
            Disturbance::PowerCut => self.stop(self.active, true),
            Disturbance::StandbyDies => {
                if matches!(self.machines[1 - self.active].process, Process::Standby(_)) {
                    self.stop(1 - self.active, false);
                }
            }
            Disturbance::VenueRestarts => {
                self.network.borrow_mut().abort_all(VENUE);
                self.venue.restart(now_ns);
            }
            Disturbance::Cut(idx) => {
                self.network.borrow_mut().cut(idx, true);
                self.heals_at[idx] = self.step + 1 + self.random.below(400) as u64;
            }
            Disturbance::Kill => {
                if let Process::Gateway(_, _, kill) = &self.machines[self.active].process {
                    kill.throw();
                }
            }
            Disturbance::Arm => self.command(|kill| Command::Arm(kill.throws())),
            Disturbance::CancelAll => self.command(|_| Command::CancelAll),
            Disturbance::HandOver => self.command(|_| Command::HandOver),
            Disturbance::Reload => {
                self.limits_version += 1;
                self.position_max = 500 * (1 + self.random.below(6) as i64);
                self.position_max_ever = self.position_max_ever.max(self.position_max);
                // What it allows holds once the gateway has taken it.
                (self.exposure_max, self.is_reloading) = ([self.position_max_ever; SYMBOLS.len()], true);
                self.command(|_| Command::Limits(self.limits()));
            }
        }
    }

    fn command(&self, command: impl FnOnce(&KillSwitch) -> Command) {
        if let Process::Gateway(_, commands, kill) = &self.machines[self.active].process {
            // The run ends with its process.
            let _ = commands.send(command(kill));
        }
    }

    /// Ends a process; it starts again later.
    fn stop(&mut self, idx: usize, is_power: bool) {
        let until = self.step + 1 + self.random.below(300) as u64;
        let down = Process::Down(until, None);
        let disk = match std::mem::replace(&mut self.machines[idx].process, down) {
            Process::Down(until, disk) => {
                self.machines[idx].process = Process::Down(until, disk);
                return;
            }
            Process::Gateway(run, ..) => {
                let journal = run.gateway.core().journal();
                let (disk, end) = (journal.memory().clone(), journal.end());
                self.may_lack_stop |= is_power && (run.gateway.core().is_sync_due() || disk.is_stop_under_way());
                Some(if is_power { disk.cut(end, &mut self.random) } else { disk })
            }
            Process::Standby(link) => link.follower().journal().map(|journal| journal.memory().clone()),
        };
        let machine = self.machines[idx].host.machine;
        self.machines[idx].stalled_until_ns = 0;
        if is_power {
            self.network.borrow_mut().reboot(machine);
        } else {
            self.network.borrow_mut().abort_all(machine);
        }
        self.machines[idx].process = Process::Down(until, disk);
    }

    fn start(&mut self, idx: usize, disk: Option<Disk>) -> Result<(), String> {
        self.restarts += 1;
        let machine = &self.machines[idx];
        if machine.is_standby {
            let disk = disk.unwrap_or_else(|| Disk::new(vec![0; JOURNAL_LEN]));
            let follower = Follower::new(machine.name, disk)?;
            let primary = address(2 - idx, LINK);
            self.machines[idx].process = Process::Standby(Box::new(FollowerLink::new(follower, primary, None)));
            return Ok(());
        }
        let (kill, seed) = (KillSwitch::new(), self.script.seed ^ self.step << 32);
        let (limits, is_new) = (self.limits(), disk.is_none());
        let disk = self.slow_disk(idx, disk.unwrap_or_else(|| Disk::new(vec![0; JOURNAL_LEN])));
        let (gateway, standby) = match is_new {
            true => (begin(seed, *limits, disk, kill.clone()), 0),
            false => recover(seed, *limits, disk, kill.clone())?,
        };
        self.trade(idx, gateway, standby, kill);
        Ok(())
    }

    /// The limits of now, as the gateway has them.
    fn limits(&self) -> Box<Limits> {
        limits(self.limits_version, self.position_max, self.script.has_rates)
    }

    fn slow_disk(&self, idx: usize, disk: Disk) -> Disk {
        disk.slow(&self.network, self.machines[idx].host.machine, self.script.seed ^ self.step << 32)
    }

    fn trade(&mut self, idx: usize, mut gateway: SimGateway<S>, standby: u64, kill: KillSwitch) {
        let host = self.machines[idx].host.clone();
        // What it synced so far took it no time: nobody waits for a start.
        self.network.borrow_mut().ahead_ns[host.machine] = 0;
        gateway.core().journal().memory().end_syncs();
        self.rates.restart();
        // A person who finds a thrown switch does not always lift it at once.
        if gateway.core().killed().is_none() || self.random.below(2) == 0 {
            gateway.core_mut().arm(host.now_ns());
        }
        self.network.borrow_mut().listen(host.machine, LINK);
        let line = LineConfig { retry: Duration::from_millis(50), ..LineConfig::new(address(VENUE, ORDERS)) };
        let mut run = Run::new(gateway, line, Box::new(host.clone()));
        let (sender, commands) = channel();
        run.commands = Some(commands);
        run.standby = Some(StandbyLink::new(Box::new(host), LEASE, standby));
        self.active = idx;
        // What was sent before, perhaps by another machine, was right by the limits of its time.
        self.exposure_max = [self.position_max_ever; SYMBOLS.len()];
        self.machines[idx].process = Process::Gateway(Box::new(run), sender, kill);
    }

    /// One turn of everything.
    fn turn(&mut self, is_trading: bool) -> Result<(), String> {
        self.step += 1;
        self.network.borrow_mut().step(STEP_NS);
        let now_ns = self.network.borrow().now_ns();
        if is_trading && self.random.below(12) == 0 {
            let side = if self.random.below(2) == 0 { Side::Buy } else { Side::Sell };
            let price = Price(OPENING.0 + 100 * (self.random.below(9) as i64 - 4));
            let instrument = self.random.below(SYMBOLS.len());
            self.venue.trade(instrument, side, 100 * (1 + self.random.below(3) as u32), price, now_ns);
        }
        self.venue.turn(now_ns);
        let is_stalled = self.machines[self.active].stalled_until_ns > now_ns;
        for idx in 0..2 {
            self.turn_of(idx, is_trading)?;
        }
        // One whose disk keeps it has not taken them yet.
        if !is_stalled && std::mem::take(&mut self.is_reloading) {
            self.exposure_max = core::array::from_fn(|instrument| self.exposure_max_behind_reload(instrument));
        }
        for (instrument, most) in self.exposure_max.into_iter().enumerate() {
            let (long, short) = self.venue.worst(instrument);
            if long > most || short > most {
                return Err(format!("limit exceeded: {long} long and {short} short at most, {most} allowed"));
            }
        }
        self.check_credit()?;
        let both = self.network.borrow_mut().both_sent.take();
        self.venue.fault.take().or(both).map_or(Ok(()), Err)
    }

    /// What open orders hold and what was spent is within the credit of each side. Sales may earn
    /// more than their limits say, as far as prices are from each other here.
    fn check_credit(&self) -> Result<(), String> {
        let ((buys, sells), cash) = (self.venue.open_notional(), self.venue.cash);
        let (bought, sold) = (buys + cash.max(0), sells + (-cash).max(0));
        if bought > CREDIT_MAX || sold > CREDIT_MAX + CREDIT_MAX / 50 {
            return Err(format!("credit exceeded: {bought} bought and {sold} sold at most, {CREDIT_MAX} allowed"));
        }
        Ok(())
    }

    /// Limits that were lowered end no order: what the gateway has, and has on its way, may stay,
    /// and nothing may come to it.
    fn exposure_max_behind_reload(&self, instrument: usize) -> i64 {
        let Process::Gateway(run, ..) = &self.machines[self.active].process else { return self.position_max_ever };
        let risk = run.gateway.core().risk();
        let instrument = InstrumentIdx(instrument as u32);
        let position = risk.position(instrument).unwrap_or(0);
        let (buys, sells) = risk.open_qty(instrument).unwrap_or((0, 0));
        self.position_max.max(position + buys).max(sells - position)
    }

    fn turn_of(&mut self, idx: usize, is_trading: bool) -> Result<(), String> {
        let mut said = Vec::new();
        let mut report = |what: &str| said.push(what.to_owned());
        let (is_book, away) = (is_trading && self.random.below(8) == 0, 100 * self.random.below(3) as i64);
        let machine = &mut self.machines[idx];
        let (now_ns, true_ns) = (machine.host.now_ns(), self.network.borrow().now_ns());
        if machine.stalled_until_ns > true_ns {
            return Ok(());
        }
        let mut is_over = false;
        let mut followed = None;
        match &mut machine.process {
            Process::Down(until, disk) if *until < self.step => {
                let disk = disk.take();
                self.start(idx, disk)?;
            }
            Process::Down(..) => (),
            Process::Gateway(run, ..) => {
                if is_book {
                    let bid = Some((Price(OPENING.0 - 100 - away), 100));
                    let offer = Some((Price(OPENING.0 + 100 + away), 100));
                    run.gateway.core_mut().feed_heard(now_ns);
                    let instrument = InstrumentIdx(self.random.below(SYMBOLS.len()) as u32);
                    let book = BookEvent { instrument, bid, offer, is_stale: false, is_halted: false, at_ns: now_ns };
                    run.gateway.on_book(&book);
                    if let Some(passed) = run.gateway.strategy_mut().passed.take() {
                        self.rates.judge(passed, true_ns)?;
                        self.may_lack_stop = false;
                    }
                }
                is_over = run.turn(&mut report) == order_gateway::Turn::HandedOver;
            }
            Process::Standby(link) => match link.turn(&machine.host.clone(), &mut report) {
                Ok(next) => followed = next,
                Err(why) => {
                    report(&why);
                    is_over = true;
                    // A person knows that it has ended.
                    self.command(|_| Command::Alone);
                }
            },
        }
        let machine = &mut self.machines[idx];
        let ahead_ns = std::mem::take(&mut self.network.borrow_mut().ahead_ns[machine.host.machine]);
        if ahead_ns > 0 {
            machine.stalled_until_ns = true_ns + ahead_ns;
            self.stalls += u64::from(ahead_ns > LEASE.as_nanos() as u64);
            said.push(format!("its disk takes {} ms", ahead_ns / 1_000_000));
        }
        if said.iter().any(|what| what.contains("another standby may still take over")) {
            // The other machine's copy has a new name: the one that the journal names does not run.
            self.command(|_| Command::Alone);
        }
        // All that was sent is on the disk, so that a power cut loses nothing. Of cancels of a stop
        // it may, and then a person is told.
        let lost = said.iter().find(|what| {
            let is_told = self.may_lack_stop && what.starts_with("messages between the venue and us are lost");
            what.ends_with("and arms") && !what.starts_with("the kill switch") && !is_told
        });
        if let Some(what) = lost {
            return Err(format!("lost: {what}"));
        }
        // Of attempts that fail in the same way the first is said.
        let is_refused = said.iter().any(|what| what.contains("no part of this journal"));
        for what in said {
            self.tell(format!("gateway {idx}: {what}"));
        }
        if is_refused && self.machines[1 - idx].is_standby {
            // After a power cut the copy may have more than the journal. A person does as it says,
            // also where that standby has died meanwhile.
            self.stop(1 - idx, false);
            self.retire(1 - idx);
            self.command(|_| Command::Alone);
        }
        if is_over {
            let has_handed_over = matches!(self.machines[idx].process, Process::Gateway(..));
            self.stop(idx, false);
            if !has_handed_over {
                // Its machine is the next standby's, with an empty journal. So is one that has
                // handed over, but only once the standby has taken over: if that one died
                // before, nobody trades until this one starts again with its journal.
                self.retire(idx);
            }
        }
        if followed == Some(Followed::TakeOver) {
            self.take_over(idx)?;
        }
        Ok(())
    }

    /// The machine becomes a standby with an empty journal, some time later.
    fn retire(&mut self, idx: usize) {
        self.names += 1;
        (self.machines[idx].is_standby, self.machines[idx].name) = (true, self.names);
        if let Process::Down(until, disk) = &mut self.machines[idx].process {
            (*until, *disk) = (self.step + 400, None);
        }
    }

    fn take_over(&mut self, idx: usize) -> Result<(), String> {
        self.takeovers += 1;
        self.may_lack_stop = false;
        self.tell(format!("gateway {idx} takes over"));
        let Process::Standby(link) = &self.machines[idx].process else { return Ok(()) };
        let Some(journal) = link.follower().journal() else { return Err("a standby without a copy takes over".into()) };
        let disk = journal.memory().clone();
        self.network.borrow_mut().abort_all(idx + 1);
        self.network.borrow_mut().writer = Some(idx + 1);
        let (kill, seed) = (KillSwitch::new(), self.script.seed ^ self.step << 32);
        let (limits, disk) = (self.limits(), self.slow_disk(idx, disk));
        let (mut gateway, _) = recover(seed, *limits, disk, kill.clone())?;
        let now_ns = self.machines[idx].host.now_ns();
        gateway.core_mut().set_standby(0, now_ns).map_err(|error| error.to_string())?;
        self.machines[idx].is_standby = false;
        self.trade(idx, gateway, 0, kill);
        // A person finds the old primary fenced, and makes it the standby after a while.
        if !self.machines[1 - idx].is_standby {
            self.machines[1 - idx].is_standby = true;
            if let Process::Down(..) = self.machines[1 - idx].process {
                self.retire(1 - idx);
            }
        }
        Ok(())
    }

    /// Nothing more happens, and people end what waits for them.
    fn heal(&mut self) {
        self.tell("all faults end");
        self.network.borrow_mut().per_mille = [0; 3];
        self.network.borrow_mut().slow_per_mille = 0;
        (0..3).for_each(|idx| self.network.borrow_mut().cut(idx, false));
    }

    fn is_settled(&self) -> bool {
        let Process::Gateway(run, ..) = &self.machines[self.active].process else { return false };
        let core = run.gateway.core();
        VenueSession::is_open(core.session())
            && core.to_send().is_empty()
            && core.orders().live().all(|(_, order)| {
                let is_asked = order.is_unacknowledged() || order.is_cancel_pending();
                !is_asked && order.pending_replaces().is_empty() && !order.is_in_doubt()
            })
    }

    fn describe(&self) -> String {
        let Process::Gateway(run, ..) = &self.machines[self.active].process else {
            return "the active gateway is down, or a standby".to_owned();
        };
        let core = run.gateway.core();
        let live: Vec<_> = core.orders().live().map(|(_, order)| (order.accepted_id(), order.state())).collect();
        let is_open = VenueSession::is_open(core.session());
        format!("open {is_open}, {live:?}")
    }

    /// Both sides, and the journal, have the same orders, positions and cash.
    fn compare(&self) -> Result<(), String> {
        let Process::Gateway(run, ..) = &self.machines[self.active].process else { return Ok(()) };
        let view = |gateway: &SimGateway<S>| {
            let orders = gateway.core().orders().live();
            // A market order rests by the venue's protection, which its reports do not say.
            let is_unpriced = |it: &Order| {
                it.instructions().order_type == OrderType::Market
                    && self.venue.open.get(&it.accepted_id()).is_some_and(|order| order.3 == UNPRICED)
            };
            let price = |it: &Order| if is_unpriced(it) { UNPRICED } else { it.price() };
            let open =
                orders.map(|(_, it)| (it.accepted_id(), (it.instrument.0 as usize, it.side, it.leaves(), price(it))));
            let risk = gateway.core().risk();
            let open = open.collect::<std::collections::BTreeMap<_, _>>();
            let position = |idx| risk.position(InstrumentIdx(idx as u32)).unwrap_or(0);
            (open, core::array::from_fn(position), risk.cash())
        };
        let theirs = (self.venue.open.clone(), self.venue.positions, self.venue.cash);
        let disk = run.gateway.core().journal().memory().clone();
        let (again, _) = recover::<S>(0, *self.limits(), disk, KillSwitch::new())?;
        for (who, ours) in [("the gateway", view(&run.gateway)), ("its journal", view(&again))] {
            if ours != theirs {
                return Err(format!("unequal: {who} has {ours:?}, the venue {theirs:?}"));
            }
        }
        Ok(())
    }

    pub(super) const fn arrived(&self) -> u64 {
        self.venue.arrived
    }
}
