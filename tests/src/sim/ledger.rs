//! The records of a run: the sessions, their progress, and the errors found.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use super::end::{End, EndPlan, Outcome, Role, mix};
use super::script::{FaultKind, Listener, SECOND, Script, Session, Stack};

/// One end of a session: 0 is the client, 1 the server.
pub type Side = usize;
/// A session, and which end of it.
pub type EndKey = (usize, Side);

/// Time for which a stack requests a neighbor. A request sent after the faults have ended gets a
/// reply.
const RESOLVED_WITHIN: u64 = 10 * SECOND;

/// Time after the end of the faults within which an app may still give up: data sent during the
/// faults is lost, and data sent soon afterwards may be lost too, because the queues were full.
const GIVES_UP_WITHIN: u64 = 10 * SECOND;

/// The records.
pub struct Ledger {
    sessions: Vec<Session>,
    /// The ends of each session.
    pub ends: Vec<[End; 2]>,
    /// The session of each pair of client and server address.
    flows: HashMap<(SocketAddrV4, SocketAddrV4), usize>,
    /// The shortest TIME-WAIT of each host.
    time_waits: Vec<u64>,
    /// Whether each host resolves its neighbors by ARP.
    uses_arp: Vec<bool>,
    /// The longest user timeout of each session, if one is set.
    patience: Vec<Option<u64>>,
    /// When all faults end.
    heals_at: u64,
    /// The errors.
    pub faults: Vec<String>,
    /// Whether events are printed.
    pub is_traced: bool,
    /// The world's clock, for the trace.
    pub now: u64,
}

impl Ledger {
    /// The records before the first event.
    pub fn new(script: &Script, is_traced: bool) -> Self {
        let ends = |(idx, session): (usize, &Session)| {
            let stream = |side: Side| mix(script.seed, (idx * 2 + side + 1) as u64);
            let bytes_received = |side: Side, plans: &[EndPlan; 2]| match plans[1 - side].role {
                Role::Source(_) => stream(1 - side),
                Role::Echo => stream(side),
            };
            let end =
                |side: Side| End::new(session.ends[side].clone(), stream(side), bytes_received(side, &session.ends));
            [end(0), end(1)]
        };
        Self {
            sessions: script.sessions.clone(),
            ends: script.sessions.iter().enumerate().map(ends).collect(),
            flows: HashMap::new(),
            patience: script.sessions.iter().map(|session| patience(script, session)).collect(),
            heals_at: script.heals_at,
            uses_arp: script.hosts.iter().map(|host| host.uses_arp).collect(),
            time_waits: (0..script.hosts.len()).map(|host| time_wait(script, host)).collect(),
            faults: Vec::new(),
            is_traced,
            now: 0,
        }
    }

    /// A client has begun a session from `client` to `server`.
    pub fn begin(&mut self, session: usize, client: SocketAddrV4, server: SocketAddrV4) {
        self.flows.insert((client, server), session);
    }

    /// The session of two addresses.
    pub fn session(&self, client: SocketAddrV4, server: SocketAddrV4) -> Option<usize> {
        self.flows.get(&(client, server)).copied()
    }

    /// The end that sends a segment from `source` to `destination`.
    pub fn sender(&self, source: SocketAddrV4, destination: SocketAddrV4) -> Option<EndKey> {
        let client = self.session(source, destination).map(|session| (session, 0));
        client.or_else(|| self.session(destination, source).map(|session| (session, 1)))
    }

    /// The seed of the stream that an end sends.
    pub fn stream(&self, seed: u64, (session, side): EndKey) -> u64 {
        let of = |side: Side| mix(seed, (session * 2 + side + 1) as u64);
        match self.ends[session][side].plan.role {
            Role::Source(_) => of(side),
            Role::Echo => of(1 - side),
        }
    }

    /// One end.
    pub fn end(&mut self, (session, side): EndKey) -> &mut End {
        &mut self.ends[session][side]
    }

    /// Records an error.
    pub fn fail(&mut self, what: String) {
        if self.is_traced {
            println!("{:>14} WRONG: {what}", nanos(self.now));
        }
        if self.faults.len() < 20 {
            self.faults.push(what);
        }
    }

