//! The shortest live receiver: joins a group on an interface that stays the kernel's, and prints
//! the rate each second until Ctrl-C.
//!
//! `cargo run --release -p wirepath --example live -- eth1 239.1.1.1 9000` (as root, or with the
//! capabilities that the error names)
//!
//! Everything else that arrives on the interface, ssh included, goes on to the kernel.
//! `wirepath stats` shows the counters.

mod cli;

use std::error::Error;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wirepath::counters::Block;
use wirepath::pipeline::{App, Cx, Datagram};
use wirepath::proto::{ConsumerId, Group};
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::live::{FlowSpec, LiveConfig, LivePort, LiveQueue};
use wirepath::worker::{StopFlag, WorkerContext, WorkerGroup, WorkerSpec};

/// The application: whatever it does with a datagram, it does here, on the worker's core.
#[derive(Default)]
struct Ticks {
    bytes: u64,
}

impl App for Ticks {
    fn on_datagram(&mut self, datagram: &Datagram<'_>, _cx: &mut Cx<'_>) {
        self.bytes += datagram.payload.len() as u64;
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    cli::exit_code(run(&arguments))
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [interface, group, port] = arguments else { return Err("usage: live INTERFACE GROUP PORT".into()) };
    let group: Ipv4Addr = cli::parse(group, "a group's address, like 239.1.1.1")?;
    let port: u16 = cli::parse(port, "a port, like 9000")?;

    // Main thread: what is wanted of which interface, and the port that gives it.
    let stop = StopFlag::on_signals()?;
    let block = Arc::new(Block::create("live")?);
    let config = LiveConfig::new(interface).named("live").flow(FlowSpec::udp(group, port));
    let mut live = LivePort::open(&config, &block.scope("port"), &stop)?;
    println!("{}", live.describe());
    live.notices().iter().for_each(|notice| println!("note: {notice}"));

    // A pinned thread for each queue.
    let mut specs = Vec::new();
    while let Some(queue) = live.take_queue()? {
        let block = Arc::clone(&block);
        let duty = move |context: &WorkerContext| {
            // Who cannot start stops the others.
            receive(queue, Group::new(group, port), context, &block)
                .map_err(|error| (context.stop.stop(), error.to_string()).1)
        };
        specs.push(WorkerSpec::new("worker0", duty).on_core(0).polling(interface));
    }
    let group = WorkerGroup::start(specs, &stop)?;
    let mut before = block.snapshot();
    while !stop.is_stopping() {
        thread::sleep(Duration::from_secs(1));
        let now = block.snapshot();
        let rate = now.change("worker0/udp/datagrams", &before).map_or(0.0, |change| change.per_second);
        println!("{rate:.0} datagrams a second");
        before = now;
    }
    for bytes in group.join()? {
        println!("{} bytes in all", bytes?);
    }
    Ok(())
}

/// The worker's thread: a pool, the queue, the pipeline, and then the loop.
fn receive(queue: LiveQueue, group: Group, context: &WorkerContext, block: &Block) -> Result<u64, Box<dyn Error>> {
    let mut worker = queue.builder().build(Ticks::default(), &block.scope("worker0"))?;
    block.check()?;
    let mut clock = MonotonicClock::start();
    worker.with_app(clock.now(), |_, cx| cx.sockets.join(ConsumerId(0), group))?;
    worker.run(&mut clock, &context.stop);
    Ok(worker.into_app().bytes)
}
