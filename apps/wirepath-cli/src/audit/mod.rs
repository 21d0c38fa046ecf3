//! `wirepath audit`: the orders and answers in the audit log of an order-gateway, message by
//! message.

mod protocol;
mod stream;

use std::error::Error;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use order_entry::audit::{AuditEntries, AuditEntry, Direction};
use order_entry::fix::codec::{Precision, UtcText};

use protocol::AuditProtocol;
use stream::Stream;

/// Shows the messages in an order-gateway's audit log, each with its time and its fields
#[derive(Args)]
pub(crate) struct AuditOptions {
    /// The log, `audit` of the gateway's configuration
    log: PathBuf,
    /// The protocol: ouch50, ouch42, fix, boe2, boe3 or ilink3. Without it, what the log begins
    /// with says it; a login of SoupBinTCP is one of ouch50
    #[arg(long)]
    protocol: Option<AuditProtocol>,
}

/// Of the two streams.
const DIRECTIONS: [Direction; 2] = [Direction::Out, Direction::In];

/// Runs the subcommand.
pub(crate) fn run(options: &AuditOptions) -> Result<(), Box<dyn Error>> {
    let failed = |error: io::Error| format!("{}: {error}", options.log.display());
    let log = BufReader::new(File::open(&options.log).map_err(failed)?);
    let mut out = BufWriter::new(io::stdout().lock());
    let mut streams: Option<[Stream; 2]> = None;
    for entry in AuditEntries::new(log) {
        match entry.map_err(failed)? {
            AuditEntry::Call { at_ns, direction, bytes } => {
                let protocol = || {
                    options.protocol.or_else(|| AuditProtocol::of(&bytes)).ok_or_else(|| {
                        format!("{}: of no known protocol; name it by --protocol", options.log.display())
                    })
                };
                let streams = match &mut streams {
                    Some(streams) => streams,
                    none => {
                        let protocol = protocol()?;
                        none.insert(DIRECTIONS.map(|direction| Stream::new(protocol, direction)))
                    }
                };
                // A login begins a connection: what the last one left unfinished never comes.
                if direction == Direction::Out && streams[0].is_login(&bytes) {
                    for (stream, of) in streams.iter_mut().zip(DIRECTIONS) {
                        stream.rest(|text| write(&mut out, at_ns, of, text))?;
                    }
                }
                let stream = &mut streams[usize::from(direction == Direction::In)];
                stream.take(&bytes, |text| write(&mut out, at_ns, direction, text))?;
            }
            AuditEntry::Lost { at_ns, cells } => {
                // Nobody knows whether what follows begins with a message.
                for (stream, of) in streams.iter_mut().flatten().zip(DIRECTIONS) {
                    stream.rest(|text| write(&mut out, at_ns, of, text))?;
                }
                write(&mut out, at_ns, Direction::Lost, &format!("{cells} cells of the gateway's ring"))?;
            }
        }
    }
    Ok(out.flush()?)
}

fn write(out: &mut impl Write, at_ns: u64, direction: Direction, text: &str) -> io::Result<()> {
    let time = UtcText::new(Precision::Nanos).write(at_ns).escape_ascii().to_string();
    writeln!(out, "{time}  {:<4}  {text}", direction.name())
}
