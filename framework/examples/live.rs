//! A live receiver whose main thread has work of its own: it joins a group on an interface that
//! stays the kernel's, and prints the rate each second until Ctrl-C.
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
use wirepath::port::{Port, multicast};
use wirepath::time::MonotonicClock;
use wirepath::worker::StopFlag;
use wirepath::worker::live::LiveConfig;

/// The application: all that it does with a datagram happens here, on the worker's core.
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

    // The counters and the stop flag are made here; the configuration names interface and groups.
    let (stop, block) = (StopFlag::on_signals()?, Arc::new(Block::create("live")?));
    let live = Port::from_config(LiveConfig::new(interface)).named("live").subscribe(multicast(group, port));
    let live = live.cores([0]).counters(&block).stop_by(&stop).log(|line| println!("{line}"));

    // A pinned thread for each queue: a pool, the queue, the pipeline, and then the loop.
    let running = live.start(|builder, worker| {
        let mut clock = MonotonicClock::start();
        let built = builder.build(Ticks::default(), &worker.scope())?;
        let mut running = worker.start(built, &mut clock)?;
        running.run(&mut clock);
        Ok::<_, wirepath::Error>(running.finish(&mut clock).into_app().bytes)
    })?;

    // Meanwhile this thread only reads counters.
    let mut before = block.snapshot();
    while !stop.is_stopping() {
        thread::sleep(Duration::from_secs(1));
        let now = block.snapshot();
        let rate = now.change("worker0/udp/datagrams", &before).map_or(0.0, |change| change.per_second);
        println!("{rate:.0} datagrams a second");
        before = now;
    }
    for bytes in running.join()? {
        println!("{} bytes in all", bytes?);
    }
    Ok(())
}
