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
use crate::measure::sampling::Spread;
use crate::measure::table::Line;

const PORT: u16 = 7_000;

impl Live<'_> {
    /// What calls through the library's symbols add to an app of the framework, for packets that
    /// wait in the same rings.
    pub(super) fn added(&mut self) {
        let caller = self.caller;
        let add = |what: &'static str, calls: f64| {
            let found = self.cores().and_then(|[_, core]| {
                both(|side| {
                    let (pair, way) = (Pair::new()?, if side == Side::Ours { "calls" } else { "app" });
                    let line = [caller, what, way, pair.near.name()];
                    let said = run(&pair.far, FAR, side, &pinned(&core.to_string(), &line))?;
                    Ok(numbers(&said, "ns")?[0])
                })
            });
            let (by_calls, by_app, _) = apart(&found, |ns| *ns);
            let more = |runs: &Vec<(f64, f64)>| runs.iter().map(|(calls_ns, app)| (calls_ns - app) / calls).collect();
            (found.as_ref().map(more).map(Spread::of).map_err(Clone::clone), by_calls, by_app)
        };
        let [datagrams, answers] = [("datagrams", 1.0), ("answers", 2.0)].map(|(what, calls)| add(what, calls));
        for (what, (added, by_calls, by_app)) in [
            ("a call that receives 64 B of UDP through the preload library's symbols", datagrams),
            ("a call of TCP's request and response of 64 B through the same symbols", answers),
        ] {
            let what = format!("{what}, packets in the rings: what it adds to the framework's own");
            self.add(Line::new(&what, "ns", added).at_most(120.0).hoping(60.0));
            self.add(Line::new("  all of it, with the framework's share and the doorbell", "ns", by_calls));
            self.add(Line::new("  the framework alone, in the same run", "ns", by_app));
        }
    }

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
        let programs = installed(&["strace", "redis-server", "redis-benchmark"]);
        let found = programs.clone().and_then(|()| both(traced));
        let (ours, kernel, _) = apart(&found, Traced::all);
        let what = "system calls of a request in redis-server's thread on AF_XDP, 50 clients, by strace";
        self.add(Line::new(what, "calls", ours).at_most(1.1).hoping(1.0));
        self.add(Line::new("  the kernel in the same run", "calls", kernel));
        let programs = programs.and(softhca::testing::missing().map_or(Ok(()), Err));
        let found = programs.and_then(|()| traced(Side::OnConnectx));
        let line = |figure: fn(&Traced) -> f64| found.as_ref().map(|calls| Spread::exactly(figure(calls)));
        let [moves, waits] =
            [line(|calls| calls.moves), line(|calls| calls.waits)].map(|line| line.map_err(Clone::clone));
        let what = "system calls of a request in redis-server's thread on a software ConnectX, to send and to receive";
        self.add(Line::new(what, "calls", moves).at_most(0.0).hoping(0.0));
        self.add(Line::new(
            "  others, which come by time: it looks at the kernel's descriptors, and sleeps",
            "calls",
            waits,
        ));
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

/// System calls of a thread for each request: those that move bytes or ring a doorbell, and all
/// others.
struct Traced {
    moves: f64,
    waits: f64,
}

impl Traced {
    fn all(&self) -> f64 {
        self.moves + self.waits
    }

    /// Of strace's table, whose lines are a count and a name. `read` is among the others: redis
    /// reads `/proc` by its clock, and a thread that has slept reads by what it was woken.
    fn of(table: &str, requests: u32) -> Result<Self, String> {
        const MOVES: [&str; 10] =
            ["sendto", "sendmsg", "sendmmsg", "write", "writev", "recvfrom", "recvmsg", "recvmmsg", "readv", "ioctl"];
        let lines = table.lines().filter_map(|line| line.trim().split_once(' '));
        let counts = lines.filter_map(|(count, name)| Some((count.parse::<f64>().ok()?, name.trim())));
        let (mut moves, mut all, mut total) = (0.0, 0.0, None);
        for (count, name) in counts {
            match name {
                "total" => total = Some(count),
                _ if MOVES.contains(&name) => (moves, all) = (moves + count, all + count),
                _ => all += count,
            }
        }
        if total != Some(all) {
            return Err("strace printed no total".to_owned());
        }
        let requests = f64::from(requests);
        Ok(Self { moves: moves / requests, waits: (all - moves) / requests })
    }
}

/// System calls of the thread that serves, for each of many requests. The library's own threads
/// make theirs by time, of which strace takes much.
fn traced(side: Side) -> Result<Traced, String> {
    const REQUESTS: u32 = 20_000;
    let pair = Pair::new()?;
    let options = ["--port", "6379", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""];
    let server = Server::start(&pair, side, 6_379, &[&["redis-server"], &options[..]].concat())?;
    let file = NamedTempFile::new().map_err(|error| format!("no file for strace: {error}"))?;
    let id = if side == Side::OnConnectx { server.child()? } else { server.id() };
    let (path, id) = (file.path().display().to_string(), id.to_string());
    let host = FAR.address.to_string();
    let ask = |requests: u32| {
        let line = ["redis-benchmark", "-h", &host, "-t", "get", "-c", "50", "-n", &requests.to_string(), "--csv"];
        run(&pair.near, NEAR, Side::Kernel, &line)
    };
    // What is made once.
    ask(REQUESTS / 10)?;
    // strace runs with real-time priority, because the server that it stops and resumes might
    // otherwise spin on its core for ever.
    let line = ["--rr", "2", "strace", "-c", "-U", "calls,name", "-o", &path, "-p", &id];
    let strace = Program::start(&pair.far, "chrt", &line);
    let status = format!("/proc/{id}/status");
    let is_traced = || std::fs::read_to_string(&status).is_ok_and(|text| !text.contains("TracerPid:\t0\n"));
    if !until(is_traced) {
        return Err("strace does not attach: run as root".to_owned());
    }
    ask(REQUESTS)?;
    strace.interrupt();
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    Traced::of(&text, REQUESTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_move_bytes_are_told_from_those_that_wait() {
        let table = "    calls syscall\n--------- -------\n      716 epoll_pwait\n       40 sendto\n       44 read\n\
                     --------- -------\n      800 total\n";
        let traced = Traced::of(table, 100).unwrap();
        assert_eq!((traced.moves, traced.waits, traced.all()), (0.4, 7.6, 8.0));
        assert!(Traced::of("      716 epoll_pwait\n", 100).is_err(), "strace was killed");
    }
}
