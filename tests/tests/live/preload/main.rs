//! Programs that never heard of wirepath, under the preload library: their sockets are ours, those
//! at the other end of the wire are the kernel's. That a program's segments went by us is seen by
//! what the kernel of its end did not receive.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod connectx;
mod counters;
mod edges;
mod forks;
mod handlers;
mod helpers;
mod hostile;
mod idle;
mod inherited;
mod places;
mod rights;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use wirepath_tests::live::preload::{
    LAST_WORDS, call, carried_by_kernel, compile, compile_with, counter_of, descriptors, echo, is_listening, run,
    segments_received, start, text, under_library, until_it_listens, wire,
};
use wirepath_tests::live::{OURS, Program, THEIRS, Wire, wait_until};
use wirepath_tests::netns::Namespace;

/// Plays a C program at the near end, with an echo at the far end: on the kernel's sockets, and
/// under the library. It prints the same.
fn says_the_same(test: &str, source: &str) {
    let directory = tempfile::tempdir().unwrap();
    if let Some(program) = compile(test, source, directory.path()) {
        plays_the_same(test, &program);
    }
}

fn plays_the_same(test: &str, program: &str) {
    let Some(wire) = wire(test, &[]) else { return };
    plays_the_same_on(&wire, program);
}

fn plays_the_same_on(wire: &Wire, program: &str) {
    echo(wire);
    let peer = THEIRS.to_string();
    let kernel = wire.near.command(program, &[&peer]).unwrap();
    let before = segments_received(&wire.near);
    let ours = run(wire, program, &[&peer]);
    let by_loopback = segments_received(&wire.near) - before;
    same_lines(&text(&kernel), &text(&ours));
    assert!(by_loopback < LAST_WORDS, "{by_loopback} segments went by the kernel: the program's sockets were not ours");
}

/// Shows the first line that differs, and the one before it: all of it would be cut in a log.
#[track_caller]
fn same_lines(kernel: &str, ours: &str) {
    let (kernel, ours): (Vec<_>, Vec<_>) = (kernel.lines().collect(), ours.lines().collect());
    let Some(at) = (0..kernel.len().max(ours.len())).find(|at| kernel.get(*at) != ours.get(*at)) else { return };
    let before = at.checked_sub(1).map_or("", |before| kernel[before]);
    panic!("line {at}, behind {before:?}: the kernel's is {:?}, ours {:?}", kernel.get(at), ours.get(at));
}

