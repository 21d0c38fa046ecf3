//! Plays the lines of a script, one after the other.

mod call;
mod compare;
mod expectation;
mod receive;

use self::expectation::event_name;
use wirepath::pipeline::tcp::{ConnectionOptions, ListenOptions, TcpConfig, TcpEvent};
use wirepath::testing::tcp::Unsent;
use wirepath::time::{Duration, Instant};

use super::ScriptError;
use super::app::Call;
use super::expect::{Expectation, Secret};
use super::expression::Variables;
use super::line::{Action, Line, When, WireState};
use super::options::Limit;
use super::parse::AT_ONCE;
use super::segment::{Expected, Wanted};
use super::stage::{Peer, Stage, step};
use super::wire::{Bytes, SentSegment};

/// The greatest delay of a segment that a timer sends: timers have steps of at most 1 ms, and time
/// advances in steps.
const LATE: Duration = Duration::from_millis(1);
/// When a script begins.
const START: Duration = Duration::from_secs(100);
/// And so early, for the line before may have been late.
const EARLY: Duration = Duration::from_micros(500);

struct Player {
    stage: Stage,
    variables: Variables,
    /// The flow of the line that is played.
    flow: usize,
}

/// Plays a script.
pub(super) fn play(lines: &[Line]) -> Result<(), ScriptError> {
    // Options that only the listener has: the options of connections are the same for both sides.
    let mut options = ListenOptions { connection: ConnectionOptions::default(), ..ListenOptions::default() };
    let mut config = small();
    let mut start = START;
    let is_head = |line: &&Line| matches!(line.action, Action::Option(_) | Action::Config(_));
    let head_len = lines.iter().take_while(is_head).count();
    for line in &lines[..head_len] {
        match &line.action {
            Action::Option(setting) => setting.apply(&mut options),
            Action::Config(Limit::Start(span)) => start = *span,
            Action::Config(limit) => limit.apply(&mut config),
            _ => unreachable!("these two are a head"),
        }
    }
    let no_line = |what| ScriptError { line: 0, text: "the config".to_owned(), what };
    let stage = Stage::new(config, options, Instant::ZERO + start).map_err(no_line)?;
    let mut player = Player { stage, variables: Variables::new(), flow: 0 };
    player.play_all(&lines[head_len..])?;
    player.finish().map_err(|what| ScriptError {
        line: lines.last().map_or(0, |line| line.number),
        text: "the end".to_owned(),
        what,
    })
}

/// A machine that is made in no time.
fn small() -> TcpConfig {
    TcpConfig { connections_max: 64, listeners_max: 4, chunks_max: 1024, ..TcpConfig::default() }
}

impl Player {
    fn play_all(&mut self, lines: &[Line]) -> Result<(), ScriptError> {
        for line in lines {
            if let Action::Repeat(count, name, body) = &line.action {
                let error = |what| ScriptError { line: line.number, text: line.text.clone(), what };
                for round in 0..count.value(&self.variables).map_err(error)? {
                    name.iter().for_each(|name| _ = self.variables.insert(name.clone(), round));
                    self.play_all(body)?;
                }
                continue;
            }
            let played = self.play_line(line).and_then(|()| self.stage.fault.take().map_or(Ok(()), Err));
            played.map_err(|what| ScriptError { line: line.number, text: line.text.clone(), what })?;
        }
        Ok(())
    }

