//! Servers as they are, with the load that their own benchmarks make: requests a second.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wirepath_tests::live::Program;

use super::super::lines::{Runs, apart};
use super::super::pair::{FAR, NEAR, Pair};
use super::super::sys;
use super::super::tcp_round_trip::{self, exchange, without_server};
use super::ping_pong::beside_broker;
use super::program::{Server, Side, far, installed, near, pinned, run};
use super::{Live, Title, both, several, window};
use crate::is_quick;
use crate::measure::sampling::Spread;
use crate::measure::table::Line;

/// Exchanges without a server.
const EXCHANGES: usize = 5_000;
/// Clients of memcached, nginx and haproxy, with a request each on its way.
const CLIENTS: usize = 50;
const MEMCACHED_PORT: u16 = 11_211;
const REDIS_PORT: u16 = 6_379;
const HTTP_PORT: u16 = 8_080;
/// The port of the server behind haproxy, on the kernel of the near end.
const BEHIND_PORT: u16 = 8_081;
/// Clients, requests of each on their way, and how many in all.
const REDIS_LOADS: [(usize, usize, usize); 4] =
    [(1, 1, 50_000), (50, 1, 150_000), (1, 16, 400_000), (50, 16, 1_000_000)];

impl Live<'_> {
    pub(super) fn servers(&mut self) {
        self.redis();
        let found = installed(&["memcached"]).and_then(|()| several(memcached));
        self.rate("memcached with 4 threads, 50 clients, sets and gets", 1.0, 1.3, &found, |rate| *rate);
        let floor = self.cores().and_then(|cores| {
            without_server(cores, MEMCACHED_PORT, &[], || {
                ask_memcached([(SET, SET.len()), (GET, GET.len())]).map_err(|error| error.to_string())
            })
        });
        self.floor("  the same client, each request its own answer, without a server", floor);
        let floor = installed(&["wrk"]).and(self.cores()).and_then(|cores| {
            without_server(cores, HTTP_PORT, &http_answer(), || {
                let output = Command::new("timeout").args(["60", "wrk"]).args(wrk_arguments()).output();
                let output = output.map_err(|error| format!("wrk: {error}"))?;
                wrk_rate(&String::from_utf8_lossy(&output.stdout))
            })
        });
        self.floor("wrk, 50 clients, a page to each request, without a server", floor);
        for workers in [1, 2] {
            let found = installed(&["nginx", "wrk"]).and_then(|()| several(|side| nginx(side, workers)));
            let what = format!("nginx, keep-alive, 50 clients, workers: {workers}");
            self.rate(&what, 1.0, 1.3, &found, |rate| *rate);
        }
        self.nginx_by_a_broker();
        let found = installed(&["haproxy", "nginx", "wrk"]).and_then(|()| several(haproxy));
        self.rate("haproxy with 2 threads before a kernel's nginx, 50 clients", 1.0, 1.3, &found, |rate| *rate);
    }

    /// A veth of one queue gives one worker a queue of its own. So that both are ours, a broker
    /// passes their frames on.
    fn nginx_by_a_broker(&mut self) {
        let found = installed(&["nginx", "wrk"]).and(self.cores()).and_then(|[core, _]| {
            several(|side| match side {
                Side::Ours => nginx_by_a_broker(core),
                side => nginx(side, 2),
            })
        });
        let (ours, kernel, ratio) = apart(&found, |rate| *rate);
        self.add(Line::new("  both workers ours, by a broker that passes frames on", "req/s", ours));
        self.add(Line::new("  both the kernel's, in the same run", "req/s", kernel));
        self.add(Line::new("  by the broker over kernel", "x", ratio));
    }

    /// redis, and in the same turns what limits it: the client, where nothing but the wire answers.
    fn redis(&mut self) {
        let found = installed(&["redis-server", "redis-benchmark"]).and(self.cores());
        let found = found.and_then(|cores| {
            both(|side| {
                let spinning = exchange(cores, tcp_round_trip::Server::NoTcp, EXCHANGES)?;
                let alone = [redis_benchmark_alone(cores, "SET")?, redis_benchmark_alone(cores, "GET")?];
                Ok((redis(&cores.map(|core| core.to_string()), side)?, 1e9 / spinning.p50, alone))
            })
        });
        for (at, (clients, deep, _)) in REDIS_LOADS.iter().enumerate() {
            for (test, name) in ["SET", "GET"].into_iter().enumerate() {
                let what = format!("redis-benchmark {name}, clients: {clients}, requests on the way of each: {deep}");
                self.rate(&what, 1.1, 1.5, &found, |(rates, ..)| rates[at][test]);
                if at + 1 == REDIS_LOADS.len() {
                    let (alone, ..) = apart(&found, |(.., alone)| alone[test]);
                    let (over, ..) = apart(&found, |(rates, _, alone)| rates[at][test] / alone[test]);
                    let what = "  the same client, as many answers to each frame, without a server: its own limit";
                    self.add(Line::new(what, "req/s", alone));
                    self.add(Line::new("  wirepath over that limit", "x", over));
                }
            }
            if at == 0 {
                let (floor, ..) = apart(&found, |(_, floor, _)| *floor);
                let what =
                    "  a client that spins, each request its own answer, without a server: the floor of AF_XDP here";
                self.add(Line::new(what, "req/s", floor));
            }
        }
    }

    /// The limit of AF_XDP here: the rate of a program that only turns frames around, on a core of
    /// its own.
    fn floor(&mut self, what: &str, found: Result<f64, String>) {
        self.add(Line::new(&format!("{what}: the floor of AF_XDP here"), "req/s", found.map(Spread::exactly)));
    }

    fn rate<T>(&mut self, what: &str, must: f64, hope: f64, runs: &Runs<T>, figure: impl Fn(&T) -> f64) {
        self.compare(&Title { what, unit: "req/s", must, hope, less: false }, runs, figure);
    }
}

