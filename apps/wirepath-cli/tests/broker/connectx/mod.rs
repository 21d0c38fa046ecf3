//! Queues of a ConnectX that a broker lends: the NIC is one of software, in the broker's process,
//! and its clients are ordinary programs that reach it by the memory that they were lent.

mod faults;
mod sharing;

use super::*;

/// Echoes datagrams or the bytes of one connection after the other, at a port. Once it has the
/// port, a line says which capabilities are in force.
const SERVER: &str = "\
import socket, sys
kind, port = sys.argv[1], int(sys.argv[2])
def ready(): print([line for line in open('/proc/self/status') if line.startswith('CapEff')][0].split()[1], flush=True)
if kind == 'udp':
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(('', port))
    ready()
    while True:
        data, peer = own.recvfrom(2048)
        own.sendto(data, peer)
own = socket.create_server(('', port))
ready()
while True:
    stream, _ = own.accept()
    while data := stream.recv(65536): stream.sendall(data)
";

/// In the broker's log.
const FREE: &str = "has ended, and its queue is free";

/// A wire whose near end is a ConnectX of a broker.
pub(super) fn connectx(test: &str) -> Option<Rig> {
    connectx_for(test, &[])
}

/// The same with options of the broker.
fn connectx_for(test: &str, options: &[&str]) -> Option<Rig> {
    connectx_of(test, &[], options)
}

/// The same on a ConnectX with options of its own (`softhca run`).
fn connectx_of(test: &str, of_nic: &[&str], options: &[&str]) -> Option<Rig> {
    if let Some(why) = softhca::testing::missing() {
        println!("SKIPPED {test}: {why}");
        return None;
    }
    if !has_program(test, "python3") {
        return None;
    }
    let rig = Rig::on(test, &format!("mlx5:{NEAR}"), of_nic, options)?;
    // The kernel at the far end leaves checksums and segments to a NIC that is not there.
    let mut offloads = Command::new("ethtool");
    offloads.args(["-K", FAR, "tso", "off", "gso", "off"]);
    let _ = rig.wire.far.run(|| offloads.output());
    Some(rig)
}

/// A server without capabilities.
fn server(rig: &Rig, kind: &str, port: u16) -> Ended {
    let command = rig.command(SERVED, &["python3", "-c", SERVER, kind, &port.to_string()]);
    let (child, _) = started(rig, command, "0000000000000000\n");
    // `wirepath run` has tried the port, before it became the program.
    rig.until_logged(FREE);
    Ended(child)
}

/// A program, once it has said that it is there, and what it says then.
fn started(rig: &Rig, mut command: Command, says: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = rig.wire.near.run(|| command.spawn()).unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let first = next_line(&mut said);
    assert!(first == says, "{first:?}: {}", String::from_utf8_lossy(&end(child).stderr));
    (child, said)
}

/// The report of `wirepath stats` or `wirepath sockets` about the programs of this test.
fn report(rig: &Rig, of: &str) -> serde_json::Value {
    let mut command = Command::new(rig.folder.path().join("wirepath"));
    command.args([of, "--json"]).env("WIREPATH_SHM", rig.folder.path().join("shm"));
    serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
}

/// Has the TCP server at this port echo, once it listens.
fn call(rig: &Rig, port: u16, len: usize) -> TcpStream {
    let mut called = None;
    wait_until("the server listens", || {
        called = rig.wire.far.run(|| TcpStream::connect((OURS, port))).ok();
        called.is_some()
    });
    let mut stream = called.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    again(&mut stream, len);
    stream
}

fn again(stream: &mut TcpStream, len: usize) {
    let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    let mut answer = vec![0; len];
    stream.write_all(&sent).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert!(answer == sent, "an echo of {len} bytes");
}

/// Has the UDP server at this port echo, once it is there.
fn datagram(rig: &Rig, port: u16) {
    let socket = rig.wire.socket((THEIRS, 0));
    socket.set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
    socket.connect((OURS, port)).unwrap();
    let mut answer = [0; 32];
    wait_until("a datagram is echoed", || {
        // Until the server is there the kernel refuses the port.
        socket.send(b"a tick").is_ok() && socket.recv(&mut answer).is_ok_and(|len| &answer[..len] == b"a tick")
    });
}

#[test]
fn programs_without_capabilities_have_a_queue_each_of_one_connectx() {
    let test = "programs_without_capabilities_have_a_queue_each_of_one_connectx";
    let Some(rig) = connectx(test) else { return };
    let (_tcp, _udp) = (server(&rig, "tcp", 7_005), server(&rig, "udp", 7_006));
    let mut stream = call(&rig, 7_005, 9);
    datagram(&rig, 7_006);
    // More than the rings hold, both ways.
    (0..16).for_each(|_| again(&mut stream, 200_000));
    datagram(&rig, 7_006);
    assert_eq!(received_by_kernel(&rig.wire, "Udp:", "InDatagrams"), 0, "datagrams that the kernel got");
}

#[test]
fn killed_program_leaves_its_queue_of_a_connectx_and_the_others_as_they_were() {
    let test = "killed_program_leaves_its_queue_of_a_connectx_and_the_others_as_they_were";
    let Some(rig) = connectx(test) else { return };
    let (mut first, _other) = (server(&rig, "tcp", 7_005), server(&rig, "tcp", 7_007));
    let (_stream, mut others) = (call(&rig, 7_005, 9), call(&rig, 7_007, 9));
    // SIGKILL.
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    rig.until_logged(FREE);
    again(&mut others, 20_000);
    // The port is the next one's.
    let _next = server(&rig, "tcp", 7_005);
    call(&rig, 7_005, 20_000);
    again(&mut others, 9);
}

/// Says once that it is there, and echoes a datagram: an answer that waits for the neighbor is not
/// stamped. Then it says of the next one whether the NIC has stamped it, and of its answer too: at
/// the time of day, as far as a minute.
const STAMPED: &str = "\
import select, socket, struct, sys, time
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(('', int(sys.argv[1])))
print('ready', flush=True)
own.sendto(*own.recvfrom(2048))
own.setsockopt(socket.SOL_SOCKET, 37, 1 << 0 | 1 << 2 | 1 << 6)  # SO_TIMESTAMPING: both ways, raw hardware
def stamped(ancillary):
    hardware = [struct.unpack('6q', data)[4] for level, kind, data in ancillary if (level, kind) == (1, 37)]
    return len(hardware) == 1 and abs(hardware[0] - time.time()) < 60
data, received, _, peer = own.recvmsg(2048, 512)
own.sendto(data, peer)
waits = select.poll()
waits.register(own, 0)
waits.poll(10000)
sent = own.recvmsg(2048, 512, socket.MSG_ERRQUEUE)[1]
print(stamped(received), stamped(sent), flush=True)
";

#[test]
fn lent_queue_of_a_connectx_stamps_frames_by_the_nics_clock() {
    let test = "lent_queue_of_a_connectx_stamps_frames_by_the_nics_clock";
    let Some(rig) = connectx(test) else { return };
    let mut command = rig.command(SERVED, &["python3", "-c", STAMPED, "7005"]);
    command.env("WIREPATH_TIMESTAMPS", "1");
    let (child, mut said) = started(&rig, command, "ready\n");
    datagram(&rig, 7_005);
    rig.wire.socket((THEIRS, 0)).send_to(b"another", (OURS, 7_005)).unwrap();
    assert_eq!(next_line(&mut said), "True True\n", "{}", String::from_utf8_lossy(&end(child).stderr));
}