    /// Records an event, if the run is traced.
    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>14} {}", nanos(self.now), what());
        }
    }

    /// Records that the handshake of an end is complete.
    pub fn connected(&mut self, key: EndKey) {
        self.trace(|| format!("{} connected", name(key)));
        let end = self.end(key);
        if end.is_connected || end.outcome.is_some() {
            self.fail(format!("{} connected twice, or after its end", name(key)));
        }
        self.end(key).is_connected = true;
    }

    /// Checks bytes that an end has received.
    pub fn bytes_received(&mut self, key: EndKey, bytes: &[u8], now: u64) {
        if let Err(what) = self.end(key).receive(bytes, now) {
            self.fail(format!("{}: {what}", name(key)));
        }
    }

    /// Records that the peer of an end closed its side, and checks that all its data came before.
    pub fn peer_closed(&mut self, key: EndKey) {
        self.trace(|| format!("{} saw the peer close", name(key)));
        let end = self.end(key);
        let bytes_received = end.bytes_received;
        if end.saw_close || end.outcome.is_some() {
            self.fail(format!("{} saw the close twice, or after the end", name(key)));
        }
        self.end(key).saw_close = true;
        let (session, side) = key;
        let peer = &self.ends[session][1 - side];
        if !peer.is_shut || bytes_received != peer.sent {
            let sent = peer.sent;
            self.fail(format!("{} saw the close after {bytes_received} bytes of {sent}", name(key)));
        }
    }

    /// Records the outcome of an end, and checks that its session may end like this.
    pub fn closed(&mut self, key: EndKey, outcome: Outcome) {
        self.trace(|| format!("{} closed: {outcome:?}", name(key)));
        if let Some(before) = self.end(key).outcome {
            self.fail(format!("{} closed twice: {before:?}, {outcome:?}", name(key)));
        }
        let now = self.now;
        let end = self.end(key);
        end.outcome = Some(outcome);
        end.finished_at = (outcome == Outcome::Finished).then_some(now);
        if let Err(what) = self.judge(key, outcome) {
            self.fail(format!("{} closed {outcome:?}: {what}", name(key)));
        }
    }

    /// Whether a session may end like this.
    fn judge(&self, (session, side): EndKey, outcome: Outcome) -> Result<(), String> {
        let (own, peer) = (&self.ends[session][side], &self.ends[session][1 - side]);
        let plan = &self.sessions[session];
        let aborts = plan.may_break();
        match outcome {
            Outcome::TimedOut if self.may_give_up(session) => Ok(()),
            Outcome::Reset | Outcome::TimedOut if peer.outcome == Some(Outcome::TimedOut) => Ok(()),
            // This end does not wait for the peer's close.
            Outcome::Finished if own.plan.hangs_up && own.is_shut => Ok(()),
            Outcome::Reset if self.is_forgotten((session, side)) || self.may_be_forgotten((session, side)) => Ok(()),
            Outcome::Reset if self.may_lack_its_neighbor((session, side)) => Ok(()),
            Outcome::Finished if !own.is_shut => Err("its side was not closed".into()),
            Outcome::Finished if !own.saw_close => Err("the peer did not close".into()),
            Outcome::Finished => Ok(()),
            Outcome::Aborted if own.plan.may_break() => Ok(()),
            Outcome::Aborted => Err("its plan does not abort".into()),
            Outcome::Reset | Outcome::Refused if aborts || plan.may_be_refused => Ok(()),
            // All ARP requests or replies were lost to faults, and no connection was established.
            Outcome::NoNeighbor if self.now < self.heals_at + RESOLVED_WITHIN && !own.is_connected => Ok(()),
            Outcome::TimedOut if aborts || plan.may_time_out => Ok(()),
            _ => Err("for no reason".into()),
        }
    }

    /// Whether an end of a session may have waited for its peer until its user timeout, because
    /// segments were lost to faults.
    fn may_give_up(&self, session: usize) -> bool {
        self.patience[session].is_some_and(|patience| self.now <= self.heals_at + patience + GIVES_UP_WITHIN)
    }

    /// Whether the peer of an end had closed and has forgotten the connection since: its last
    /// acknowledgment may have been lost all through TIME-WAIT, and a segment that requests it
    /// again is answered by a reset. No data is missing then: each app has received all data of the
    /// other. Where the peer's FIN comes in one burst with the reset, the app gets only the reset.
    fn is_forgotten(&self, (session, side): EndKey) -> bool {
        let (own, peer) = (&self.ends[session][side], &self.ends[session][1 - side]);
        let plan = &self.sessions[session];
        let host = if side == 0 { plan.server } else { plan.client };
        // An app that does not read learns of the end later than its stack, which nevertheless
        // forgets the connection (seed 7229).
        let time_wait = if peer.plan.may_stop_reading() { 0 } else { self.time_waits[host] };
        let has_all = own.is_shut && peer.bytes_received == own.sent && own.bytes_received == peer.sent;
        has_all && peer.finished_at.is_some_and(|at| self.now >= at + time_wait)
    }

    /// The same where the peer's app has stopped reading: its stack may have received all data and
    /// forgotten the connection before the app learns of it (seed 7774). Whether that was so is
    /// known when the app reads on: see [`check_end`](Self::check_end).
    fn may_be_forgotten(&self, (session, side): EndKey) -> bool {
        let (own, peer) = (&self.ends[session][side], &self.ends[session][1 - side]);
        own.is_shut
            && peer.is_shut
            && own.bytes_received == peer.sent
            && peer.outcome.is_none()
            && peer.plan.may_stop_reading()
    }

    /// Whether the listener of a client may have given up the handshake because all ARP replies
    /// were lost (seed 7828): the client had the SYN-ACK, but the server never got its
    /// acknowledgment, so no app has lost data that the other had.
    fn may_lack_its_neighbor(&self, (session, side): EndKey) -> bool {
        side == 0 && !self.ends[session][1].is_connected && self.uses_arp[self.sessions[session].server]
    }

    /// Checks, after all sessions have ended, that an end that was reset although neither end
    /// aborted has lost none of its data.
    pub fn check_end(&mut self) {
        for session in 0..self.ends.len() {
            for side in 0..2 {
                let (own, peer) = (&self.ends[session][side], &self.ends[session][1 - side]);
                let plan = &self.sessions[session];
                let has_given_up = peer.outcome == Some(Outcome::TimedOut);
                let has_no_neighbor = self.may_lack_its_neighbor((session, side));
                let is_excused = plan.may_break() || plan.may_be_refused || has_given_up || has_no_neighbor;
                if own.outcome != Some(Outcome::Reset) || is_excused {
                    continue;
                }
                if peer.outcome != Some(Outcome::Finished) || peer.bytes_received != own.sent {
                    let (bytes_received, sent, outcome) = (peer.bytes_received, own.sent, peer.outcome);
                    let own = name((session, side));
                    self.fail(format!(
                        "{own} was reset, and its peer received {bytes_received} of {sent}: {outcome:?}"
                    ));
                }
            }
        }
    }

    /// Whether all sessions have ended.
    pub fn is_over(&self) -> bool {
        self.ends.iter().all(|[client, server]| {
            // A server that has never accepted its client reports no end.
            let never_came = !server.is_connected && client.outcome.is_some_and(|how| how != Outcome::Finished);
            client.outcome.is_some() && (server.outcome.is_some() || never_came)
        })
    }

    /// The ends that have not ended, for the report.
    pub fn unfinished(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (session, ends) in self.ends.iter().enumerate() {
            for (side, end) in ends.iter().enumerate() {
                if end.outcome.is_none() {
                    lines.push(format!(
                        "{}: sent {} of {:?}, received {}, connected {}, shut {}, saw close {}",
                        name((session, side)),
                        end.sent,
                        end.plan.role,
                        end.bytes_received,
                        end.is_connected,
                        end.is_shut,
                        end.saw_close
                    ));
                }
            }
        }
        lines
    }

    /// Bytes that all apps have received.
    pub fn bytes(&self) -> u64 {
        self.ends.iter().flatten().map(|end| end.bytes_received).sum()
    }
}

