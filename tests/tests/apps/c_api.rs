//! wirepath for C: the header says what the library has, the examples run, misuse is refused. The
//! programs are compiled by the machine's compilers, against what `scripts/install-c` installs.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::mem::{offset_of, size_of};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use wirepath_c::Code;
use wirepath_c::abi::{CONSTANTS, Event, Handle, StackOptions, Stat, TcpInfo, TcpOptions, UdpOptions};
use wirepath_tests::live::{NEAR, OURS, THEIRS, TIMEOUT, Wire, has_program, wait_until};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn header() -> String {
    fs::read_to_string(root().join("c/include/wirepath.h")).unwrap()
}

/// Where the library is installed, once a process. `None`, and SKIPPED is said, without a compiler.
fn installed(test: &str) -> Option<&'static Path> {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    for program in ["cc", "c++", "pkg-config"] {
        if !has_program(test, program) {
            return None;
        }
    }
    Some(PLACE.get_or_init(install))
}

/// Installs with the profile, and into the folder, that cargo built this test with.
fn install() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().find(|place| place.join("deps").is_dir()).unwrap();
    let name = profile.file_name().unwrap().to_str().unwrap();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-api");
    let mut command = Command::new(root().join("scripts/install-c"));
    command.arg(&place).env("CARGO_TARGET_DIR", profile.parent().unwrap());
    command.env("PROFILE", if name == "debug" { "dev" } else { name }).env_remove("DESTDIR");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo = Path::new(env!("CARGO")).parent().unwrap().to_owned();
    let paths = [cargo].into_iter().chain(std::env::split_paths(&path));
    succeeded(command.env("PATH", std::env::join_paths(paths).unwrap()).output().unwrap());
    place
}

/// The output of a program that has ended well.
fn succeeded(output: Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// The compiler's flags for each program: every warning is an error.
const FLAGS: [&str; 6] = ["-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"];

/// Compiles a program of the folder `c`, as its user would, by the oldest standard of its language.
fn compiled(source: &str, place: &Path) -> PathBuf {
    compiled_as(source, if source.ends_with(".cpp") { "c++11" } else { "c99" }, place)
}

fn compiled_as(source: &str, standard: &str, place: &Path) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = place.join(format!("{name}-{standard}"));
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    let mut find = Command::new("pkg-config");
    find.env("PKG_CONFIG_PATH", place.join("lib/pkgconfig")).args(["--cflags", "--libs", "wirepath"]);
    let flags = succeeded(find.output().unwrap());
    let mut compile = Command::new(compiler);
    compile.args(FLAGS).args([&format!("-std={standard}"), "-O1", "-o"]);
    compile.arg(&program).arg(root().join("c").join(source)).args(flags.split_whitespace());
    compile.arg(format!("-Wl,-rpath,{}", place.join("lib").display()));
    succeeded(compile.output().unwrap());
    program
}

fn run(source: &str, place: &Path) -> String {
    succeeded(Command::new(compiled(source, place)).output().unwrap())
}

#[test]
fn examples_run_over_plain_memory() {
    let Some(place) = installed("examples_run_over_plain_memory") else { return };
    assert!(
        run("examples/feed_receiver.c", place).ends_with("1000 packets, 21000 bytes, kept: 00000999 price 101.25\n")
    );
    assert!(run("examples/tick_to_order.c", place).ends_with("50 orders fired\n"));
    assert!(run("examples/echo.cpp", place).starts_with("hello\nfrom C++\n-2: "));
}

#[test]
fn misuse_is_refused_with_a_code_and_a_sentence() {
    let Some(place) = installed("misuse_is_refused_with_a_code_and_a_sentence") else { return };
    assert_eq!(run("tests/misuse.c", place), "all refused, 1024 timers\n");
}

#[test]
fn calls_do_what_the_header_promises() {
    let Some(place) = installed("calls_do_what_the_header_promises") else { return };
    assert_eq!(run("tests/events.c", place), "as promised\n");
}

