//! The same programs over the queues of a ConnectX, which is one of software on our end of the
//! wire.

use std::io::{BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

use wirepath_tests::live::preload::{
    call, compile, counter_of, echo, is_listening, library, segments_received, text, until_it_listens, wire,
};
use wirepath_tests::live::{FAR, NEAR, OURS, Program, THEIRS, Wire, has_program, wait_until};

/// A shell's line that runs a program under the library, over the queues of the software ConnectX:
/// the launcher preloads a library too, and ours stands in front of it.
fn line(program: &str) -> String {
    format!(
        "LD_PRELOAD={}:$LD_PRELOAD WIREPATH_INTERFACE=mlx5:{NEAR} WIREPATH_POLICY=refuse exec {program}",
        library().display()
    )
}

/// Starts such a program at the near end.
fn start(wire: &Wire, program: &str) -> Program {
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    Program::start(&wire.near, software, &["run", "--wire", NEAR, "--", "sh", "-c", &line(program)])
}

#[test]
fn threads_have_an_engine_each_over_the_queues_of_a_connectx() {
    let test = "threads_have_an_engine_each_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "threads.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let peer = THEIRS.to_string();
    let kernel = text(&wire.near.command(&program, &[&peer]).unwrap());
    let before = segments_received(&wire.near);
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    let line = format!("export WIREPATH_ENGINES=4; {}", line(&format!("{program} {THEIRS}")));
    let arguments = ["240", software, "run", "--wire", NEAR, "--", "sh", "-c", &line];
    let ours = text(&wire.near.command("timeout", &arguments).unwrap());
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

#[test]
fn redis_answers_over_the_queues_of_a_connectx() {
    let test = "redis_answers_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["redis-server", "redis-cli"]) else { return };
    let redis = start(&wire, "redis-server --port 6400 --bind 0.0.0.0 --protected-mode no --save ''");
    until_it_listens(&wire, 6_400);
    let before = segments_received(&wire.near);
    let host = OURS.to_string();
    let ask = |words: &[&str]| {
        let arguments = [&["-h", &host, "-p", "6400"], words].concat();
        text(&wire.far.command("redis-cli", &arguments).unwrap()).trim().to_owned()
    };
    assert_eq!(ask(&["set", "price", "101"]), "OK");
    assert_eq!(ask(&["get", "price"]), "101");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    drop(redis);
}

#[test]
fn nic_stamps_datagrams_for_a_program_that_asks_for_it() {
    let test = "nic_stamps_datagrams_for_a_program_that_asks_for_it";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "reports.c", directory.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    let line = format!(
        "LD_PRELOAD={}:$LD_PRELOAD WIREPATH_INTERFACE=mlx5:{NEAR} WIREPATH_POLICY=refuse WIREPATH_TIMESTAMPS=1 \
         exec {program} {THEIRS} 'by the NIC'",
        library().display()
    );
    let said = text(&wire.near.command(software, &["run", "--wire", NEAR, "--", "sh", "-c", &line]).unwrap());
    let stamps: Vec<&str> = said.lines().filter(|line| line.contains("control 1 37 len 64 none none")).collect();
    assert!(stamps.len() == 2 && stamps.iter().all(|line| !line.ends_with("none none none")), "{said}");
}

#[test]
fn sockperf_plays_ping_pong_over_the_queues_of_a_connectx() {
    let test = "sockperf_plays_ping_pong_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let feed = folder.path().join("feed");
    std::fs::write(&feed, format!("U:{OURS}:11200\nT:{OURS}:11201\n")).unwrap();
    let _server = start(&wire, &format!("sockperf server -f {}", feed.display()));
    until_it_listens(&wire, 11_201);
    let carried = || segments_received(&wire.near) + counter_of(&wire.near, "Udp:", "InDatagrams");
    let (before, host) = (carried(), OURS.to_string());
    for protocol in [&["-p", "11200"][..], &["-p", "11201", "--tcp"]] {
        let arguments = [&["60", "sockperf", "ping-pong", "-i", &host, "-t", "1"], protocol].concat();
        let said = text(&wire.far.command("timeout", &arguments).unwrap());
        assert!(said.contains("dropped messages = 0; # duplicated messages = 0;"), "{said}");
    }
    assert_eq!(carried(), before, "packets that the kernel got");
}

#[test]
fn memcached_with_four_threads_answers_over_the_queues_of_a_connectx() {
    let test = "memcached_with_four_threads_answers_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["memcached"]) else { return };
    let _memcached = start(&wire, "memcached -u root -p 11311 -t 4 -l 0.0.0.0");
    until_it_listens(&wire, 11_311);
    let before = segments_received(&wire.near);
    let mut sockets: Vec<_> = (0..20).map(|_| BufReader::new(call(&wire.far, 11_311).unwrap())).collect();
    // One frame each: the software NIC cuts no frame that a kernel sends in one piece.
    let value = "v".repeat(1_000);
    for (number, socket) in sockets.iter_mut().enumerate() {
        write!(socket.get_mut(), "set key{number} 0 0 {}\r\n{value}\r\nget key{number}\r\n", value.len()).unwrap();
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let expected = format!("STORED\r\nVALUE key{number} 0 {}\r\n{value}\r\nEND\r\n", value.len());
        let mut got = vec![0; expected.len()];
        socket.read_exact(&mut got).unwrap();
        assert!(got == expected.as_bytes(), "connection {number}: {}", String::from_utf8_lossy(&got[..50]));
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}

/// Has the far kernel cut what it sends: the software NIC cuts no frame that comes in one piece.
fn cut_at_the_far_end(wire: &Wire) {
    assert!(wire.far.command("ethtool", &["-K", FAR, "tso", "off", "gso", "off"]).unwrap().status.success());
}

/// In one process, because after a fork the software NIC is the parent's alone.
#[test]
fn nginx_serves_files_over_the_queues_of_a_connectx() {
    let test = "nginx_serves_files_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["nginx", "curl"]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().to_str().unwrap();
    let page = "0123456789".repeat(30_000);
    std::fs::write(directory.path().join("page"), &page).unwrap();
    let configuration = format!(
        "user root;\nmaster_process off;\ndaemon off;\npid {folder}/pid;\nerror_log {folder}/errors;\nevents {{ }}\n\
         http {{ access_log off; sendfile on; server {{ listen 8080; root {folder}; }} }}\n"
    );
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, configuration).unwrap();
    let nginx = start(&wire, &format!("nginx -c {}", file.display()));
    let url = format!("http://{OURS}:8080/page");
    let fetch = || wire.far.command("curl", &["--silent", "--max-time", "30", &url]).unwrap();
    wait_until("it serves", || fetch().status.success());
    let before = segments_received(&wire.near);
    for _ in 0..3 {
        let output = fetch();
        assert!(output.stdout == page.as_bytes(), "{} of {} bytes", output.stdout.len(), page.len());
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    nginx.interrupt();
}

#[test]
fn iperf3_sends_both_ways_over_the_queues_of_a_connectx() {
    let test = "iperf3_sends_both_ways_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    if !has_program(test, "ethtool") {
        return;
    }
    let Some(wire) = wire(test, &["iperf3"]) else { return };
    cut_at_the_far_end(&wire);
    let (server, host) = (start(&wire, "iperf3 --server"), OURS.to_string());
    wait_until("the server listens", || is_listening(&wire.near, 5_201));
    let before = segments_received(&wire.near);
    for options in [&["--bytes", "5M"][..], &["--bytes", "5M", "--reverse", "--parallel", "2"]] {
        let arguments = [&["120", "iperf3", "--client", &host], options].concat();
        let output = wire.far.command("timeout", &arguments).unwrap();
        assert!(output.status.success() && text(&output).contains("iperf Done"), "{options:?}: {}", text(&output));
        // Between two tests it closes its listener and opens it again.
        wait_until("the server listens again", || is_listening(&wire.near, 5_201));
    }
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
    drop(server);
}

/// Runs such a program at the near end to its end.
fn run(wire: &Wire, program: &str) -> String {
    let software = softhca::testing::program().unwrap().to_str().unwrap();
    let arguments = ["240", software, "run", "--wire", NEAR, "--", "sh", "-c", &line(program)];
    text(&wire.near.command("timeout", &arguments).unwrap())
}

/// Answers each caller at the far end with a page.
fn serve_pages(wire: &Wire, page: &str) {
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 8_080)).unwrap());
    let answer = format!("HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            let _ = socket.read(&mut [0; 1_024]).and_then(|_| socket.write_all(answer.as_bytes()));
        }
    });
}