/// The longest user timeout of the ends of a session.
fn patience(script: &Script, session: &Session) -> Option<u64> {
    let is_its = |listener: &&Listener| (listener.host, listener.port) == (session.server, session.port);
    let listener = script.listeners.iter().find(is_its);
    let options = listener.map(|listener| &listener.options).into_iter().chain([&session.options]);
    options.filter_map(|options| options.user_timeout).map(|timeout| timeout.as_nanos()).max()
}

/// The shortest duration of TIME-WAIT on a host, because its clock drifts and may jump ahead.
fn time_wait(script: &Script, host: usize) -> u64 {
    let plan = &script.hosts[host];
    if plan.stack == Stack::Smoltcp {
        return 0;
    }
    let jumps = script.injected_faults.iter().filter(|fault| fault.host == host).map(|fault| match fault.kind {
        FaultKind::ClockJump(by) => by,
        _ => 0,
    });
    (plan.time_wait - plan.time_wait / 1_000).saturating_sub(jumps.sum())
}

/// The name of an end.
pub fn name((session, side): EndKey) -> String {
    format!("session {session} {}", ["client", "server"][side])
}

/// A time in milliseconds, as text.
pub fn nanos(at: u64) -> String {
    format!("{}.{:06} ms", at / 1_000_000, at % 1_000_000)
}
