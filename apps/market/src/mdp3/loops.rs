//! The loops of MDP 3.0: market recovery has snapshots, instrument replay has definitions.

use super::Mdp3;
use super::layout::{
    ChannelReset, FutureDefinition, OptionDefinition, OrderSnapshot, Snapshot, SpreadDefinition, split_head,
};
use crate::loops::{Definition, LoopFeed, SnapshotHead, SnapshotPart};
use crate::units::Symbol;

impl LoopFeed for Mdp3 {
    fn part(&mut self, _packet: u64, message: &[u8], by_order: bool) -> SnapshotPart {
        head(message, by_order).map_or(SnapshotPart::Other, SnapshotPart::Head)
    }

    fn empties_books(message: &[u8]) -> bool {
        split_head(message).is_ok_and(|(head, _)| head.template == ChannelReset::ID)
    }

    /// A message has entries of several instruments, whose events say of which.
    fn is_about(_: &[u8], _: Symbol) -> bool {
        true
    }

    fn definition(message: &[u8]) -> Option<Definition> {
        macro_rules! definition {
            ($message:ident, $head:ident, $body:ident) => {{
                let root = $message::parse($head, $body).ok()?.root;
                let instrument = u64::from(root.security_id.get() as u32);
                Some(Definition { instrument, total: root.reports_total() })
            }};
        }
        let (head, body) = split_head(message).ok()?;
        match head.template {
            FutureDefinition::ID => definition!(FutureDefinition, head, body),
            OptionDefinition::ID => definition!(OptionDefinition, head, body),
            SpreadDefinition::ID => definition!(SpreadDefinition, head, body),
            _ => None,
        }
    }
}

/// Each snapshot is one message; one by order may have several parts, each a message.
fn head(message: &[u8], by_order: bool) -> Option<SnapshotHead> {
    let (head, body) = split_head(message).ok()?;
    let (id, last_seq, total, is_last_part) = match head.template {
        Snapshot::ID if !by_order => {
            let root = Snapshot::parse(head, body).ok()?.root;
            (root.security_id, root.last_seq, root.reports_total, true)
        }
        OrderSnapshot::ID if by_order => {
            let root = OrderSnapshot::parse(head, body).ok()?.root;
            (root.security_id, root.last_seq, root.reports_total, root.chunk.get() >= root.chunks.get())
        }
        _ => return None,
    };
    Some(SnapshotHead {
        symbol: Symbol::from_number(u64::from(id.get() as u32)),
        last_seq: last_seq.get().into(),
        session: None,
        total: Some(total.get()),
        orders: 0,
        is_last_part,
    })
}
