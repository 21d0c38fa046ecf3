//! Rules of a program under the preload library: which of its sockets they give to whom, and when
//! they are asked.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use wirepath_tests::live::preload::{
    compile, compile_with, counter_of, echo, run, said, segments_received, start, wire,
};
use wirepath_tests::live::{OURS, THEIRS, wait_until};
use wirepath_tests::netns::Namespace;

/// Prints what a call returns, or the name of its error.
const TELLS: &str = "\
import errno, os, socket, struct, sys
def tells(what, act):
    try: print(what, act(), flush=True)
    except OSError as error: print(what, errno.errorcode.get(error.errno, str(error)), flush=True)
def datagrams(port):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(10)
    if port is not None: made.bind(('0.0.0.0', port))
    return made
def join(made, group):
    made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + socket.inet_aton(sys.argv[1]))
";

fn python(body: &str) -> String {
    format!("{TELLS}{body}")
}

/// The setting that names a file with these rules.
fn rules(folder: &Path, text: &str) -> String {
    let path = folder.join("rules.toml");
    fs::write(&path, text).unwrap();
    format!("WIREPATH_RULES={}", path.display())
}

#[test]
fn rule_of_a_group_gives_us_a_receiver_that_the_default_leaves_to_the_kernel() {
    let test = "rule_of_a_group_gives_us_a_receiver_that_the_default_leaves_to_the_kernel";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    wire.far.ip(&["route", "add", "239.0.0.0/8", "dev", wirepath_tests::live::FAR]).unwrap();
    let rules = rules(
        folder.path(),
        "default = \"os\"\n[[rules]]\nuse = \"offload\"\ntraffic = \"udp-receiver\"\nlocal = \"239.1.1.0/24:30001\"\n",
    );
    let body = python(
        "made = datagrams(30001 if sys.argv[2] == 'bind' else None)\n\
         if sys.argv[2] == 'bind': made.sendto(b'subscribe', ('127.0.0.1', 9))\n\
         join(made, '239.1.1.1')\n\
         if sys.argv[2] == 'join': made.bind(('0.0.0.0', 30001))\n\
         open(sys.argv[3], 'w').close()\n\
         tells('heard', lambda: made.recv(20))\n",
    );
    for first in ["bind", "join"] {
        let before = counter_of(&wire.near, "Udp:", "InDatagrams");
        let joined = folder.path().join(first);
        let (near, ready) = (OURS.to_string(), joined.display().to_string());
        let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &near, first, &ready];
        let program = start(&wire, "env", &words);
        let sender = wire.socket((THEIRS, 0));
        // The kernel knows the member a moment before the library has its frames: a datagram of
        // that moment is heard by way of the kernel. The program tells when its call has returned.
        wait_until("the program has joined", || joined.exists());
        sender.send_to(b"a price", (Ipv4Addr::new(239, 1, 1, 1), 30_001)).unwrap();
        assert_eq!(program.finish(), "heard b'a price'\n", "{first} first");
        assert_eq!(counter_of(&wire.near, "Udp:", "InDatagrams"), before, "{first} first: the kernel's");
    }
}

#[test]
fn refused_group_is_joined_by_no_socket() {
    let test = "refused_group_is_joined_by_no_socket";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    let other = Namespace::new().unwrap();
    wire.near.veth("second0", &other, "second1").unwrap();
    wire.near.ip(&["addr", "add", "10.9.1.1/24", "dev", "second0"]).unwrap();
    let rules = rules(
        folder.path(),
        "default = \"os\"\n[[rules]]\nuse = \"refuse\"\ntraffic = \"udp-receiver\"\nlocal = \"239.1.2.0/24:*\"\n",
    );
    let body = python(
        "tells('unbound', lambda: join(datagrams(None), '239.1.2.1'))\n\
         tells('bound', lambda: join(datagrams(30002), '239.1.2.1'))\n\
         tells('another group', lambda: join(datagrams(30003), '239.1.3.1'))\n\
         kernels = datagrams(None)\n\
         kernels.sendto(b'to nobody', ('127.0.0.1', 9))\n\
         tells('of the kernel', lambda: join(kernels, '239.1.2.1'))\n\
         sys.argv[1] = '10.9.1.1'\n\
         for made in (datagrams(30004), datagrams(None)): tells('by another', lambda: join(made, '239.1.2.1'))\n",
    );
    let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &OURS.to_string()];
    assert_eq!(
        said(&run(&wire, "env", &words)),
        "unbound EACCES\nbound EACCES\nanother group None\nof the kernel EACCES\nby another None\nby another None\n"
    );
}

