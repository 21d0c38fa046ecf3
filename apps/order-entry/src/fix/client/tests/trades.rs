//! Trades that the venue corrects, and takes back.

use super::*;
use crate::orders::{OrderCapacity, OrderTable};
use crate::risk::{KillSwitch, Limits, RiskCapacity, RiskGate};

const STOCK: InstrumentIdx = InstrumentIdx(0);

/// An order of the client, the venue's trades of it, and the position that they make.
struct Trading {
    client: FixClient,
    venue: Venue,
    id: u64,
    table: OrderTable,
    gate: RiskGate,
}

impl Trading {
    fn new() -> Self {
        let (mut client, venue) = open(Version::Fix44);
        let id = order(&mut client, 1);
        let capacity = OrderCapacity { orders: 4, executions: 16, instruments: 1 };
        let mut table = OrderTable::new(capacity, FixClient::rules());
        table.open(id, (STOCK, Side::Buy), (100, Price::from_cents(1_000)), 1).unwrap();
        let capacity = RiskCapacity { orders: 4, recent: 4 };
        let gate = RiskGate::new(Box::new(Limits::zero(1, 1, 1)), KillSwitch::new(), capacity);
        Self { client, venue, id, table, gate }
    }

    /// The position behind a report with ExecID (17), ExecRefID (19) and LastQty (32).
    fn take(&mut self, exec_type: ExecType, (exec_id, exec_ref_id): (&str, Option<&str>), qty: i64) -> Option<i64> {
        let cl_ord_id = format!("{:016}", self.id);
        self.venue.report_of(&ExecutionReport {
            exec_type,
            exec_id: exec_id.as_bytes(),
            exec_ref_id: exec_ref_id.map(str::as_bytes),
            last_px: Some(Decimal::whole(10)),
            last_qty: Some(Decimal::whole(qty)),
            ..report(cl_ord_id.as_bytes())
        });
        for event in pump(&mut self.client, &mut self.venue, 2) {
            let SessionEvent::Message { message: VenueMessage::Answer { key, event, .. }, .. } = event else {
                continue;
            };
            let outcome = self.table.apply(key, &event);
            assert!(self.gate.follow(&outcome, &self.table));
        }
        self.gate.position(STOCK)
    }
}

#[test]
fn bust_of_a_correction_takes_back_the_trade() {
    let mut trading = Trading::new();
    assert_eq!(trading.take(ExecType::Trade, ("E1", None), 100), Some(100));
    assert_eq!(trading.take(ExecType::TradeCorrect, ("E2", Some("E1")), 90), Some(90));
    assert_eq!(trading.take(ExecType::TradeCorrect, ("E3", Some("E2")), 80), Some(80));
    assert_eq!(trading.take(ExecType::TradeCancel, ("E4", Some("E3")), 80), Some(0));
}
