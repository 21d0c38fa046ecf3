//! The kernel keeps the port beside a program: what the program's flow rule names is the program's alone, everything else the kernel
//! gets and answers.

use std::fs;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use crate::stage::{MACS, Running, ip, is_inside, veth};

const PATIENCE: Duration = Duration::from_secs(60);

/// A network namespace with veth1 in it, for as long as its process lives.
struct Far(Child);

impl Far {
    fn new() -> Self {
        let far = Self(Command::new("unshare").args(["--net", "sleep", "600"]).spawn().unwrap());
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let begin = Instant::now();
        while fs::read_link(format!("/proc/{}/ns/net", far.0.id())).is_ok_and(|theirs| theirs == own) {
            assert!(begin.elapsed() < PATIENCE, "unshare made no namespace");
        }
        ip(&format!("link set veth1 netns {}", far.0.id()));
        for command in ["ip link set lo up", "ip link set veth1 up", "ip address add 10.9.0.1/24 dev veth1"] {
            assert!(far.run(command).status.success(), "{command}");
        }
        far
    }

    fn run(&self, command: &str) -> Output {
        let pid = self.0.id().to_string();
        Command::new("nsenter").args(["--target", &pid, "--net", "--"]).args(command.split(' ')).output().unwrap()
    }

    fn send_udp(&self, from: u16, to: u16) {
        let datagram = format!("socat -u /etc/hostname UDP4-DATAGRAM:10.9.0.2:{to},bind=10.9.0.1:{from}");
        let output = self.run(&datagram);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// ICMP errors that our kernel has sent because nobody had the port.
fn unreachable() -> u64 {
    let table = fs::read_to_string("/proc/net/snmp").unwrap();
    let mut lines = table.lines().filter(|line| line.starts_with("Icmp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split(' ').zip(values.split(' '));
    both.find(|(name, _)| *name == "OutDestUnreachs").unwrap().1.parse().unwrap()
}

fn becomes(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn kernel_answers_what_no_rule_names_and_nothing_else() {
    let test = "beside::kernel_answers_what_no_rule_names_and_nothing_else";
    for (program, package) in [("ping", "iputils-ping"), ("socat", "socat")] {
        if Command::new(program).arg("-V").output().is_err() {
            return println!("SKIPPED {test}: {program} is not installed; apt install {package}");
        }
    }
    if !is_inside(test, "raw_ethernet_bw", "perftest") {
        return;
    }
    veth();
    ip("address add 10.9.0.2/24 dev veth0");
    let far = Far::new();
    far.send_udp(5000, 6000);
    becomes("the kernel answers while nobody else has the port", || unreachable() == 1);

    let [server, client] = MACS;
    let tool = "raw_ethernet_bw -d mlx5_0 --server -n 8 -J 10.9.0.2 -j 10.9.0.1 -K 6000 -k 5000";
    let mut program = Running::start("--stats --wire veth0", &format!("{tool} -B {server} -E {client}"));
    assert!(program.says("#bytes", PATIENCE), "{}", program.said());
    let ping = far.run("ping -c 20 -i 0.05 -W 5 -q 10.9.0.2");
    assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stdout));
    far.send_udp(5000, 6001);
    becomes("the kernel answers on another port", || unreachable() == 2);
    // Eight datagrams end the program.
    for _ in 0..8 {
        far.send_udp(5000, 6000);
    }
    let ended = program.end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.said);
    assert!(ended.said.contains("rx_frames 8\n"), "{}", ended.said);
    assert_eq!(unreachable(), 2, "the kernel saw what was the program's");

    far.send_udp(5000, 6000);
    becomes("the kernel has the port again", || unreachable() == 3);
}
