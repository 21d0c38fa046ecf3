//! The cost of an idle server: its CPU time and memory, and the memory of each idle connection.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use super::super::pair::{FAR, Pair};
use super::super::sys;
use super::program::{Server, Side, installed, until};
use super::{Live, both};
use crate::is_quick;
use crate::live::lines::apart;
use crate::measure::sampling::Spread;
use crate::measure::table::Line;

/// A second after the last packet: any spinning is over by then.
const SETTLED: Duration = Duration::from_secs(1);
/// Connections that are counted, and those before.
const CONNECTIONS: usize = 10_000;
const FIRST: usize = 100;
const PORT: u16 = 7_000;

impl Live<'_> {
    pub(super) fn idle_server(&mut self) {
        let found = installed(&["memcached"]).and_then(|()| both(idle));
        let (ours, kernel, _) = apart(&found, |share| *share);
        let what = "memcached with 4 threads and 50 idle clients, CPU time after the spin budget";
        self.add(Line::new(what, "%", ours).at_most(1.0).hoping(0.2));
        self.add(Line::new("  the kernel in the same run", "%", kernel));
    }

    pub(super) fn idle_connections(&mut self) {
        let caller = self.caller;
        let rounds = if is_quick() { 1 } else { 3 };
        let found: Result<Vec<Held>, String> = (0..rounds).map(|_| held(caller)).collect();
        let spread = |of: fn(&Held) -> f64| match &found {
            Ok(found) => Ok(Spread::of(found.iter().map(of).collect())),
            Err(why) => Err(why.clone()),
        };
        let what = format!("resident memory of an idle connection, accepted, of {CONNECTIONS}");
        self.add(Line::new(&what, "B", spread(|held| held.each)).at_most(2048.0).hoping(1024.0));
        self.add(Line::new("  of the process before them", "MiB", spread(|held| held.before / 1_048_576.0)));
    }
}

/// Per cent of a core.
fn idle(side: Side) -> Result<f64, String> {
    let pair = Pair::new()?;
    let line = ["memcached", "-u", "root", "-p", "7000", "-U", "0", "-t", "4", "-l", "0.0.0.0"];
    let server = Server::start(&pair, side, PORT, &line)?;
    let _clients = clients(&pair, 50)?;
    thread::sleep(SETTLED);
    let window = Duration::from_secs(if is_quick() { 2 } else { 5 });
    let before = server.cpu_time()?;
    thread::sleep(window);
    Ok(100.0 * (server.cpu_time()? - before).as_secs_f64() / window.as_secs_f64())
}

/// Bytes.
struct Held {
    each: f64,
    before: f64,
}

/// The first connections are not counted: they bring tables that are for all. The program itself
/// keeps a number of each.
fn held(caller: &str) -> Result<Held, String> {
    let room = sys::raise_descriptor_limit().map_err(|error| format!("the limit of descriptors: {error}"))?;
    if room < (CONNECTIONS + 2 * FIRST) as u64 {
        return Err(format!("a process may have {room} descriptors only: raise the hard limit (ulimit -Hn)"));
    }
    let pair = Pair::new()?;
    let server = Server::start(&pair, Side::Ours, PORT, &[caller, "hold", "7000"])?;
    let _first = clients(&pair, FIRST)?;
    let before = settled(&server)?;
    let _clients = clients(&pair, CONNECTIONS)?;
    let each = (settled(&server)? - before) / CONNECTIONS as f64;
    Ok(Held { each, before })
}

/// Its memory once it has accepted all that came.
fn settled(server: &Server) -> Result<f64, String> {
    let mut last = 0.0;
    until(|| {
        thread::sleep(SETTLED);
        let now = server.resident().unwrap_or(0.0);
        core::mem::replace(&mut last, now) == now
    });
    server.resident()
}

fn clients(pair: &Pair, count: usize) -> Result<Vec<TcpStream>, String> {
    let connect = || (0..count).map(|_| TcpStream::connect((FAR.address, PORT))).collect::<std::io::Result<_>>();
    pair.near.run(connect).map_err(|error| format!("{count} clients: {error}"))
}
