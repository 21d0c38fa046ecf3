//! An exchange in a thread, and what its account's day was.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use exchange_sim::{
    AccountSettings, BoeVersion, CancelOnDisconnect, CopiesOf, Exchange, FaultPlan, SendSockets, Served, Serving,
    Settings,
};
use market::{Price, Symbol};
use wirepath::worker::StopFlag;

use crate::boe_truth;
use crate::fix_truth;
use crate::gateway::Protocol;
use crate::ilink3_truth;
use crate::ouch42_truth;
use crate::truth::VenueLog;

pub const USER: &str = "ALICE";
pub const PASSWORD: &str = "SECRET";

/// `exchange-sim serve` as a library, until it is stopped. Orders outlive their connection.
pub struct Running {
    /// OUCH 5.0.
    pub orders: SocketAddr,
    pub ouch42: SocketAddr,
    pub fix: SocketAddr,
    pub boe2: SocketAddr,
    pub boe3: SocketAddr,
    pub ilink3: SocketAddr,
    pub drop_copy: SocketAddr,
    /// Copies by FIX, of each of [`CopiesOf::ALL`].
    pub copies: [SocketAddr; CopiesOf::ALL.len()],
    /// The instrument that everybody trades, and its price.
    pub instrument: (Symbol, Price),
    stop: StopFlag,
    thread: JoinHandle<Served>,
}

impl Running {
    pub fn start(port: u16, faults: &[&str]) -> Self {
        let settings = Settings { symbols: 1, port, ..Settings::default() };
        let mut account = AccountSettings::new(USER, PASSWORD).unwrap();
        account.cancel_on_disconnect = CancelOnDisconnect::None;
        let serving = Serving {
            send_sockets: SendSockets { interface: "lo".parse().unwrap(), loopback: true },
            orders: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0),
            drop_copy: Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)),
            rerequest: None,
            start_after: Duration::ZERO,
            accounts: vec![account],
            rate_max: None,
            house_shares: 900_000,
            faults: FaultPlan { seed: 1, rules: faults.iter().map(|rule| rule.parse().unwrap()).collect() },
        };
        let mut exchange = Exchange::open(&settings, &serving).unwrap();
        let fix = exchange.open_fix(serving.orders).unwrap();
        let [orders, drop_copy] = exchange.addresses()[..] else { panic!("two addresses") };
        let ouch42 = exchange.open_ouch42(serving.orders).unwrap();
        let [boe2, boe3] = [BoeVersion::V2, BoeVersion::V3].map(|of| exchange.open_boe(serving.orders, of).unwrap());
        let ilink3 = exchange.open_ilink3(serving.orders).unwrap();
        let copies = CopiesOf::ALL.map(|(_, of)| exchange.open_copies(serving.orders, of).unwrap());
        let instrument = exchange.listing()[0];
        let stop = StopFlag::new();
        let flag = stop.clone();
        let thread = thread::spawn(move || exchange.run(&flag).unwrap());
        Self { orders, ouch42, fix, boe2, boe3, ilink3, drop_copy, copies, instrument, stop, thread }
    }

    /// The account's numbered messages so far. Nobody may be logged in.
    pub fn log(&self) -> VenueLog {
        VenueLog::read(TcpStream::connect(self.orders).unwrap())
    }

    /// The account's numbered messages of OUCH 4.2 so far.
    pub fn ouch42_log(&self) -> VenueLog {
        ouch42_truth::read(TcpStream::connect(self.ouch42).unwrap())
    }

    /// The account's numbered messages of BOE so far.
    pub fn boe_log(&self, protocol: Protocol) -> VenueLog {
        match protocol {
            Protocol::Boe2 => boe_truth::read_v2(TcpStream::connect(self.boe2).unwrap()),
            _ => boe_truth::read_v3(TcpStream::connect(self.boe3).unwrap()),
        }
    }

    /// The account's messages of iLink 3 so far, read as the process whose journal is at `path`.
    pub fn ilink3_log(&self, path: &Path) -> VenueLog {
        ilink3_truth::read(TcpStream::connect(self.ilink3).unwrap(), path)
    }

    /// The account's reports by FIX so far, read as the process whose journal is at `path`.
    pub fn fix_log(&self, path: &Path) -> VenueLog {
        fix_truth::read(TcpStream::connect(self.fix).unwrap(), path)
    }

    pub fn stop(self) -> Served {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}
