//! The command line.

use std::net::SocketAddrV4;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use order_entry::ReasonCodes;

/// A strategy's orders past risk checks and a journal to a venue, and its answers back.
#[derive(Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Trade until SIGINT or SIGTERM. It starts disarmed.
    Run {
        /// The configuration.
        config: PathBuf,
        /// Write a mirror's copy of the journal by RDMA: rdma://192.0.2.11. Instead of `address` of
        /// [mirror], as the others instead of its other keys.
        #[arg(long, value_name = "URL")]
        mirror: Option<String>,
        /// What orders do while the copy is behind: before-send, stop or go-on.
        #[arg(long, value_name = "POLICY")]
        mirror_policy: Option<String>,
        #[command(flatten)]
        by: MirrorArgs,
    },
    /// Follow a primary's journal, and take over when it is gone.
    Standby {
        /// The configuration.
        config: PathBuf,
        /// Where the primary listens for its standby.
        #[arg(value_name = "ADDRESS:PORT")]
        primary: SocketAddrV4,
    },
    /// Hold a journal's mirror, which its primary writes by RDMA, and take over when it is gone.
    Mirror {
        /// The configuration.
        config: PathBuf,
        /// Where the primary connects.
        #[arg(value_name = "ADDRESS[:PORT]")]
        address: String,
        #[command(flatten)]
        by: MirrorArgs,
    },
    /// Read the configuration and the limits, and say what is wrong with them.
    Check {
        /// The configuration.
        config: PathBuf,
    },
    /// Say a command to a gateway that runs: status, arm, disarm, cancel, kill, reload, unblock
    /// SYMBOL, alone or handover.
    Tell {
        /// The gateway's socket, `control` of its configuration.
        socket: PathBuf,
        /// The command.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Print a journal as CSV.
    Journal {
        /// The journal.
        file: PathBuf,
        /// Whose codes the reasons of answers are, to print their names: ouch50, ouch42, fix, boe
        /// or ilink3.
        #[arg(long, value_name = "PROTOCOL", value_parser = reason_codes)]
        reasons: Option<ReasonCodes>,
    },
    /// Print a log of raw bytes as CSV.
    Audit {
        /// The log.
        file: PathBuf,
    },
}

/// What RDMA goes by.
#[derive(Args)]
pub(crate) struct MirrorArgs {
    /// The port that RDMA goes by, as `wirepath rdma --via` names it.
    #[arg(long, value_name = "PORT")]
    pub(crate) via: Option<String>,
    /// A secret that both ends prove to have, in a file of mode 600.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
}

fn reason_codes(name: &str) -> Result<ReasonCodes, String> {
    let found = ReasonCodes::ALL.iter().find(|(of, _)| *of == name);
    found.map(|(_, codes)| *codes).ok_or_else(|| {
        let names: Vec<_> = ReasonCodes::ALL.iter().map(|(name, _)| *name).collect();
        format!("the protocols are {}", names.join(", "))
    })
}