/// Has the far kernel send ICMP errors without its limit of one a second.
fn answer_all_errors(wire: &Wire) {
    wire.far.run(|| std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0").unwrap());
}

#[test]
fn calls_of_a_c_program_return_what_they_return_on_the_kernels_sockets() {
    says_the_same("calls_of_a_c_program_return_what_they_return_on_the_kernels_sockets", "calls.c");
}

#[test]
fn bad_pointer_is_an_error_as_on_the_kernel_and_faults_stay_the_programs() {
    says_the_same("bad_pointer_is_an_error_as_on_the_kernel_and_faults_stay_the_programs", "pointers.c");
}

#[test]
fn calls_by_number_formatted_text_and_odd_buffers_do_what_they_do_on_the_kernels_sockets() {
    says_the_same("calls_by_number_formatted_text_and_odd_buffers_do_what_they_do_on_the_kernels_sockets", "raw.c");
}

#[test]
fn stream_whose_connection_has_ended_has_the_port_that_the_kernel_leaves_it() {
    let test = "stream_whose_connection_has_ended_has_the_port_that_the_kernel_leaves_it";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "renamed.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let _caller = Program::start(&wire.far, &program, &[&OURS.to_string(), "calls"]);
    plays_the_same_on(&wire, &program);
}

#[test]
fn number_that_was_a_socket_is_the_file_that_has_it_now() {
    says_the_same("number_that_was_a_socket_is_the_file_that_has_it_now", "descriptors.c");
}

#[test]
fn item_of_a_set_that_the_kernel_had_goes_on_where_it_was() {
    says_the_same("item_of_a_set_that_the_kernel_had_goes_on_where_it_was", "early_sets.c");
}

#[test]
fn call_is_interrupted_by_a_handler_that_waits_in_calls_itself() {
    let test = "call_is_interrupted_by_a_handler_that_waits_in_calls_itself";
    let directory = tempfile::tempdir().unwrap();
    // A library whose constructor runs before ours, as the program is linked with it.
    let Some(early) = compile_with(test, "early.c", directory.path(), &["-shared", "-fPIC"]) else { return };
    let program = compile_with(test, "signals.c", directory.path(), &[&early]).unwrap();
    plays_the_same(test, &program);
}

#[test]
fn odd_cases_of_calls_end_as_on_the_kernels_sockets() {
    let test = "odd_cases_of_calls_end_as_on_the_kernels_sockets";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "odds.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    // It accepts nothing.
    let _full = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let router = THEIRS.to_string();
    wire.near.ip(&["route", "add", "10.98.0.0/24", "via", &router]).unwrap();
    plays_the_same_on(&wire, &program);
}

#[test]
fn signals_of_a_storm_reach_their_handlers_once_and_outside_of_calls() {
    says_the_same("signals_of_a_storm_reach_their_handlers_once_and_outside_of_calls", "storms.c");
}

#[test]
fn datagrams_follow_a_route_that_changes() {
    let test = "datagrams_follow_a_route_that_changes";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let (beyond, router) = ("10.8.0.1/32", THEIRS.to_string());
    wire.far.ip(&["addr", "add", beyond, "dev", "lo"]).unwrap();
    wire.near.ip(&["route", "add", beyond, "via", &router]).unwrap();
    // Another interface, with an address of its own.
    wire.near.ip(&["link", "add", "other", "type", "veth", "peer", "name", "another"]).unwrap();
    wire.near.ip(&["addr", "add", "10.7.0.1/24", "dev", "other"]).unwrap();
    for link in ["other", "another"] {
        wire.near.ip(&["link", "set", link, "up"]).unwrap();
    }
    // A sender waits while too many of its datagrams wait for a neighbor.
    let neighbor = ["neighbor", "add", "10.8.0.1", "lladdr", "02:00:00:00:00:99", "dev", "other"];
    wire.near.ip(&neighbor).unwrap();
    let sends = "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                 while True: s.sendto(b'x', ('10.8.0.1', 7000)); time.sleep(0.002)";
    let _program = start(&wire, "python3", &["-c", sends]);
    let sent_by_kernel = || counter_of(&wire.near, "Udp:", "OutDatagrams");
    wait_until("datagrams arrive", || counter_of(&wire.far, "Udp:", "NoPorts") > 20);
    assert_eq!(sent_by_kernel(), 0, "they leave past the kernel");
    wire.near.ip(&["route", "replace", beyond, "dev", "other"]).unwrap();
    wait_until("they leave by the kernel", || sent_by_kernel() > 20);
    wire.near.ip(&["route", "replace", beyond, "via", &router]).unwrap();
    let arrived = counter_of(&wire.far, "Udp:", "NoPorts");
    wait_until("they leave past the kernel again", || counter_of(&wire.far, "Udp:", "NoPorts") > arrived + 20);
}

#[test]
fn thread_that_waits_can_be_canceled() {
    says_the_same("thread_that_waits_can_be_canceled", "cancel.c");
}

#[test]
fn errors_and_stamps_are_reported_as_the_kernel_reports_them() {
    let test = "errors_and_stamps_are_reported_as_the_kernel_reports_them";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "reports.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    answer_all_errors(&wire);
    wire.far.run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
    let (network, router) = ("10.99.0.0/24", THEIRS.to_string());
    wire.far.command("ip", &["route", "add", "unreachable", network]).unwrap();
    wire.near.command("ip", &["route", "add", network, "via", &router]).unwrap();
    plays_the_same_on(&wire, &program);
}

#[test]
fn control_messages_of_sends_do_what_they_do_on_the_kernels_sockets() {
    let test = "control_messages_of_sends_do_what_they_do_on_the_kernels_sockets";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "controls.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let _server = Program::start(&wire.far, &program, &[&THEIRS.to_string(), "serve"]);
    plays_the_same_on(&wire, &program);
    let sent = counter_of(&wire.near, "Udp:", "OutDatagrams");
    let said = text(&run(&wire, &program, &[&THEIRS.to_string(), "connected"]));
    assert!(said.contains("ttl 9, tos 4"), "{said}");
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams"), sent, "datagrams that the kernel sent");
}

#[test]
fn traceroute_reads_its_replies_from_the_error_queue() {
    let test = "traceroute_reads_its_replies_from_the_error_queue";
    let Some(wire) = wire(test, &["traceroute"]) else { return };
    answer_all_errors(&wire);
    let peer = THEIRS.to_string();
    let sent = counter_of(&wire.near, "Udp:", "OutDatagrams");
    // Four probes at a time: no more than eight datagrams wait for a neighbor.
    let said = text(&run(&wire, "traceroute", &["-n", "-N", "4", "-q", "3", "-m", "4", "-w", "5", &peer]));
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams"), sent, "datagrams that the kernel sent");
    let hops: Vec<&str> = said.lines().filter(|line| line.starts_with(" 1 ")).collect();
    assert!(hops.len() == 1 && hops[0].contains(&peer) && hops[0].matches(" ms").count() == 3, "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// The output of a part of `limits.c` under the library.
fn limits(test: &str, part: &str, environment: &str) -> Option<String> {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(test, "limits.c", directory.path())?;
    let wire = wire(test, &[])?;
    echo(&wire);
    Some(text(&run(&wire, "env", &[environment, &program, &THEIRS.to_string(), part])))
}

#[test]
fn panic_while_the_interface_opens_leaves_the_program_on_the_kernel() {
    let test = "panic_while_the_interface_opens_leaves_the_program_on_the_kernel";
    let Some(said) = limits(test, "echo", "WIREPATH_TEST_PANIC=open") else { return };
    assert!(said.starts_with("== echo\nconnect: 0\nwrite: 4\nread: 4\n"), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("wirepath has failed")).collect();
    assert_eq!(said.lines().count(), 5, "{said}");
    assert!(lines.len() == 1 && lines[0].ends_with("the program runs on the kernel"), "{said}");
}

#[test]
fn sockets_and_epoll_sets_of_an_engine_that_panicked_end_with_eio() {
    let test = "sockets_and_epoll_sets_of_an_engine_that_panicked_end_with_eio";
    let Some(said) = limits(test, "panic", "WIREPATH_TEST_PANIC=") else { return };
    let expected = "recv: -1 EIO\nepoll_wait: -1 EIO\nconnect: 0\nwrite: 4\nread: 4\n";
    assert!(said.contains(expected), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("wirepath has failed")).count(), 1, "{said}");
}

#[test]
fn peers_of_an_engine_that_panicked_are_reset_and_its_ports_are_the_kernels() {
    let test = "peers_of_an_engine_that_panicked_are_reset_and_its_ports_are_the_kernels";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "limits.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    thread::scope(|scope| {
        let far = &wire.far;
        let peer = scope.spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            let end = socket.read(&mut [0]).map_err(|error| error.kind());
            let mut echoed = [0; 4];
            wait_until("the kernel's listener answers", || {
                let Ok(mut caller) = call(far, 7_079) else { return false };
                caller.write_all(b"four").is_ok() && caller.read_exact(&mut echoed).is_ok()
            });
            (end, echoed)
        });
        let arguments = ["WIREPATH_TEST_PANIC=", &program, &THEIRS.to_string(), "resets"];
        let said = text(&run(&wire, "env", &arguments));
        assert!(said.contains("recv: -1 EIO\nbind: 0\nlisten: 0\nrecv: 4\nsend: 4\n"), "{said}");
        let (end, echoed) = peer.join().unwrap();
        assert_eq!((end, &echoed), (Err(std::io::ErrorKind::ConnectionReset), b"four"));
    });
}

