//! The re-request server of MoldUDP64 as a machine: a receiver that missed messages requests them
//! and gets them by unicast.
//!
//! ```text
//!   packets as sent ── keep ──────> archive ──┐
//!   request (session, sequence, count) ── answer: check, pace ──┴─> one packet for the requester
//! ```
//!
//! An answer is one packet with as many of the messages as fit, as the specification says; the
//! receiver requests the others again. A request that cannot be answered is counted by its reason.
//!
//! The source of a request may be forged. A request of 20 bytes brings one packet back, no longer
//! than the packets of the feed: with 1,472 bytes the server sends some 31 times what it receives,
//! headers included. So each address has a [`Pace`], and [`ADDRESSES_MAX`] addresses at once are
//! answered at most. A refusal is silent, or costs a header of 20 bytes ([`Bounds`]).
//!
//! The machine does no I/O and reads no clock.

use core::fmt;
use core::net::Ipv4Addr;
use std::sync::Arc;

use crate::framing::FramingError;
use crate::framing::mold_udp64::{MoldHeader, MoldUdp64, Request};
use crate::framing::{Framing, PacketWriter};

mod archive;
mod requesters;

pub use requesters::{ADDRESSES_MAX, Pace};

use archive::Archive;
use requesters::{Admission, Requesters};

/// Whether a receiver is told which messages there are, where it requests others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounds {
    /// It gets no answer, as from Nasdaq's servers.
    #[default]
    Silent,
    /// It gets a heartbeat. A request for a message that is not kept any more brings the number of
    /// the oldest that is, one for a message to come the number of the next.
    Heartbeat,
}

/// How a server works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The session, as the packets carry it.
    pub session: [u8; 10],
    /// The longest answer in bytes: that of the feed's packets.
    pub packet_len_max: usize,
    /// The least number of newest messages that are kept. Each costs its bytes and, where packets
    /// have one message only, some 150 bytes more.
    pub messages: u64,
    /// The rate of each address.
    pub pace: Pace,
    /// What a request for other messages brings.
    pub bounds: Bounds,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Fewer than 20 bytes.
    Short,
    /// More than 20 bytes.
    Long,
    /// The request names another session.
    OtherSession,
    /// Numbers begin at 1.
    SequenceZero,
    /// The message is not sent yet.
    Future,
    /// The message is older than the kept ones.
    TooOld,
    /// No message was requested.
    CountZero,
    /// 0xFFFF is the end of the session and no count.
    CountLarge,
    /// The address exceeds its rate.
    TooOften,
    /// Too many addresses at once.
    TooMany,
}

impl Refusal {
    /// In the order of the reasons.
    pub const NAMES: [&'static str; 10] = [
        "short",
        "long",
        "other_session",
        "sequence_zero",
        "future",
        "too_old",
        "count_zero",
        "count_large",
        "too_often",
        "too_many_requesters",
    ];
}

/// The outcomes of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounts {
    /// Requests answered with messages.
    pub answered: u64,
    /// Messages in the answers.
    pub messages: u64,
    /// Requests refused, by [`Refusal`].
    pub refused: [u64; Refusal::NAMES.len()],
}

impl ServerCounts {
    /// Requests refused for a reason.
    pub fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason as usize]
    }
}

impl fmt::Display for ServerCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refused: u64 = self.refused.iter().sum();
        write!(f, "{} requests answered with {} messages, {refused} refused", self.answered, self.messages)?;
        for (name, count) in Refusal::NAMES.iter().zip(self.refused).filter(|(_, count)| *count > 0) {
            write!(f, ", {name} {count}")?;
        }
        Ok(())
    }
}

/// Keeps the newest packets of a session, and answers requests from them. `P` is what holds a
/// packet's bytes, which the caller may share with it.
#[derive(Debug)]
pub struct RerequestServer<P: ?Sized> {
    archive: Archive<P>,
    requesters: Requesters,
    session: [u8; 10],
    bounds: Bounds,
    out: Box<[u8]>,
    counts: ServerCounts,
}

impl<P: ?Sized + AsRef<[u8]>> RerequestServer<P> {
    /// A server without packets.
    pub fn new(config: &ServerConfig) -> Self {
        Self {
            archive: Archive::new(config.messages),
            requesters: Requesters::new(config.pace),
            session: config.session,
            bounds: config.bounds,
            out: vec![0; config.packet_len_max.max(MoldUdp64::HEADER_LEN)].into(),
            counts: ServerCounts::default(),
        }
    }

    /// Keeps a packet of data of its session, and removes old ones. One that does not follow the
    /// last begins anew; what is no such packet is not kept.
    pub fn keep(&mut self, packet: Arc<P>) {
        self.archive.keep(packet);
    }

    /// The answer to a datagram of `asker`, if it is to have one. Costs a search among the packets,
    /// and a copy of the messages.
    pub fn answer(&mut self, datagram: &[u8], asker: Ipv4Addr, now_ns: u64) -> Option<&[u8]> {
        let judged = self.judge(datagram);
        // What says nothing that is of use costs no pace.
        let is_bound = matches!(judged, Err(Refusal::TooOld | Refusal::Future)) && self.bounds == Bounds::Heartbeat;
        let admitted = if judged.is_ok() || is_bound { self.admit(asker, now_ns) } else { Ok(()) };
        let outcome = admitted.and(judged);
        match outcome {
            Ok(request) => {
                let (answer, count) = self.archive.emit(self.session, request.seq, request.count, &mut self.out);
                self.counts.answered += 1;
                self.counts.messages += u64::from(count);
                Some(answer)
            }
            Err(reason) => {
                self.counts.refused[reason as usize] += 1;
                let seq = match reason {
                    Refusal::TooOld if is_bound => self.archive.begin(),
                    Refusal::Future if is_bound => self.archive.end(),
                    _ => return None,
                };
                heartbeat(self.session, seq, &mut self.out)
            }
        }
    }

    /// The outcomes so far.
    pub const fn counts(&self) -> &ServerCounts {
        &self.counts
    }

    fn judge(&self, datagram: &[u8]) -> Result<Request, Refusal> {
        let request = Request::parse(datagram).map_err(|error| match error {
            FramingError::HeaderShort { .. } => Refusal::Short,
            _ => Refusal::Long,
        })?;
        if request.session != self.session {
            return Err(Refusal::OtherSession);
        }
        match request.count {
            0 => return Err(Refusal::CountZero),
            u16::MAX => return Err(Refusal::CountLarge),
            _ => {}
        }
        match request.seq {
            0 => Err(Refusal::SequenceZero),
            seq if seq >= self.archive.end() => Err(Refusal::Future),
            seq if seq < self.archive.begin() => Err(Refusal::TooOld),
            _ => Ok(request),
        }
    }

    fn admit(&mut self, asker: Ipv4Addr, now_ns: u64) -> Result<(), Refusal> {
        match self.requesters.admit(asker, now_ns) {
            Admission::Granted => Ok(()),
            Admission::TooOften => Err(Refusal::TooOften),
            Admission::TooMany => Err(Refusal::TooMany),
        }
    }
}

/// A packet without messages.
fn heartbeat(session: [u8; 10], seq: u64, out: &mut [u8]) -> Option<&[u8]> {
    PacketWriter::<MoldUdp64>::new(MoldHeader::new(session, seq), out).map(PacketWriter::finish)
}

#[cfg(test)]
mod tests;
