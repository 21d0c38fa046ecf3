//! An echo that works as `examples/tcp_echo.rs` does: it keeps the bytes that it cannot send back
//! yet, stops reading meanwhile, and resumes only on `Writable`.

use super::*;

/// The peer writes until nothing more is accepted, and reads only then.
fn echoes_to_who_reads_later(faults: Faults, buffers: [u32; 2]) {
    let [send_buffer, receive_buffer] = buffers;
    let options = ConnectionOptions { send_buffer, receive_buffer, ..ConnectionOptions::default() };
    let mut line =
        Line::connected(Wanted { faults, seed: 7, echoes: true, holds_back: true, options, ..Wanted::default() });
    // More than there is room for; little where a byte at a time is on its way.
    let (id, bytes) = (line.id(), pattern(8 * (send_buffer + receive_buffer) as usize));
    line.ask(|_, cx| cx.tcp().pause(id).unwrap());
    let mut sent = 0;
    for _ in 0..20_000 {
        sent += line.ask(|_, cx| cx.tcp().send(id, &bytes[sent..]).unwrap_or(0));
        line.turn();
    }
    assert!(sent < bytes.len(), "it is not as if there was room for all");
    assert!(line.client.app().received.is_empty());
    line.ask(|_, cx| cx.tcp().resume(id).unwrap());
    send_all_from(&mut line, &bytes, sent);
    line.turn_until(|line| line.client.app().received.len() == bytes.len());
    assert!(line.client.app().received == bytes && line.server.app().received == bytes);
    assert!(line.server.app().events.contains(&TcpEvent::Writable));
    line.close();
}

#[test]
fn echo_that_holds_back_goes_on_when_its_peer_reads() {
    for buffers in [[20_000, 20_000], [2_000, 30_000], [30_000, 2_000], [1, 5_000]] {
        echoes_to_who_reads_later(Faults::NONE, buffers);
    }
}

#[test]
fn echo_that_holds_back_goes_on_over_a_bad_wire() {
    let faults =
        Faults { loss: 0.03, duplication: 0.02, reordering: 0.05, ring_full: 0.002, ring_full_max: 8, ..Faults::NONE };
    echoes_to_who_reads_later(faults, [20_000, 20_000]);
}
