//! Parses the CQE of a frame into receive metadata.

use super::clock::{ClockInfo, TickConversion, TimestampSource, real_time};
use super::cqe::Cqe;
use crate::device::mlx5::receive::packet_types::{PacketTypes, RxFeatures};
use crate::mem::RxMeta;

/// The parser of a queue's CQEs.
pub(crate) struct CqeParser {
    packet_types: PacketTypes,
    /// Converts timestamps that are ticks.
    line: TickConversion,
    is_related: bool,
    fields: u8,
}

/// The optional fields that are parsed: the loop over a burst is specialized for each value.
pub(crate) mod fields {
    pub(crate) const NONE: u8 = 0;
    /// Hashes.
    pub(crate) const HASHES: u8 = 1;
    /// Ticks, and hashes if there are any.
    pub(crate) const TICKS: u8 = 2;
    /// Time of day, and hashes if there are any.
    pub(crate) const REAL_TIME: u8 = 3;
}

impl CqeParser {
    /// For a queue whose CQEs have these fields.
    pub(crate) fn new(features: RxFeatures) -> Self {
        let RxFeatures { stamps, has_hashes, .. } = features;
        Self {
            packet_types: PacketTypes::new(features),
            line: match stamps {
                TimestampSource::Wall(relation) => TickConversion::through(&relation),
                _ => TickConversion::TICKS,
            },
            is_related: matches!(stamps, TimestampSource::Wall(_)),
            fields: match stamps {
                TimestampSource::Off if !has_hashes => fields::NONE,
                TimestampSource::Off => fields::HASHES,
                TimestampSource::Ticks | TimestampSource::Wall(_) => fields::TICKS,
                TimestampSource::RealTime => fields::REAL_TIME,
            },
        }
    }

    /// One of [`fields`].
    #[inline(always)]
    pub(crate) fn fields(&self) -> u8 {
        self.fields
    }

    /// Whether ticks are converted by a relation that must be kept current.
    pub(crate) fn is_related(&self) -> bool {
        self.is_related
    }

    /// Updates the relation.
    pub(crate) fn relate(&mut self, relation: &ClockInfo) {
        self.line = TickConversion::through(relation);
    }

    /// Parses CQEs in a loop specialized for `FIELDS`; the length is the raw byte count. The result
    /// is wrong for tunneled frames.
    #[inline(always)]
    pub(crate) fn parse_with<const FIELDS: u8>(&self) -> impl Fn(Cqe<'_>) -> RxMeta + '_ {
        let (kinds, line) = (self.packet_types.view(), self.line);
        move |cqe| {
            let headers = cqe.headers();
            RxMeta {
                len: cqe.byte_count(),
                known: kinds.of(headers),
                timestamp: match FIELDS {
                    fields::TICKS => line.at(cqe.timestamp()),
                    fields::REAL_TIME => real_time(cqe.timestamp()),
                    _ => 0,
                },
                flow_tag: cqe.flow_tag(),
                hash: if FIELDS == fields::NONE { 0 } else { cqe.rx_hash() },
                vlan: headers as u16,
            }
        }
    }

    /// Parses one CQE with any fields.
    #[inline]
    pub(crate) fn parse(&self, cqe: Cqe<'_>) -> RxMeta {
        let meta = match self.fields {
            fields::REAL_TIME => self.parse_with::<{ fields::REAL_TIME }>()(cqe),
            _ => self.parse_with::<{ fields::TICKS }>()(cqe),
        };
        if cqe.is_tunneled() { RxMeta { known: self.packet_types.of_tunnel(cqe.headers()), ..meta } } else { meta }
    }
}
