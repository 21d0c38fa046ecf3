//! Pairs our trades with those of the drop copy.

use std::fmt;

use market::Price;
use order_entry::orders::ExecId;

/// Trades of either side that wait for the other's: a burst of some milliseconds.
const WAITING_MAX: usize = 4_096;

/// One trade, or its bust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trade {
    /// The order's id in the message.
    pub id: u64,
    /// The execution; of a correction the one that it corrects.
    pub exec: ExecId,
    /// Its shares and price; `None` for a bust.
    pub terms: Option<(u32, Price)>,
    /// The terms are those of a correction, and this is its name; that of the execution where the
    /// venue gives a correction none.
    pub correction: Option<ExecId>,
}

/// What the two streams do not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The drop copy has a trade that the session has not brought, and is closed: when it opens it
    /// may bring the trade.
    Awaited(Trade),
    /// The drop copy has a trade that the session has not brought, although it is open.
    OnlyTheirs(Trade),
    /// Likewise, and it is not booked: no order of ours has its id, its instrument and its side, or
    /// executions were forgotten, so that it may have been counted.
    Unbooked(Trade),
    /// The session brought a trade that the drop copy lacks: it lags, or is wrong.
    OnlyOurs(Trade),
    /// Both have the execution, with other terms. This is the drop copy's.
    Terms(Trade),
    /// More trades wait than there is room for.
    TooMany,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, trade) = match self {
            Self::Awaited(trade) => ("while the session is closed, the drop copy has a trade of order", trade),
            Self::OnlyTheirs(trade) => ("the session has missed a trade, which the drop copy has, of order", trade),
            Self::Unbooked(trade) => ("the drop copy has a trade that cannot be booked here, of order", trade),
            Self::OnlyOurs(trade) => ("the drop copy lacks, or is late with, a trade of order", trade),
            Self::Terms(trade) => ("the drop copy has other terms of a trade of order", trade),
            Self::TooMany => return write!(f, "{WAITING_MAX} trades wait for the drop copy's"),
        };
        write!(f, "{what} {}, execution {}", trade.id, trade.exec.0)?;
        let what = if trade.correction.is_some() { "corrected to " } else { "" };
        match trade.terms {
            Some((qty, price)) => write!(f, ": {what}{qty} at {price}"),
            None => f.write_str(": a bust"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    trade: Trade,
    is_ours: bool,
    /// Of theirs: its order is ours, so that it may be booked.
    may_be_booked: bool,
    since_ns: u64,
    /// A person knows of it.
    is_told: bool,
}

/// The trades that one side has told, and the other has not. Memory is allocated at the start.
#[derive(Debug)]
pub struct Reconciler {
    lag_ns: u64,
    waiting: Vec<Waiting>,
    /// Since when the session is open.
    open_since_ns: Option<u64>,
    found: Option<Difference>,
    matched: u64,
}

impl Reconciler {
    /// One that calls it a difference when a trade has waited for `lag_ns`.
    pub fn new(lag_ns: u64) -> Self {
        Self { lag_ns, waiting: Vec::with_capacity(WAITING_MAX), open_since_ns: None, found: None, matched: 0 }
    }

    /// The session brought a trade. Costs a look at each trade that waits: few.
    pub fn ours(&mut self, trade: Trade, now_ns: u64) {
        self.take(trade, true, false, now_ns);
    }

    /// The drop copy brought a trade. `known` is what is booked of its execution: a trade of an
    /// earlier connection, or of before a restart, does not wait. One that may not be booked is a
    /// difference all the same where the session does not bring it.
    pub fn theirs(&mut self, trade: Trade, known: Option<Trade>, may_be_booked: bool, now_ns: u64) {
        let is_waited_for = self.waiting.iter().any(|waiting| waiting.is_ours && is_same(&waiting.trade, &trade));
        match known {
            Some(known) if !is_waited_for && known == trade => self.matched += 1,
            Some(known) if !is_waited_for && known.terms.is_some() == trade.terms.is_some() => {
                self.found = self.found.or(Some(Difference::Terms(trade)));
            }
            _ => self.take(trade, false, may_be_booked, now_ns),
        }
    }

    fn take(&mut self, trade: Trade, is_ours: bool, may_be_booked: bool, now_ns: u64) {
        let other = |waiting: &Waiting| waiting.is_ours != is_ours && is_same(&waiting.trade, &trade);
        if let Some(place) = self.waiting.iter().position(other) {
            let theirs = if is_ours { self.waiting[place].trade } else { trade };
            // Which name a correction has is not said by each protocol.
            if self.waiting.remove(place).trade.terms == trade.terms {
                self.matched += 1;
            } else {
                self.found = self.found.or(Some(Difference::Terms(theirs)));
            }
        } else if self.waiting.len() == WAITING_MAX {
            self.found = self.found.or(Some(Difference::TooMany));
        } else {
            self.waiting.push(Waiting { trade, is_ours, may_be_booked, since_ns: now_ns, is_told: false });
        }
    }

    /// The next difference; each is told once. The oldest trade waits in front: one compare, while
    /// the session is open.
    ///
    /// A session that opens brings what it has missed while it was closed. So a trade of the drop
    /// copy alone is one that the session has missed when the session has been open for the lag.
    pub fn poll(&mut self, is_open: bool, now_ns: u64) -> Option<Difference> {
        self.open_since_ns = is_open.then(|| self.open_since_ns.unwrap_or(now_ns));
        if self.found.is_some() {
            return self.found.take();
        }
        let is_over = |since_ns: u64| now_ns.saturating_sub(since_ns) >= self.lag_ns;
        let has_brought_all = self.open_since_ns.is_some_and(is_over);
        let late = self.waiting.iter().take_while(|waiting| is_over(waiting.since_ns));
        let is_due = |waiting: &Waiting| waiting.is_ours || has_brought_all || !(is_open || waiting.is_told);
        let (place, _) = late.enumerate().find(|(_, waiting)| is_due(waiting))?;
        let Waiting { trade, is_ours, may_be_booked, .. } = self.waiting[place];
        if !is_ours && !has_brought_all {
            self.waiting[place].is_told = true;
            return Some(Difference::Awaited(trade));
        }
        self.waiting.remove(place);
        Some(match (is_ours, may_be_booked) {
            (true, _) => Difference::OnlyOurs(trade),
            (false, true) => Difference::OnlyTheirs(trade),
            (false, false) => Difference::Unbooked(trade),
        })
    }

    /// Trades that both sides had.
    pub const fn matched(&self) -> u64 {
        self.matched
    }
}

/// The same execution, the same bust, or the same correction.
fn is_same(one: &Trade, other: &Trade) -> bool {
    let key = |trade: &Trade| (trade.id, trade.exec, trade.terms.is_some(), trade.correction.is_some());
    key(one) == key(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG_NS: u64 = 1_000;

    const fn trade(id: u64, qty: u32) -> Trade {
        Trade { id, exec: ExecId(7), terms: Some((qty, Price(10_000))), correction: None }
    }

    #[test]
    fn trade_of_both_sides_is_matched_in_either_order() {
        let mut reconciler = Reconciler::new(LAG_NS);
        reconciler.ours(trade(1, 100), 0);
        reconciler.theirs(trade(1, 100), Some(trade(1, 100)), true, 10);
        reconciler.theirs(trade(2, 100), None, true, 10);
        reconciler.ours(trade(2, 100), 20);
        assert_eq!((reconciler.matched(), reconciler.poll(true, u64::MAX)), (2, None));
    }

    #[test]
    fn trade_of_one_side_alone_is_a_difference_after_the_lag_and_once() {
        let mut reconciler = Reconciler::new(LAG_NS);
        assert_eq!(reconciler.poll(true, 0), None);
        reconciler.ours(trade(1, 100), 0);
        reconciler.theirs(trade(2, 50), None, true, 1);
        assert_eq!(reconciler.poll(true, LAG_NS - 1), None);
        assert_eq!(reconciler.poll(true, LAG_NS), Some(Difference::OnlyOurs(trade(1, 100))));
        assert_eq!(reconciler.poll(true, LAG_NS + 1), Some(Difference::OnlyTheirs(trade(2, 50))));
        assert_eq!(reconciler.poll(true, u64::MAX), None);
    }

    #[test]
    fn other_terms_are_a_difference_at_once() {
        let mut reconciler = Reconciler::new(LAG_NS);
        reconciler.ours(trade(1, 100), 0);
        reconciler.theirs(trade(1, 99), Some(trade(1, 100)), true, 0);
        assert_eq!(reconciler.poll(true, 0), Some(Difference::Terms(trade(1, 99))));
        reconciler.theirs(trade(2, 99), Some(trade(2, 100)), true, 0);
        assert_eq!(reconciler.poll(true, 0), Some(Difference::Terms(trade(2, 99))));
    }

    #[test]
    fn trade_of_before_a_restart_is_known_and_does_not_wait() {
        let mut reconciler = Reconciler::new(LAG_NS);
        reconciler.theirs(trade(1, 100), Some(trade(1, 100)), true, 0);
        assert_eq!((reconciler.matched(), reconciler.poll(true, u64::MAX)), (1, None));
    }

    #[test]
    fn correction_is_compared_with_the_correction_and_not_with_its_trade() {
        let (mut reconciler, corrected) =
            (Reconciler::new(LAG_NS), Trade { correction: Some(ExecId(8)), ..trade(1, 90) });
        reconciler.ours(trade(1, 100), 0);
        reconciler.theirs(trade(1, 100), Some(trade(1, 100)), true, 0);
        reconciler.ours(corrected, 1);
        reconciler.theirs(corrected, None, false, 2);
        assert_eq!((reconciler.matched(), reconciler.poll(true, 3)), (2, None));
        reconciler.ours(corrected, 4);
        reconciler.theirs(Trade { correction: Some(ExecId(8)), ..trade(1, 80) }, None, false, 5);
        let other = Trade { correction: Some(ExecId(8)), ..trade(1, 80) };
        assert_eq!(reconciler.poll(true, 5), Some(Difference::Terms(other)));
        assert!(Difference::Terms(other).to_string().ends_with("execution 7: corrected to 80 at 1.0000"));
    }

    #[test]
    fn bust_and_its_trade_are_two() {
        let (mut reconciler, bust) = (Reconciler::new(LAG_NS), Trade { terms: None, ..trade(1, 100) });
        assert_eq!(reconciler.poll(true, 0), None);
        reconciler.ours(trade(1, 100), 0);
        reconciler.theirs(bust, Some(trade(1, 100)), true, 0);
        assert_eq!(reconciler.poll(true, LAG_NS), Some(Difference::OnlyOurs(trade(1, 100))));
        assert_eq!(reconciler.poll(true, LAG_NS), Some(Difference::OnlyTheirs(bust)));
    }

    #[test]
    fn more_trades_than_there_is_room_for_are_a_difference() {
        let mut reconciler = Reconciler::new(LAG_NS);
        (0..=WAITING_MAX as u64).for_each(|id| reconciler.ours(trade(id, 1), 0));
        assert_eq!(reconciler.poll(true, 0), Some(Difference::TooMany));
    }

    #[test]
    fn trade_of_a_closed_session_is_awaited_and_missed_only_when_the_session_has_been_open_for_the_lag() {
        let mut reconciler = Reconciler::new(LAG_NS);
        reconciler.theirs(trade(1, 100), None, true, 0);
        reconciler.ours(trade(2, 50), 1);
        assert_eq!(reconciler.poll(false, LAG_NS), Some(Difference::Awaited(trade(1, 100))));
        // What waits for the session hides no other difference.
        assert_eq!(reconciler.poll(false, 3 * LAG_NS), Some(Difference::OnlyOurs(trade(2, 50))));
        assert_eq!(reconciler.poll(false, 3 * LAG_NS), None);
        assert_eq!(reconciler.poll(true, 3 * LAG_NS), None);
        assert_eq!(reconciler.poll(true, 4 * LAG_NS - 1), None);
        assert_eq!(reconciler.poll(true, 4 * LAG_NS), Some(Difference::OnlyTheirs(trade(1, 100))));
        assert_eq!(reconciler.poll(true, u64::MAX), None);
    }

    #[test]
    fn trade_that_the_session_brings_when_it_opens_is_matched() {
        let mut reconciler = Reconciler::new(LAG_NS);
        reconciler.theirs(trade(1, 100), None, true, 0);
        assert_eq!(reconciler.poll(false, LAG_NS), Some(Difference::Awaited(trade(1, 100))));
        reconciler.ours(trade(1, 100), 2 * LAG_NS);
        assert_eq!((reconciler.matched(), reconciler.poll(true, u64::MAX)), (1, None));
    }
}
