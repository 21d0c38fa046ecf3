//! Drop copies by FIX: the trades of an account by one protocol, as execution reports that name
//! orders and executions as that protocol's own messages do.

use std::fmt;
use std::str::FromStr;

use market::{Price, Side, Symbol};
use matching_engine::Report;
use order_entry::fix::codec::{Decimal, Writer};
use order_entry::fix::orders::{ExecTransType, ExecType, ExecutionReport, OrdStatus, Side as FixSide, Utc};
use order_entry::fix::session::Version;

use super::fix::{average, exec_id, shares};
use super::named::{Answer, AnswerKind, NamedOrder, Protocol};

/// Whose trades are copied: those of orders by this protocol. OUCH 5.0 has a drop copy of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopiesOf {
    /// OUCH 4.2.
    Ouch42,
    /// Another protocol.
    Named(Protocol),
}

impl CopiesOf {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 5] = [
        ("ouch42", Self::Ouch42),
        ("fix", Self::Named(Protocol::Fix)),
        ("boe2", Self::Named(Protocol::Boe2)),
        ("boe3", Self::Named(Protocol::Boe3)),
        ("ilink3", Self::Named(Protocol::Ilink3)),
    ];

    /// The position among [`CopiesOf::ALL`].
    pub(crate) const fn idx(self) -> usize {
        match self {
            Self::Ouch42 => 0,
            Self::Named(protocol) => 1 + protocol as usize,
        }
    }
}

impl fmt::Display for CopiesOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL[self.idx()].0)
    }
}

impl FromStr for CopiesOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, of)| of).ok_or_else(|| format!("{text:?} should be ouch42, fix, boe2, boe3 or ilink3"))
    }
}

/// The copy of a trade, or of one that is broken.
#[derive(Clone, Debug)]
pub(crate) struct TradeCopy {
    at_ns: u64,
    cl_ord_id: Vec<u8>,
    exec_id: String,
    /// The execution that is broken.
    exec_ref_id: Option<String>,
    order_id: u64,
    symbol: Symbol,
    side: Side,
    executed: u32,
    leaves: u32,
    qty: u32,
    price: Price,
    average: Option<Decimal>,
}

impl TradeCopy {
    /// Of an answer by a protocol whose clients name their orders; none where it is no trade.
    pub(super) fn of_answer(protocol: Protocol, answer: &Answer) -> Option<Self> {
        let order: &NamedOrder = answer.order.as_ref()?;
        let (qty, price, exec_ref_id) = match answer.kind {
            AnswerKind::Executed { qty, price, .. } => (qty, price, None),
            AnswerKind::Broken { qty, price, match_number, fill } => {
                (qty, price, Some(name_of(protocol, fill.unwrap_or(0), match_number)))
            }
            _ => return None,
        };
        let exec_id = match answer.kind {
            AnswerKind::Executed { match_number, .. } => name_of(protocol, answer.number, match_number),
            _ => answer.number.to_string(),
        };
        Some(Self {
            at_ns: answer.at_ns,
            cl_ord_id: answer.cl_ord_id.clone(),
            exec_id,
            exec_ref_id,
            order_id: order.order_id,
            symbol: order.symbol,
            side: order.side,
            executed: order.executed,
            leaves: order.leaves,
            qty,
            price,
            average: Some(average(order)),
        })
    }

    /// Of a report to an order with this token of OUCH 4.2; none where it is no trade. A break
    /// names the order alone, which may have ended since: its sums are those of its copy before,
    /// among `copies`.
    pub(super) fn of_token(
        at_ns: u64,
        token: &[u8],
        of: (Symbol, Side),
        report: &Report,
        copies: &[Self],
    ) -> Option<Self> {
        let (order, qty, price, match_number) = match *report {
            Report::Executed { order, qty, price, match_number, .. } => (Some(order), qty, price, match_number),
            Report::Broken { qty, price, match_number, .. } => (None, qty, price, match_number),
            _ => return None,
        };
        let is_broken = order.is_none();
        let before = copies.iter().rev().find(|copy| is_broken && copy.cl_ord_id == token);
        let sums = before.map(|copy| (copy.order_id, copy.executed.saturating_sub(qty), copy.leaves));
        let now = order.map(|order| (order.reference.0, order.executed, order.leaves));
        let (order_id, executed, leaves) = now.or(sums).unwrap_or_default();
        Some(Self {
            at_ns,
            cl_ord_id: token.to_vec(),
            exec_id: if is_broken { format!("{match_number}B") } else { match_number.to_string() },
            exec_ref_id: is_broken.then(|| match_number.to_string()),
            order_id,
            symbol: of.0,
            side: of.1,
            executed,
            leaves,
            qty,
            price,
            // The messages of OUCH do not tell it either.
            average: None,
        })
    }

