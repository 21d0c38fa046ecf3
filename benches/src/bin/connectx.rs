//! Drives software ConnectXs, to be run under callgrind or strace: `softhca run --manual --devices
//! 2 -- connectx PATH ROUNDS`.
//!
//! The measured functions have names that begin with `measured`, as in `packets`.

use std::process::ExitCode;

use wirepath_benches::connectx::{
    Error, Mlx5Mode, Model, OurReceiver, OurSender, Receive, Rig, Send, VerbsReceiver, VerbsSender, exchange,
};
use wirepath_benches::frames::group;
use wirepath_benches::measure::outside::between_marks;
use wirepath_benches::receiver::ROUND;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const PATHS: &str = "libmlx5-rx, libmlx5-tx, rx, rx-compressed, tx, tx-single, sockets, times";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(rounds)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok())) else {
        eprintln!("connectx: say a path and how many rounds of {ROUND} packets; paths: {PATHS}");
        return ExitCode::from(2);
    };
    match run(&path, rounds) {
        Ok(()) => {
            // The same length for any number: the preload library searches writes for command
            // lengths.
            println!("packets {:<9}", rounds * ROUND);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("connectx: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str, rounds: usize) -> Result<(), Error> {
    match path {
        "libmlx5-rx" => receive(libmlx5()?, rounds),
        "libmlx5-tx" => send(libmlx5()?, rounds),
        "rx" => receive(ours(Mlx5Mode::Usual)?, rounds),
        "rx-compressed" => receive(ours(Mlx5Mode::Compressed)?, rounds),
        "tx" => send(ours(Mlx5Mode::Usual)?, rounds),
        "tx-single" => send(ours(Mlx5Mode::SinglePacket)?, rounds),
        "sockets" => sockets(rounds)?,
        "times" => times(rounds)?,
        _ => return Err(format!("no path {path}: choose one of {PATHS}").into()),
    }
    Ok(())
}

fn model() -> Result<Model, Error> {
    Model::find().ok_or_else(|| "no software ConnectX is here: softhca run --manual --devices 2 -- connectx …".into())
}

fn libmlx5() -> Result<Rig<VerbsSender, VerbsReceiver>, Error> {
    let (sender, receiver) = (VerbsSender::open("mlx5_0", group(0))?, VerbsReceiver::open("mlx5_1", group(0))?);
    Ok(Rig::new(model()?, sender, receiver))
}

fn ours(wish: Mlx5Mode) -> Result<Rig<OurSender, OurReceiver>, Error> {
    let (sender, receiver) = (OurSender::open("mlx5_0", group(1), wish)?, OurReceiver::open("mlx5_1", group(1), wish)?);
    Ok(Rig::new(model()?, sender, receiver))
}

fn receive<S: Send, R: Receive>(rig: Rig<S, R>, rounds: usize) {
    play(rig, rounds, |rig| rig.round(S::send, |receiver| between_marks(|| measured_reception(receiver))));
}

fn send<S: Send, R: Receive>(rig: Rig<S, R>, rounds: usize) {
    play(rig, rounds, |rig| rig.round(|sender| between_marks(|| measured_sending(sender)), R::receive));
}

/// Prints the number of allocations after the first round.
fn play<S: Send, R: Receive>(mut rig: Rig<S, R>, rounds: usize, round: impl Fn(&mut Rig<S, R>)) {
    let mut before = allocations::count();
    for idx in 0..rounds {
        round(&mut rig);
        if idx == 0 {
            before = allocations::count();
        }
    }
    println!("allocations {}", allocations::count() - before);
}

/// Requests and their responses by the calls of sockets; a packet is one of both.
fn sockets(rounds: usize) -> Result<(), Error> {
    let (mut exchange, _ports) = exchange(model()?)?;
    exchange.exchange();
    between_marks(|| (0..rounds * ROUND).for_each(|_| exchange.exchange()));
    Ok(())
}

/// Samples of both drivers in turns, each on its own rings in the same NICs.
fn times(rounds: usize) -> Result<(), Error> {
    let (mut libmlx5, mut ours) = (libmlx5()?, ours(Mlx5Mode::Usual)?);
    let mut samples = ["libmlx5-rx", "libmlx5-tx", "rx", "tx"].map(|path| (path, Vec::new()));
    for round in 0..=rounds {
        let [libmlx5, ours] = [libmlx5.time(), ours.time()];
        for ((_, samples), sample) in samples.iter_mut().zip(libmlx5.into_iter().chain(ours)) {
            // The first turn does not count.
            samples.extend((round > 0).then(|| sample.to_string()));
        }
    }
    for (path, samples) in samples {
        println!("{path} {}", samples.join(" "));
    }
    Ok(())
}

#[inline(never)]
fn measured_reception<R: Receive>(receiver: &mut R) -> usize {
    receiver.receive()
}

#[inline(never)]
fn measured_sending<S: Send>(sender: &mut S) {
    sender.send();
}