#[test]
fn failed_bind_leaves_a_datagram_socket_unbound_with_its_options_and_its_epoll_sets() {
    let test = "failed_bind_leaves_a_datagram_socket_unbound_with_its_options_and_its_epoll_sets";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    let refused = "[[rules]]\nuse = \"refuse\"\ntraffic = \"udp-receiver\"\nlocal = \"*:30010\"\n";
    let rules = rules(folder.path(), refused);
    let body = python(
        "import fcntl, select\n\
         made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         made.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 9)\n\
         join(made, '239.1.1.1')\n\
         same = made.dup()\n\
         os.set_inheritable(same.fileno(), True)\n\
         made.setblocking(False)\n\
         waits = select.epoll()\n\
         for each in (made, same): waits.register(each.fileno(), select.EPOLLIN)\n\
         tells('refused', lambda: made.bind(('0.0.0.0', 30010)))\n\
         print('name', made.getsockname()[1], same.getsockname()[1])\n\
         another = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         tells('the port is free', lambda: another.bind(('127.0.0.1', 30010)))\n\
         print('TTL', made.getsockopt(socket.IPPROTO_IP, socket.IP_TTL))\n\
         print('inheritable', made.get_inheritable(), same.get_inheritable())\n\
         print('blocks', os.get_blocking(same.fileno()))\n\
         tells('loopback', lambda: same.bind(('127.0.0.1', 30011)))\n\
         made.sendto(b'self', ('127.0.0.1', 30011))\n\
         print('events', len(waits.poll(10)))\n\
         tells('heard', lambda: made.recv(20))\n",
    );
    let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &OURS.to_string()];
    let expected = "refused EACCES\nname 0 0\nthe port is free None\nTTL 9\ninheritable False True\nblocks False\n\
                    loopback None\nevents 2\nheard b'self'\n";
    assert_eq!(said(&run(&wire, "env", &words)), expected);
}

#[test]
fn rule_of_senders_is_asked_for_each_destination() {
    let test = "rule_of_senders_is_asked_for_each_destination";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let rules = rules(
        folder.path(),
        &format!(
            "[[rules]]\nuse = \"os\"\ntraffic = \"udp-sender\"\nremote = \"{THEIRS}:7000\"\n\
             [[rules]]\nuse = \"refuse\"\ntraffic = \"udp-sender\"\nremote = \"{THEIRS}:7002\"\n"
        ),
    );
    let body = python(
        "made = datagrams(7400)\n\
         for port in (7005, 7002, 7000, 7000): tells(port, lambda: made.sendto(b'echo', (sys.argv[1], port)))\n\
         tells('answer', lambda: made.recv(20))\n",
    );
    let before = counter_of(&wire.near, "Udp:", "OutDatagrams");
    let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &THEIRS.to_string()];
    let text = said(&run(&wire, "env", &words));
    assert_eq!(text, "7005 4\n7002 EACCES\n7000 4\n7000 4\nanswer b'echo'\n");
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams") - before, 2, "datagrams that the kernel has sent");
}

#[test]
fn what_is_refused_by_default_is_our_interface_alone() {
    let test = "what_is_refused_by_default_is_our_interface_alone";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let other = Namespace::new().unwrap();
    wire.near.veth("second0", &other, "second1").unwrap();
    wire.near.ip(&["addr", "add", "10.9.1.1/24", "dev", "second0"]).unwrap();
    other.ip(&["addr", "add", "10.9.1.2/24", "dev", "second1"]).unwrap();
    let _listener = other.run(|| TcpListener::bind("10.9.1.2:7000").unwrap());
    let rules = rules(folder.path(), "default = \"refuse\"\n");
    let body = python(
        "tells('management', lambda: socket.create_connection(('10.9.1.2', 7000)).getpeername()[1])\n\
         tells('its address', lambda: socket.create_server(('10.9.1.1', 7100)).getsockname()[1])\n\
         tells('ours', lambda: socket.create_connection((sys.argv[1], 7000)))\n\
         tells('our address', lambda: socket.create_server((sys.argv[2], 7100)))\n",
    );
    let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &THEIRS.to_string(), &OURS.to_string()];
    let text = said(&run(&wire, "env", &words));
    assert_eq!(text, "management 7000\nits address 7100\nours EACCES\nour address EACCES\n");
}

