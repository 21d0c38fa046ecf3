//! The outputs of captured frames: a pcap file, a pcap stream into a pipe, or lines on standard
//! output.

use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Stdout, Write};
use std::path::Path;

use wirepath::device::pcap::{Problem, Writer};

use super::line;
use super::queue::CapturedFrame;

pub(super) enum Output {
    File(Writer<File>),
    Pipe(Writer<Stdout>),
    Lines(Lines),
}

/// Lines, and whether their reader is still there.
pub(super) struct Lines {
    text: String,
    failure: Option<io::Error>,
}

/// Text is written when it is this long, or when no more frames come.
const TEXT_LEN: usize = 65_536;

impl Output {
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Box<dyn Error>> {
        match path {
            None => Ok(Self::Lines(Lines { text: String::new(), failure: None })),
            Some(path) if path != Path::new("-") => Ok(Self::File(Writer::create(path)?)),
            Some(_) if io::stdout().is_terminal() => {
                Err("a capture is no text for a terminal: add `| tcpdump -r -`, or name a file".into())
            }
            Some(_) => Ok(Self::Pipe(Writer::new(io::stdout()))),
        }
    }

    /// Adds a frame, `snap` bytes of it at most.
    pub(super) fn write(&mut self, frame: &CapturedFrame<'_>, snap: usize) -> Result<(), Box<dyn Error>> {
        let kept = &frame.bytes[..frame.bytes.len().min(snap)];
        match self {
            Self::File(writer) => {
                writer.write_cut(frame.timestamp_ns, kept, frame.original_len);
                // A full disk: waiting for frames that cannot be written is useless.
                if writer.is_broken() { Ok(writer.finish()?) } else { Ok(()) }
            }
            Self::Pipe(writer) => {
                writer.write_cut(frame.timestamp_ns, kept, frame.original_len);
                Ok(())
            }
            Self::Lines(lines) => {
                line::render(frame, &mut lines.text);
                if lines.text.len() >= TEXT_LEN {
                    lines.flush();
                }
                Ok(())
            }
        }
    }

    /// There are no more frames at the moment: writes out those so far for the reader.
    pub(super) fn flush(&mut self) {
        match self {
            Self::File(writer) => writer.flush(),
            Self::Pipe(writer) => writer.flush(),
            Self::Lines(lines) => lines.flush(),
        }
    }

    /// Whether the output is closed: the reader of the pipe has gone, or the disk is full.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::File(writer) => writer.is_broken(),
            Self::Pipe(writer) => writer.is_broken(),
            Self::Lines(lines) => lines.failure.is_some(),
        }
    }

    /// Writes the remaining output. It is no error if the reader has gone.
    pub(super) fn finish(&mut self) -> Result<(), Box<dyn Error>> {
        self.flush();
        let failure = match self {
            Self::File(writer) => return Ok(writer.finish()?),
            Self::Pipe(writer) => match writer.finish() {
                Err(error) if !is_broken_pipe(error.problem()) => return Err(error.into()),
                _ => None,
            },
            Self::Lines(lines) => lines.failure.take(),
        };
        match failure {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

impl Lines {
    fn flush(&mut self) {
        if self.failure.is_none() {
            let mut out = io::stdout().lock();
            self.failure = out.write_all(self.text.as_bytes()).and_then(|()| out.flush()).err();
        }
        self.text.clear();
    }
}

fn is_broken_pipe(problem: &Problem) -> bool {
    matches!(problem, Problem::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
}