#[test]
#[ignore = "make soak"]
fn clients_are_past_the_kernel_over_the_queues_of_a_connectx() {
    let test = "clients_are_past_the_kernel_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let programs = ["curl", "redis-server", "redis-benchmark", "sockperf", "iperf3", "ethtool"];
    let Some(wire) = wire(test, &programs) else { return };
    cut_at_the_far_end(&wire);
    let (page, host) = ("0123456789".repeat(1_000), THEIRS.to_string());
    serve_pages(&wire, &page);
    let redis = ["--port", "6400", "--bind", &host, "--protected-mode", "no", "--save", ""];
    let _servers = [
        Program::start(&wire.far, "redis-server", &redis),
        Program::start(&wire.far, "sockperf", &["server", "-i", &host, "-p", "11200"]),
        Program::start(&wire.far, "iperf3", &["--server"]),
    ];
    for port in [6_400, 5_201] {
        wait_until("the server listens", || is_listening(&wire.far, port));
    }
    let carried = || segments_received(&wire.near) + counter_of(&wire.near, "Udp:", "InDatagrams");
    let before = carried();
    assert_eq!(run(&wire, &format!("curl --silent http://{THEIRS}:8080/page")), page);
    let said = run(&wire, &format!("redis-benchmark -h {THEIRS} -p 6400 -n 2000 -c 20 -t set,get --csv"));
    assert!(said.contains("\"SET\",") && said.contains("\"GET\","), "{said}");
    // On a busy machine a second is too short for an observation, and a datagram may be lost.
    wait_until("sockperf is answered", || {
        let said = run(&wire, &format!("timeout 60 sockperf ping-pong -i {THEIRS} -p 11200 -t 1"));
        said.contains("# duplicated messages = 0; # out-of-order messages = 0")
    });
    for options in ["--bytes 5M", "--bytes 5M --reverse --parallel 2"] {
        let said = run(&wire, &format!("iperf3 --client {THEIRS} {options}"));
        assert!(said.contains("iperf Done"), "{options}: {said}");
        wait_until("the server listens again", || is_listening(&wire.far, 5_201));
    }
    // What is underway when a program ends comes to the kernel.
    assert!(carried() < before + 30, "{} packets went by the kernel", carried() - before);
}