/// SETs and GETs a second, for each load.
fn redis(cores: &[String; 2], side: Side) -> Result<[[f64; 2]; 4], String> {
    let (pair, folder) = (Pair::new()?, folder()?);
    let (port, place) = (REDIS_PORT.to_string(), path(&folder, ""));
    let options = ["--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", &place];
    let line = [&["redis-server", "--port", port.as_str()], &options[..]].concat();
    let _server = Server::start(&pair, side, REDIS_PORT, &pinned(&cores[1], &line))?;
    let mut rates = [[0.0; 2]; 4];
    for (rates, (clients, deep, requests)) in rates.iter_mut().zip(REDIS_LOADS) {
        let requests = if is_quick() { requests / 4 } else { requests };
        let [clients, deep, requests] = [clients, deep, requests].map(|number| number.to_string());
        let host = FAR.address.to_string();
        let load = ["-c", clients.as_str(), "-P", deep.as_str(), "-n", requests.as_str()];
        let line = [&["redis-benchmark", "-h", host.as_str(), "-t", "set,get", "--csv"], &load[..]].concat();
        let said = run(&pair.near, NEAR, Side::Kernel, &pinned(&cores[0], &line))?;
        *rates = [redis_rate(&said, "SET")?, redis_rate(&said, "GET")?];
    }
    Ok(rates)
}

/// Requests a second of redis-benchmark's largest load where nothing but the wire answers: no
/// server gets more from this client.
fn redis_benchmark_alone(cores: [usize; 2], test: &str) -> Result<f64, String> {
    let [.., (clients, deep, requests)] = REDIS_LOADS;
    let answer = if test == "SET" { "+OK\r\n" } else { "$3\r\nVXK\r\n" };
    without_server(cores, REDIS_PORT, answer.repeat(deep).as_bytes(), || {
        let [clients, deep, requests] = [clients, deep, requests].map(|number| number.to_string());
        let host = FAR.address.to_string();
        let load = ["-c", &clients, "-P", &deep, "-n", &requests, "-h", &host, "-t", test, "--csv"];
        let output = Command::new("timeout").args(["60", "redis-benchmark"]).args(load).output();
        let output = output.map_err(|error| format!("redis-benchmark: {error}"))?;
        redis_rate(&String::from_utf8_lossy(&output.stdout), test)
    })
}

