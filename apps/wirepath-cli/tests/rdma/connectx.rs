//! The other end is a program of rdma-core on a software ConnectX, which shares no code about RoCE
//! with our stage. Ours is on AF_XDP, on the queues of a software ConnectX, or one does RDMA for us
//! too.

use std::process::{Child, Output};

use softhca::testing::{missing, not_installed, program};
use wirepath_tests::live::{FAR, NEAR, THEIRS, Wire};

use crate::ends::{UNDAMAGED, check, run_in, start, start_under, wait_for_listener};

/// Our port, as `--via` names it, or the NIC that `--device` names.
#[derive(Clone, Copy, Debug)]
enum Port {
    AfXdp,
    Mlx5,
    Nic,
}

impl Port {
    /// What our end says when it is content: by a NIC others count.
    const fn word(self) -> &'static str {
        match self {
            Self::AfXdp | Self::Mlx5 => UNDAMAGED,
            Self::Nic => "packets are counted in /sys/class/infiniband/mlx5_0/",
        }
    }
}

/// A cable whose ends have addresses; `None`, with the reason, where nothing can be tested.
fn wire(test: &str, program: &str, package: &str) -> Option<Wire> {
    if let Some(why) = missing().or_else(|| not_installed(program, package)) {
        println!("SKIPPED {test}: {why}");
        return None;
    }
    let wire = Wire::new(test)?;
    wire.near.ip(&["addr", "add", "10.9.0.1/24", "dev", NEAR]).unwrap();
    Some(wire)
}

/// Starts our end at the near end of the cable.
fn ours(wire: &Wire, port: Port, arguments: &str) -> Child {
    let softhca = program().unwrap().to_str().unwrap();
    let launcher = [softhca, "run", "--strict", "--wire", NEAR, "--"];
    match port {
        Port::AfXdp => start(&wire.near, &format!("{arguments} --via {NEAR}")),
        Port::Mlx5 => start_under(&wire.near, &launcher, &format!("{arguments} --via mlx5:{NEAR}")),
        Port::Nic => start_under(&wire.near, &launcher, &format!("{arguments} --device mlx5_0")),
    }
}

/// Starts a program of rdma-core at the far end, on a ConnectX with these options.
fn theirs(wire: &Wire, options: &[&str], arguments: &str) -> Child {
    let softhca = program().unwrap().to_str().unwrap();
    let launcher = [&[softhca, "run", "--wire", FAR], options, &["--"]].concat();
    run_in(&wire.far, &launcher, arguments)
}

/// Their server, our client.
fn ask(wire: &Wire, port: Port, options: &[&str], program: &str, verb: &str) {
    let server = theirs(wire, options, program);
    wait_for_listener(&wire.far);
    let client = ours(wire, port, &format!("{verb} {THEIRS}"));
    check_both(port, program, verb, &[client, server].map(|end| end.wait_with_output().unwrap()));
}

/// Our server, their client.
fn serve(wire: &Wire, port: Port, options: &[&str], program: &str, verb: &str) {
    let server = ours(wire, port, &format!("{verb} --serve"));
    wait_for_listener(&wire.near);
    let client = theirs(wire, options, &format!("{program} 10.9.0.1"));
    let [client, server] = [client, server].map(|end| end.wait_with_output().unwrap());
    check_both(port, program, verb, &[server, client]);
}