#[test]
fn handles_belong_to_one_stack_and_stacks_to_one_process() {
    let Some(place) = installed("handles_belong_to_one_stack_and_stacks_to_one_process") else { return };
    assert_eq!(run("tests/stacks.c", place), "as promised\n");
}

#[test]
fn owners_of_the_wrapper_give_back_once_in_old_and_new_cpp() {
    let Some(place) = installed("owners_of_the_wrapper_give_back_once_in_old_and_new_cpp") else { return };
    for standard in ["c++11", "c++17"] {
        let program = compiled_as("tests/wrapper.cpp", standard, place);
        assert_eq!(succeeded(Command::new(program).output().unwrap()), "as promised\n", "{standard}");
    }
}

/// The sources of a language in the folders of examples and tests.
fn sources(extension: &str) -> Vec<PathBuf> {
    let folders = ["c/examples", "c/tests"].map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

#[test]
fn headers_and_programs_compile_by_every_standard_without_a_warning() {
    let test = "headers_and_programs_compile_by_every_standard_without_a_warning";
    let languages = [
        ("c", ["cc", "clang"], ["c99", "c11", "c17"], "wirepath.h"),
        ("cpp", ["c++", "clang++"], ["c++11", "c++17", "c++20"], "wirepath.hpp"),
    ];
    let mut compiled = 0;
    for (extension, compilers, standards, header) in languages {
        for compiler in compilers.into_iter().filter(|compiler| has_program(test, compiler)) {
            for standard in standards {
                let mut compile = Command::new(compiler);
                compile.args(FLAGS).args([&format!("-std={standard}"), "-fsyntax-only", "-I"]);
                succeeded(compile.arg(root().join("c/include")).args(sources(extension)).output().unwrap());
                // The header alone, by the strict standard: without the system's extensions.
                let mut alone = Command::new(compiler);
                alone.args(&FLAGS[1..]).args([&format!("-std={standard}"), "-fsyntax-only", "-include"]);
                alone.arg(root().join("c/include").join(header));
                alone.args(["-x", if extension == "c" { "c" } else { "c++" }, "/dev/null"]);
                succeeded(alone.output().unwrap());
                compiled += 1;
            }
        }
    }
    println!("{compiled} of 12 compilers and standards");
}

#[test]
fn every_function_that_takes_a_stack_is_misused() {
    let misuse = fs::read_to_string(root().join("c/tests/misuse.c")).unwrap();
    let each_call = misuse.split("static void each_call").nth(1).and_then(|rest| rest.split("\n}\n").next()).unwrap();
    let entry = fs::read_to_string(root().join("c/src/entry.rs")).unwrap();
    let forgotten: Vec<&str> = entry
        .split("extern \"C\" fn ")
        .skip(1)
        .filter(|rest| rest.split(')').next().unwrap().contains("stack: Handle"))
        .map(|rest| rest.split('(').next().unwrap())
        .filter(|name| !each_call.contains(&format!("({name}(")))
        .collect();
    assert_eq!(forgotten, [""; 0], "calls that misuse.c does not make on a stack that is not to be called");
}

#[test]
fn structures_are_laid_out_as_the_header_says() {
    let Some(place) = installed("structures_are_laid_out_as_the_header_says") else { return };
    let theirs = run("tests/layout.c", place);
    let mut ours = format!("wp_conn {}\n", size_of::<Handle>());
    let mut structure = |name: &str, size: usize, members: &[(&str, usize)]| {
        ours += &format!("{name} {size}\n");
        members.iter().for_each(|(member, place)| ours += &format!("{name}.{member} {place}\n"));
    };
    macro_rules! places {
        ($type:ty: $($name:ident = $member:ident),*) => { &[$((stringify!($name), offset_of!($type, $member))),*] };
    }
    structure(
        "wp_options",
        size_of::<StackOptions>(),
        places!(StackOptions: flags = flags, name = name, address = address, gateway = gateway, connections = connections, held = held),
    );
    structure("wp_udp_options", size_of::<UdpOptions>(), places!(UdpOptions: ttl = ttl, tos = tos));
    structure(
        "wp_tcp_options",
        size_of::<TcpOptions>(),
        places!(TcpOptions: ack_delay_ns = ack_delay_ns, user_timeout_ns = user_timeout_ns, rto_min_ns = rto_min_ns,
                pacing_rate = pacing_rate, send_buffer = send_buffer, receive_buffer = receive_buffer),
    );
    structure(
        "wp_tcp_info",
        size_of::<TcpInfo>(),
        places!(TcpInfo: state = state, rto_ns = rto_ns, srtt_ns = srtt_ns, rttvar_ns = rttvar_ns,
                rtt_min_ns = rtt_min_ns, silence_ns = silence_ns, bytes_sent = bytes_sent, bytes_acked = bytes_acked,
                bytes_received = bytes_received, segments_out = segments_out, segments_in = segments_in, mss = mss,
                cwnd = cwnd, send_window = send_window, receive_window = receive_window, unacked = unacked,
                unsent = unsent, unread = unread, resent = resent, timeouts = timeouts, reserved = reserved),
    );
    structure("wp_stat", size_of::<Stat>(), places!(Stat: name = name, kind = kind, value = value));
    structure(
        "wp_event",
        size_of::<Event>(),
        places!(Event: type = kind, tag = tag, conn = connection, data = data, len = len, chunk = chunk,
                timestamp_ns = timestamp_ns, token = token, source = source, destination = destination,
                reason = reason, ttl = ttl, tos = tos, vlan = vlan),
    );
    assert_eq!(theirs, ours);
}

/// The names that follow `before` at the beginning of a word.
fn names<'a>(text: &'a str, before: &str) -> BTreeSet<&'a str> {
    let name = |rest: &'a str| rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next();
    text.split(before).skip(1).filter_map(name).collect()
}

