//! Single calls: what the reception of datagrams takes of a processor, connections that come and
//! go, and the system calls of a request.

use tempfile::NamedTempFile;
use wirepath_tests::live::Program;

use super::super::multicast::beside_sender;
use super::super::pair::{FAR, NEAR, Pair};
use super::program::{Server, Side, far, installed, near, pinned, run, until};
use super::{Live, Title, both};
use crate::is_quick;
use crate::live::lines::apart;
use crate::measure::outside::numbers;
use crate::measure::table::Line;

const PORT: u16 = 7_000;

impl Live<'_> {
    pub(super) fn receptions(&mut self) {
        let caller = self.caller;
        let found = self.cores().and_then(|[sending, receiving]| {
            let (core, window) = (receiving.to_string(), if is_quick() { "500" } else { "1000" });
            both(|side| {
                let pair = Pair::new()?;
                let receive = || run(&pair.far, FAR, side, &[caller, "multicast", &core, window]);
                let said = beside_sender(&pair, sending, receive)?;
                Ok(numbers(&said, "cpu")?[0])
            })
        });
        let what = "multicast of 64 B by recvmmsg, 64 at a time, receiver's CPU time";
        self.compare(&Title { what, unit: "ns", must: 0.4, hope: 0.25, less: true }, &found, |cpu| *cpu);
    }

    pub(super) fn churns(&mut self) {
        let caller = self.caller;
        let run_both = |run: fn([String; 2], &str, Side) -> Result<f64, String>| {
            let cores = self.cores()?.map(|core| core.to_string());
            both(|side| run(cores.clone(), caller, side))
        };
        let (connected, accepted) = (run_both(connect), run_both(accept));
        let what = "connections made and closed one after the other, to a kernel's server";
        self.compare(&Title { what, unit: "conn/s", must: 1.0, hope: 2.0, less: false }, &connected, |rate| *rate);
        let what = "connections accepted and closed one after the other, of a kernel's client";
        self.compare(&Title { what, unit: "conn/s", must: 1.0, hope: 2.0, less: false }, &accepted, |rate| *rate);
    }

    pub(super) fn system_calls(&mut self) {
        let found = installed(&["strace", "redis-server", "redis-benchmark"]).and_then(|()| both(traced));
        let (ours, kernel, _) = apart(&found, |calls| *calls);
        let what = "system calls of a request in redis-server's thread on AF_XDP, 50 clients, by strace";
        self.add(Line::new(what, "calls", ours).at_most(1.1).hoping(1.0));
        self.add(Line::new("  the kernel in the same run", "calls", kernel));
    }
}

/// Connections of a run: fewer than a namespace has ports, because each stays in TIME-WAIT.
fn connections() -> &'static str {
    if is_quick() { "1000" } else { "5000" }
}

/// The client at the far end, on `side`.
fn connect(cores: [String; 2], caller: &str, side: Side) -> Result<f64, String> {
    let (pair, port) = (Pair::new()?, PORT.to_string());
    let line = ["--rr", "1", "taskset", "-c", &cores[0], caller, "accept", &port];
    let _server = Program::start(&pair.near, "chrt", &line);
    if !until(|| pair.far.run(|| std::net::TcpStream::connect((NEAR.address, PORT))).is_ok()) {
        return Err("the kernel's server takes no connection".to_owned());
    }
    let said = run(&pair.far, FAR, side, &pinned(&cores[1], &[caller, "connect", &near(PORT), connections()]))?;
    Ok(numbers(&said, "rate")?[0])
}

/// The server at the far end, on `side`.
fn accept(cores: [String; 2], caller: &str, side: Side) -> Result<f64, String> {
    let (pair, port) = (Pair::new()?, PORT.to_string());
    let _server = Server::start(&pair, side, PORT, &pinned(&cores[1], &[caller, "accept", &port]))?;
    let line = [caller, "connect", &far(PORT), connections()];
    let said = run(&pair.near, NEAR, Side::Kernel, &pinned(&cores[0], &line))?;
    Ok(numbers(&said, "rate")?[0])
}

/// System calls of the thread that serves, for each of many requests. The library's own threads
/// make theirs by time, of which strace takes much.
fn traced(side: Side) -> Result<f64, String> {
    const REQUESTS: u32 = 20_000;
    let pair = Pair::new()?;
    let options = ["--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""];
    let server = Server::start(&pair, side, 6_379, &[&["redis-server"], &options[..]].concat())?;
    let file = NamedTempFile::new().map_err(|error| format!("no file for strace: {error}"))?;
    let (path, id) = (file.path().display().to_string(), server.id().to_string());
    // strace runs with real-time priority, because the server that it stops and resumes might
    // otherwise spin on its core for ever.
    let line = ["--rr", "2", "strace", "-c", "-U", "calls,name", "-o", &path, "-p", &id];
    let strace = Program::start(&pair.far, "chrt", &line);
    let status = format!("/proc/{id}/status");
    let is_traced = || std::fs::read_to_string(&status).is_ok_and(|text| !text.contains("TracerPid:\t0\n"));
    if !until(is_traced) {
        return Err("strace does not attach: run as root".to_owned());
    }
    let (requests, host) = (REQUESTS.to_string(), FAR.address.to_string());
    let line = ["redis-benchmark", "-h", &host, "-t", "get", "-c", "50", "-n", &requests, "--csv"];
    run(&pair.near, NEAR, Side::Kernel, &line)?;
    strace.interrupt();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let total = text.lines().rev().find_map(|line| line.trim().strip_suffix("total"));
    let calls: f64 = total.and_then(|calls| calls.trim().parse().ok()).ok_or("strace printed no total")?;
    Ok(calls / f64::from(REQUESTS))
}
