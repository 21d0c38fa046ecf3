//! The source of frames: the capture or the file, wrapped in faults where the plan has some, and in
//! a tap outermost, so that the recording holds what the worker received.

use std::fs;
use std::path::Path;

use wirepath::device::capture::{CaptureConfig, CaptureDevice, Directions};
use wirepath::device::pcap::{End, Loading, Outcome, PcapConfig, PcapDevice, Recorded};
use wirepath::device::{Capabilities, Device, DeviceError};
use wirepath::testing::fault::FaultDevice;

use crate::device::{AnyQueue, FileEnding, ItchFileConfig, ItchFileDevice};
use crate::error::Error;
use crate::format::Format;
use crate::plan::ReplayPlan;
use crate::report::Ending;

/// The files, for their results once the worker is done.
pub(super) struct Source {
    replayed: Replayed,
    recorded: Option<Outcome<Recorded>>,
}

enum Replayed {
    Capture(Outcome<End>),
    File(FileEnding),
}

impl Source {
    /// Opens all files of the plan.
    pub(super) fn open(plan: &ReplayPlan) -> Result<(Self, AnyQueue, Capabilities), Error> {
        if let Some(capture) = &plan.capture {
            check_other_file(&plan.input, capture)?;
        }
        let opened = if plan.feed.format == Format::Itch50File {
            let config =
                ItchFileConfig { path: plan.input.clone(), pace: plan.pace, frame_len_max: plan.frame_len_max };
            let device = ItchFileDevice::open(&config).map_err(Error::failed)?;
            (Replayed::File(device.ending()), with_faults(device, plan))
        } else {
            let config = PcapConfig {
                replay: Some(plan.input.clone()),
                pace: plan.pace,
                loading: Loading::Stream,
                frame_len_max: plan.frame_len_max,
                ..PcapConfig::default()
            };
            let device = PcapDevice::open(&config).map_err(Error::failed)?;
            (Replayed::Capture(device.replayed()), with_faults(device, plan))
        };
        let (replayed, wrapped) = opened;
        let Wrapped { queue, capabilities, recorded } = wrapped.map_err(Error::failed)?;
        Ok((Self { replayed, recorded }, queue, capabilities))
    }

    /// How the file ended.
    pub(super) fn ending(&self) -> Ending {
        match &self.replayed {
            Replayed::Capture(outcome) => match outcome.get() {
                None => Ending::Open,
                Some(Ok(End { truncated: None })) => Ending::Whole,
                Some(Ok(End { truncated: Some(truncation) })) => Ending::Truncated(truncation.to_string()),
                Some(Err(error)) => Ending::Damaged(error.to_string()),
            },
            Replayed::File(ending) => match ending.get() {
                None => Ending::Open,
                Some(Ok(None)) => Ending::Whole,
                Some(Ok(Some(truncation))) => Ending::Truncated(truncation.clone()),
                Some(Err(error)) => Ending::Damaged(error.clone()),
            },
        }
    }

    /// Frames that the tap wrote, or why it could not write all of them; `None` without a tap.
    pub(super) fn recorded(&self) -> Option<Result<u64, String>> {
        let outcome = self.recorded.as_ref()?.get()?;
        Some(outcome.as_ref().map(|recorded| recorded.frames).map_err(ToString::to_string))
    }
}

/// A device with everything around it.
struct Wrapped {
    queue: AnyQueue,
    capabilities: Capabilities,
    recorded: Option<Outcome<Recorded>>,
}

fn with_faults<D: Device>(device: D, plan: &ReplayPlan) -> Result<Wrapped, DeviceError>
where
    D::Queue: 'static,
{
    match plan.faults {
        None => with_tap(device, plan),
        Some(faults) => with_tap(FaultDevice::new(device, faults)?, plan),
    }
}

fn with_tap<D: Device>(mut device: D, plan: &ReplayPlan) -> Result<Wrapped, DeviceError>
where
    D::Queue: 'static,
{
    let capabilities = device.capabilities();
    let Some(path) = &plan.capture else {
        let queue = AnyQueue::new(device.take_queue(0)?, plan.packets_max);
        return Ok(Wrapped { queue, capabilities, recorded: None });
    };
    let config = CaptureConfig { path: path.clone(), directions: Directions::Rx, epoch_ns: 0 };
    let mut tapped = CaptureDevice::new(device, config);
    let queue = AnyQueue::new(tapped.take_queue(0)?, plan.packets_max);
    Ok(Wrapped { queue, capabilities, recorded: tapped.recorded(0) })
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
