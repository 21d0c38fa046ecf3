//! `feed-handler`: the command line over the library. The summary goes to standard output,
//! everything else to standard error.
//!
//! Exit codes: 0 all is well and adds up, 1 something failed, 2 the command line or the
//! configuration makes no sense.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use feed_handler::args::{Cli, Command, OutputArgs, SummaryFormat};
use feed_handler::report::Summary;
use feed_handler::{Error, Event, Progress, replay, run};
use wirepath::counters::{printable, printable_lines};
use wirepath::worker::StopFlag;
use wirepath::worker::topology::Severity;

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let outcome = match &command {
        Command::Replay(args) => conclude(&args.output, |stop, report| replay(&args.plan()?, stop, report)),
        Command::Run(args) => conclude(&args.output, |stop, report| run(&args.plan()?, stop, report)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            say(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Does the work, prints its summary, and reports failures.
fn conclude(
    output: &OutputArgs,
    work: impl FnOnce(&StopFlag, &mut dyn FnMut(Event)) -> Result<Summary, Error>,
) -> Result<ExitCode, Error> {
    let stop = StopFlag::on_signals().map_err(Error::failed)?;
    let mut console = Console::new(output);
    let mut summary = work(&stop, &mut |event| console.report(&event))?;
    console.clear_line();
    summary.limit_tops(output.tops);
    print(&summary, output.summary)?;
    for failure in &summary.failures {
        say(failure);
    }
    Ok(if summary.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(summary: &Summary, format: SummaryFormat) -> Result<(), Error> {
    let text = match format {
        // Others may have chosen the names of files and symbols.
        SummaryFormat::Text => printable_lines(&summary.to_string()),
        SummaryFormat::Json => serde_json::to_string(summary).map_err(Error::failed)? + "\n",
    };
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A closed pipe (`| head`) is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Error::Failed(format!("the summary cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error. Others may have chosen the names of files and channels in it.
fn say(sentence: impl Display) {
    eprintln!("feed-handler: {}", printable(sentence));
}

/// Standard error while it runs: notices as lines, and a progress line that replaces itself on a
/// terminal.
struct Console {
    quiet: bool,
    verbose: bool,
    is_terminal: bool,
    line_len: usize,
}

impl Console {
    fn new(output: &OutputArgs) -> Self {
        Self { quiet: output.quiet, verbose: output.verbose, is_terminal: io::stderr().is_terminal(), line_len: 0 }
    }

    fn report(&mut self, event: &Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::Notice(sentence) | Event::Ready(sentence) => {
                self.clear_line();
                say(sentence);
            }
            Event::Built(text) if self.verbose => {
                self.clear_line();
                eprintln!("{}", printable_lines(text.trim_end()));
            }
            Event::Built(_) => {}
            Event::Machine(report) if self.verbose => eprint!("{report}"),
            Event::Machine(report) => {
                let count = report.at_least(Severity::Warning).count();
                if count > 0 {
                    eprintln!("feed-handler: {count} findings about this machine cost latency: --verbose shows them");
                }
            }
            Event::Progress(progress) => self.show(progress),
        }
    }

    fn show(&mut self, progress: &Progress) {
        let line = progress.to_string();
        if self.is_terminal {
            eprint!("\r{line:<width$}", width = self.line_len);
            self.line_len = line.len();
        } else {
            eprintln!("{line}");
        }
    }

    /// Makes room for whole lines.
    fn clear_line(&mut self) {
        if self.line_len > 0 {
            eprint!("\r{:width$}\r", "", width = self.line_len);
            self.line_len = 0;
        }
    }
}
