//! `wirepath rdma`: RoCE in software on a port, or by a NIC, against the examples of rdma-core and
//! perftest, or against itself.
//!
//! The queue pairs of both ends are told by TCP over the kernel's sockets; the packets of RoCE go
//! past the kernel.

mod books;
mod carried;
mod cm;
mod cmatose;
mod devices;
mod end;
mod exchange;
mod latency;
mod over;
mod pattern;
mod pingpong;
mod published;
mod rping;
mod serve;
mod transfer;
mod udaddy;
mod via;

use std::error::Error;
use std::fmt;
use std::net::Ipv4Addr;

use ::rdma::out_of_band::EXCHANGE_PORT;
use ::rdma::roce::{GRH_LEN, Mtu};
use ::rdma::wire::opcode::Transport;
use clap::{Args, Subcommand, ValueEnum};
use wirepath::worker::StopFlag;

/// Messages longer than this are of no use here.
const SIZE_MAX: u32 = 64 << 20;

/// Speaks RoCE in software on a port, or by a NIC: messages, reads and writes of a peer's memory,
/// atomics.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    wirepath rdma devices                                        mode, state, addresses, PFC and ECN of each device\n  \
    wirepath rdma write --serve                                  waits for the peer, which may be ib_write_bw\n  \
    wirepath rdma write 10.0.0.1 --via eth1 --size 64            each WRITE from post to completion\n  \
    wirepath rdma read 10.0.0.1 --via eth1 --depth 16            sixteen READs at once\n  \
    wirepath rdma send --serve --via eth1 --latency              the peer is ib_send_lat\n  \
    wirepath rdma send 10.0.0.1 --via eth1 --service ud          the peer is ib_send_bw -c UD\n  \
    wirepath rdma pingpong 10.0.0.1 --via eth1                   the peer is ibv_rc_pingpong -g INDEX\n  \
    wirepath rdma pingpong --serve --via eth1 --service ud       the peer is ibv_ud_pingpong -g INDEX\n  \
    wirepath rdma pingpong 10.0.0.1 --via eth1 --cm              the peer is rping -s -V\n  \
    wirepath rdma pingpong 10.0.0.1 --cm --service ud --count 10 the peer is udaddy -S 64\n  \
    wirepath rdma send --serve --via eth1 --cm --count 10        the peer is ucmatose -s ADDRESS\n  \
    wirepath rdma write 10.0.0.1 --device mlx5_0                 by a NIC; the peer may be ib_write_bw\n  \
    wirepath rdma books 10.0.0.1 --via eth1 --symbol AAPL        a book of a feed handler, from its memory\n  \
    ib_write_bw -d rxe0 -x INDEX 10.0.0.2                        the other end on Linux\n\
The peer's address is that of its port; both ends listen and connect by TCP port 18515, or with --cm by\n\
RDMA_CM, where the port is that of rping and udaddy (7174) or of ucmatose (7471).\n\
Exit code: 0 when all is done, 1 if something failed, 2 for a wrong command line.")]
pub(crate) struct RdmaOptions {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Shows what speaks RDMA here: RNICs, Linux rxe, and interfaces on which wirepath does
    Devices(devices::DevicesOptions),
    /// Sends messages into receives of the peer; speaks with ib_send_bw, by --latency with
    /// ib_send_lat, and by --cm with ucmatose
    Send(TransferOptions),
    /// Writes memory of the peer; speaks with ib_write_bw, and by --latency with ib_write_lat
    Write(TransferOptions),
    /// Reads memory of the peer; speaks with ib_read_bw, and by --latency with ib_read_lat
    Read(TransferOptions),
    /// Adds to a number of the peer; speaks with ib_atomic_bw, and by --latency with ib_atomic_lat
    Atomic(TransferOptions),
    /// Shows the books of a feed handler that exposes them (feed-handler run --expose): reads them
    /// from its memory, without its worker
    Books(books::BooksOptions),
    /// Messages back and forth; speaks with ibv_rc_pingpong, and by --service with those of UC, UD
    /// and shared receive queues; by --cm with rping, and by --cm --service ud with udaddy
    Pingpong(PingpongOptions),
}

/// What a test of one verb needs beside what both ends need.
#[derive(Args, Clone, Debug)]
pub(crate) struct TransferOptions {
    #[command(flatten)]
    end: EndOptions,
    /// Play as the tools of perftest that measure latencies: SEND and WRITE take turns, so that a
    /// message is half a round trip. A server does as a client of wirepath says
    #[arg(long, conflicts_with_all = ["depth", "cm"])]
    latency: bool,
    /// The service: of send all, of write rc and uc; perftest's -c UC and -c UD, and --use-srq. A
    /// server does as a client of wirepath says
    #[arg(long, value_enum, default_value_t = Service::Rc, conflicts_with = "cm")]
    service: Service,
}

/// What a game needs beside that.
#[derive(Args, Clone, Debug)]
pub(crate) struct PingpongOptions {
    #[command(flatten)]
    end: EndOptions,
    /// The service, as in the name of the peer's program: ibv_ud_pingpong, ibv_srq_pingpong -q 1
    #[arg(long, value_enum, default_value_t = Service::Rc)]
    service: Service,
}

/// The service of a queue pair, and where its receives come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// A reliable connection
    Rc,
    /// An unreliable connection
    Uc,
    /// Datagrams
    Ud,
    /// A reliable connection with a shared receive queue
    Srq,
}

