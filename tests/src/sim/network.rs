//! The network between the hosts: a switch whose ports have a rate and a queue, and the faults on
//! the way.

use super::end::mix;
use super::packet;
use super::script::{FaultKind, Impairments, InjectedFault, Line, SECOND, Script, address, host_of};
use crate::mutate::Random;

/// Frames on their way.
pub struct Network {
    line: Line,
    impairments: Impairments,
    injected_faults: Vec<InjectedFault>,
    heals_at: u64,
    random: Random,
    /// The time from which the port to each host is free.
    free_at: Vec<u64>,
    /// For each host, how many more frames the current gap loses.
    gaps: Vec<u32>,
    /// The outcomes of frames.
    pub tally: Tally,
}

/// The outcomes of frames.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Tally {
    pub frames: u64,
    pub lost: u64,
    pub overrun: u64,
    pub duplicated: u64,
    pub corrupted: u64,
    pub delayed: u64,
    pub marked: u64,
    pub blacked_out: u64,
    pub too_long: u64,
}

/// A frame that arrives at a host.
pub struct Arrival {
    /// The time.
    pub at: u64,
    /// The host.
    pub host: usize,
    /// The frame.
    pub frame: Vec<u8>,
}

impl Network {
    /// The network of a script.
    pub fn new(script: &Script) -> Self {
        let count = script.hosts.len();
        Self {
            line: script.line,
            impairments: script.impairments,
            injected_faults: script.injected_faults.clone(),
            heals_at: script.heals_at,
            random: Random::new(mix(script.seed, 3)),
            free_at: vec![0; count],
            gaps: vec![0; count],
            tally: Tally::default(),
        }
    }

    /// Nanoseconds that a frame of this length takes on a port.
    pub fn time_of(&self, bytes: usize) -> u64 {
        // Preamble, checksum and gap are 24 bytes.
        (bytes.max(60) as u64 + 24) * 8 * SECOND / self.line.rate
    }

    /// A frame left a host: schedules its arrivals, with their ports and times.
    pub fn carry(&mut self, frame: &[u8], from: usize, now: u64) -> Vec<Arrival> {
        let count = self.free_at.len();
        let mut arrivals = Vec::new();
        match frame.get(..6).and_then(host_of) {
            Some(to) if to < count => self.carry_to(frame, from, to, now, &mut arrivals),
            Some(_) => (),
            None => {
                for to in (0..count).filter(|to| *to != from) {
                    self.carry_to(frame, from, to, now, &mut arrivals);
                }
            }
        }
        arrivals
    }

    fn carry_to(&mut self, frame: &[u8], from: usize, to: usize, now: u64, arrivals: &mut Vec<Arrival>) {
        self.tally.frames += 1;
        if self.is_dark(from, to, now) {
            self.tally.blacked_out += 1;
            return;
        }
        if let Some((mtu, tells)) =
            self.mtu(to, now).filter(|(mtu, _)| frame.len() > packet::LINK_LEN + usize::from(*mtu))
        {
            self.tally.too_long += 1;
            let answer = if tells { packet::too_big(frame, address(to), mtu) } else { None };
            if let Some(frame) = answer {
                arrivals.push(Arrival { at: now + self.line.delay, host: from, frame });
            }
            return;
        }
        let waits = self.free_at[to].saturating_sub(now);
        let queue_len = (waits as u128 * u128::from(self.line.rate) / u128::from(8 * SECOND)) as usize;
        if queue_len > self.line.queue_len {
            self.tally.overrun += 1;
            return;
        }
        self.free_at[to] = now + waits + self.time_of(frame.len());
        let mut at = self.free_at[to] + self.line.delay;
        let mut frame = frame.to_vec();
        if queue_len > self.line.mark_len {
            self.tally.marked += 1;
            packet::mark_congestion(&mut frame);
        }
        if now < self.heals_at {
            if self.is_lost(to) {
                self.tally.lost += 1;
                return;
            }
            at += self.late();
            self.corrupt(&mut frame);
            if self.draws(self.impairments.duplication) {
                self.tally.duplicated += 1;
                let at = at + self.random.draw() % (self.impairments.delay_max + 1);
                arrivals.push(Arrival { at, host: to, frame: frame.clone() });
            }
        }
        arrivals.push(Arrival { at, host: to, frame });
    }

    fn is_dark(&self, from: usize, to: usize, now: u64) -> bool {
        self.injected_faults.iter().filter(|fault| fault.from <= now && now < fault.to).any(|fault| match fault.kind {
            FaultKind::Blackout => fault.host == from || fault.host == to,
            FaultKind::RxBlackout => fault.host == to,
            _ => false,
        })
    }

    fn mtu(&self, to: usize, now: u64) -> Option<(u16, bool)> {
        let now_at =
            self.injected_faults.iter().filter(|fault| fault.host == to && fault.from <= now && now < fault.to);
        let mtus = now_at.filter_map(|fault| match fault.kind {
            FaultKind::Mtu(mtu, tells) => Some((mtu, tells)),
            _ => None,
        });
        mtus.min()
    }

    fn is_lost(&mut self, to: usize) -> bool {
        if self.gaps[to] > 0 {
            self.gaps[to] -= 1;
            return true;
        }
        if self.draws(self.impairments.gap) {
            self.gaps[to] = self.random.below(self.impairments.gap_max.max(1) as usize) as u32;
            return true;
        }
        self.draws(self.impairments.loss)
    }

    fn late(&mut self) -> u64 {
        let mut late = self.random.draw() % (self.impairments.jitter + 1);
        if self.draws(self.impairments.delay) {
            self.tally.delayed += 1;
            late += self.random.draw() % (self.impairments.delay_max + 1);
        }
        late
    }

    /// Flips one bit of an IPv4 packet with a TCP segment, which every checksum detects. Bytes that
    /// only the link's checksum covers stay intact, because a NIC drops such frames.
    fn corrupt(&mut self, frame: &mut [u8]) {
        if !self.draws(self.impairments.corruption) || packet::tcp(frame).is_none() {
            return;
        }
        self.tally.corrupted += 1;
        let len = packet::ipv4(frame).map_or(0, <[u8]>::len);
        let bit = self.random.below(len * 8);
        frame[packet::LINK_LEN + bit / 8] ^= 1 << (bit % 8);
    }

    fn draws(&mut self, parts_per_million: u32) -> bool {
        parts_per_million > 0 && self.random.below(1_000_000) < parts_per_million as usize
    }
}