#[test]
fn header_declares_what_the_library_exports() {
    let header = header();
    let declared: BTreeSet<String> = header
        .split("WP_API ")
        .skip(1)
        .filter_map(|rest| rest.split('(').next()?.rsplit([' ', '*']).next().map(str::to_owned))
        .filter(|name| name.starts_with("wp_"))
        .collect();
    let entry = fs::read_to_string(root().join("c/src/entry.rs")).unwrap();
    let defined: BTreeSet<String> = names(&entry, "extern \"C\" fn ").into_iter().map(str::to_owned).collect();
    assert_eq!(declared, defined, "the header (left) and the functions (right)");
    assert!(declared.len() > 30, "only {} functions: this test no longer finds them", declared.len());
    let Some(place) = installed("header_declares_what_the_library_exports") else { return };
    let mut list = Command::new("nm");
    let exported =
        succeeded(list.args(["-D", "--defined-only"]).arg(place.join("lib/libwirepath.so")).output().unwrap());
    let functions = exported.lines().filter(|line| line.contains(" T "));
    let exported: BTreeSet<String> =
        functions.filter_map(|line| line.split_once(" T ")).map(|(_, name)| name.to_owned()).collect();
    let versioned: BTreeSet<String> = declared.iter().map(|name| format!("{name}@@WIREPATH_0.1")).collect();
    assert_eq!(exported, versioned, "the library (left) and the header (right)");
}