#[test]
#[ignore = "make soak"]
fn sockperf_measures_multicast_over_the_queues_of_a_connectx() {
    let test = "sockperf_measures_multicast_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["sockperf"]) else { return };
    let (group, interface) = ("239.2.2.2", OURS.to_string());
    wire.near.ip(&["route", "add", "default", "dev", NEAR]).unwrap();
    let _server = start(&wire, &format!("sockperf server -i {group} -p 11200 --mc-rx-if {interface}"));
    let before = counter_of(&wire.near, "Udp:", "InDatagrams");
    let far = THEIRS.to_string();
    let client =
        ["60", "sockperf", "ping-pong", "-i", group, "-p", "11200", "--mc-tx-if", &far, "--mc-rx-if", &far, "-t", "1"];
    wait_until("the group is answered", || {
        let said = text(&wire.far.command("timeout", &client).unwrap());
        said.contains("# duplicated messages = 0; # out-of-order messages = 0") && said.contains("percentile 50.000")
    });
    assert_eq!(counter_of(&wire.near, "Udp:", "InDatagrams"), before, "datagrams that the kernel got");
}

/// Connects, and tries the stream in a child as well. A child has no software NIC of its own, and
/// so connects nowhere.
const FORKS: &str = "\
import errno, os, socket, sys
stream = socket.create_connection((sys.argv[1], 7000))
def echo():
    stream.sendall(b'word')
    return stream.recv(4).decode()
print('parent', echo(), flush=True)
if os.fork() == 0:
    try: print('child', echo(), flush=True)
    except OSError as error: print('child', errno.errorcode[error.errno], flush=True)
    os._exit(0)
print('child ends with', os.wait()[1], flush=True)
print('parent', echo(), flush=True)
";

#[test]
fn stream_stays_the_parents_after_a_fork_over_the_queues_of_a_connectx() {
    let test = "stream_stays_the_parents_after_a_fork_over_the_queues_of_a_connectx";
    if let Some(why) = softhca::testing::missing() {
        return println!("SKIPPED {test}: {why}");
    }
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("forks.py");
    std::fs::write(&program, FORKS).unwrap();
    let before = segments_received(&wire.near);
    let said = run(&wire, &format!("python3 {} {THEIRS}", program.display()));
    assert!(said.starts_with("parent word\nchild EPIPE\nchild ends with 0\nparent word\n"), "{said}");
    assert!(said.contains("they stay its parent's, and fail here"), "{said}");
    assert_eq!(segments_received(&wire.near), before, "segments that the kernel got");
}