#[test]
fn waits_of_threads_and_sets_end_as_on_the_kernel() {
    says_the_same("waits_of_threads_and_sets_end_as_on_the_kernel", "waits.c");
}

#[test]
fn socket_that_is_passed_to_another_process_is_refused_in_a_sentence() {
    let test = "socket_that_is_passed_to_another_process_is_refused_in_a_sentence";
    let Some(said) = limits(test, "passing", "WIREPATH_TEST_PANIC=") else { return };
    assert!(said.contains("sendmsg: -1 EINVAL\nsendmmsg: -1 EINVAL\nfile: 1\nwrite: 4\nread: 4\n"), "{said}");
    assert!(said.contains("wirepath: a socket of wirepath's stays with its process"), "{said}");
}

#[test]
fn option_that_only_the_kernel_has_is_refused_or_keeps_the_socket_there() {
    let test = "option_that_only_the_kernel_has_is_refused_or_keeps_the_socket_there";
    let Some(said) = limits(test, "options", "WIREPATH_TEST_PANIC=") else { return };
    let refused = "SO_MARK: -1 ENOPROTOOPT\nSO_MARK 0: 0\nSO_PEEK_OFF: -1 ENOPROTOOPT\n\
                   IP_TRANSPARENT: -1 ENOPROTOOPT\nSO_PRIORITY: 0\nSO_BINDTODEVICE: -1 ENOPROTOOPT\nO_ASYNC: -1 EINVAL\n\
                   splice: -1 EINVAL\n";
    let kept = "SO_PEEK_OFF: 0\nconnect: 0\nwrite: 2\npeek: 1\npeek: 1\nab\n";
    assert!(said.contains(&format!("{refused}{kept}")), "{said}");
}