/// `"SET","123456.78","0.35",…`
fn redis_rate(said: &str, test: &str) -> Result<f64, String> {
    let line = said.lines().find_map(|line| line.strip_prefix(&format!("\"{test}\",\"")));
    let rate = line.and_then(|line| line.split('"').next()?.parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark printed no {test}"))
}

fn memcached(side: Side) -> Result<f64, String> {
    let pair = Pair::new()?;
    let port = MEMCACHED_PORT.to_string();
    let line = ["memcached", "-u", "root", "-p", &port, "-U", "0", "-t", "4", "-l", "0.0.0.0"];
    let _server = Server::start(&pair, side, MEMCACHED_PORT, &line)?;
    let ask = || ask_memcached([(SET, STORED_LEN), (GET, VALUE_LEN)]);
    pair.near.run(ask).map_err(|error| format!("memcached: {error}"))
}

const SET: &[u8] = b"set key 0 0 32\r\n0123456789abcdef0123456789abcdef\r\n";
const GET: &[u8] = b"get key\r\n";
const STORED_LEN: usize = b"STORED\r\n".len();
const VALUE_LEN: usize = b"VALUE key 0 32\r\n0123456789abcdef0123456789abcdef\r\nEND\r\n".len();

/// Requests a second: each client has one on its way, by turns of each kind, which is given with
/// the length of its answer.
fn ask_memcached(kinds: [(&[u8], usize); 2]) -> std::io::Result<f64> {
    sys::run_first();
    let connect = || {
        let stream = TcpStream::connect((FAR.address, MEMCACHED_PORT))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(10 * window()))?;
        Ok(stream)
    };
    let mut clients = (0..CLIENTS).map(|_| connect()).collect::<std::io::Result<Vec<TcpStream>>>()?;
    let (start, mut requests, mut answer) = (Instant::now(), 0, [0; VALUE_LEN]);
    while start.elapsed() < window() {
        for (request, len) in kinds {
            clients.iter_mut().try_for_each(|client| client.write_all(request))?;
            clients.iter_mut().try_for_each(|client| client.read_exact(&mut answer[..len]))?;
            requests += CLIENTS;
        }
    }
    Ok(requests as f64 / start.elapsed().as_secs_f64())
}

fn nginx(side: Side, workers: usize) -> Result<f64, String> {
    let (pair, folder) = (Pair::new()?, folder()?);
    let configuration = nginx_configuration(&folder, HTTP_PORT, &format!("worker_processes {workers};"))?;
    // One process has the interface: the others stay on the kernel, and are not to end for it.
    let line = ["env", "WIREPATH_POLICY=warn", "nginx", "-c", &configuration];
    let _server = Server::start(&pair, side, HTTP_PORT, &line)?;
    wrk(&pair)
}

fn nginx_by_a_broker(core: usize) -> Result<f64, String> {
    let (pair, folder) = (Pair::new()?, folder()?);
    let configuration = nginx_configuration(&folder, HTTP_PORT, "worker_processes 2;")?;
    let socket = path(&folder, "broker");
    beside_broker(&pair, core, Path::new(&socket), || {
        // A variable of the `env` that brings the library. A second `env` would be under the
        // library without the broker: it would try to open the interface itself, and end.
        let line = [&format!("WIREPATH_BROKER={socket}"), "nginx", "-c", &configuration];
        let _server = Server::start(&pair, Side::Ours, HTTP_PORT, &line)?;
        wrk(&pair)
    })
}

