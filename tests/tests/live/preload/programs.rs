//! More programs that never heard of wirepath: proxies, event loops, generators of load. Each is a
//! client, a server or both under the library, against the kernel.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::iter;
use std::net::Ipv4Addr;
use std::process::Output;
use std::time::{Duration, Instant};

use wirepath_tests::live::preload::{
    LAST_WORDS, carried_by_kernel, echo, is_bound, is_listening, run, segments_received, start, text, under_library,
    until_it_listens, wire,
};
use wirepath_tests::live::{FAR, OURS, Program, THEIRS, Wire, wait_until};

use wirepath_tests::live::programs::{Folder, ProcessGuard, fetch, is_echoed, runs, serve_pages};

#[test]
fn haproxy_with_two_threads_hands_connections_on() {
    let test = "haproxy_with_two_threads_hands_connections_on";
    let Some(wire) = wire(test, &["haproxy"]) else { return };
    echo(&wire);
    serve_pages(&wire, 8_081, 100_000);
    let folder = Folder::new();
    let configuration = format!(
        "global\n  nbthread 2\ndefaults\n  timeout connect 30s\n  timeout client 30s\n  timeout server 30s\n\
         listen echo\n  mode tcp\n  bind :7100\n  server far {THEIRS}:7000\n\
         listen pages\n  mode http\n  bind :8080\n  server far {THEIRS}:8081\n"
    );
    let configuration = folder.write("haproxy.cfg", &configuration);
    let haproxy = start(&wire, "haproxy", &["-db", "-f", &configuration]);
    until_it_listens(&wire, 7_100);
    let before = segments_received(&wire.near);
    is_echoed(&wire, 7_100, 40);
    assert_eq!(fetch(&wire, 8_080).len(), 100_000);
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    haproxy.interrupt();
}

