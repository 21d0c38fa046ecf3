//! Many seeds, and the shortest story of one that fails.

use order_entry::boe::{Boe2Client, Boe3Client};
use order_entry::fix::FixClient;
use order_entry::ilink3::Ilink3Client;
use order_entry::ouch::{Ouch42Client, OuchClient};

use super::gateway::SimSession;
use super::script::{Protocol, Script};
use super::world::World;

/// What some seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Orders, replaces and mass cancels that arrived.
    pub requests: u64,
    /// Take-overs by a standby.
    pub takeovers: u64,
    /// Starts of processes.
    pub starts: u64,
    /// Turns that a disk has kept for longer than a lease.
    pub stalls: u64,
    /// Seeds that failed, with the story.
    pub failures: Vec<(u64, String)>,
}

/// Runs a seed by one protocol.
///
/// # Errors
///
/// The shortest story in which the same rule is broken.
pub fn run_seed(protocol: Protocol, seed: u64) -> Result<Summary, String> {
    match protocol {
        Protocol::Ouch => run::<OuchClient>(seed),
        Protocol::Ouch42 => run::<Ouch42Client>(seed),
        Protocol::Fix => run::<FixClient>(seed),
        Protocol::Boe2 => run::<Boe2Client>(seed),
        Protocol::Boe3 => run::<Boe3Client>(seed),
        Protocol::Ilink3 => run::<Ilink3Client>(seed),
    }
}

fn run<S: SimSession>(seed: u64) -> Result<Summary, String> {
    let script = Script::new(seed);
    let mut world = World::<S>::new(script.clone());
    match world.run() {
        Ok(()) => Ok(Summary {
            requests: world.arrived(),
            takeovers: world.takeovers,
            starts: world.restarts,
            stalls: world.stalls,
            failures: Vec::new(),
        }),
        Err(why) => Err(format!("by {:?}: {}", S::PROTOCOL, shortest::<S>(script, &why))),
    }
}

/// Runs some seeds by one protocol, one after the other.
pub fn run_seeds(protocol: Protocol, seeds: core::ops::Range<u64>) -> Summary {
    let mut sum = Summary::default();
    seeds.for_each(|seed| sum.add(seed, run_seed(protocol, seed)));
    sum
}

impl Summary {
    /// Adds what became of a seed.
    pub fn add(&mut self, seed: u64, result: Result<Self, String>) {
        match result {
            Ok(one) => {
                self.requests += one.requests;
                self.takeovers += one.takeovers;
                self.starts += one.starts;
                self.stalls += one.stalls;
            }
            Err(story) => self.failures.push((seed, story)),
        }
    }
}

/// The rule's name in an error.
fn rule(why: &str) -> &str {
    why.split(':').next().unwrap_or(why)
}

/// Leaves out disturbances as long as the same rule is broken.
fn shortest<S: SimSession>(mut script: Script, why: &str) -> String {
    let fails = |script: &Script| {
        let mut world = World::<S>::new(script.clone());
        let why_now = world.run().err().filter(|now| rule(now) == rule(why))?;
        Some((why_now, world.story))
    };
    let simpler: [fn(Script) -> Script; 3] = [
        |script| Script { per_mille: [0; 3], ..script },
        |script| Script { has_venue_faults: false, ..script },
        |script| Script { slow_per_mille: 0, ..script },
    ];
    for simpler in simpler {
        let simpler = simpler(script.clone());
        if fails(&simpler).is_some() {
            script = simpler;
        }
    }
    let mut idx = 0;
    while idx < script.disturbances.len() {
        let mut shorter = script.clone();
        shorter.disturbances.remove(idx);
        if fails(&shorter).is_some() {
            script = shorter;
        } else {
            idx += 1;
        }
    }
    let (why, story) = fails(&script).unwrap_or_else(|| (why.to_owned(), Vec::new()));
    let tail = story.len().saturating_sub(40);
    format!(
        "{why}\n  segments lost, repeated, delayed: {:?} of 1,000, syncs that take their time: {}\n  {}",
        script.per_mille,
        script.slow_per_mille,
        story[tail..].join("\n  ")
    )
}