#[test]
fn what_a_program_wrote_before_its_end_arrives() {
    let test = "what_a_program_wrote_before_its_end_arrives";
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "calls.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let reader = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).map(|count| (count, bytes.len()))
    });
    let output = run(&wire, &program, &[&THEIRS.to_string(), "last-words"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(reader.join().unwrap().unwrap(), (1_000_000, 1_000_000));
}

#[test]
fn program_is_untouched_where_no_interface_is_named() {
    let test = "program_is_untouched_where_no_interface_is_named";
    let Some(wire) = wire(test, &["curl"]) else { return };
    let line = under_library("curl", &["--version"]);
    let without: Vec<&str> = line.iter().map(String::as_str).filter(|word| !word.starts_with("WIREPATH_")).collect();
    let output = wire.near.command(without[0], &without[1..]).unwrap();
    assert!(output.status.success() && text(&output).starts_with("curl"), "{}", text(&output));
}

#[test]
fn curl_fetches_a_page_from_a_server_of_the_kernel() {
    let test = "curl_fetches_a_page_from_a_server_of_the_kernel";
    let Some(wire) = wire(test, &["curl"]) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 8_080)).unwrap());
    let body = "0123456789abcdef".repeat(20_000);
    let page = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = BufReader::new(socket.try_clone().unwrap());
        let mut line = String::new();
        while request.read_line(&mut line).unwrap() > 2 {
            line.clear();
        }
        socket.write_all(page.as_bytes()).unwrap();
    });
    let output = run(&wire, "curl", &["--silent", "--max-time", "30", &format!("http://{THEIRS}:8080/page")]);
    assert!(output.stdout == body.as_bytes(), "{} of {} bytes", output.stdout.len(), body.len());
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn redis_answers_over_the_wire_and_by_loopback_and_saves_in_a_child() {
    let test = "redis_answers_over_the_wire_and_by_loopback_and_saves_in_a_child";
    let Some(wire) = wire(test, &["redis-server", "redis-cli"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let arguments = ["--port", "6400", "--bind", "0.0.0.0", "--protected-mode", "no", "--save", "", "--dir", folder];
    let redis = start(&wire, "redis-server", &arguments);
    until_it_listens(&wire, 6_400);
    let ask = |from: &Namespace, host: Ipv4Addr, words: &[&str]| {
        let host = host.to_string();
        let arguments = [&["-h", &host, "-p", "6400"], words].concat();
        text(&from.command("redis-cli", &arguments).unwrap()).trim().to_owned()
    };
    let before = segments_received(&wire.near);
    assert_eq!(ask(&wire.far, OURS, &["set", "price", "101"]), "OK");
    assert_eq!(ask(&wire.far, OURS, &["get", "price"]), "101");
    assert_eq!(ask(&wire.far, OURS, &["bgsave"]), "Background saving started");
    wait_until("the child has saved", || ask(&wire.far, OURS, &["info", "persistence"]).contains("rdb_saves:1"));
    assert_eq!(ask(&wire.far, OURS, &["get", "price"]), "101");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    assert_eq!(ask(&wire.near, Ipv4Addr::LOCALHOST, &["get", "price"]), "101");
    let said = redis.interrupt();
    assert!(said.contains("bye bye"), "{said}");
}

#[test]
fn memcached_with_four_threads_answers_fifty_connections() {
    let test = "memcached_with_four_threads_answers_fifty_connections";
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let _memcached = start(&wire, "memcached", &["-u", "root", "-p", "11311", "-t", "4", "-l", "0.0.0.0"]);
    until_it_listens(&wire, 11_311);
    let before = segments_received(&wire.near);
    let mut sockets: Vec<TcpStream> = (0..50).map(|_| call(&wire.far, 11_311).unwrap()).collect();
    for (number, socket) in sockets.iter_mut().enumerate() {
        let value = format!("value-{number:03}");
        write!(socket, "set key{number} 0 0 {}\r\n{value}\r\n", value.len()).unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let mut stored = [0; 8];
        socket.read_exact(&mut stored).unwrap();
        assert_eq!(&stored, b"STORED\r\n");
        write!(socket, "get key{number}\r\n").unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let expected = format!("VALUE key{number} 0 9\r\nvalue-{number:03}\r\nEND\r\n");
        let mut got = vec![0; expected.len()];
        socket.read_exact(&mut got).unwrap();
        assert_eq!(String::from_utf8_lossy(&got), expected);
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
fn nginx_with_a_worker_process_serves_files() {
    let test = "nginx_with_a_worker_process_serves_files";
    let Some(wire) = wire(test, &["nginx", "curl"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let page = "0123456789".repeat(30_000);
    std::fs::write(directory.path().join("page"), &page).unwrap();
    let configuration = format!(
        "user root;\nworker_processes 1;\ndaemon off;\npid {folder}/pid;\nerror_log {folder}/errors;\nevents {{ }}\n\
         http {{ access_log off; sendfile on; server {{ listen 8080; root {folder}; }} }}\n"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let nginx = start(&wire, "nginx", &["-c", file.to_str().unwrap()]);
    let url = format!("http://{OURS}:8080/page");
    let fetch = || wire.far.command("curl", &["--silent", "--max-time", "30", &url]).unwrap();
    // It listens before it forks, and its worker begins to accept a while later.
    wait_until("its worker serves", || fetch().status.success());
    let before = segments_received(&wire.near);
    for _ in 0..3 {
        let output = fetch();
        assert!(output.stdout == page.as_bytes(), "{} of {} bytes", output.stdout.len(), page.len());
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    // Its workers end with it.
    nginx.interrupt();
}

#[test]
fn iperf3_sends_both_ways_as_a_server_of_ours() {
    let test = "iperf3_sends_both_ways_as_a_server_of_ours";
    let Some(wire) = wire(test, &["iperf3"]) else { return };
    let _server = start(&wire, "iperf3", &["--server"]);
    until_it_listens(&wire, 5_201);
    let (before, host) = (segments_received(&wire.near), OURS.to_string());
    for options in [&["--bytes", "20M"][..], &["--bytes", "20M", "--reverse", "--parallel", "4"]] {
        let arguments = [&["--client", &host], options].concat();
        let output = wire.far.command("iperf3", &arguments).unwrap();
        assert!(output.status.success() && text(&output).contains("iperf Done"), "{options:?}: {}", text(&output));
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
fn sockperf_plays_ping_pong_by_select_poll_and_epoll() {
    let test = "sockperf_plays_ping_pong_by_select_poll_and_epoll";
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let host = OURS.to_string();
    for (port, way) in (11_200..).step_by(2).zip(["select", "poll", "epoll"]) {
        // Two sockets, as sockperf waits for several alone.
        let feed = directory.path().join(way);
        std::fs::write(&feed, format!("U:{OURS}:{port}\nT:{OURS}:{}\n", port + 1)).unwrap();
        let server = start(&wire, "sockperf", &["server", "-f", feed.to_str().unwrap(), "-F", way]);
        until_it_listens(&wire, port + 1);
        let before = carried_by_kernel(&wire.near);
        for (port, protocol) in [(port, None), (port + 1, Some("--tcp"))] {
            let port = port.to_string();
            let plays = |seconds| {
                let mut arguments = vec!["ping-pong", "-i", &host, "-p", &port, "-t", seconds];
                arguments.extend(protocol);
                text(&wire.far.command("sockperf", &arguments).unwrap())
            };
            // On a busy machine nothing is left of a second after sockperf's warm-up.
            let has_some = |output: &String| !output.contains("No valid observations");
            let output = ["1", "4", "16"].into_iter().map(plays).find(has_some).unwrap_or_default();
            assert!(output.contains("dropped messages = 0;"), "{way} {protocol:?}: {output}");
        }
        assert_eq!(carried_by_kernel(&wire.near), before, "{way}: packets that the kernel carried");
        let said = server.interrupt();
        assert!(said.contains("Test end"), "{way}: {said}");
    }
}

#[test]
fn thousand_connections_that_come_and_go_leave_no_descriptor_behind() {
    let test = "thousand_connections_that_come_and_go_leave_no_descriptor_behind";
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let memcached = start(&wire, "memcached", &["-u", "root", "-p", "11311", "-t", "2", "-l", "0.0.0.0"]);
    until_it_listens(&wire, 11_311);
    let mut stays = BufReader::new(call(&wire.far, 11_311).unwrap());
    let mut version = || {
        let mut line = String::new();
        stays.get_mut().write_all(b"version\r\n").unwrap();
        stays.read_line(&mut line).unwrap();
        assert!(line.starts_with("VERSION"), "{line}");
    };
    version();
    let (before, segments) = (descriptors(memcached.id()), segments_received(&wire.near));
    wire.far.run(|| (0..1_000).for_each(|_| drop(TcpStream::connect((OURS, 11_311)).unwrap())));
    // Each of its threads gets a descriptor to be woken by when it first sleeps.
    wait_until("all are closed", || descriptors(memcached.id()) <= before + 8);
    version();
    assert_eq!(segments_received(&wire.near), segments, "segments that the kernel got");
}

/// Takes one connection, reads to its end, and sends all of it back.
const SERVER_OF_ONE: &str = "
import socket
connection, _ = socket.create_server(('0.0.0.0', 7100)).accept()
parts = []
while part := connection.recv(1 << 20):
    parts.append(part)
connection.sendall(b''.join(parts))
";

#[test]
fn bytes_that_a_kernel_sends_in_one_piece_arrive_whole_in_generic_mode() {
    let test = "bytes_that_a_kernel_sends_in_one_piece_arrive_whole_in_generic_mode";
    let Some(wire) = wire(test, &["python3"]) else { return };
    let _server = start(&wire, "env", &["WIREPATH_XDP_MODE=generic", "python3", "-c", SERVER_OF_ONE]);
    wait_until("the server listens", || is_listening(&wire.near, 7_100));
    let mut stream = call(&wire.far, 7_100).unwrap();
    let sent: Vec<u8> = (0..8_u32 << 20).map(|idx| (idx ^ idx >> 8 ^ idx >> 16) as u8).collect();
    let mut got = Vec::new();
    // The far end's interface cuts nothing (TSO), as that of a container does not.
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == sent, "{} of {} bytes came back, or others", got.len(), sent.len());
}
