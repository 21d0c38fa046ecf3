//! Drives software ConnectXs, for those who look from outside: `softhca run --manual --devices 2 -- connectx PATH ROUNDS`.
//!
//! What counts happens in the functions whose names begin with `measured`, as in `packets`.

use std::process::ExitCode;

use wirepath_benches::connectx::{Error, Model, Receive, Rig, Send, VerbsReceiver, VerbsSender};
use wirepath_benches::frames::group;
use wirepath_benches::receiver::ROUND;

const PATHS: &str = "libmlx5-rx, libmlx5-tx, times";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(rounds)) = (arguments.next(), arguments.next().and_then(|text| text.parse().ok())) else {
        eprintln!("connectx: say a path and how many rounds of {ROUND} packets; paths: {PATHS}");
        return ExitCode::from(2);
    };
    match run(&path, rounds) {
        Ok(()) => {
            println!("packets {}", rounds * ROUND);
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

/// Samples of each half, in turns.
fn times(rounds: usize) -> Result<(), Error> {
    let mut libmlx5 = libmlx5()?;
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (samples, sample) in samples.iter_mut().zip(libmlx5.time()) {
            // The first turn does not count.
            samples.extend((round > 0).then(|| sample.to_string()));
        }
    }
    for (path, samples) in ["libmlx5-rx", "libmlx5-tx"].iter().zip(samples) {
        println!("{path} {}", samples.join(" "));
    }
    Ok(())
}

fn receive<S: Send, R: Receive>(mut rig: Rig<S, R>, rounds: usize) {
    (0..rounds).for_each(|_| rig.round(S::send, measured_reception));
}

fn send<S: Send, R: Receive>(mut rig: Rig<S, R>, rounds: usize) {
    (0..rounds).for_each(|_| rig.round(measured_sending, R::receive));
}

#[inline(never)]
fn measured_reception<R: Receive>(receiver: &mut R) -> usize {
    receiver.receive()
}

#[inline(never)]
fn measured_sending<S: Send>(sender: &mut S) {
    sender.send();
}