    fn play_line(&mut self, line: &Line) -> Result<(), String> {
        self.flow = self.stage.flow(line.flow.as_deref());
        match &line.action {
            Action::Leaves(expected) => return self.leaves(line.when, expected),
            Action::Silence => return self.silence(line.when),
            Action::Expect(expectation) => return self.expect(line.when, expectation),
            _ => self.wait(line.when)?,
        }
        match &line.action {
            Action::Receive(incoming) => self.receive(incoming)?,
            Action::Call(call, error) => self.call(call, error.as_deref())?,
            Action::Policy(policy) => self.stage.policy = *policy,
            Action::Reads(reads) => self.stage.reads = *reads,
            Action::Wire(state) => self.set_wire(state)?,
            Action::Let(name, value) => _ = self.variables.insert(name.clone(), value.value(&self.variables)?),
            Action::Anew => {
                let peer = self.peer_mut();
                peer.iss_before = peer.iss;
                (peer.iss, peer.clock, peer.irs, peer.id) = (None, None, None, None);
                (peer.written, peer.delivered, peer.expected, peer.win) = (0, 0, 0, 65_535);
            }
            Action::At(remote) => self.peer_mut().flow.remote = *remote,
            Action::Like(name) => {
                let other = self.stage.flow(Some(name));
                let remote = self.stage.flows[other].flow.remote;
                self.peer_mut().flow.remote = remote;
            }
            Action::Option(_) | Action::Config(_) => {
                return Err("options stand before the first line that does something; later: call options".to_owned());
            }
            _ => unreachable!("they are played above"),
        }
        Ok(())
    }

    fn peer(&self) -> &Peer {
        &self.stage.flows[self.flow]
    }

    fn peer_mut(&mut self) -> &mut Peer {
        &mut self.stage.flows[self.flow]
    }

    /// Advances to the time of a line; no segment may leave meanwhile.
    fn wait(&mut self, when: When) -> Result<(), String> {
        let When::After(span, _) = when else { return Ok(()) };
        self.stage.end_burst();
        self.no_more_sent()?;
        let until = self.stage.now + span;
        self.stage.advance(until, |stage| !stage.wire.sent.is_empty());
        self.no_more_sent()
    }

    fn no_more_sent(&self) -> Result<(), String> {
        match self.stage.wire.sent.front() {
            Some(sent) => Err(format!("nothing should have left, but there was\n  {}", self.describe(sent))),
            None => Ok(()),
        }
    }

    fn silence(&mut self, when: When) -> Result<(), String> {
        self.stage.end_burst();
        self.wait(when)?;
        self.no_more_sent()
    }

    fn leaves(&mut self, when: When, expected: &Expected) -> Result<(), String> {
        self.stage.end_burst();
        let (from, to) = match when {
            When::Same => (AT_ONCE, AT_ONCE),
            When::After(from, to) => (from, to),
        };
        let base = self.stage.now;
        if to > AT_ONCE {
            let late = LATE.max(step(to) + step(to));
            self.stage.advance(base + to + late, |stage| !stage.wire.sent.is_empty());
        }
        let Some(sent) = self.stage.take_sent() else {
            return Err(format!("nothing left{}", if to > AT_ONCE { " in that time" } else { "" }));
        };
        let wrong = self.compare(expected, &sent)?;
        if !wrong.is_empty() {
            return Err(format!(
                "another segment left{}:\n  {}\n{}",
                self.ago(&sent),
                self.describe(&sent),
                wrong.join("\n")
            ));
        }
        if sent.at + EARLY < base + from {
            return Err(format!("the segment left {} early", (base + from).since(sent.at)));
        }
        Ok(())
    }

    fn ago(&self, sent: &SentSegment) -> String {
        if sent.at == self.stage.now { String::new() } else { format!(" {} ago", self.stage.now.since(sent.at)) }
    }

    /// The end of the script: no segment may be left over.
    fn finish(&mut self) -> Result<(), String> {
        self.stage.end_burst();
        self.no_more_sent()?;
        match self.stage.events.front() {
            Some((_, event)) => Err(format!("nobody expected {}", event_name(*event))),
            None => Ok(()),
        }
    }

    fn set_wire(&mut self, state: &WireState) -> Result<(), String> {
        let wire = &mut self.stage.wire;
        match state {
            WireState::Free => wire.refuses = None,
            WireState::Busy => wire.refuses = Some(Unsent::Busy),
            WireState::Down => wire.refuses = Some(Unsent::NoRoute),
            WireState::Mtu(mtu) => wire.mtu = mtu.value(&self.variables)? as usize,
            WireState::Cuts(len) => wire.cuts = len.value(&self.variables)? as usize,
        }
        Ok(())
    }
}
