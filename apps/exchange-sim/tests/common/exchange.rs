//! An exchange with one account and one instrument that the house offers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use exchange_sim::{AccountSettings, CancelOnDisconnect, Exchange, FaultPlan, SendSockets, Serving, Settings};

/// The kernel chooses the port.
pub(crate) const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// Opens it; `port` is the feed's.
pub(crate) fn open(port: u16, faults: &[&str]) -> Exchange {
    let settings = Settings { symbols: 1, port, ..Settings::default() };
    let alice = AccountSettings::new("ALICE", "SECRET").unwrap();
    let serving = Serving {
        send_sockets: SendSockets { interface: "lo".parse().unwrap(), loopback: true },
        orders: ANY,
        drop_copy: None,
        rerequest: None,
        start_after: Duration::ZERO,
        accounts: vec![AccountSettings { cancel_on_disconnect: CancelOnDisconnect::None, ..alice }],
        rate_max: None,
        house_shares: 300,
        faults: FaultPlan { seed: 1, rules: faults.iter().map(|rule| rule.parse().unwrap()).collect() },
    };
    Exchange::open(&settings, &serving).unwrap()
}
