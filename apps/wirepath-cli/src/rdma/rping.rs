//! The game of rping: the client names its memory by a message, the server reads it; the client
//! names other memory, the server writes there what it has read; the client compares.

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use ::rdma::roce::{Remote, SendOperation};
use wirepath::worker::StopFlag;

use super::cm::Connected;
use super::end::End;
use super::over::Choice;
use super::{EndOptions, Service};

/// The port that rping listens at.
const PORT: u16 = 7174;
/// Address, key and length, in network order (`rping_rdma_info`).
const INFO_LEN: usize = 16;
/// Our memory: what is sent, what is received, and then two parts of a message's length.
const SENT_AT: usize = 0;
const RECEIVED_AT: usize = INFO_LEN;
const DATA_AT: usize = 2 * INFO_LEN;
/// rping puts a number in front of its pattern, and refuses less.
const SIZE_MIN: u32 = 16;

/// Plays one game.
pub(super) fn run(options: &EndOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    if options.size < SIZE_MIN {
        return Err(format!("rping's messages have {SIZE_MIN} bytes at least: choose --size").into());
    }
    let len = DATA_AT as u32 + 2 * options.size;
    let mut end = End::open(options, Service::Rc, (len, 4), Choice::port(), stop)?;
    let post = |end: &mut End| end.post_recv_at(RECEIVED_AT, INFO_LEN as u32);
    let port = options.port.unwrap_or(PORT);
    let begun = Instant::now();
    let connected = match options.peer {
        Some(peer) => Connected::connect(&mut end, (peer, port), "--serve", post)?,
        None => {
            post(&mut end)?;
            Connected::accept(&mut end, port)?
        }
    };
    let peer = connected.peer;
    let (count, span, counters) = connected.play(&mut end, |end, connected| {
        let mut count = 0;
        while (options.peer.is_none() || count < options.count) && turn(end, connected, options, count)? {
            count += 1;
        }
        Ok((count, begun.elapsed(), end.counters()))
    })?;
    writeln!(
        io::stdout().lock(),
        "{count} messages of {} bytes read and written back, with {peer} by RDMA_CM, in {:.3} s; MTU {}, {} sent \
         again, {} timeouts",
        options.size,
        span.as_secs_f64(),
        end.mtu(),
        counters.retransmits,
        counters.timeouts,
    )?;
    Ok(())
}

/// One round; false where the client has ended the connection.
fn turn(end: &mut End, connected: &mut Connected, options: &EndOptions, number: u32) -> Result<bool, Box<dyn Error>> {
    match options.peer {
        Some(_) => ask(end, connected, options.size, number).map(|()| true),
        None => answer(end, connected, options.size),
    }
}

/// One round of the client.
fn ask(end: &mut End, connected: &mut Connected, size: u32, number: u32) -> Result<(), Box<dyn Error>> {
    let (from, to) = (DATA_AT, DATA_AT + size as usize);
    let message = message(number, size as usize);
    end.memory().write(from, &message);
    for at in [from, to] {
        let remote = end.remote_at(at);
        send(end, connected, remote, size)?;
        if !connected.receive(end)? {
            return Err(format!("the peer has ended the connection in round {number}").into());
        }
        end.post_recv_at(RECEIVED_AT, INFO_LEN as u32)?;
    }
    let mut written = vec![0; size as usize];
    end.memory().read(to, &mut written);
    if let Some(at) = (0..message.len()).find(|at| written[*at] != message[*at]) {
        let (ours, theirs) = (message[at], written[at]);
        let what = format!("the peer has written other bytes than those that it read: byte {at} is");
        return Err(format!("round {number}: {what} {theirs:#04x} and was {ours:#04x}").into());
    }
    Ok(())
}

/// One round of the server; false where the client has ended the connection.
fn answer(end: &mut End, connected: &mut Connected, size: u32) -> Result<bool, Box<dyn Error>> {
    for is_read in [true, false] {
        if !connected.receive(end)? {
            return if is_read { Ok(false) } else { Err("the peer has ended the connection within a round".into()) };
        }
        let mut info = [0; INFO_LEN];
        end.memory().read(RECEIVED_AT, &mut info);
        let (remote, len) = parse(&info);
        if len > size {
            return Err(format!("the peer's messages have {len} bytes: give --size {len}").into());
        }
        end.post_recv_at(RECEIVED_AT, INFO_LEN as u32)?;
        let operation = if is_read { SendOperation::Read(remote) } else { SendOperation::Write(remote) };
        end.post_at(operation, DATA_AT, len)?;
        connected.sent(end)?;
        name(end, remote, len)?;
        match is_read {
            true => connected.sent(end)?,
            // Behind its last round the client ends the connection.
            false => connected.last_sent(end)?,
        }
    }
    Ok(true)
}

/// Sends a name of memory, and waits until it has arrived.
fn send(end: &mut End, connected: &mut Connected, remote: Remote, len: u32) -> Result<(), Box<dyn Error>> {
    name(end, remote, len)?;
    connected.sent(end)
}

/// Posts a name of memory. The client does not look at the server's.
fn name(end: &mut End, remote: Remote, len: u32) -> Result<(), Box<dyn Error>> {
    let mut info = [0; INFO_LEN];
    info[..8].copy_from_slice(&remote.address.to_be_bytes());
    info[8..12].copy_from_slice(&remote.rkey.to_be_bytes());
    info[12..].copy_from_slice(&len.to_be_bytes());
    end.memory().write(SENT_AT, &info);
    end.post_at(SendOperation::Send, SENT_AT, INFO_LEN as u32)
}

fn parse(info: &[u8; INFO_LEN]) -> (Remote, u32) {
    let word = |at: usize| u32::from_be_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
    let address = u64::from(word(0)) << 32 | u64::from(word(4));
    (Remote { address, rkey: word(8) }, word(12))
}

/// The text that rping sends, as it prints it with -v: a number, letters and signs, a zero.
fn message(number: u32, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    let signs = (b'A'..=b'z').cycle().skip(number as usize % 58);
    text.extend(signs.take(size.saturating_sub(text.len())));
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_as_long_as_it_is_to_be_and_ends_with_its_only_zero() {
        for (number, size) in [(0, 16), (7, 64), (4_000_000_000, 16), (57, 1000)] {
            let message = message(number, size);
            assert_eq!((message.len(), message.iter().position(|byte| *byte == 0)), (size, Some(size - 1)));
        }
    }
}
