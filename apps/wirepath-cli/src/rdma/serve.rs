//! The other end of a test: its memory is written and read, and messages find receives, while a
//! thread answers in the exchange.

use std::error::Error;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use ::rdma::exchange::DONE;
use ::rdma::exchange::perftest::{self, PerftestAddress};
use ::rdma::roce::{CompletionKind, Mtu};
use wirepath::worker::StopFlag;

use super::end::{End, RECEIVES};
use super::exchange::Connection;
use super::transfer::{address, mtu_of_text, mtu_text, peer_qp};
use super::{EndOptions, Service};

/// Serves one peer, whatever of SEND, WRITE, READ and atomics it does.
pub(super) fn run(options: &EndOptions, stop: &StopFlag) -> Result<(), Box<dyn Error>> {
    let mut end = End::open(options, Service::Rc, options.size, 1, stop)?;
    for _ in 0..RECEIVES {
        end.post_recv(options.size)?;
    }
    let mut connection = Connection::accept(options.exchange_port(), stop)?;
    let (theirs, mtu) = greet(&mut connection, end.mtu())?;
    let peer = peer_qp(&theirs, mtu)?;
    let path = end.path(peer.address)?;
    end.connect(&peer, path)?;
    let ours = address(&end, &path).encode();
    connection.write(&ours)?;
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || answer(connection, &ours, &sender));
    let received = serve(&mut end, options, &ended)?;
    let counters = end.counters();
    writeln!(
        io::stdout().lock(),
        "served {}: {received} messages received; {} packets arrived, {} duplicates, {} out of sequence; MTU {}",
        peer.address,
        counters.packets_rx,
        counters.duplicates,
        counters.out_of_sequence,
        end.mtu(),
    )?;
    Ok(())
}

/// The steps up to the peer's address, which is not answered yet.
fn greet(connection: &mut Connection, mtu: Mtu) -> Result<(PerftestAddress, Mtu), Box<dyn Error>> {
    let version = connection.read::<{ perftest::VERSION_LEN }>()?;
    connection.write(&version)?;
    for value in [perftest::CYCLE_BUFFER, perftest::CACHE_LINE] {
        connection.read::<4>()?;
        connection.write(&value.to_be_bytes())?;
    }
    let theirs = mtu_of_text(connection.read()?)?;
    connection.write(&mtu_text(mtu))?;
    Ok((PerftestAddress::parse(&connection.read()?)?, theirs))
}

/// Answers the client in kind until it is done: it waits for us by addresses, and tells figures.
fn answer(connection: Connection, ours: &[u8; PerftestAddress::LEN], ended: &Sender<Result<(), String>>) {
    let answered = answer_all(connection, ours).map_err(|error| error.to_string());
    // Where nobody waits any more, the end has failed, and says so.
    let _ = ended.send(answered);
}

fn answer_all(mut connection: Connection, ours: &[u8; PerftestAddress::LEN]) -> Result<(), Box<dyn Error>> {
    const TEXT_REST: usize = PerftestAddress::LEN - DONE.len();
    const FIGURE_REST: usize = perftest::FIGURE_LEN - DONE.len();
    loop {
        let begin = connection.read::<{ DONE.len() }>()?;
        if begin == DONE {
            return connection.write(&DONE);
        }
        // An address begins with a LID and a colon, which no figure does.
        if begin[4] == b':' && begin[..4].iter().all(u8::is_ascii_hexdigit) {
            connection.read::<TEXT_REST>()?;
            connection.write(ours)?;
        } else {
            connection.read::<FIGURE_REST>()?;
            connection.write(&[0; perftest::FIGURE_LEN])?;
        }
    }
}

/// Turns the worker until the exchange has ended; returns how many messages were received.
fn serve(end: &mut End, options: &EndOptions, ended: &Receiver<Result<(), String>>) -> Result<u64, Box<dyn Error>> {
    let mut received = 0;
    loop {
        end.turn();
        while let Some(done) = end.poll()? {
            if done.kind == CompletionKind::Receive {
                received += 1;
                end.post_recv(options.size)?;
            }
        }
        match ended.try_recv() {
            Ok(answered) => return answered.map(|()| received).map_err(Into::into),
            Err(_) if end.is_stopping() => return Err("stopped before the end".into()),
            Err(_) => (),
        }
    }
}
