//! An example on a NIC: one queue, and its worker on the calling thread, until Ctrl-C. `live.rs`
//! shows several on pinned threads.

use std::error::Error;

use super::cli;
use wirepath::counters::Block;
use wirepath::pipeline::tcp::TcpConfig;
use wirepath::pipeline::{App, Cx};
use wirepath::proto::Host;
use wirepath::time::{Clock, MonotonicClock};
use wirepath::worker::StopFlag;
use wirepath::worker::live::{LiveConfig, LivePort, OwnHost};

/// An interface that is ours, with an address that the kernel does not have, and TCP. Beside the
/// kernel it would be `LiveConfig::new(interface).with_tcp(…).flow(FlowSpec::tcp(address, port))`.
pub(crate) fn config(app: &str, interface: &str, address: &str) -> Result<LiveConfig, String> {
    let address = cli::parse(address, "an address with its network's length, like 10.0.0.2/24")?;
    let host = OwnHost { addresses: vec![address], ..OwnHost::default() };
    Ok(LiveConfig::new(interface).named(app).owned(host).with_tcp(TcpConfig::default()))
}

/// Says a word when the link goes down, and when it is back: an app that waits looks as one that
/// has nothing to do.
#[derive(Default)]
pub(crate) struct Link {
    is_down: bool,
}

impl Link {
    /// Two loads and a compare, for each turn.
    pub(crate) fn look(&mut self, host: &Host) {
        if host.is_up() == self.is_down {
            self.is_down = !host.is_up();
            println!("{}", if self.is_down { "the link is down: check cable and switch" } else { "the link is up" });
        }
    }
}

/// Runs an app there; `begin` listens, connects and joins.
pub(crate) fn run<A: App>(
    config: &LiveConfig,
    app: A,
    begin: impl FnOnce(&mut A, &mut Cx<'_>) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let stop = StopFlag::on_signals()?;
    let block = Block::create(&config.app)?;
    let mut port = LivePort::open(config, &block.scope("port"), &stop)?;
    println!("{}", port.describe());
    port.notices().iter().for_each(|notice| println!("note: {notice}"));
    let queue = port.take_queue()?.ok_or("the configuration names no queue")?;
    let mut worker = queue.builder().build(app, &block.scope("worker0"))?;
    block.check()?;
    let mut clock = MonotonicClock::start();
    worker.with_app(clock.now(), begin)?;
    worker.run(&mut clock, &stop);
    // An exchange that is told ends the session; one that is not believes in it.
    println!("{} connections were open", worker.hang_up(clock.now()));
    Ok(())
}
