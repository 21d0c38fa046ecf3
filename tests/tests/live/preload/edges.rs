//! Sockets at the edges of what they can hold: ports of another process, the longest datagrams,
//! ends with unsent data, more callers than there is room for.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::thread;
use std::time::Duration;

use wirepath_tests::live::preload::{
    call, compile, counter_of, echo, is_listening, run, segments_received, start, text, wire,
};
use wirepath_tests::live::{FAR, OURS, Program, THEIRS, Wire, wait_until};

/// The program, and a wire for it.
fn program(test: &str) -> Option<(tempfile::TempDir, String, Wire)> {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(test, "edges.c", folder.path())?;
    let wire = wire(test, &[])?;
    Some((folder, program, wire))
}

/// Runs a part on the kernel's sockets.
fn on_the_kernel(wire: &Wire, program: &str, arguments: &[&str]) -> Output {
    wire.near.command("timeout", &[&["60", program], arguments].concat()).unwrap()
}

#[test]
fn port_of_another_process_is_in_use_whether_it_is_ours_or_the_kernels() {
    let test = "port_of_another_process_is_in_use_whether_it_is_ours_or_the_kernels";
    let Some((_folder, program, wire)) = program(test) else { return };
    let own = OURS.to_string();
    let (hold, attempt) = (["hold", &own], ["try", &own]);
    let last = 7_223;
    let holder = Program::start(&wire.near, &program, &hold);
    wait_until("the kernel's process holds its ports", || is_listening(&wire.near, last));
    let both_the_kernels = text(&on_the_kernel(&wire, &program, &attempt));
    let ours_tries = text(&run(&wire, &program, &attempt));
    drop(holder);
    let holder = start(&wire, &program, &hold);
    wait_until("our process holds its ports", || is_listening(&wire.near, last));
    let ours_holds = text(&on_the_kernel(&wire, &program, &attempt));
    drop(holder);
    assert!(both_the_kernels.contains("EADDRINUSE") && both_the_kernels.contains("bind: 0"), "{both_the_kernels}");
    assert_eq!(both_the_kernels, ours_tries, "the kernel holds: the kernel's (left) and ours (right) try");
    assert_eq!(both_the_kernels, ours_holds, "the kernel tries: the kernel's (left) and ours (right) hold");
}

#[test]
fn longest_datagrams_go_both_ways_in_fragments_by_an_address_of_our_own() {
    let test = "longest_datagrams_go_both_ways_in_fragments_by_an_address_of_our_own";
    let Some((_folder, program, kernels)) = program(test) else { return };
    let Some(wire) = Wire::new(test) else { return };
    let arguments = ["datagrams", &THEIRS.to_string()];
    echo(&kernels);
    let kernel = text(&on_the_kernel(&kernels, &program, &arguments));
    echo(&wire);
    let address = format!("WIREPATH_ADDRESS={OURS}/24");
    let ours = text(&run(&wire, "env", &[&[&address[..], &program], &arguments[..]].concat()));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert!(ours.contains("recv: 65507\nsame 1\n"), "{ours}");
}

#[test]
fn longest_datagrams_of_a_shared_interface_leave_in_fragments_past_the_kernel() {
    let test = "longest_datagrams_of_a_shared_interface_leave_in_fragments_past_the_kernel";
    let Some((_folder, program, wire)) = program(test) else { return };
    let receiver = wire.socket((THEIRS, 7_000));
    let counts = || ["FragCreates", "OutRequests"].map(|counter| counter_of(&wire.near, "Ip:", counter));
    let before = counts();
    // It reads meanwhile, because its buffer has hardly room for two of the longest.
    let reader = thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        [(); 4].map(|()| receiver.recv_from(&mut bytes).map(|(got, _)| bytes[..got].to_vec()).unwrap())
    });
    let said = text(&run(&wire, &program, &["sends", &THEIRS.to_string()]));
    assert_eq!(counts(), before, "packets and fragments of the kernel: {said}");
    for (got, len) in reader.join().unwrap().iter().zip([0, 1_473, 30_000, 65_507]) {
        let is_whole = got.iter().enumerate().all(|(idx, byte)| *byte == (idx ^ idx >> 8) as u8);
        assert!(got.len() == len && is_whole, "{} bytes of {len}, or others: {said}", got.len());
    }
}

/// The three streams that the peer of `lingers` has seen: whether all bytes came, and how each
/// ended.
type Ends = [(Option<bool>, Result<(), ErrorKind>); 3];

/// Reads all, and then an end.
fn read_all(socket: &mut TcpStream) -> (u32, Result<(), ErrorKind>) {
    let mut bytes = Vec::new();
    let end = socket.read_to_end(&mut bytes).map(drop).map_err(|error| error.kind());
    (u32::try_from(bytes.len()).unwrap(), end)
}

/// Plays the peer of `lingers`, which reads of the second stream at once, and of the others once
/// they have ended.
fn lingering_peer(listener: &TcpListener) -> Ends {
    let accept = || {
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket
    };
    let mut control = accept();
    let count = |control: &mut TcpStream| {
        let mut count = [0; 4];
        control.read_exact(&mut count).unwrap();
        u32::from_ne_bytes(count)
    };
    let unread = accept();
    count(&mut control);
    drop(unread);
    let (got, end) = read_all(&mut accept());
    let second = (Some(got == count(&mut control)), end);
    let mut reset = accept();
    count(&mut control);
    let third = (None, read_all(&mut reset).1);
    let mut left = accept();
    let sent = count(&mut control);
    let (got, end) = read_all(&mut left);
    let fourth = (Some(got == sent), end);
    control.write_all(b"x").unwrap();
    [second, third, fourth]
}

