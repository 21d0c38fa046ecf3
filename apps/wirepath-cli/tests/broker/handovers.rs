//! Connections that nobody has accepted where their process ends: the next one of the port has
//! them.

use super::*;

/// Listens at a port that others share. Accepts each connection and echoes a byte, or stops
/// listening and ends when it is told to.
const SHARER: &str = "\
import os, socket, sys
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listener.bind(('0.0.0.0', 7091)); listener.listen(256)
print('listens', flush=True)
while sys.argv[1] == 'accepts':
    stream, _ = listener.accept()
    stream.sendall(stream.recv(1))
os.read(0, 1)
listener.close()
";

/// The first one's connections are handed over to the second, which the kernel has stopped, and
/// wait in its ring. When it goes on, it stops listening at once and ends.
#[test]
fn connections_that_wait_in_the_ring_of_a_process_that_ends_are_the_next_ones() {
    let test = "connections_that_wait_in_the_ring_of_a_process_that_ends_are_the_next_ones";
    if !has_program(test, "python3") {
        return;
    }
    let Some(rig) = Rig::with(test, &["--forward"]) else { return };
    let mut first = sharer_of_port(&rig, "waits");
    let mut callers: Vec<TcpStream> = (0..CALLERS).map(|_| caller(&rig)).collect();
    let mut second = sharer_of_port(&rig, "waits");
    signal(&second, "-STOP");
    tell_to_end(&mut first);
    wait_until("the first ends", || first.0.try_wait().unwrap().is_some());
    let _third = sharer_of_port(&rig, "accepts");
    tell_to_end(&mut second);
    signal(&second, "-CONT");
    wait_until("the second ends", || second.0.try_wait().unwrap().is_some());
    for (nth, caller) in callers.iter_mut().enumerate() {
        caller.read_exact(&mut [0]).unwrap_or_else(|error| panic!("caller {nth}: {error}"));
    }
}

/// Their frames, three of each, are more than a turn takes from the ring.
const CALLERS: usize = 60;

fn caller(rig: &Rig) -> TcpStream {
    let mut stream = rig.wire.far.run(|| TcpStream::connect((OURS, 7_091))).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"?").unwrap();
    stream
}

fn sharer_of_port(rig: &Rig, does: &str) -> Ended {
    let mut child = rig.start(SERVED, &["python3", "-c", SHARER, does]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    Ended(child)
}

fn tell_to_end(sharer: &mut Ended) {
    sharer.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

fn signal(sharer: &Ended, name: &str) {
    let sent = Command::new("kill").args([name, &sharer.0.id().to_string()]).status().unwrap();
    assert!(sent.success(), "{name}");
}