impl Service {
    /// Whether it has what is measured: perftest has no more either.
    fn check(self, operation: Operation) -> Result<(), &'static str> {
        match (operation, self) {
            (_, Self::Rc) | (Operation::Send, _) | (Operation::Write, Self::Uc) => Ok(()),
            _ => Err("--service uc is of send and write, and ud and srq are of send alone"),
        }
    }

    /// That of a server, whose client has named this one.
    fn of_client(self, client: Self) -> Result<Self, String> {
        match self {
            // Where receives come from is this end's own affair.
            _ if self.transport() == client.transport() => Ok(self),
            Self::Rc => Ok(client),
            _ => Err(format!("the peer speaks {client}, and --service says {self}: give both ends the same")),
        }
    }

    /// Whether what is lost is sent again.
    fn is_reliable(self) -> bool {
        self.transport() == Transport::Rc
    }

    const fn transport(self) -> Transport {
        match self {
            Self::Rc | Self::Srq => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud => Transport::Ud,
        }
    }

    /// Bytes in front of a message in memory: those of the header of a datagram.
    const fn header_len(self) -> usize {
        match self {
            Self::Ud => GRH_LEN,
            Self::Rc | Self::Uc | Self::Srq => 0,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "rc",
            Self::Uc => "uc",
            Self::Ud => "ud",
            Self::Srq => "srq",
        })
    }
}

/// What both ends need.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndOptions {
    /// The peer's address
    #[arg(required_unless_present = "serve")]
    peer: Option<Ipv4Addr>,
    /// Wait for one peer instead of asking one
    #[arg(long, conflicts_with = "peer")]
    serve: bool,
    /// The port: eth1 (AF_XDP), mlx5:eth1; by default the one by which the kernel reaches the peer
    #[arg(long, value_name = "PORT")]
    via: Option<String>,
    /// The NIC that does it, as `wirepath rdma devices` names it: mlx5_0. Without it, RoCE in
    /// software
    #[arg(long, value_name = "NIC", conflicts_with_all = ["via", "over", "cm"])]
    device: Option<String>,
    /// What carries the packets. A server does as its client says; RDMA_CM is over RoCE always
    #[arg(long, value_enum, default_value_t = over::Over::Auto, conflicts_with = "cm")]
    over: over::Over,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=i64::from(SIZE_MAX)))]
    size: u32,
    /// Messages
    #[arg(short, long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Messages at once
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// The largest payload of a packet: 256, 512, 1024, 2048 or 4096. By default the largest of the
    /// link; of pingpong at most 1024, as its peers take without -m
    #[arg(short, long, value_name = "BYTES", value_parser = parse_mtu)]
    mtu: Option<Mtu>,
    /// DSCP in the upper six bits and ECN in the lower two, as perftest's --tclass. With 2 (ECT)
    /// congested switches mark our packets and do not drop them: for peers that notify us then, as
    /// wirepath and RNICs do, and Linux rxe does not
    #[arg(long, value_name = "N", default_value_t = 0)]
    traffic_class: u8,
    /// Connect by RDMA_CM over queue pair 1: pingpong as rping, or with --service
    /// ud as udaddy, send as ucmatose
    #[arg(long)]
    cm: bool,
    /// The port by which the ends find each other: of TCP 18515; of RDMA_CM that of rping and
    /// udaddy, 7174, or of ucmatose, 7471
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
}

impl EndOptions {
    /// The port of ours.
    fn port_of_ours(&self) -> Result<String, String> {
        match (&self.via, self.peer) {
            (Some(via), _) => Ok(via.clone()),
            (None, Some(peer)) => via::to(peer),
            (None, None) => Err("--via says on which port to wait".to_owned()),
        }
    }

    /// The TCP port of the exchange.
    fn exchange_port(&self) -> u16 {
        self.port.unwrap_or(EXCHANGE_PORT)
    }

    /// The largest payload where `link` carries no larger one.
    fn mtu_on(&self, link: Mtu) -> Result<Mtu, String> {
        match self.mtu {
            Some(mtu) if mtu > link => {
                Err(format!("the link carries payloads of up to {link} bytes: choose --mtu, or raise the link's MTU"))
            }
            mtu => Ok(mtu.unwrap_or(link)),
        }
    }
}

fn parse_mtu(text: &str) -> Result<Mtu, &'static str> {
    let bytes: Option<u32> = text.parse().ok();
    let found = Mtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes);
    found.ok_or("RoCE has payloads of up to 256, 512, 1024, 2048 or 4096 bytes")
}

/// What is measured, once the ends are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Operation {
    Send = 1,
    Write,
    Read,
    Atomic,
}

/// Runs the subcommand.
pub(crate) fn run(options: &RdmaOptions) -> Result<(), Box<dyn Error>> {
    let (operation, options) = match &options.verb {
        Verb::Devices(options) => return devices::run(options),
        Verb::Send(options) => (Operation::Send, options),
        Verb::Write(options) => (Operation::Write, options),
        Verb::Read(options) => (Operation::Read, options),
        Verb::Atomic(options) => {
            let end = EndOptions { size: 8, ..options.end.clone() };
            (Operation::Atomic, &TransferOptions { end, ..options.clone() })
        }
        Verb::Books(options) => return books::run(options, &StopFlag::on_signals()?),
        Verb::Pingpong(options) => return pingpong::run(options, &StopFlag::on_signals()?),
    };
    options.service.check(operation)?;
    let stop = StopFlag::on_signals()?;
    if options.end.cm {
        return match operation {
            Operation::Send => cmatose::run(&options.end, &stop),
            _ => Err("no program of rdmacm-utils does this alone: with --cm, pingpong reads and writes as rping \
                      does, and send sends as ucmatose does"
                .into()),
        };
    }
    match options.end.peer {
        Some(peer) => transfer::run(operation, peer, options, &stop),
        None => serve::run(operation, options, &stop),
    }
}
