//! The messages that were sent, kept for re-requests: as many of the newest ones as configured.
//!
//! Packets are kept as they were made, so a message costs its own bytes and a share of its
//! packet's. An answer is built from the requested message on.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::framing::mold_udp64::{MoldHeader, MoldUdp64};
use crate::framing::{Framing, PacketKind, PacketWriter};

/// Consecutive packets without a hole, the oldest first.
#[derive(Debug)]
pub(super) struct Archive<P: ?Sized> {
    packets: VecDeque<Kept<P>>,
    messages: u64,
    messages_min: u64,
}

#[derive(Debug)]
struct Kept<P: ?Sized> {
    seq: u64,
    count: u32,
    packet: Arc<P>,
}

impl<P: ?Sized> Kept<P> {
    fn end(&self) -> u64 {
        self.seq.saturating_add(u64::from(self.count))
    }
}

impl<P: ?Sized + AsRef<[u8]>> Archive<P> {
    /// Keeps the newest `messages_min` messages, and those in the same packet as the oldest of
    /// them.
    pub(super) fn new(messages_min: u64) -> Self {
        Self { packets: VecDeque::new(), messages: 0, messages_min }
    }

    /// Keeps a data packet and removes old ones. A packet that does not follow the last one starts
    /// a new archive; any other bytes are not kept.
    pub(super) fn keep(&mut self, packet: Arc<P>) {
        let Ok(header) = MoldUdp64::parse((*packet).as_ref()).map(|parsed| parsed.header) else { return };
        if header.kind != PacketKind::Data {
            return;
        }
        let kept = Kept { seq: header.seq, count: header.count, packet };
        if kept.seq != self.end() {
            self.packets.clear();
            self.messages = 0;
        }
        self.messages += u64::from(kept.count);
        self.packets.push_back(kept);
        while let Some(oldest) = self.packets.front()
            && self.messages - u64::from(oldest.count) >= self.messages_min
        {
            self.messages -= u64::from(oldest.count);
            self.packets.pop_front();
        }
    }

    /// The oldest number that is kept; [`Archive::end`] where there is none.
    pub(super) fn begin(&self) -> u64 {
        self.packets.front().map_or(1, |kept| kept.seq)
    }

    /// One past the newest number; 1 before the first message.
    pub(super) fn end(&self) -> u64 {
        self.packets.back().map_or(1, Kept::end)
    }

    /// Writes the packet with the messages from `seq` on into `out`: at most `count`, as many as
    /// fit and are kept. `seq` must be kept. Returns it with the number of its messages.
    pub(super) fn emit<'a>(&self, session: [u8; 10], seq: u64, count: u16, out: &'a mut [u8]) -> (&'a [u8], u32) {
        let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(session, seq), out)
            .expect("a server's longest answer has room for a header");
        let first_idx = self.packets.partition_point(|kept| kept.end() <= seq);
        let mut skip = (seq - self.packets[first_idx].seq) as usize;
        'packets: for kept in self.packets.range(first_idx..) {
            let parsed = MoldUdp64::parse((*kept.packet).as_ref()).expect("it was parsed when it was kept");
            for message in parsed.messages().skip(skip) {
                if writer.count() == u32::from(count) || writer.push(message).is_err() {
                    break 'packets;
                }
            }
            skip = 0;
        }
        let written = writer.count();
        (writer.finish(), written)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A packet whose messages are their own numbers as text.
    pub(in crate::rerequest_server) fn packet(sequence: u64, count: u16) -> Arc<[u8]> {
        let mut out = [0; 1500];
        let mut writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(*b"SESSION000", sequence), &mut out).unwrap();
        for number in sequence..sequence + u64::from(count) {
            writer.push(number.to_string().as_bytes()).unwrap();
        }
        writer.finish().into()
    }

    /// Requests a range and returns the messages that came.
    fn ask(archive: &Archive<[u8]>, seq: u64, count: u16, payload_max: usize) -> String {
        let mut out = vec![0; payload_max];
        let answer = MoldUdp64::parse(archive.emit(*b"SESSION000", seq, count, &mut out).0).unwrap();
        assert_eq!((answer.header.seq, answer.raw.session), (seq, *b"SESSION000"));
        let messages: Vec<_> = answer.messages().map(|message| String::from_utf8(message.to_vec()).unwrap()).collect();
        messages.join(" ")
    }

    fn archive(messages_min: u64) -> Archive<[u8]> {
        let mut archive = Archive::new(messages_min);
        for (sequence, count) in [(1, 3), (4, 1), (5, 4)] {
            archive.keep(packet(sequence, count));
        }
        archive
    }

    #[test]
    fn answer_begins_and_ends_in_the_middle_of_packets() {
        assert_eq!(ask(&archive(100), 2, 5, 1400), "2 3 4 5 6");
    }

    #[test]
    fn answer_ends_where_the_packet_is_full_or_the_messages_end() {
        assert_eq!(ask(&archive(100), 4, 5, 20 + 3 * 3 + 2), "4 5 6");
        assert_eq!(ask(&archive(100), 7, u16::MAX, 1400), "7 8");
    }

    #[test]
    fn oldest_packets_are_forgotten_and_never_too_many() {
        assert_eq!((archive(5).begin(), archive(5).end()), (4, 9));
        assert_eq!(archive(6).begin(), 1);
        assert_eq!(archive(1).begin(), 5);
    }

    #[test]
    fn packet_behind_a_hole_begins_anew() {
        let mut archive = archive(100);
        archive.keep(packet(20, 2));
        assert_eq!((archive.begin(), archive.end(), archive.messages), (20, 22, 2));
    }

    #[test]
    fn empty_archive_ends_where_it_begins() {
        let archive = Archive::<[u8]>::new(5);
        assert_eq!((archive.begin(), archive.end()), (1, 1));
    }
}
