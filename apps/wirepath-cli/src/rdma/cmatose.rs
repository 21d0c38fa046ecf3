//! The game of ucmatose: the server sends all its messages, then the client its own.

use std::error::Error;
use std::io::{self, Write};
use std::time::Instant;

use ::rdma::roce::SendOperation;
use wirepath::worker::StopFlag;

use super::cm::Connected;
use super::end::{End, RECEIVES};
use super::over::Choice;
use super::{EndOptions, Service};

/// The port that ucmatose listens at.
const PORT: u16 = 7471;

/// Plays one game.
pub(super) fn run(options: &EndOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let EndOptions { size, count, .. } = *options;
    if count > RECEIVES {
        return Err(
            format!("ucmatose has all messages under way at once, and here {RECEIVES} can: choose --count").into()
        );
    }
    let mut end = End::open(options, Service::Rc, (size, count), Choice::port(), stop)?;
    let post = |end: &mut End| (0..count).try_for_each(|_| end.post_recv(0, size));
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
    let (span, counters) = connected.play(&mut end, |end, connected| {
        if options.peer.is_some() {
            receive_all(end, connected, count)?;
            send_all(end, connected, options)?;
            connected.wait_for_end(end)?;
        } else {
            send_all(end, connected, options)?;
            receive_all(end, connected, count)?;
        }
        Ok((begun.elapsed(), end.counters()))
    })?;
    writeln!(
        io::stdout().lock(),
        "{count} messages of {size} bytes each way, with {peer} by RDMA_CM, in {:.3} s; MTU {}, {} sent again, {} \
         timeouts",
        span.as_secs_f64(),
        end.mtu(),
        counters.retransmits,
        counters.timeouts,
    )?;
    Ok(())
}

fn send_all(end: &mut End, connected: &mut Connected, options: &EndOptions) -> Result<(), Box<dyn Error>> {
    for _ in 0..options.count {
        end.post(SendOperation::Send, options.size)?;
    }
    (1..options.count).try_for_each(|_| connected.sent(end))?;
    connected.last_sent(end)
}

fn receive_all(end: &mut End, connected: &mut Connected, count: u32) -> Result<(), Box<dyn Error>> {
    for received in 0..count {
        if !connected.receive(end)? {
            return Err(format!("the peer has ended the connection after {received} of {count} messages").into());
        }
    }
    Ok(())
}
