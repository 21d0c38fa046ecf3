//! The loops of UMDF: snapshots of orders, and definitions.

use super::B3Umdf;
use super::decode::head_and_body;
use super::layout::{ChannelReset, SecurityDefinition, SecurityGroupPhase, SnapshotHeader, SnapshotOrders};
use crate::framing::Session;
use crate::loops::{Definition, LoopFeed, SnapshotHead, SnapshotPart};
use crate::units::Symbol;

impl LoopFeed for B3Umdf {
    /// Some 75,000 orders of one instrument.
    const SNAPSHOT_LEN_MAX: usize = 4 << 20;

    fn part(&mut self, _packet: u64, message: &[u8], by_order: bool) -> SnapshotPart {
        if by_order { part(message).unwrap_or(SnapshotPart::Other) } else { SnapshotPart::Other }
    }

    fn empties_books(message: &[u8]) -> bool {
        head_and_body(message).is_ok_and(|(head, _)| head.template == ChannelReset::ID)
    }

    /// All messages that books are built from begin with their instrument; a group's may be about
    /// each.
    fn is_about(message: &[u8], symbol: Symbol) -> bool {
        let Ok((head, body)) = head_and_body(message) else { return false };
        let is_its = |id: &[u8; 8]| Symbol::from_number(u64::from_le_bytes(*id)) == symbol;
        head.template == SecurityGroupPhase::ID || body.first_chunk().is_some_and(is_its)
    }

    fn definition(message: &[u8]) -> Option<Definition> {
        let (head, body) = head_and_body(message).ok().filter(|(head, _)| head.template == SecurityDefinition::ID)?;
        let root = SecurityDefinition::parse(head, body).ok()?.root;
        Some(Definition { instrument: root.security_id.get(), total: Some(root.total.get()) })
    }
}

fn part(message: &[u8]) -> Option<SnapshotPart> {
    let (head, body) = head_and_body(message).ok()?;
    match head.template {
        SnapshotHeader::ID => {
            let root = SnapshotHeader::parse(head, body).ok()?.root;
            Some(SnapshotPart::Head(SnapshotHead {
                symbol: Symbol::from_number(root.security_id.get()),
                last_seq: root.last_seq.get().into(),
                session: root.last_sequence_version().map(|version| Session(version.into())),
                total: Some(root.reports_total.get()),
                orders: root.bids.get().saturating_add(root.offers.get()),
                is_last_part: true,
            }))
        }
        SnapshotOrders::ID => {
            let message = SnapshotOrders::parse(head, body).ok()?;
            let symbol = Symbol::from_number(message.root.security_id.get());
            Some(SnapshotPart::Orders { symbol, count: message.entries.len() as u32 })
        }
        _ => None,
    }
}