#[test]
fn program_of_any_name_is_offloaded() {
    let test = "program_of_any_name_is_offloaded";
    let folder = tempfile::tempdir().unwrap();
    let Some(alone) = compile(test, "alone.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    for name in ["order engine", ".engine", "Käse", &"n".repeat(80)] {
        let copy = folder.path().join(name);
        fs::copy(&alone, &copy).unwrap();
        let words = ["WIREPATH_POLICY=refuse", copy.to_str().unwrap(), &THEIRS.to_string()];
        assert_eq!(said(&run(&wire, "env", &words)), "hello\n", "{name}");
    }
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn program_of_io_uring_gets_no_ring_unless_all_its_sockets_are_the_kernels() {
    let test = "program_of_io_uring_gets_no_ring_unless_all_its_sockets_are_the_kernels";
    let folder = tempfile::tempdir().unwrap();
    let places = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let mut places = places.iter().map(|place| format!("{place}/liburing.so.2"));
    let Some(liburing) = places.find(|library| Path::new(library).exists()) else {
        eprintln!("SKIPPED {test}: there is no liburing.so.2 (apt-get install liburing2)");
        return;
    };
    let Some(program) = compile_with(test, "uring.c", folder.path(), &[&liburing]) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let peer = THEIRS.to_string();
    let talks = "connect: 0\nwrite: 4\nepoll_wait: 1\nread: 4\n";
    let refused = said(&run(&wire, &program, &[&peer]));
    let none = "queue_init: ENOSYS\nqueue_init_params: ENOSYS\nio_uring_setup: ENOSYS\n";
    assert!(refused.starts_with(&format!("{none}{talks}")), "{refused}");
    assert_eq!(refused.matches("wirepath: io_uring is refused (ENOSYS)").count(), 1, "{refused}");
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
    let alone = wire.near.command(&program, &[&peer]).unwrap();
    let rules = rules(folder.path(), "default = \"os\"\n");
    let left = run(&wire, "env", &[&rules, "WIREPATH_POLICY=quiet", &program, &peer]);
    assert_eq!(said(&left), said(&alone), "as without the library");
}

#[test]
fn shell_that_must_be_offloaded_leaves_the_interface_to_what_it_starts() {
    let test = "shell_that_must_be_offloaded_leaves_the_interface_to_what_it_starts";
    let folder = tempfile::tempdir().unwrap();
    let Some(alone) = compile(test, "alone.c", folder.path()) else { return };
    let Some(wire) = wire(test, &["sh"]) else { return };
    echo(&wire);
    let script = format!("{alone} {THEIRS}; {alone} {THEIRS}; true");
    let output = run(&wire, "env", &["WIREPATH_POLICY=refuse", "sh", "-c", &script]);
    assert_eq!(said(&output), "hello\nhello\n");
    assert_eq!(segments_received(&wire.near), 0, "segments that the kernel got");
}

#[test]
fn sockets_of_a_forked_child_are_said_to_be_the_kernels() {
    let test = "sockets_of_a_forked_child_are_said_to_be_the_kernels";
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = python(
        "kept = socket.create_connection((sys.argv[1], 7000))\n\
         if os.fork() == 0:\n\
         \x20   for each in range(2): socket.create_connection((sys.argv[1], 7000)).close()\n\
         \x20   os._exit(0)\n\
         os.wait()\n\
         kept.sendall(b'echo'); tells('parent', lambda: kept.recv(4))\n",
    );
    let text = said(&run(&wire, "python3", &["-c", &body, &THEIRS.to_string()]));
    let sentence = "was forked from one whose sockets are on wirepath; start it by exec, or fork before the first";
    assert!(text.contains("parent b'echo'\n") && text.matches(sentence).count() == 1, "{text}");
}

#[test]
fn each_message_of_a_batch_has_the_rule_of_its_own_destination() {
    let test = "each_message_of_a_batch_has_the_rule_of_its_own_destination";
    let folder = tempfile::tempdir().unwrap();
    let Some(batches) = compile(test, "batches.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    echo(&wire);
    let refused = format!("[[rules]]\nuse = \"refuse\"\ntraffic = \"udp-sender\"\nremote = \"{THEIRS}:7002\"\n");
    let rules = rules(folder.path(), &refused);
    let before = counter_of(&wire.near, "Udp:", "OutDatagrams");
    let words = [&*rules, "WIREPATH_POLICY=quiet", &batches, &THEIRS.to_string(), "1"];
    let expected = "batch: 2, 4 4 99 99\nfrom the refused one: -1 EACCES, 99 99\nthe last: 1, 4\nanswer: 4\n";
    assert_eq!(said(&run(&wire, "env", &words)), expected);
    // That of loopback alone.
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams") - before, 1, "datagrams that the kernel has sent");
}

#[test]
fn refused_destination_is_sent_to_by_no_socket_whoever_has_it() {
    let test = "refused_destination_is_sent_to_by_no_socket_whoever_has_it";
    let folder = tempfile::tempdir().unwrap();
    let Some(batches) = compile(test, "batches.c", folder.path()) else { return };
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let body = python(
        "peer = sys.argv[1]\n\
         def sends(what, made, peer=peer):\n\
         \x20   for port in (7002, 7000, 7002, 7003): tells(f'{what} {port}', lambda: made.sendto(b'echo', (peer, port)))\n\
         \x20   tells(f'{what} sendmsg', lambda: made.sendmsg([b'echo'], [], 0, (peer, 7002)))\n\
         \x20   tells(f'{what} connect', lambda: made.connect((peer, 7003)))\n\
         sends('bound', datagrams(7400))\n\
         sends('unbound', datagrams(None))\n\
         connected = datagrams(None)\n\
         tells('another', lambda: connected.connect((peer, 7000)))\n\
         sends('connected', connected)\n\
         both = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n\
         sends('IPv6', both, '::ffff:' + peer)\n\
         stream = socket.socket()\n\
         for port in (7009, 7004): tells(f'stream {port}', lambda: stream.connect((peer, port)))\n\
         for port in (7004, 7000):\n\
         \x20   opens = lambda: socket.socket().sendto(b'echo', socket.MSG_FASTOPEN, (peer, port))\n\
         \x20   if port == 7004 or sys.argv[2] == 'offload': tells(f'fast {port}', opens)\n",
    );
    for (default, sent_by_kernel) in [("os", 8), ("offload", 0)] {
        let rules = rules(
            folder.path(),
            &format!(
                "default = \"{default}\"\n\
                 [[rules]]\nuse = \"refuse\"\ntraffic = \"udp-sender\"\nremote = \"{THEIRS}:7002\"\n\
                 [[rules]]\nuse = \"refuse\"\ntraffic = \"udp-connect\"\nremote = \"{THEIRS}:7003\"\n\
                 [[rules]]\nuse = \"refuse\"\ntraffic = \"tcp-client\"\nremote = \"{THEIRS}:7004\"\n"
            ),
        );
        let before = counter_of(&wire.near, "Udp:", "OutDatagrams");
        let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &THEIRS.to_string(), default];
        let text = said(&run(&wire, "env", &words));
        let of = |what: &str| {
            format!(
                "{what} 7002 EACCES\n{what} 7000 4\n{what} 7002 EACCES\n{what} 7003 4\n{what} sendmsg EACCES\n{what} \
             connect EACCES\n"
            )
        };
        let another = "another None\n".to_owned();
        let fast = if default == "offload" { "fast 7000 ENOTSUP\n" } else { "" };
        let streams = format!("stream 7009 ECONNREFUSED\nstream 7004 EACCES\nfast 7004 EACCES\n{fast}");
        let expected = [of("bound"), of("unbound"), another, of("connected"), of("IPv6"), streams].concat();
        assert_eq!(text, expected, "{default}");
        let sent = counter_of(&wire.near, "Udp:", "OutDatagrams") - before;
        assert_eq!(sent, sent_by_kernel, "{default}: datagrams that the kernel has sent");
        let words = [&*rules, "WIREPATH_POLICY=quiet", &batches, &THEIRS.to_string(), "1"];
        let expected = "batch: 2, 4 4 99 99\nfrom the refused one: -1 EACCES, 99 99\nthe last: 1, 4\nanswer: 4\n";
        assert_eq!(said(&run(&wire, "env", &words)), expected, "{default}");
    }
}

#[test]
fn rule_leaves_a_peer_to_the_kernel_also_where_the_datagram_socket_was_ours() {
    let test = "rule_leaves_a_peer_to_the_kernel_also_where_the_datagram_socket_was_ours";
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = wire(test, &["python3"]) else { return };
    echo(&wire);
    let left = format!("[[rules]]\nuse = \"os\"\ntraffic = \"udp-connect\"\nremote = \"{THEIRS}:7000\"\n");
    let rules = rules(folder.path(), &left);
    let body = python(
        "made = datagrams(7400)\n\
         tells('connected', lambda: made.connect((sys.argv[1], 7000)))\n\
         tells('sent', lambda: made.send(b'echo'))\n\
         tells('heard', lambda: made.recv(20))\n",
    );
    let before = counter_of(&wire.near, "Udp:", "OutDatagrams");
    let words = [&*rules, "WIREPATH_POLICY=quiet", "python3", "-c", &body, &THEIRS.to_string()];
    assert_eq!(said(&run(&wire, "env", &words)), "connected None\nsent 4\nheard b'echo'\n");
    assert_eq!(counter_of(&wire.near, "Udp:", "OutDatagrams") - before, 1, "datagrams that the kernel has sent");
}
