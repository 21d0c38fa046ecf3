//! A run on a machine whose clock stands still, without a venue.
#![allow(clippy::unwrap_used, reason = "a panic is the report")]

mod common;

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::mpsc::channel;

use common::line::Line;
use common::{Buyer, RESERVE, SECOND, config};
use order_entry::journal::Journal;
use order_entry::risk::KillSwitch;
use order_gateway::control::Command;
use order_gateway::host::{Host, Stream, Waits};
use order_gateway::{Core, Gateway, LineConfig, Run};

/// Its time is what a test says.
#[derive(Debug)]
struct Machine(Rc<Cell<u64>>);

impl Host for Machine {
    fn now_ns(&self) -> u64 {
        self.0.get()
    }

    fn epoch_offset_ns(&self) -> u64 {
        0
    }

    fn connect(&self, _to: SocketAddrV4, _waits: Waits) -> io::Result<Box<dyn Stream>> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }
}

type TestRun = Run<Buyer, Line, Vec<u8>>;

/// A run whose session takes orders, and its clock.
fn run(kill: &KillSwitch) -> (TestRun, Rc<Cell<u64>>) {
    let journal = Journal::create(vec![0; 1 << 16], 7, 0, RESERVE).unwrap();
    let gateway = Gateway::new(Buyer::default(), Core::new(config(kill), Line::new(), journal));
    let clock = Rc::new(Cell::new(SECOND));
    let nowhere = LineConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1));
    (Run::new(gateway, nowhere, Box::new(Machine(clock.clone()))), clock)
}

/// One turn, and what it reports but for the connection.
fn turn(run: &mut TestRun) -> Vec<String> {
    let mut reports = Vec::new();
    run.turn(&mut |sentence: &str| reports.push(sentence.to_owned()));
    reports.retain(|sentence| !sentence.starts_with("no connection"));
    reports
}

#[test]
fn arm_that_waits_does_not_lift_a_switch_that_was_thrown_behind_it() {
    let kill = KillSwitch::new();
    let ((mut run, _), (sender, receiver)) = (run(&kill), channel());
    run.commands = Some(receiver);
    sender.send(Command::Arm(kill.throws())).unwrap();
    kill.throw();
    assert!(turn(&mut run)[0].contains("thrown after `arm`"));
    let core = run.gateway.core();
    assert!(core.killed().is_some() && !core.risk().is_armed());
    sender.send(Command::Arm(kill.throws())).unwrap();
    turn(&mut run);
    let core = run.gateway.core();
    assert!(core.killed().is_none() && core.risk().is_armed());
}
