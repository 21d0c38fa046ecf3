//! Alarms that come by the thousand: some of them are told, all are counted, and they take no room
//! of what stops orders.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use order_entry::orders::{ExecId, VenueEvent};
use order_entry::risk::KillSwitch;
use order_gateway::Logger;

use super::common::{Buyer, SECOND};
use super::{TestRun, run_of, turn};

const MS: u64 = SECOND / 1_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// So many answers to orders that the journal does not have.
fn say_unknown(run: &mut TestRun<Buyer>, count: u64, now_ns: u64) {
    for id in 0..count {
        let filled = VenueEvent::Filled { exec: ExecId::from_number(id + 1), qty: 10, price: market::Price(1) };
        run.gateway.core_mut().session_mut().say(1_000 + id, filled);
    }
    run.gateway.received(&[], now_ns).unwrap();
}

#[test]
fn alarms_of_many_turns_are_told_eight_times_a_second_and_the_others_are_a_number() {
    let (mut run, clock) = run_of(vec![0; 1 << 20], &KillSwitch::new(), Buyer::default());
    let mut told = Vec::new();
    for ms in 0..100 {
        clock.set(SECOND + ms * MS);
        say_unknown(&mut run, 9, clock.get());
        told.extend(turn(&mut run));
    }
    assert_eq!(told.len(), 8 + 1, "{told:?}");
    assert!(told[8].starts_with("1 more alarms came"), "{told:?}");
    clock.set(2 * SECOND);
    assert_eq!(turn(&mut run), ["891 more alarms came: compare all orders with the venue"], "also without another one");
    say_unknown(&mut run, 1, clock.get());
    assert_eq!(turn(&mut run), ["order 1000: the venue has it, and the journal does not: nothing is booked"]);
}

/// It takes nothing until the other end of its gate is dropped.
struct Gate {
    is_shut: Receiver<()>,
    out: Sender<String>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.is_shut.recv();
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.out.send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn kill_behind_alarms_that_nobody_reads_is_told() {
    let kill = KillSwitch::new();
    let (mut run, clock) = run_of(vec![0; 1 << 20], &kill, Buyer::default());
    let (opens, is_shut) = channel();
    let (out, written) = channel();
    let logger = Logger::start("", Gate { is_shut, out }).unwrap();
    run.logger = Some(logger.clone());
    for seconds in 1..200 {
        clock.set(seconds * SECOND);
        say_unknown(&mut run, 9, clock.get());
        run.turn(&mut |sentence: &str| {
            if !sentence.starts_with("no connection") {
                logger.say(sentence);
            }
        });
    }
    assert!(logger.losses().is_some(), "what has no room is counted");
    kill.throw();
    run.gateway.tick(clock.get()).unwrap();
    turn(&mut run).iter().for_each(|sentence| logger.say(sentence));
    drop(opens);
    assert!(logger.flush(PATIENCE));
    assert!(written.try_iter().any(|line| line.starts_with("the kill switch was thrown")));
}
