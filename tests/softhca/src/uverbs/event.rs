//! The records that a client reads from its completion channels and its asynchronous descriptor;
//! mlx5.md 3.8.

use crate::hca::{Event, EventKind};

/// One record, ready to be written to the descriptor's other end in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord {
    bytes: [u8; 16],
    len: usize,
}

impl EventRecord {
    /// A record that was on its way to a client: at most 16 bytes.
    pub fn of(record: &[u8]) -> Self {
        let len = record.len().min(16);
        let mut bytes = [0; 16];
        bytes[..len].copy_from_slice(&record[..len]);
        Self { bytes, len }
    }

    /// What it is about: an object's user handle, or the port.
    pub fn element(&self) -> u64 {
        u64::from_ne_bytes(*self.bytes.first_chunk().unwrap_or(&[0; 8]))
    }

    /// 8 bytes for a completion channel, 16 for the asynchronous descriptor.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The record of `event`: `struct ib_uverbs_comp_event_desc` or
/// `struct ib_uverbs_async_event_desc`.
pub fn event_record(event: &Event) -> EventRecord {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&event.element.to_ne_bytes());
    match event_type(event.kind) {
        None => EventRecord { bytes, len: 8 },
        Some(number) => {
            bytes[8..12].copy_from_slice(&number.to_ne_bytes());
            EventRecord { bytes, len: 16 }
        }
    }
}

/// The number in `enum ib_event_type`; a completion has none.
fn event_type(kind: EventKind) -> Option<u32> {
    match kind {
        EventKind::Completion => None,
        EventKind::CqError => Some(0),
        EventKind::QpFatal => Some(1),
        EventKind::QpRequestError => Some(2),
        EventKind::QpAccessError => Some(3),
        EventKind::CommunicationEstablished => Some(4),
        EventKind::DeviceFatal => Some(8),
        EventKind::PortActive => Some(9),
        EventKind::PortError => Some(10),
        EventKind::SrqLimit => Some(15),
        EventKind::LastWqe => Some(16),
        EventKind::WqFatal => Some(19),
    }
}
