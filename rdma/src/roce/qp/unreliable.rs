//! Services without acknowledgments: connections, whose messages come whole or not at all
//! (InfiniBand 9.8.2), and datagrams (9.8.3). What is dropped is counted, and nobody is told.

use super::responder::{Incoming, Refusal};
use super::{Network, Qp, Status, Transport};
use crate::roce::events::Event;
use crate::roce::tables::Tables;
use crate::roce::work::{CompletionKind, Destination, GRH_LEN, PostError, SendOperation, SendRequest};
use crate::wire::aeth::Nak;
use crate::wire::bth::Bth;
use crate::wire::extended::Deth;
use crate::wire::packet::Message;

/// Messages without the right to the memory that they name, of which every sixteenth ends a
/// connection: more than a peer's mistakes, and too few to guess a key.
const VIOLATIONS: u64 = 16;

impl Qp {
    /// Checks a request that is a datagram, or ought to be none.
    pub(super) fn check_datagram(&self, tables: &Tables, request: &SendRequest<'_>) -> Result<(), PostError> {
        let Some(Destination { ah, .. }) = request.destination.filter(|_| self.transport == Transport::Ud) else {
            return Err(PostError::Destination);
        };
        match request.operation {
            SendOperation::Send | SendOperation::SendImm(_) => {}
            _ => return Err(PostError::Operation),
        }
        let is_ours = tables.ahs.get(ah).is_some_and(|ah| ah.pd == self.pd);
        if is_ours { Ok(()) } else { Err(PostError::Destination) }
    }

    /// The header of a datagram of ours.
    #[inline]
    pub(super) fn deth(&self, qkey: u32) -> Deth {
        let stands_for_ours = qkey >> 31 == 1;
        Deth::new(if stands_for_ours { self.settings.qkey } else { qkey }, self.qpn)
    }

    /// Takes a packet of an unreliable connection. Where one is missing, the message that it
    /// belongs to is dropped, and its receive takes the next.
    pub(super) fn take_unreliable(&mut self, tables: &mut Tables, bth: &Bth, message: &Message<'_>) {
        let (psn, is_first) = (bth.psn(), message.operation.is_first());
        let has_gap = psn != self.responder.expected;
        if !has_gap {
            self.note_first(tables);
        }
        self.counters.out_of_sequence += u64::from(has_gap);
        if has_gap || is_first {
            let was_incomplete = !matches!(self.responder.incoming, Incoming::None);
            self.counters.dropped += u64::from(was_incomplete);
            self.responder.incoming = Incoming::None;
            if was_incomplete {
                self.return_shared(tables);
            }
            self.responder.is_dropping = !is_first;
        }
        self.responder.expected = psn.plus(1);
        if self.responder.is_dropping {
            return;
        }
        match self.execute(tables, bth, message) {
            Ok(()) => {}
            Err(Refusal::Nak(Nak::RemoteOperational, status)) => self.fail_of_own_fault(tables, status),
            Err(refusal) => {
                self.counters.dropped += 1;
                self.responder.incoming = Incoming::None;
                self.responder.is_dropping = true;
                self.return_shared(tables);
                if matches!(refusal, Refusal::Nak(Nak::RemoteAccess, _)) {
                    self.count_violation(tables);
                }
            }
        }
    }

    /// A message reached for memory without the right. No answer tells the peer, and it could guess
    /// keys for ever: too many end the connection.
    #[cold]
    fn count_violation(&mut self, tables: &mut Tables) {
        self.counters.access_violations += 1;
        if self.counters.access_violations.is_multiple_of(VIOLATIONS) {
            self.fail_by_peer(tables, Nak::RemoteAccess);
        }
    }

    /// Takes a datagram, with the header that it came behind.
    pub(super) fn take_datagram(
        &mut self,
        tables: &mut Tables,
        network: Network<'_>,
        bth: &Bth,
        message: &Message<'_>,
    ) {
        if message.deth.is_none_or(|deth| deth.qkey() != self.settings.qkey) {
            tables.counters.qkey_violations += 1;
            return;
        }
        self.note_first(tables);
        self.has_receive(tables);
        let len = GRH_LEN + message.payload.len();
        let Some(receive) = self.rq.first().filter(|receive| receive.len() >= len as u64) else {
            self.counters.dropped += 1;
            return self.return_shared(tables);
        };
        let (header, pd) = (header(network), self.pd);
        let is_written = tables.regions.scatter(pd, receive.sges(), 0, &header).is_ok()
            && tables.regions.scatter(pd, receive.sges(), GRH_LEN as u32, message.payload).is_ok();
        if !is_written {
            return self.fail_of_own_fault(tables, Status::LocalProtection);
        }
        self.complete_receive(tables, CompletionKind::Receive, len as u32, bth, message);
    }

    /// The receive in use names memory that it may not reach.
    fn fail_of_own_fault(&mut self, tables: &mut Tables, status: Status) {
        if let Some(wr_id) = self.rq.pop() {
            self.complete(tables, self.recv_cq, wr_id, CompletionKind::Receive, status);
        }
        tables.events.push(Event::QpFatal(self.handle));
        self.enter_error(tables);
    }
}

/// What a receive has in front of a datagram.
fn header(network: Network<'_>) -> [u8; GRH_LEN] {
    match network {
        Network::Ipv4(ip, _) => {
            let mut header = [0; GRH_LEN];
            header[GRH_LEN - ip.len()..].copy_from_slice(ip);
            header
        }
        Network::Ipv6(ip, _) | Network::Grh(ip) => *ip,
    }
}
