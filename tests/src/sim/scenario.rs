//! A script from a seed. The theme of a run is drawn first (the number of hosts, the kinds of
//! faults), so that many seeds test one thing and some test everything.

use wirepath::pipeline::tcp::{Congestion, ConnectionOptions, Keepalive};
use wirepath::time::Duration;

use super::behavior;
use super::end::{Abort, Close, EndPlan, Role, WriteMethod, mix};
use super::nic::NicConfig;
use super::script::{
    FaultKind, HostPlan, Impairments, InjectedFault, Line, Listener, MS, SECOND, Script, Session, Stack,
};
use crate::mutate::Random;

/// The theme of a run.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// There are no faults.
    pub is_fair: bool,
    /// Every other host runs smoltcp.
    pub with_smoltcp: bool,
}

/// The run of a seed.
pub fn script(seed: u64) -> Script {
    themed(seed, Theme { is_fair: seed.is_multiple_of(8), with_smoltcp: seed % 4 == 3 })
}

/// The run of a seed with a theme.
pub fn themed(seed: u64, theme: Theme) -> Script {
    let mut draw = Draw(Random::new(mix(seed, 1)));
    let count = if draw.one_in(2) { 2 } else { draw.between(2, 8) as usize };
    let heals_at = if theme.is_fair { 0 } else { draw.between(100, 15_000) * MS };
    let hosts: Vec<_> = (0..count).map(|idx| draw.host(idx, theme)).collect();
    let mut listeners = draw.listeners(&hosts, heals_at);
    let mut sessions = draw.sessions(&hosts, &listeners, heals_at);
    // A session between two smoltcp hosts does not test our stack, and may hang for ever: three
    // duplicates of the acknowledgment before its FIN stop the FIN's timer (seed 1943).
    sessions
        .retain(|session| [session.client, session.server].iter().any(|&host| hosts[host].stack == Stack::Wirepath));
    listeners.iter_mut().for_each(|listener| adapt(listener, &sessions));
    let line = draw.line();
    let impairments = if theme.is_fair { Impairments::default() } else { draw.impairments() };
    let injected_faults = if theme.is_fair { Vec::new() } else { draw.injected_faults(count, heals_at) };
    let ends_by = heals_at + 600 * SECOND;
    let mut script = Script { seed, hosts, listeners, sessions, line, impairments, injected_faults, heals_at, ends_by };
    if behavior::is_rare(seed) {
        behavior::vary(&mut script);
        script.sessions.iter_mut().for_each(probe_for_lost_resets);
        let Script { listeners, sessions, .. } = &mut script;
        listeners.iter_mut().for_each(|listener| adapt(listener, sessions));
    }
    script
}

/// Enables keepalive where an end may vanish: its reset may be lost or never sent, and only a
/// probe finds that out.
fn probe_for_lost_resets(session: &mut Session) {
    if session.may_break() || session.options.user_timeout.is_some() {
        session.options.keepalive = Some(Keepalive::SESSION);
    }
}

/// Changes the options of a listener so that its sessions can end.
fn adapt(listener: &mut Listener, sessions: &[Session]) {
    let mut own = sessions.iter().filter(|session| (session.server, session.port) == (listener.host, listener.port));
    let gives_up = |session: &Session| session.options.user_timeout.is_some();
    if listener.options.user_timeout.is_some() || own.clone().any(|session| session.may_break() || gives_up(session)) {
        // A reset may be lost, or find the ring full, and only a probe finds that out.
        listener.options.keepalive = Some(Keepalive::SESSION);
    }
    if own.any(|session| session.ends[0].role == Role::Source(0)) {
        // A client that sends no data returns a SYN cookie once. If that segment is lost, the
        // server never accepts the client.
        listener.backlog = 128;
    }
}

/// Draws the parts of a script.
pub(super) struct Draw(pub(super) Random);