/// Both are content. perftest ends with 1 where it cannot make out the speed of the processor's
/// clock for its report, as on a busy machine.
#[track_caller]
fn check_both(port: Port, program: &str, verb: &str, [ours, theirs]: &[Output; 2]) {
    let said = [&theirs.stdout[..], &theirs.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let is_well = theirs.status.success() || said.contains("Can't produce a report");
    assert!(is_well, "{program} against {verb}: {:?}, said\n{said}\nand ours:\n{ours:?}", theirs.status);
    check(ours, port.word());
}

/// Services and sizes of the pingpongs: the messages of UD are one packet.
const PINGPONGS: [(&str, &str, u32); 4] =
    [("rc", "ibv_rc_pingpong", 4096), ("uc", "ibv_uc_pingpong", 4096), ("ud", "ibv_ud_pingpong", 1000), SRQ];
const SRQ: (&str, &str, u32) = ("srq", "ibv_srq_pingpong -q 1", 4096);

#[test]
fn pingpong_of_each_service_is_played_in_both_roles() {
    let test = "pingpong_of_each_service_is_played_in_both_roles";
    let Some(wire) = wire(test, "ibv_rc_pingpong", "ibverbs-utils") else { return };
    let ports = [Port::AfXdp, Port::Mlx5].into_iter().cycle().zip(PINGPONGS);
    for (port, (service, program, size)) in ports.chain(PINGPONGS.map(|game| (Port::Nic, game))) {
        let program = format!("{program} -d mlx5_0 -g 1 -n 30 -s {size}");
        let verb = format!("pingpong --service {service} --size {size} --count 30");
        ask(&wire, port, &["--strict"], &program, &verb);
        serve(&wire, port, &["--strict"], &program, &verb);
    }
}

/// The verbs of perftest, with bytes of more than one packet where there may be.
const VERBS: [(&str, &str); 4] = [("send", " -s 5000"), ("write", " -s 5000"), ("read", " -s 5000"), ("atomic", "")];

#[test]
fn perftest_is_served_and_asked_over_each_port() {
    let test = "perftest_is_served_and_asked_over_each_port";
    let Some(wire) = wire(test, "ib_write_bw", "perftest") else { return };
    for port in [Port::AfXdp, Port::Mlx5, Port::Nic] {
        for (verb, size) in VERBS {
            let program = format!("ib_{verb}_bw -F -d mlx5_0 -x 1 -n 50{size}");
            ask(&wire, port, &["--strict"], &program, &format!("{verb} --size 5000 --count 50 --depth 4"));
            serve(&wire, port, &["--strict"], &program, &format!("{verb} --size 5000"));
        }
    }
}

/// The tools of perftest over other services than reliable connections, and our verb for each. The
/// messages of UD are one packet.
const SERVICES: [(&str, &str); 6] = [
    ("send_bw -c UC -s 3000", "send --service uc --size 3000 --depth 4"),
    ("send_bw -c UD -s 1000", "send --service ud --size 1000 --depth 4"),
    ("send_bw -r 64 --use-srq -s 3000", "send --service srq --size 3000 --depth 4"),
    ("write_bw -c UC -s 3000", "write --service uc --size 3000 --depth 4"),
    ("send_lat -c UD -s 1000", "send --service ud --size 1000 --latency"),
    ("write_lat -c UC -s 3000", "write --service uc --size 3000 --latency"),
];

/// One of our roles with each: as the client of every second.
#[test]
fn perftest_speaks_each_service_with_us() {
    let test = "perftest_speaks_each_service_with_us";
    let Some(wire) = wire(test, "ib_send_bw", "perftest") else { return };
    for (idx, (tool, verb)) in SERVICES.into_iter().enumerate() {
        play_services(&wire, Port::AfXdp, (tool, verb), [idx % 2 == 0, idx % 2 == 1]);
    }
}

#[test]
#[ignore = "a minute: make soak"]
fn perftest_is_served_and_asked_by_each_service() {
    let test = "perftest_is_served_and_asked_by_each_service";
    let Some(wire) = wire(test, "ib_send_bw", "perftest") else { return };
    for (tool, verb) in SERVICES {
        let ports = if tool.contains("send_bw") { &[Port::AfXdp, Port::Nic][..] } else { &[Port::AfXdp] };
        ports.iter().for_each(|port| play_services(&wire, *port, (tool, verb), [true, true]));
    }
}

/// Asks and serves a tool, each where it is wanted.
fn play_services(wire: &Wire, port: Port, (tool, verb): (&str, &str), [asks, serves]: [bool; 2]) {
    let (program, verb) = (format!("ib_{tool} -F -d mlx5_0 -x 1 -n 50"), format!("{verb} --count 50"));
    if asks {
        ask(wire, port, &["--strict"], &program, &verb);
    }
    if serves {
        serve(wire, port, &["--strict"], &program, &verb);
    }
}

/// 6 % of all frames that the ConnectX takes are lost, and 2 % overtaken.
#[test]
fn reliable_messages_arrive_though_the_connectx_loses_and_disorders_packets() {
    let test = "reliable_messages_arrive_though_the_connectx_loses_and_disorders_packets";
    let Some(wire) = wire(test, "ib_write_bw", "perftest") else { return };
    for (seed, (verb, size)) in VERBS.into_iter().enumerate() {
        let hostile = format!("{seed},loss=60,reorder=20,send=0,receive=0");
        let program = format!("ib_{verb}_bw -F -d mlx5_0 -x 1 -n 50{size}");
        let hostile = ["--hostile", hostile.as_str()];
        ask(&wire, Port::AfXdp, &hostile, &program, &format!("{verb} --size 5000 --count 50 --depth 4"));
        serve(&wire, Port::AfXdp, &hostile, &program, &format!("{verb} --size 5000"));
    }
}

/// Our end by a NIC, and the other by one too, or in software on AF_XDP: in both roles, with tests
/// of latency, and bytes that are compared.
#[test]
fn our_ends_speak_by_a_nic_and_with_software() {
    let test = "our_ends_speak_by_a_nic_and_with_software";
    let Some(wire) = wire(test, "ib_write_bw", "perftest") else { return };
    let softhca = program().unwrap().to_str().unwrap();
    let launcher = [softhca, "run", "--strict", "--wire", FAR, "--"];
    for (verb, far) in
        [("write", Port::Nic), ("send --latency", Port::Nic), ("read", Port::AfXdp), ("send", Port::AfXdp)]
    {
        let verb = format!("{verb} --size 3000 --count 50");
        let far_end = |arguments: &str| match far {
            Port::AfXdp => start(&wire.far, &format!("{arguments} --via {FAR}")),
            _ => start_under(&wire.far, &launcher, &format!("{arguments} --device mlx5_0")),
        };
        for asks in [true, false] {
            let (server, client) = if asks {
                let server = far_end(&format!("{verb} --serve"));
                wait_for_listener(&wire.far);
                (server, ours(&wire, Port::Nic, &format!("{verb} {THEIRS}")))
            } else {
                let server = ours(&wire, Port::Nic, &format!("{verb} --serve"));
                wait_for_listener(&wire.near);
                (server, far_end(&format!("{verb} 10.9.0.1")))
            };
            let [server, client] = [server, client].map(|end| end.wait_with_output().unwrap());
            let (near, other) = if asks { (&client, &server) } else { (&server, &client) };
            check(near, Port::Nic.word());
            check(near, "RoCEv2 by the NIC mlx5_0, because --device names mlx5_0");
            check(other, far.word());
        }
    }
}
