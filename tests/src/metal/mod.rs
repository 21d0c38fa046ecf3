//! `make metal`: the facts that hold and the speed on two ports that a cable connects, as a report
//! that a lab can send.
//!
//! First the machine and the devices, then the conformance suite in each drive mode, then figures
//! of the wire. On software ConnectXs everything runs too, and the report says that its figures do
//! not apply to a NIC.

mod figures;
mod place;
mod report;
mod ways;

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use wirepath::device::mlx5::Mlx5Device;
use wirepath::device::{Device, RxState};
use wirepath::testing::conformance;
use wirepath::testing::conformance::Failure;

use crate::cable::Cable;
use crate::nic;
use figures::Pace;
use report::Report;
use ways::Way;

/// The devices to test, and the selection of tests.
#[derive(Clone, Debug)]
pub struct Lab {
    /// One port: verbs name, PCI address or interface.
    pub device: String,
    /// The port at the other end of its cable.
    pub peer: String,
    /// How long each figure is measured.
    pub each: Duration,
    /// A core for each end; none where the scheduler decides.
    pub cores: Option<(usize, usize)>,
    /// Only the drive modes whose names begin with this.
    pub only: String,
}

/// Runs everything and writes the report; how many facts do not hold.
///
/// # Errors
/// One sentence: the missing part, or that the report could not be written.
pub fn run(lab: &Lab, out: &mut dyn Write) -> Result<usize, String> {
    let ways: Vec<_> = ways::all().into_iter().filter(|way| way.name.starts_with(&lab.only)).collect();
    if ways.is_empty() {
        let names: Vec<_> = ways::all().iter().map(|way| way.name).collect();
        return Err(format!("no way to drive a port begins with {:?}: use one of {}", lab.only, names.join(", ")));
    }
    let devices = open(lab)?;
    let mut report = Report::new(out);
    place::describe(lab, &devices, &mut report)?;
    drop(devices);
    figures::first_frame(lab)?;

    let (mut broken, mut there) = (0, Vec::new());
    for way in ways {
        match has(lab, &way) {
            Ok(()) => {
                broken += conformance(lab, &way, &mut report)?;
                there.push(way);
            }
            Err(why) => report.left_out(way.name, &why)?,
        }
    }
    let pace = Pace { each: lab.each, cores: lab.cores };
    figures::rates(lab, &there, pace, &mut report)?;
    figures::round_trips(lab, pace, &mut report)?;
    if place::is_software(&lab.device) {
        report.line(place::SOFTWARE)?;
    }
    report.verdict(broken)?;
    Ok(broken)
}

/// Both devices, each with a link.
fn open(lab: &Lab) -> Result<[Mlx5Device; 2], String> {
    let way = ways::plain();
    let cable = way.cable(lab);
    let [near, far] = [0, 1].map(|end| Mlx5Device::open(&cable.config_of(end)).map_err(|error| error.to_string()));
    let (near, far) = (near?, far?);
    if near.name() == far.name() {
        let name = near.name();
        return Err(format!("{name} is named twice: name the port at the other end of the cable as the peer"));
    }
    for device in [&near, &far] {
        if device.state() != RxState::Open {
            let name = device.name();
            let up = device.interface().map_or(String::new(), |name| format!(", and `ip link set {name} up`"));
            return Err(format!("{name} has no link: look at its cable{up}"));
        }
    }
    Ok([near, far])
}

/// Whether both devices can be driven so.
fn has(lab: &Lab, way: &Way) -> Result<(), String> {
    let cable = way.cable(lab);
    (0..2).try_for_each(|end| Mlx5Device::open(&cable.config_of(end)).map(drop).map_err(|error| error.to_string()))
}

/// The suite, one way; how many facts do not hold.
fn conformance(lab: &Lab, way: &Way, report: &mut Report<'_>) -> Result<usize, String> {
    let mut cable = way.cable(lab);
    let failures = attempt(&mut cable);
    report.facts(way.name, &failures)?;
    // Only a software ConnectX reports mistakes of the program.
    let complaints = nic::diagnoses();
    for complaint in &complaints {
        report.line(&format!("  FAILS  {complaint}"))?;
    }
    Ok(failures.len() + complaints.len())
}

/// A failed set-up counts as a fact that does not hold, and does not end the report.
fn attempt(cable: &mut Cable) -> Vec<Failure> {
    catch_unwind(AssertUnwindSafe(|| conformance::run(cable))).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let seen = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked").into();
        vec![Failure { fact: "the suite runs to its end", seen }]
    })
}

fn broken_pipe(error: io::Error) -> String {
    format!("the report cannot be written: {error}")
}