#[test]
fn socat_speaks_with_a_server_of_the_kernel() {
    let test = "socat_speaks_with_a_server_of_the_kernel";
    let Some(wire) = wire(test, &["socat"]) else { return };
    echo(&wire);
    let folder = Folder::new();
    let input = folder.write("input", &"over the wire and back\n".repeat(5_000));
    let script =
        format!("{} < {input}", under_library("socat", &["-t30", "-", &format!("TCP4:{THEIRS}:7000")]).join(" "));
    let output = wire.near.command("sh", &["-c", &script]).unwrap();
    assert_eq!(output.stdout.len(), 115_000, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn socat_serves_a_connection_and_a_peer_that_sends_datagrams() {
    let test = "socat_serves_a_connection_and_a_peer_that_sends_datagrams";
    let Some(wire) = wire(test, &["socat"]) else { return };
    let stream = start(&wire, "socat", &["TCP4-LISTEN:7100,reuseaddr", "PIPE"]);
    // It serves one caller alone.
    wait_until("it listens", || is_listening(&wire.near, 7_100));
    let before = carried_by_kernel(&wire.near);
    is_echoed(&wire, 7_100, 1);
    assert_eq!(carried_by_kernel(&wire.near), before, "packets that the kernel carried");
    stream.finish();

    let _datagrams = start(&wire, "socat", &["UDP4-LISTEN:7101", "PIPE"]);
    let socket = wire.socket((THEIRS, 0));
    socket.connect((OURS, 7_101)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let asks = |words: &str| {
        let mut bytes = [0; 100];
        // The answer to one that was given up may come first.
        let mut answer = || socket.recv(&mut bytes).map(|len| bytes[..len] == *words.as_bytes());
        socket.send(words.as_bytes()).is_ok() && iter::from_fn(|| answer().ok()).any(|is_it| is_it)
    };
    // Its port is taken before the interface is open: the first may be the kernel's.
    wait_until("a datagram is answered past the kernel", || {
        let before = carried_by_kernel(&wire.near);
        asks("first") && carried_by_kernel(&wire.near) == before
    });
    let before = carried_by_kernel(&wire.near);
    for number in 0..10 {
        // One that is lost is sent again, under another name.
        wait_until("a datagram is answered", || asks(&format!("datagram {number} {:?}", Instant::now())));
    }
    let carried = carried_by_kernel(&wire.near) - before;
    assert!(carried < 10, "the kernel carried {carried} of 20 packets");
}

/// A socat that makes a child for each connection.
fn forking_socat(wire: &Wire, rules: &str) -> Program {
    let mut line = under_library("socat", &["TCP4-LISTEN:7100,fork,reuseaddr", "SYSTEM:cat"]);
    line.insert(1, format!("WIREPATH_RULES={rules}"));
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    Program::start(&wire.near, line[0], &line[1..])
}

#[test]
fn socat_that_forks_for_each_connection_serves_where_a_rule_leaves_it_to_the_kernel() {
    let test = "socat_that_forks_for_each_connection_serves_where_a_rule_leaves_it_to_the_kernel";
    let Some(wire) = wire(test, &["socat"]) else { return };
    let _household = ProcessGuard(&wire);
    let folder = Folder::new();
    let rules = folder.write("rules.toml", "[[rules]]\nuse = \"os\"\ntraffic = \"tcp-server\"\n");
    let _socat = forking_socat(&wire, &rules);
    until_it_listens(&wire, 7_100);
    is_echoed(&wire, 7_100, 5);
}

/// The distribution's Python: one of pyenv is a program of the shell.
const PYTHON: &str = "/usr/bin/python3";

const ASYNCIO: &str = r#"
import asyncio, multiprocessing, os, sys

peer, ours = sys.argv[1], sys.argv[2]
COUNT = 20

async def serve(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()

async def ask(host, port, number):
    reader, writer = await asyncio.open_connection(host, port)
    sent = f"request {number} ".encode() * 2000
    writer.write(sent)
    await writer.drain()
    assert await reader.readexactly(len(sent)) == sent
    writer.close()
    await writer.wait_closed()

class Datagrams(asyncio.DatagramProtocol):
    def __init__(self):
        self.answer = asyncio.get_running_loop().create_future()
    def datagram_received(self, data, address):
        self.answer.set_result(data)

def count(queue, limit):
    queue.put(sum(range(limit)))

def call_from_child(queue, peer):
    # A socket that the child makes is its own, on the kernel.
    import socket
    with socket.create_connection((peer, 7000), timeout=30) as connection:
        connection.sendall(b"child")
        queue.put(connection.recv(5))

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", 7100)
    stays, keeps = await asyncio.open_connection(peer, 7000)
    children = multiprocessing.get_context("fork")
    queue = children.Queue()
    processes = [children.Process(target=count, args=(queue, 1000)), children.Process(target=call_from_child, args=(queue, peer))]
    for process in processes:
        process.start()
    await asyncio.gather(*(ask(peer, 7000, number) for number in range(COUNT)))
    loop = asyncio.get_running_loop()
    answers = sorted(map(str, [await loop.run_in_executor(None, queue.get) for _ in processes]))
    assert answers == ["499500", "b'child'"], answers
    for process in processes:
        await loop.run_in_executor(None, process.join)
        assert process.exitcode == 0, process.exitcode
    # The children have not harmed what was open.
    keeps.write(b"still here")
    assert await stays.readexactly(10) == b"still here"
    transport, datagrams = await loop.create_datagram_endpoint(Datagrams, remote_addr=(peer, 7000))
    transport.sendto(b"datagram")
    assert await asyncio.wait_for(datagrams.answer, 30) == b"datagram"
    print("serving", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    print("all done", flush=True)

asyncio.run(main())
"#;

#[test]
fn python_asyncio_serves_asks_and_forks() {
    let test = "python_asyncio_serves_asks_and_forks";
    let Some(wire) = wire(test, &[PYTHON]) else { return };
    let _household = ProcessGuard(&wire);
    echo(&wire);
    let folder = Folder::new();
    let program = folder.write("program.py", ASYNCIO);
    let (fifo, said) = (folder.path().join("go"), folder.path().join("said"));
    assert!(wire.near.command("mkfifo", &[fifo.to_str().unwrap()]).unwrap().status.success());
    let line = under_library(PYTHON, &[&program, &THEIRS.to_string(), &OURS.to_string()]).join(" ");
    let script = format!("exec {line} <> {} > {} 2>&1", fifo.display(), said.display());
    let before = carried_by_kernel(&wire.near);
    let python = Program::start(&wire.near, "sh", &["-c", &script]);
    let said = || std::fs::read_to_string(&said).unwrap_or_default();
    wait_until("it serves", || {
        assert!(!said().contains("Error"), "{}", said());
        said().contains("serving")
    });
    is_echoed(&wire, 7_100, 20);
    std::fs::write(&fifo, "\n").unwrap();
    python.finish();
    assert!(said().contains("all done"), "{}", said());
    // The connection of a child is the kernel's.
    let carried = carried_by_kernel(&wire.near) - before;
    assert!(carried < LAST_WORDS, "the kernel carried {carried} of its packets");
}

/// Variants of a test, each short.
const IPERF3: [&[&str]; 6] = [
    &["--bytes", "10M", "--reverse"],
    &["--bytes", "10M", "--parallel", "4"],
    &["--bytes", "10M", "--zerocopy"],
    &["--bytes", "10M", "--zerocopy", "--reverse", "--parallel", "4"],
    &["--bytes", "2M", "--udp", "--bitrate", "40M", "--length", "1400"],
    &["--bytes", "2M", "--udp", "--bitrate", "40M", "--length", "1400", "--reverse"],
];

/// A server that ends after one test: between two it would close its listener and open it again.
const ONE_TEST: [&str; 2] = ["--server", "--one-off"];

fn is_done(options: &[&str], output: &Output) {
    assert!(output.status.success() && text(output).contains("iperf Done"), "{options:?}: {}", text(output));
}

#[test]
fn iperf3_as_a_client_of_ours_sends_and_receives_in_each_way() {
    let test = "iperf3_as_a_client_of_ours_sends_and_receives_in_each_way";
    let Some(wire) = wire(test, &["iperf3"]) else { return };
    let (before, host) = (carried_by_kernel(&wire.near), THEIRS.to_string());
    for options in IPERF3 {
        let _server = Program::start(&wire.far, "iperf3", &ONE_TEST);
        wait_until("the server listens", || is_listening(&wire.far, 5_201));
        is_done(options, &run(&wire, "iperf3", &[&["--client", &host], options].concat()));
    }
    // The peer may say last words once the client has ended.
    assert!(carried_by_kernel(&wire.near) < before + 10 * LAST_WORDS, "the kernel carried its packets");
}

#[test]
fn iperf3_as_a_server_of_ours_serves_in_each_way() {
    let test = "iperf3_as_a_server_of_ours_serves_in_each_way";
    let Some(wire) = wire(test, &["iperf3"]) else { return };
    let (before, host) = (carried_by_kernel(&wire.near), OURS.to_string());
    for options in IPERF3 {
        let _server = start(&wire, "iperf3", &ONE_TEST);
        wait_until("the server listens", || is_listening(&wire.near, 5_201));
        is_done(options, &wire.far.command("iperf3", &[&["--client", &host], options].concat()).unwrap());
    }
    assert!(carried_by_kernel(&wire.near) < before + 10 * LAST_WORDS, "the kernel carried its packets");
}

#[test]
fn ab_fetches_a_page_by_a_connection_each() {
    let test = "ab_fetches_a_page_by_a_connection_each";
    let Some(wire) = wire(test, &["ab"]) else { return };
    serve_pages(&wire, 8_081, 2_000);
    let url = format!("http://{THEIRS}:8081/");
    let output = runs(&wire, "ab", &["-q", "-n", "300", "-c", "20", &url], "Complete requests:      300");
    assert!(text(&output).contains("Failed requests:        0"), "{}", text(&output));
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn wrk_with_two_threads_keeps_twenty_connections_busy() {
    let test = "wrk_with_two_threads_keeps_twenty_connections_busy";
    let Some(wire) = wire(test, &["wrk"]) else { return };
    serve_pages(&wire, 8_081, 2_000);
    let url = format!("http://{THEIRS}:8081/");
    let output = runs(&wire, "wrk", &["-t", "2", "-c", "20", "-d", "1s", "--timeout", "30s", &url], "requests in");
    assert!(!text(&output).contains("Socket errors"), "{}", text(&output));
    // It ends with a request on its way on each connection.
    let (segments, requests) = (segments_received(&wire.near), requests_of_wrk(&text(&output)));
    assert!(segments <= LAST_WORDS && requests > LAST_WORDS, "the kernel got {segments} segments of {requests}");
}

/// `1234 requests in 1.10s, …`
fn requests_of_wrk(said: &str) -> u64 {
    let line = said.lines().find(|line| line.contains("requests in")).unwrap_or_default();
    line.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// What sockperf says where answers came. Datagrams may be lost on a busy machine, by either end.
const ANSWERED: &str = "[Total Run]";
const NONE_LOST: &str = "dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";

/// A datagram socket and a listener of sockperf's, in a file that it reads.
fn feed(folder: &Folder, host: Ipv4Addr) -> String {
    folder.write("feed", &format!("U:{host}:11200\nT:{host}:11201\n"))
}

/// The options of a client for either of them.
const DATAGRAMS: &[&str] = &["-p", "11200"];
const STREAM: &[&str] = &["-p", "11201", "--tcp"];
/// Has a client bind, by which the library opens its port before the second begins that sockperf
/// tests for: with the first datagram alone, a busy machine spends that second on it. A client of a
/// stream connects before.
const BINDS: &[&str] = &["--client_port", "11300"];

#[test]
fn sockperf_as_a_client_of_ours_measures_under_load_by_playback_and_throughput() {
    let test = "sockperf_as_a_client_of_ours_measures_under_load_by_playback_and_throughput";
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let (folder, host) = (Folder::new(), THEIRS.to_string());
    let _server = Program::start(&wire.far, "sockperf", &["server", "-f", &feed(&folder, THEIRS)]);
    wait_until("the server listens", || is_listening(&wire.far, 11_201));
    // A message each 5 ms, of growing size. At such a rate a server on a busy machine, which is not
    // run for a while, has room for what waits.
    let lines: String = (1..=100).map(|number| format!("{:.6}, {}\n", f64::from(number) * 5e-3, 14 + number)).collect();
    let messages = folder.write("messages.csv", &lines);
    let before = carried_by_kernel(&wire.near);
    for (protocol, binds, answered) in [(DATAGRAMS, BINDS, ANSWERED), (STREAM, &[], NONE_LOST)] {
        let under_load = [&["-t", "1", "--mps", "200", "--reply-every", "1"], binds].concat();
        for (mode, options, word) in [
            ("under-load", &under_load[..], answered),
            ("playback", &["--data-file", &messages, "--reply-every", "1"], answered),
            ("throughput", &["-t", "1", "-m", "1000"], "Summary: Message Rate is"),
        ] {
            runs(&wire, "sockperf", &[&[mode, "-i", &host], protocol, options].concat(), word);
        }
    }
    let carried = carried_by_kernel(&wire.near) - before;
    assert!(carried < LAST_WORDS, "the kernel carried {carried} of its packets");
}

#[test]
fn sockperf_as_a_client_of_ours_waits_by_select_poll_and_epoll() {
    let test = "sockperf_as_a_client_of_ours_waits_by_select_poll_and_epoll";
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let folder = Folder::new();
    // It waits by these for several sockets alone. The stream connects before the time begins.
    let feed = feed(&folder, THEIRS);
    let _server = Program::start(&wire.far, "sockperf", &["server", "-f", &feed]);
    wait_until("the server listens", || is_listening(&wire.far, 11_201));
    let before = carried_by_kernel(&wire.near);
    for way in ["select", "poll", "epoll"] {
        let plays = |seconds| text(&run(&wire, "sockperf", &["ping-pong", "-f", &feed, "-F", way, "-t", seconds]));
        // A datagram that is lost ends the game, and a busy machine leaves little of a second.
        let said = ["1", "4", "16"].into_iter().map(plays).find(|said| said.contains(ANSWERED));
        assert!(said.is_some(), "{way}: no answers");
    }
    let carried = carried_by_kernel(&wire.near) - before;
    assert!(carried < LAST_WORDS, "the kernel carried {carried} of its packets");
}

#[test]
fn sockperf_plays_ping_pong_with_both_ends_ours() {
    let test = "sockperf_plays_ping_pong_with_both_ends_ours";
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let (folder, host) = (Folder::new(), THEIRS.to_string());
    let feed = feed(&folder, THEIRS);
    let mut line = under_library("sockperf", &["server", "-f", &feed]);
    line[2] = format!("WIREPATH_INTERFACE={FAR}");
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let _server = Program::start(&wire.far, line[0], &line[1..]);
    wait_until("the server listens", || is_listening(&wire.far, 11_201));
    let carried = || carried_by_kernel(&wire.near) + carried_by_kernel(&wire.far);
    let before = carried();
    for (protocol, binds, word) in [(DATAGRAMS, BINDS, ANSWERED), (STREAM, &[], NONE_LOST)] {
        let arguments = [&["ping-pong", "-i", &host, "-t", "1"], protocol, binds].concat();
        runs(&wire, "sockperf", &arguments, word);
    }
    assert!(carried() - before < LAST_WORDS, "the kernels carried {} of the packets", carried() - before);
}

/// Variants of a test by iperf 2, each short: one way, the other, both, and by several connections.
const IPERF: [&[&str]; 4] =
    [&["-n", "10M"], &["-n", "10M", "--reverse"], &["-n", "5M", "--full-duplex"], &["-n", "5M", "-P", "2"]];

/// All that was to be moved was, which the sum of several streams says.
fn has_moved(options: &[&str], output: &Output) {
    let said = text(output);
    assert!(output.status.success() && said.contains("10.0 MBytes") && !said.contains("failed"), "{options:?}: {said}");
}

#[test]
fn iperf_2_as_a_client_of_ours_sends_and_receives_by_tcp() {
    let test = "iperf_2_as_a_client_of_ours_sends_and_receives_by_tcp";
    let Some(wire) = wire(test, &["iperf"]) else { return };
    let _server = Program::start(&wire.far, "iperf", &["-s"]);
    wait_until("the server listens", || is_listening(&wire.far, 5_001));
    let (before, host) = (segments_received(&wire.near), THEIRS.to_string());
    for options in IPERF {
        has_moved(options, &run(&wire, "iperf", &[&["-c", &host], options].concat()));
    }
    assert!(segments_received(&wire.near) < before + LAST_WORDS, "the kernel got its segments");
}

#[test]
fn iperf_2_as_a_server_of_ours_sends_and_receives_by_tcp() {
    let test = "iperf_2_as_a_server_of_ours_sends_and_receives_by_tcp";
    let Some(wire) = wire(test, &["iperf"]) else { return };
    let _server = start(&wire, "iperf", &["-s"]);
    wait_until("the server listens", || is_listening(&wire.near, 5_001));
    let (before, host) = (segments_received(&wire.near), OURS.to_string());
    for options in IPERF {
        let line = [&["60", "iperf", "-c", &host], options].concat();
        has_moved(options, &wire.far.command("timeout", &line).unwrap());
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

/// Some hundred datagrams by iperf 2. Its client soon gives up waiting for the server's report.
fn datagrams_arrive(run_client: impl Fn(&[&str]) -> Output, host: Ipv4Addr) {
    let host = host.to_string();
    let sends = || text(&run_client(&["-c", &host, "-u", "-b", "20m", "-n", "500K"]));
    wait_until("the server has reported", || sends().contains("Server Report"));
}

#[test]
fn iperf_2_sends_and_receives_datagrams() {
    let test = "iperf_2_sends_and_receives_datagrams";
    let Some(wire) = wire(test, &["iperf"]) else { return };
    let server = Program::start(&wire.far, "iperf", &["-s", "-u"]);
    wait_until("the server has its port", || is_bound(&wire.far, 5_001));
    datagrams_arrive(|arguments| run(&wire, "iperf", arguments), THEIRS);
    assert!(carried_by_kernel(&wire.near) < LAST_WORDS, "the kernel carried the client's packets");
    server.interrupt();

    let _server = start(&wire, "iperf", &["-s", "-u"]);
    wait_until("the server has its port", || is_bound(&wire.near, 5_001));
    let client = |arguments: &[&str]| wire.far.command("iperf", arguments).unwrap();
    // The first may find the port taken and the interface not open yet.
    datagrams_arrive(client, OURS);
    let before = carried_by_kernel(&wire.near);
    datagrams_arrive(client, OURS);
    assert!(carried_by_kernel(&wire.near) < before + LAST_WORDS, "the kernel carried the server's packets");
}

#[test]
fn redis_with_two_threads_for_input_and_output_answers_fifty_clients() {
    let test = "redis_with_two_threads_for_input_and_output_answers_fifty_clients";
    let Some(wire) = wire(test, &["redis-server", "redis-benchmark"]) else { return };
    let options = ["--port", "6400", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""];
    let threads = ["--io-threads", "2", "--io-threads-do-reads", "yes"];
    let redis = start(&wire, "redis-server", &[&options[..], &threads].concat());
    until_it_listens(&wire, 6_400);
    let before = segments_received(&wire.near);
    let host = OURS.to_string();
    let benchmark = ["60", "redis-benchmark", "-h", &host, "-p", "6400", "-c", "50", "-n", "20000", "-q", "-d", "100"];
    for pipeline in ["1", "16"] {
        let output = wire.far.command("timeout", &[&benchmark[..], &["-t", "set,get", "-P", pipeline]].concat());
        let said = text(&output.unwrap());
        assert!(said.contains("SET: ") && said.contains("GET: ") && !said.contains("rror"), "{said}");
        assert_eq!(said.matches("requests per second").count(), 2, "{said}");
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    // The threads that read and write were awake: the main thread has its own, and so has each.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", redis.id())).unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    assert_eq!(names.filter(|name| name.starts_with("io_thd_")).count(), 1);
    assert!(redis.interrupt().contains("bye bye"));
}

#[test]
fn clients_of_redis_ask_a_server_of_the_kernel_past_it() {
    let test = "clients_of_redis_ask_a_server_of_the_kernel_past_it";
    let Some(wire) = wire(test, &["redis-server", "redis-benchmark", "redis-cli"]) else { return };
    let options = ["--port", "6401", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""];
    let _redis = Program::start(&wire.far, "redis-server", &options);
    wait_until("the server listens", || is_listening(&wire.far, 6_401));
    let host = THEIRS.to_string();
    let server = ["-h", &host, "-p", "6401"];
    let before = segments_received(&wire.near);
    for pipeline in ["1", "16"] {
        let load = ["-c", "20", "-n", "10000", "-q", "-d", "100", "-t", "set,get", "-P", pipeline];
        let said = text(&run(&wire, "redis-benchmark", &[&server[..], &load].concat()));
        assert!(said.contains("SET: ") && said.contains("GET: ") && !said.contains("rror"), "{said}");
        assert_eq!(said.matches("requests per second").count(), 2, "{said}");
    }
    let ask = |words: &[&str]| text(&run(&wire, "redis-cli", &[&server[..], words].concat()));
    assert_eq!(ask(&["set", "price", "100.25"]), "OK\n");
    assert_eq!(ask(&["get", "price"]), "100.25\n");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}
