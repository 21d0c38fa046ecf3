//! FIX, BOE and iLink 3 on the venue's side, whose clients name their orders.

use std::io::Write;

use exchange_sim::{AnswerKind, NamedOrder, OrderRefusal, Protocol};
use order_entry::fix::session::End;

use super::{Line, SimVenue, TRADER, UNPRICED, bought, instrument_of};

impl SimVenue {
    /// Takes what was read, and has what is due sent. False where the line has ended.
    pub(super) fn take_named(&mut self, line: &mut Line, now_ns: u64) -> bool {
        let is_first = !line.is_logged_in;
        let Some(server) = &mut self.named else { return false };
        if is_first {
            match server.is_logon(&line.input, &self.venue) {
                None => return true,
                Some(true) if !self.is_taken => {
                    server.connected(&line.input, &mut self.venue, now_ns);
                    (self.is_taken, line.is_logged_in) = (true, true);
                }
                Some(true) => return false,
                Some(false) => {
                    self.fault = Some("the gateway's first message is no login".to_owned());
                    return false;
                }
            }
        }
        match server.turn(&mut line.input, &mut line.out, &mut self.venue, now_ns) {
            Ok(effect) => self.follow(line, effect, now_ns),
            Err(why) => {
                // The Logout, which the gateway reads.
                let _ = line.stream.write(&line.out);
                let is_late = is_first && line.stream.is_given_up();
                if let Some(why) = why.filter(|why| !is_of_line(why, is_late)) {
                    self.fault = Some(format!("the gateway broke a rule of the session: {why}"));
                }
                false
            }
        }
    }

    /// The position and the open orders by the account's own reports.
    pub(super) fn count_named(&mut self, protocol: Protocol) {
        let answers = self.venue.accounts()[TRADER].answers(protocol);
        for answer in &answers[self.counted..] {
            let Some(order) = &answer.order else { continue };
            if protocol == Protocol::Ilink3
                && matches!(answer.kind, AnswerKind::Accepted | AnswerKind::Replaced | AnswerKind::Rejected(_))
                && !self.ids.insert(id_of(&order.cl_ord_id))
            {
                // The venue leaves that to its clients.
                self.fault = Some(format!("sent twice: {}", order.cl_ord_id.escape_ascii()));
            }
            self.arrived +=
                u64::from(matches!(answer.kind, AnswerKind::Accepted | AnswerKind::Replaced | AnswerKind::Rejected(_)));
            match answer.kind {
                AnswerKind::Rejected(OrderRefusal::Duplicate) => {
                    self.fault = Some(format!("sent twice: {}", answer.cl_ord_id.escape_ascii()));
                }
                AnswerKind::Rejected(OrderRefusal::DuringReplay) => {
                    self.fault = Some("the gateway sent an order during the replay".to_owned());
                }
                AnswerKind::Executed { qty, price, .. } => {
                    let bought = bought(order.side, qty);
                    self.positions[instrument_of(order.symbol)] += bought;
                    self.cash += bought * price.0;
                }
                AnswerKind::Replaced => {
                    let orig = answer.orig_cl_ord_id.as_deref().unwrap_or_default();
                    self.open.remove(&id_of(orig));
                }
                AnswerKind::Accepted | AnswerKind::Canceled { .. } => (),
                _ => continue,
            }
            let id = id_of(&order.cl_ord_id);
            match order {
                NamedOrder { leaves: 0, .. } => {
                    self.open.remove(&id);
                }
                NamedOrder { symbol, side, leaves, price, .. } => {
                    self.open.insert(id, (instrument_of(*symbol), *side, *leaves, price.unwrap_or(UNPRICED)));
                }
            }
        }
        self.counted = answers.len();
    }
}

/// Whether the line is the reason for the end of a session, and not the gateway: it is silent, or
/// the Logon came late. The kernel still sends what was written to a connection that is given up,
/// and meanwhile another connection may have used the Logon's number.
fn is_of_line(why: &str, is_late: bool) -> bool {
    let is = |end: End| end.to_string() == why;
    // Of BOE and iLink 3, whose sentences have numbers.
    if ["an idle peer sends", "a login is sent", "a session is established"]
        .iter()
        .any(|of_line| why.starts_with(of_line))
    {
        return true;
    }
    is(End::Silent) || is(End::LogonTimeout) || (is_late && is(End::SeqTooLow))
}

/// The number in a ClOrdID.
fn id_of(cl_ord_id: &[u8]) -> u64 {
    std::str::from_utf8(cl_ord_id).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