/// What a program says and what `peer` sees of it, on the kernel and then under the library, and
/// the segments that the kernel received in the second run.
fn play_twice<T: Send>(
    wire: &Wire,
    program: &str,
    arguments: &[&str],
    peer: impl Fn() -> T + Sync,
) -> ((String, T), (String, T), u64) {
    let play = |act: &(dyn Fn() -> Output + Sync)| {
        thread::scope(|scope| {
            let seen = scope.spawn(&peer);
            let said = text(&act());
            (said, seen.join().unwrap())
        })
    };
    let kernel = play(&|| on_the_kernel(wire, program, arguments));
    let before = segments_received(&wire.near);
    let ours = play(&|| run(wire, program, arguments));
    (kernel, ours, segments_received(&wire.near) - before)
}

#[test]
fn close_of_a_stream_with_unsent_data_waits_resets_or_goes_on_as_on_the_kernel() {
    let test = "close_of_a_stream_with_unsent_data_waits_resets_or_goes_on_as_on_the_kernel";
    let Some((_folder, program, wire)) = program(test) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let arguments = ["lingers", &THEIRS.to_string()];
    let (kernel, ours, by_the_kernel) = play_twice(&wire, &program, &arguments, || lingering_peer(&listener));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert_eq!(ours.1, [(Some(true), Ok(())), (None, Err(ErrorKind::ConnectionReset)), (Some(true), Ok(()))]);
    assert!(by_the_kernel < 30, "{by_the_kernel} segments went by the kernel");
}

#[test]
fn reset_is_seen_in_each_state_of_a_stream_as_on_the_kernel() {
    let test = "reset_is_seen_in_each_state_of_a_stream_as_on_the_kernel";
    let Some((_folder, program, wire)) = program(test) else { return };
    let peer = THEIRS.to_string();
    let _resets = Program::start(&wire.far, &program, &["peer that resets", &peer]);
    wait_until("the peer listens", || is_listening(&wire.far, 7_004));
    let (kernel, ours, by_the_kernel) = play_twice(&wire, &program, &["resets", &peer], || ());
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert_eq!(ours.0.matches("ECONNRESET").count(), 24, "once each in all states but CLOSE-WAIT");
    assert!(by_the_kernel < 30, "{by_the_kernel} segments went by the kernel");
}

/// Plays the callers of `backlog`: two for whom there is room, two for whom there is none, and one
/// who waits until there is.
fn callers(wire: &Wire, listener: &TcpListener) -> [Result<(), ErrorKind>; 2] {
    let (mut control, _) = listener.accept().unwrap();
    let mut sockets: Vec<TcpStream> = (0..2).map(|_| call(&wire.far, 7_100).unwrap()).collect();
    let address = (OURS, 7_100).into();
    let refused = [(); 2].map(|()| {
        let called = wire.far.run(|| TcpStream::connect_timeout(&address, Duration::from_millis(300)));
        called.map(drop).map_err(|error| error.kind())
    });
    sockets.iter_mut().zip([b"1", b"2"]).for_each(|(socket, byte)| socket.write_all(byte).unwrap());
    control.write_all(b"g").unwrap();
    sockets.push(call(&wire.far, 7_100).unwrap());
    sockets[2].write_all(b"3").unwrap();
    let _ = control.read(&mut [0]);
    refused
}

#[test]
fn callers_beyond_the_backlog_wait_until_there_is_room() {
    let test = "callers_beyond_the_backlog_wait_until_there_is_room";
    let Some((_folder, program, wire)) = program(test) else { return };
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let arguments = ["backlog", &THEIRS.to_string()];
    let (kernel, ours, by_the_kernel) = play_twice(&wire, &program, &arguments, || callers(&wire, &listener));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    assert_eq!(ours.1, [Err(ErrorKind::TimedOut); 2], "{}", ours.0);
    assert!(by_the_kernel < 30, "{by_the_kernel} segments went by the kernel");
}

/// Sends datagrams of the length that a request to port 7010 says to a group, from the far end.
fn send_to_group_on_request(wire: &Wire) {
    let socket = wire.far.run(|| {
        let socket = UdpSocket::bind((THEIRS, 7_010)).unwrap();
        socket.set_multicast_ttl_v4(1).unwrap();
        socket
    });
    let bytes: Vec<u8> = (0..65_507_u32).map(|idx| (idx ^ idx >> 8) as u8).collect();
    thread::spawn(move || {
        let mut asked = [0; 4];
        while socket.recv(&mut asked).is_ok() {
            let len = u32::from_ne_bytes(asked) as usize;
            socket.send_to(&bytes[..len], (Ipv4Addr::new(239, 1, 1, 7), 7_011)).unwrap();
        }
    });
}

#[test]
fn datagrams_in_fragments_arrive_whole_beside_the_kernel_also_those_to_a_group() {
    let test = "datagrams_in_fragments_arrive_whole_beside_the_kernel_also_those_to_a_group";
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile(test, "fragments.c", folder.path()) else { return };
    let Some(wire) = wire(test, &[]) else { return };
    wire.far.ip(&["route", "add", "239.0.0.0/8", "dev", FAR]).unwrap();
    echo(&wire);
    send_to_group_on_request(&wire);
    let arguments = [&THEIRS.to_string()[..]];
    let kernel = text(&on_the_kernel(&wire, &program, &arguments));
    let before = counter_of(&wire.near, "Udp:", "InDatagrams");
    let ours = text(&run(&wire, &program, &arguments));
    assert_eq!(kernel, ours, "the kernel's (left) and ours (right)");
    // These came in fragments, and all others past the kernel.
    assert_eq!(counter_of(&wire.near, "Udp:", "InDatagrams") - before, 3 + 2 + 1 + 2);
}
