//! The source of frames: the capture or the file, wrapped in faults where the plan has some, and
//! outermost in a tap, so that the recording holds the frames that the worker received.

use std::fs;
use std::path::Path;

use wirepath::device::capture::{CaptureConfig, CaptureDevice, Directions};
use wirepath::device::either::Either;
use wirepath::device::fault::FaultDevice;
use wirepath::device::pcap::{End, Loading, Outcome, PcapConfig, PcapDevice, Recorded};

use crate::device::{FileEnding, ItchFileConfig, ItchFileDevice};
use crate::error::Error;
use crate::format::Format;
use crate::plan::ReplayPlan;
use crate::report::Ending;

/// A capture, or a plain file.
type Played = Either<PcapDevice, ItchFileDevice>;
/// The same, or with faults.
type Faulty = Either<Played, FaultDevice<Played>>;
/// The device of a replay: all that, or with a tap around it.
pub(super) type ReplayDevice = Either<Faulty, CaptureDevice<Faulty>>;

/// The outcome of the file that is replayed, once the worker is done.
pub(super) enum Source {
    Capture(Outcome<End>),
    File(FileEnding),
}

impl Source {
    /// Opens the file of the plan, and everything around it.
    pub(super) fn open(plan: &ReplayPlan) -> Result<(Self, ReplayDevice), Error> {
        if let Some(capture) = &plan.capture {
            check_other_file(&plan.input, capture)?;
        }
        let (source, played) = Self::play(plan)?;
        let faulty = match plan.faults {
            None => Either::Left(played),
            Some(faults) => Either::Right(FaultDevice::new(played, faults).map_err(Error::failed)?),
        };
        let device = match &plan.capture {
            None => Either::Left(faulty),
            Some(path) => {
                let config = CaptureConfig { path: path.clone(), directions: Directions::Rx, epoch_ns: 0 };
                Either::Right(CaptureDevice::new(faulty, config))
            }
        };
        Ok((source, device))
    }

    fn play(plan: &ReplayPlan) -> Result<(Self, Played), Error> {
        if plan.feed.format == Format::Itch50File {
            let config =
                ItchFileConfig { path: plan.input.clone(), pace: plan.pace, frame_len_max: plan.frame_len_max };
            let device = ItchFileDevice::open(&config).map_err(Error::failed)?;
            return Ok((Self::File(device.ending()), Either::Right(device)));
        }
        let config = PcapConfig {
            replay: Some(plan.input.clone()),
            pace: plan.pace,
            loading: Loading::Stream,
            frame_len_max: plan.frame_len_max,
            ..PcapConfig::default()
        };
        let device = PcapDevice::open(&config).map_err(Error::failed)?;
        Ok((Self::Capture(device.replayed()), Either::Left(device)))
    }

    /// How the file ended.
    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Capture(outcome) => match outcome.get() {
                None => Ending::Open,
                Some(Ok(End { truncated: None })) => Ending::Whole,
                Some(Ok(End { truncated: Some(truncation) })) => Ending::Truncated(truncation.to_string()),
                Some(Err(error)) => Ending::Damaged(error.to_string()),
            },
            Self::File(ending) => match ending.get() {
                None => Ending::Open,
                Some(Ok(None)) => Ending::Whole,
                Some(Ok(Some(truncation))) => Ending::Truncated(truncation.clone()),
                Some(Err(error)) => Ending::Damaged(error.clone()),
            },
        }
    }
}

/// The outcome of the tap, once the worker is done; `None` without one.
pub(super) fn recording(device: &ReplayDevice) -> Option<Outcome<Recorded>> {
    match device {
        Either::Left(_) => None,
        Either::Right(tapped) => tapped.recorded(0),
    }
}

/// Creating the recording truncates the file: it must not be the input.
fn check_other_file(input: &Path, capture: &Path) -> Result<(), Error> {
    match (fs::canonicalize(input), fs::canonicalize(capture)) {
        (Ok(input), Ok(capture)) if input == capture => {
            Err(Error::Usage(format!("--capture {} would overwrite the capture that is read", capture.display())))
        }
        _ => Ok(()),
    }
}