impl Draw {
    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.0.below(count) == 0
    }

    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.draw() % (to - from + 1)
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len())]
    }

    /// A number up to `most`, small ones as often as large ones.
    pub(super) fn spread(&mut self, most: u64) -> u64 {
        let bits = 64 - most.leading_zeros() as u64;
        let bits = self.between(0, bits);
        let below = 1u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
        (self.0.draw() % below).min(most)
    }

    fn host(&mut self, idx: usize, theme: Theme) -> HostPlan {
        let checksums = self.one_in(2);
        let nic = NicConfig {
            rx_ring_len: if theme.is_fair { 1024 } else { self.of(&[64, 256]) },
            tx_ring_len: self.of(&[4, 16, 64, 256]),
            checksums,
            segments: checksums && self.one_in(2),
            chains: self.one_in(2),
        };
        let chunks_max = self.of(&[128, 512, 512, 2048]);
        let is_smoltcp = theme.with_smoltcp && idx % 2 == 1;
        HostPlan {
            stack: if is_smoltcp { Stack::Smoltcp } else { Stack::Wirepath },
            nic,
            // The pool has buffers for all data that may wait and for the rings, so that data
            // cannot take the buffers to receive with.
            buffers: chunks_max + nic.tx_ring_len + 128,
            burst_len: self.of(&[1, 8, 32, 64]),
            turn_max: self.of(&[MS / 10, MS, 10 * MS]),
            clock: self.of(&[0, 1, SECOND, 3_600 * SECOND, 4_294_967 * SECOND]),
            drift_ppm: self.between(0, 400) as i64 - 200,
            uses_arp: theme.with_smoltcp || self.one_in(4),
            mtu: self.of(&[1500, 1500, 1500, 576, 1280]),
            time_wait: self.of(&[MS, SECOND, 5 * SECOND, 60 * SECOND]),
            chunks_max,
            reassembly_max: self.of(&[64, 1024]),
        }
    }

    pub(super) fn options(&mut self) -> ConnectionOptions {
        let buffers = [2_000, 8 << 10, 64 << 10, 256 << 10, 1 << 20];
        ConnectionOptions {
            nodelay: self.one_in(2),
            quickack: self.one_in(3),
            ack_delay: Duration::from_millis(self.of(&[1, 1, 40])),
            congestion: self.of(&[Congestion::Cubic, Congestion::Cubic, Congestion::Reno, Congestion::None]),
            rto_min: Duration::from_millis(self.of(&[1, 20, 200])),
            send_buffer: self.of(&buffers),
            receive_buffer: self.of(&buffers),
            mss_max: self.of(&[None, None, None, Some(100), Some(536)]),
            timestamps: !self.one_in(4),
            sack: !self.one_in(4),
            ecn: self.one_in(3),
            ..ConnectionOptions::default()
        }
    }

    fn listeners(&mut self, hosts: &[HostPlan], heals_at: u64) -> Vec<Listener> {
        let mut listeners = Vec::new();
        for host in 0..hosts.len() {
            for port in 0..self.between(1, 2) as u16 {
                let closes = heals_at > 0 && self.one_in(16);
                let backlog = self.of(&[1, 4, 128]);
                let closes_at = closes.then(|| self.between(0, heals_at));
                listeners.push(Listener { host, port: 5_000 + port, backlog, options: self.options(), closes_at });
            }
        }
        listeners
    }

    fn sessions(&mut self, hosts: &[HostPlan], listeners: &[Listener], heals_at: u64) -> Vec<Session> {
        let count = if self.one_in(8) { self.between(8, 64) } else { self.between(1, 6) };
        let size_max = if count > 6 {
            16 << 10
        } else if self.one_in(6) {
            1 << 20
        } else {
            64 << 10
        };
        (0..count).map(|_| self.session(hosts, listeners, heals_at, size_max)).collect()
    }

    fn session(&mut self, hosts: &[HostPlan], listeners: &[Listener], heals_at: u64, size_max: u64) -> Session {
        let listener = self.0.below(listeners.len());
        let listener = &listeners[listener];
        let others: Vec<usize> = (0..hosts.len()).filter(|host| *host != listener.host).collect();
        let client = self.of(&others);
        let mut ends = [self.end(size_max), self.end(size_max)];
        if self.one_in(4) {
            ends[1].role = Role::Echo;
            ends[1].write_max = ends[1].write_max.max(ends[0].write_max);
        }
        // At most one end waits for the other's close; an echo closes when it has echoed all.
        if self.one_in(2) {
            ends[self.0.below(2)].close = Close::AfterPeer;
        }
        if ends[1].role == Role::Echo {
            ends[0].close = Close::WhenSent;
        }
        let mut options = self.options();
        if ends.iter().any(EndPlan::may_break) || listener.closes_at.is_some() {
            // A reset may be lost, and only a probe finds that out.
            options.keepalive = Some(Keepalive::SESSION);
        }
        Session {
            client,
            server: listener.host,
            port: listener.port,
            begins_at: self.spread(heals_at + 100 * MS),
            options,
            ends,
            may_be_refused: listener.closes_at.is_some(),
            may_time_out: listener.closes_at.is_some(),
        }
    }

    fn end(&mut self, size_max: u64) -> EndPlan {
        let size = self.spread(size_max);
        let write_max = self.of(&[1, 20, 200, 1_400, 1_500, 16 << 10]);
        // A megabyte in single bytes would take long, and test nothing more.
        let size = size.min(write_max * 2_000);
        let pauses = if self.one_in(4) { self.between(1, 3) } else { 0 };
        let mut pauses: Vec<_> = (0..pauses).map(|_| (self.spread(size_max), self.spread(3 * SECOND))).collect();
        pauses.sort_unstable();
        let abort = self.one_in(16).then(|| {
            let at = self.spread(size);
            if self.one_in(2) { Abort::Sent(at) } else { Abort::Received(at) }
        });
        EndPlan {
            role: Role::Source(size),
            write_max: write_max as usize,
            write_gap: if self.one_in(8) { self.spread(2 * MS) } else { 0 },
            close: Close::WhenSent,
            abort,
            pauses,
            hold: if self.one_in(8) { 8 } else { 0 },
            writes: if self.one_in(2) { WriteMethod::HandsOver } else { WriteMethod::Copies },
            holds_back: false,
            hangs_up: false,
            changes: Vec::new(),
        }
    }

    fn line(&mut self) -> Line {
        let rate = self.of(&[10, 100, 1_000, 10_000]) * 1_000_000;
        Line {
            rate,
            delay: self.of(&[MS / 1_000, MS / 20, MS, 20 * MS]),
            queue_len: self.of(&[10_000, 100_000, 1_000_000]),
            mark_len: self.of(&[5_000, 50_000, usize::MAX]),
        }
    }

    fn impairments(&mut self) -> Impairments {
        let mut of = |one_in: usize, most: u64| if self.one_in(one_in) { self.spread(most) } else { 0 };
        Impairments {
            loss: of(2, 300_000) as u32,
            gap: of(4, 20_000) as u32,
            gap_max: 50,
            duplication: of(3, 200_000) as u32,
            corruption: of(3, 100_000) as u32,
            delay: of(3, 300_000) as u32,
            delay_max: of(1, 50 * MS),
            jitter: of(3, MS),
        }
    }

    fn injected_faults(&mut self, hosts: usize, heals_at: u64) -> Vec<InjectedFault> {
        let count = if self.one_in(3) { 0 } else { self.between(1, 6) };
        (0..count).map(|_| self.fault(hosts, heals_at)).collect()
    }

    fn fault(&mut self, hosts: usize, heals_at: u64) -> InjectedFault {
        let from = self.between(0, heals_at - 1);
        let longest = heals_at - from;
        let kind = match self.0.below(7) {
            0 => FaultKind::Blackout,
            1 => FaultKind::RxBlackout,
            2 => FaultKind::Stall,
            3 => FaultKind::RingFull,
            4 => FaultKind::PoolEmpty(self.spread(64) as usize),
            5 => FaultKind::Mtu(self.of(&[576, 1_000, 1_280, 1_400, 1_499]), self.one_in(2)),
            _ => FaultKind::ClockJump(self.spread(20 * SECOND)),
        };
        let span = match kind {
            FaultKind::Stall => self.spread(longest.min(2 * SECOND)),
            _ => self.spread(longest),
        };
        InjectedFault { host: self.0.below(hosts), from, to: from + span, kind }
    }
}