    /// Writes the fields of the report behind the header; `epoch_ns` is the day's begin since 1970.
    pub(crate) fn write(&self, version: Version, epoch_ns: u64, out: &mut Writer<'_>) {
        let is_broken = self.exec_ref_id.is_some();
        let status = match (self.leaves, self.executed) {
            // What is void does not come back to the book.
            (0, _) if is_broken => OrdStatus::Canceled,
            (0, _) => OrdStatus::Filled,
            (_, 0) => OrdStatus::New,
            _ => OrdStatus::PartiallyFilled,
        };
        let (exec_type, exec_trans_type) = match version {
            Version::Fix42 => {
                let trans = if is_broken { ExecTransType::Cancel } else { ExecTransType::New };
                (ExecType::from_wire(status.to_wire()).unwrap_or(ExecType::New), Some(trans))
            }
            _ => (if is_broken { ExecType::TradeCancel } else { ExecType::Trade }, None),
        };
        let order_id = self.order_id.to_string();
        let report = ExecutionReport {
            account: None,
            avg_px: self.average,
            cl_ord_id: Some(&self.cl_ord_id),
            cum_qty: shares(self.executed),
            exec_id: self.exec_id.as_bytes(),
            exec_ref_id: self.exec_ref_id.as_deref().map(str::as_bytes),
            exec_trans_type,
            last_px: Some(Decimal::from_price(self.price)),
            last_qty: Some(shares(self.qty)),
            order_id: order_id.as_bytes(),
            order_qty: None,
            ord_status: status,
            ord_type: None,
            orig_cl_ord_id: None,
            price: None,
            side: if self.side == Side::Buy { FixSide::Buy } else { FixSide::Sell },
            symbol: self.symbol.0.trim_ascii_end(),
            text: None,
            time_in_force: None,
            transact_time: Some(Utc(epoch_ns + self.at_ns)),
            ord_rej_reason: None,
            exec_type,
            leaves_qty: shares(self.leaves),
            exec_restatement_reason: None,
        };
        report.write(out);
    }
}

/// The name of an execution in the protocol's own messages. Cboe writes the number of BOE in nine
/// digits of base 36.
fn name_of(protocol: Protocol, number: u64, match_number: u64) -> String {
    match protocol {
        Protocol::Fix => exec_id(number, match_number),
        Protocol::Ilink3 => number.to_string(),
        Protocol::Boe2 | Protocol::Boe3 => {
            let (mut digits, mut rest) = ([b'0'; 9], number);
            for digit in digits.iter_mut().rev() {
                *digit = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[(rest % 36) as usize];
                rest /= 36;
            }
            String::from_utf8_lossy(&digits).into_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_have_the_names_of_their_protocols() {
        assert_eq!(name_of(Protocol::Boe2, 28_294_005_440_239, 7), "A1234B567");
        assert_eq!(name_of(Protocol::Boe3, 1, 7), "000000001");
        assert_eq!(name_of(Protocol::Fix, 12, 7), "12-7");
        assert_eq!(name_of(Protocol::Ilink3, 12, 7), "12");
    }

    #[test]
    fn each_protocol_has_its_name() {
        for (name, of) in CopiesOf::ALL {
            assert_eq!((name.parse(), of.to_string().as_str()), (Ok(of), name));
        }
        assert!("ouch50".parse::<CopiesOf>().is_err());
    }
}