#[test]
fn constants_are_those_of_the_header() {
    let header = header();
    let value = |line: &str| -> Option<(String, i64)> {
        let mut words = line.strip_prefix("#define WP_")?.split_whitespace();
        let name = format!("WP_{}", words.next()?);
        let number = words.next()?.trim_matches(['(', ')']).trim_end_matches('u').parse().ok()?;
        Some((name, number))
    };
    let theirs: BTreeSet<(String, i64)> = header.lines().filter_map(value).collect();
    let codes = Code::ALL.iter().map(|(code, name)| ((*name).to_owned(), *code as i64));
    let ours: BTreeSet<_> = CONSTANTS.iter().map(|(name, value)| ((*name).to_owned(), *value)).chain(codes).collect();
    assert_eq!(theirs, ours, "the header (left) and the library (right)");
    assert!(header.contains(&format!("#define WP_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))), "one version for both");
}

#[test]
fn program_is_linked_with_the_static_library() {
    let Some(place) = installed("program_is_linked_with_the_static_library") else { return };
    let program = place.join("static");
    let mut compile = Command::new("cc");
    compile.args(["-std=c99", "-D_DEFAULT_SOURCE", "-o"]).arg(&program).arg(root().join("c/examples/feed_receiver.c"));
    compile.arg("-I").arg(place.join("include")).arg(place.join("lib/libwirepath.a"));
    succeeded(compile.args(["-lgcc_s", "-lrt", "-lpthread", "-lm", "-ldl"]).output().unwrap());
    assert!(succeeded(Command::new(program).output().unwrap()).contains("1000 packets"));
}

#[test]
fn accepted_connection_stays_on_a_shared_interface_when_its_listener_closes() {
    let test = "accepted_connection_stays_on_a_shared_interface_when_its_listener_closes";
    let (Some(wire), Some(place)) = (Wire::new(test), installed(test)) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let program = compiled("tests/listener.c", place);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", wire.near.name()]).arg("timeout").arg("60").arg(program).arg(NEAR);
    let running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut peer = None;
    // Until the program listens the kernel refuses.
    wait_until("the program listens", || {
        peer = wire.far.run(|| TcpStream::connect((OURS, 9_100))).ok();
        peer.is_some()
    });
    let (mut peer, mut said) = (peer.unwrap(), [0; 6]);
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let heard = peer.read_exact(&mut said).and_then(|()| peer.write_all(b"later")).and_then(|()| {
        peer.shutdown(Shutdown::Write)?;
        peer.read(&mut said)
    });
    assert_eq!(succeeded(running.wait_with_output().unwrap()), "as promised\n");
    assert_eq!(heard.unwrap(), 0, "the end of the connection");
}

#[test]
fn child_of_a_killed_process_keeps_neither_its_queue_nor_its_program() {
    let test = "child_of_a_killed_process_keeps_neither_its_queue_nor_its_program";
    let (Some(wire), Some(place)) = (Wire::new(test), installed(test)) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let program = compiled("tests/forked.c", place);
    let fork_and_end = || {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", wire.near.name()]).arg(&program).arg(NEAR);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        said.trim().parse::<u32>().unwrap_or_else(|_| panic!("{said}"))
    };
    let first = fork_and_end();
    let kernels = wire.near.run(|| UdpSocket::bind((OURS, 9_200)).unwrap());
    kernels.set_nonblocking(true).unwrap();
    let sender = wire.far.run(|| UdpSocket::bind((THEIRS, 0)).unwrap());
    wait_until("the kernel has its datagrams again", || {
        sender.send_to(b"x", (OURS, 9_200)).unwrap();
        kernels.recv(&mut [0; 8]).is_ok()
    });
    let second = fork_and_end();
    let kill = |pid: u32| Command::new("kill").arg(pid.to_string()).status().unwrap().success();
    assert_eq!([kill(first), kill(second)], [true; 2], "both children were there");
}

#[test]
fn epoll_loop_answers_beside_the_kernel_and_sleeps() {
    let test = "epoll_loop_answers_beside_the_kernel_and_sleeps";
    let (Some(wire), Some(place)) = (Wire::new(test), installed(test)) else { return };
    wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
    let program = compiled("examples/in_epoll_loop.c", place);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", wire.near.name()]).arg(program).args([NEAR, "5000"]);
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let client = wire.socket((THEIRS, 0));
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut answer = [0; 64];
    // The first ones may come before the program is there.
    let first = (0..200).find_map(|_| {
        client.send_to(b"are you there?", (OURS, 5_000)).unwrap();
        client.recv(&mut answer).ok()
    });
    if first.is_none() {
        let _ = running.kill();
        panic!("no answer: {}", String::from_utf8_lossy(&running.wait_with_output().unwrap().stderr));
    }
    assert_eq!(&answer[..first.unwrap()], b"are you there?");
    thread::sleep(Duration::from_millis(300));
    running.stdin.take().unwrap().write_all(b"stop\n").unwrap();
    let mut said = String::new();
    running.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(running.wait().unwrap().success(), "{said}");
    let number = |word: &str| {
        let before = said.split(word).next().unwrap();
        before.rsplit([' ', '\n']).next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(number(" answered") >= 1 && number(" timers") >= 2 && number(" sleeps") >= 2, "{said}");
}

/// An example on the near end of a wire, beside the kernel. Dropped, it is killed.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(wire: &Wire, place: &Path, source: &str, arguments: &[&str]) -> Self {
        wire.near.ip(&["addr", "add", &format!("{OURS}/24"), "dev", NEAR]).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", wire.near.name()]).arg(compiled(source, place)).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let said = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    /// The next line that it prints.
    fn line(&self) -> String {
        self.lines.recv_timeout(TIMEOUT).unwrap_or_else(|why| panic!("no line, and no more of them: {why}"))
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends texts to the group of the examples, a thousand a second, while `act` runs.
fn while_the_group_has<T>(wire: &Wire, text: impl Fn(u64) -> String + Sync, act: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (sender, is_over) = (wire.socket((THEIRS, 0)), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                sender.send_to(text(number).as_bytes(), ("239.1.1.1", 9_000)).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
        });
        // Also where it panics.
        let _over = Over(&is_over);
        act()
    })
}

#[test]
fn feed_receiver_prints_what_a_group_brings_over_a_wire() {
    let test = "feed_receiver_prints_what_a_group_brings_over_a_wire";
    let (Some(wire), Some(place)) = (Wire::new(test), installed(test)) else { return };
    let receiver = Example::start(&wire, place, "examples/feed_receiver.c", &[NEAR, "239.1.1.1", "9000"]);
    let text = |number| format!("{number:08} price 101.25");
    let lines = while_the_group_has(&wire, text, || [receiver.line(), receiver.line()]);
    for (line, begin) in lines.iter().zip(["packet 100: ", "packet 200: "]) {
        assert!(line.starts_with(begin) && line.ends_with(" price 101.25"), "{lines:?}");
    }
}

#[test]
fn tick_to_order_fires_at_a_kernels_gateway_over_a_wire() {
    let test = "tick_to_order_fires_at_a_kernels_gateway_over_a_wire";
    let (Some(wire), Some(place)) = (Wire::new(test), installed(test)) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 9_100)).unwrap());
    let trader = Example::start(&wire, place, "examples/tick_to_order.c", &[NEAR, &THEIRS.to_string(), "9100"]);
    assert_eq!(trader.line(), "connected, and the order stands ready");
    let mut gateway = BufReader::new(listener.accept().unwrap().0);
    gateway.get_ref().set_read_timeout(Some(TIMEOUT)).unwrap();
    // Each second tick is too dear.
    let tick = |number: u64| if number.is_multiple_of(2) { "00000090".to_owned() } else { "00000100".to_owned() };
    let mut orders = String::new();
    while_the_group_has(&wire, tick, || (0..20).for_each(|_| _ = gateway.read_line(&mut orders).unwrap()));
    gateway.get_ref().shutdown(Shutdown::Write).unwrap();
    gateway.read_to_string(&mut orders).unwrap();
    let are_right = orders.lines().all(|order| order == "BUY 100 WIRE @ 00000090 IOC ACCOUNT 7");
    assert!(orders.lines().count() >= 20 && are_right, "{orders}");
    assert!(trader.line().starts_with("the gateway is gone: "));
    assert_eq!(trader.line(), format!("{} orders fired", orders.lines().count()));
}
