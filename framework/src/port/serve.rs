//! One worker of a port from its first poll to its last, on its own thread.

use std::thread;
use std::time::Duration;

use super::control::{Answer, Command, WorkerEnd};
use super::error::{Error, Result};
use super::handle::enter_worker;
use super::opened::Opened;
use crate::counters::Block;
use crate::device::{RxQueue, TxQueue};
use crate::pipeline::{App, Cx, Node};
use crate::time::{Clock, MonotonicClock};
use crate::worker::{Worker, WorkerContext};

/// Interval between two polls of the ring before the first turn.
const START_PERIOD: Duration = Duration::from_micros(50);

/// Opens the subscriptions, starts the app, and polls until stopped or until the device has ended.
pub(super) fn serve<Rx: RxQueue, Tx: TxQueue, N: Node<A>, A: App>(
    mut worker: Worker<Rx, Tx, N, A>,
    block: &Block,
    context: &WorkerContext,
    mut control: WorkerEnd,
) -> Result<()> {
    block.check()?;
    enter_worker();
    let mut clock = MonotonicClock::start();
    let mut opened = worker.with_app(clock.now(), |_, cx| Opened::new(control.is_shared, cx));
    worker.with_app(clock.now(), |app, cx| {
        control.subscriptions.iter().try_for_each(|subscription| opened.open(subscription, cx))?;
        app.on_start(cx).map_err(Error::App)
    })?;
    let fallback = worker.pool().region().mapping().and_then(|mapping| mapping.fallback());
    control.say(Answer::Ready { fallback: fallback.map(ToString::to_string) });
    while !context.stop.is_stopping() {
        match control.commands.pop() {
            Some(Command::Go) => break,
            Some(command) => worker.with_app(clock.now(), |_, cx| control.obey(command, &mut opened, cx)),
            None => thread::sleep(START_PERIOD),
        }
    }
    worker.run_with(&mut clock, &context.stop, |worker, now| {
        if let Some(command) = control.commands.pop() {
            worker.with_app(now, |_, cx| control.obey(command, &mut opened, cx));
        }
    });
    worker.with_app(clock.now(), |app, cx| app.on_stop(cx));
    worker.hang_up(clock.now());
    Ok(())
}

impl WorkerEnd {
    fn say(&mut self, answer: Answer) {
        // One command is in flight at a time and has one answer, so there is room.
        let _ = self.answers.push(answer);
    }

    fn obey(&mut self, command: Command, opened: &mut Opened, cx: &mut Cx<'_>) {
        let done = match command {
            Command::Go => return,
            Command::Subscribe(subscription) => opened.open(&subscription, cx),
            Command::Unsubscribe(subscription) => {
                opened.close(&subscription, cx);
                Ok(())
            }
        };
        self.say(Answer::Done(done));
    }
}