fn haproxy(side: Side) -> Result<f64, String> {
    let (pair, folder) = (Pair::new()?, folder()?);
    // One process, which ends with its handle. It comes before ordinary programs as haproxy does:
    // as one of them it would wait for haproxy's polling, more on one side than on the other.
    let behind = nginx_configuration(&folder, BEHIND_PORT, "master_process off;")?;
    let _behind = Program::start(&pair.near, "chrt", &["--rr", "1", "nginx", "-c", &behind]);
    let file = path(&folder, "haproxy.cfg");
    let configuration = format!(
        "global\n nbthread 2\ndefaults\n mode http\n timeout client 30s\n timeout server 30s\n timeout connect 5s\n\
         frontend here\n bind :{HTTP_PORT}\n default_backend there\n\
         backend there\n http-reuse always\n server behind {}\n",
        near(BEHIND_PORT)
    );
    std::fs::write(&file, configuration).map_err(|error| format!("{file}: {error}"))?;
    let _server = Server::start(&pair, side, HTTP_PORT, &["haproxy", "-db", "-f", &file])?;
    wrk(&pair)
}

/// The file of a server with one page of 612 bytes, as nginx' own greeting is.
fn nginx_configuration(folder: &TempDir, port: u16, processes: &str) -> Result<String, String> {
    let (file, place) = (path(folder, "nginx.conf"), path(folder, ""));
    let configuration = format!(
        "user root;\n{processes}\ndaemon off;\npid {place}/pid;\nerror_log {place}/errors;\nevents {{ }}\n\
         http {{ access_log off; keepalive_requests 1000000000; server {{ listen {port}; root {place}; }} }}\n"
    );
    let write = |file: &str, text: &str| std::fs::write(file, text).map_err(|error| format!("{file}: {error}"));
    write(&path(folder, "page"), &page())?;
    write(&file, &configuration)?;
    Ok(file)
}

fn page() -> String {
    "0123456789abcdef\n".repeat(36)
}

/// The page as nginx sends it, with headers as long as its own.
fn http_answer() -> Vec<u8> {
    const HEADERS_LEN: usize = 238;
    let page = page();
    let headers = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nServer: ", page.len());
    format!("{headers:x<len$}\r\n\r\n{page}", len = HEADERS_LEN - 4).into_bytes()
}

fn wrk_arguments() -> [String; 7] {
    let seconds = format!("{}s", window().as_secs());
    let url = format!("http://{}/page", far(HTTP_PORT));
    ["-t", "1", "-c", &CLIENTS.to_string(), "-d", &seconds, &url].map(str::to_owned)
}

/// Pages a second. A server that took a connection before its workers began may refuse some until
/// they have (docs/run.md, "After a fork"): wrk is started again then.
fn wrk(pair: &Pair) -> Result<f64, String> {
    let arguments = wrk_arguments();
    let words: Vec<&str> = ["wrk"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let (start, patience) = (Instant::now(), Duration::from_secs(5));
    loop {
        match run(&pair.near, NEAR, Side::Kernel, &words) {
            Err(why) if why.contains("Connection refused") && start.elapsed() < patience => {
                thread::sleep(Duration::from_millis(100));
            }
            said => return wrk_rate(&said?),
        }
    }
}

/// The rate that wrk has printed.
fn wrk_rate(said: &str) -> Result<f64, String> {
    if let Some(refused) = said.lines().find(|line| line.contains("Non-2xx")) {
        return Err(format!("wrk: {}", refused.trim()));
    }
    let rate = said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    rate.and_then(|rate| rate.trim().parse().ok()).ok_or_else(|| "wrk printed no Requests/sec".to_owned())
}

fn folder() -> Result<TempDir, String> {
    tempfile::tempdir().map_err(|error| format!("no folder for a server's files: {error}"))
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}
