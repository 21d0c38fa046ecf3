//! What a CQE tells of a frame, as the frame's mbuf will know it.

use super::clock::{Line, Relation, Stamps, real_time};
use super::cqe::Cqe;
use super::kinds::{Facts, Kinds};
use crate::mem::Told;

/// How the CQEs of a queue are read.
pub(super) struct Teller {
    kinds: Kinds,
    /// What timestamps mean, where they are ticks.
    line: Line,
    is_related: bool,
    voice: u8,
}

/// How much a CQE is asked for, beside what each is: the loop over a burst is made for each.
pub(super) mod voice {
    pub(in super::super) const QUIET: u8 = 0;
    /// Hashes.
    pub(in super::super) const HASHES: u8 = 1;
    /// Ticks, and hashes if there are any.
    pub(in super::super) const TICKS: u8 = 2;
    /// Time of day, and hashes if there are any.
    pub(in super::super) const REAL_TIME: u8 = 3;
}

impl Teller {
    /// For a queue that tells so much.
    pub(super) fn new(facts: Facts) -> Self {
        let Facts { stamps, has_hashes, .. } = facts;
        Self {
            kinds: Kinds::new(facts),
            line: match stamps {
                Stamps::Wall(relation) => Line::through(&relation),
                _ => Line::TICKS,
            },
            is_related: matches!(stamps, Stamps::Wall(_)),
            voice: match stamps {
                Stamps::Off if !has_hashes => voice::QUIET,
                Stamps::Off => voice::HASHES,
                Stamps::Ticks | Stamps::Wall(_) => voice::TICKS,
                Stamps::RealTime => voice::REAL_TIME,
            },
        }
    }

    /// One of [`voice`].
    #[inline(always)]
    pub(super) fn voice(&self) -> u8 {
        self.voice
    }

    /// Whether ticks become time of day by a relation that has to be kept current.
    pub(super) fn is_related(&self) -> bool {
        self.is_related
    }

    /// Takes a newer relation over.
    pub(super) fn relate(&mut self, relation: &Relation) {
        self.line = Line::through(relation);
    }

    /// What CQEs tell, for a loop that is made for `VOICE`; the length is their byte count as it stands. Of a tunnel it tells
    /// nonsense.
    #[inline(always)]
    pub(super) fn in_voice<const VOICE: u8>(&self) -> impl Fn(Cqe<'_>) -> Told + '_ {
        let (kinds, line) = (self.kinds.view(), self.line);
        move |cqe| {
            let headers = cqe.headers();
            Told {
                len: cqe.byte_count(),
                known: kinds.of(headers),
                timestamp: match VOICE {
                    voice::TICKS => line.at(cqe.timestamp()),
                    voice::REAL_TIME => real_time(cqe.timestamp()),
                    _ => 0,
                },
                flow_tag: cqe.flow_tag(),
                hash: if VOICE == voice::QUIET { 0 } else { cqe.rx_hash() },
                vlan: headers as u16,
            }
        }
    }

    /// What one CQE tells, whatever it is.
    #[inline]
    pub(super) fn tell(&self, cqe: Cqe<'_>) -> Told {
        let told = match self.voice {
            voice::REAL_TIME => self.in_voice::<{ voice::REAL_TIME }>()(cqe),
            _ => self.in_voice::<{ voice::TICKS }>()(cqe),
        };
        if cqe.is_tunneled() { Told { known: self.kinds.of_tunnel(cqe.headers()), ..told } } else { told }
    }
}
