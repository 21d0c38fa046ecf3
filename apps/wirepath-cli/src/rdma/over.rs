//! Which of the ways to the peer carries the packets, and why. The client chooses; the server does
//! as the client's address says, because it is known to a client alone where the server is.

use std::net::Ipv4Addr;

use ::rdma::cable::Carrier;
use clap::ValueEnum;

use super::exchange::Connection;
use super::{EndOptions, via};

/// What is to carry the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Over {
    /// The best: shared memory on one host, RoCE where a port can be opened, else TCP
    #[default]
    Auto,
    /// Memory of this host, which both ends have
    SharedMemory,
    /// RoCEv2 in software over the port
    Roce,
    /// The same frames in a TCP connection, which needs no privilege
    Tcp,
}

/// What carries a queue pair, and why.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// `None` where it depends on whether a port can be opened.
    pub(super) carrier: Option<Carrier>,
    pub(super) why: String,
}

impl Over {
    /// What was asked for by name.
    const fn carrier(self) -> Option<Carrier> {
        match self {
            Self::Auto => None,
            Self::SharedMemory => Some(Carrier::SharedMemory),
            Self::Roce => Some(Carrier::RoceV2),
            Self::Tcp => Some(Carrier::FramedTcp),
        }
    }
}

impl Choice {
    /// Over a port, whatever there is beside it.
    pub(super) fn port() -> Self {
        Self { carrier: Some(Carrier::RoceV2), why: "connections by RDMA_CM are those of a port".to_owned() }
    }

    /// That of a client.
    pub(super) fn of_client(options: &EndOptions, peer: Ipv4Addr) -> Self {
        let (carrier, why) = match (options.over.carrier(), &options.via) {
            (Some(carrier), _) => (Some(carrier), "--over says so".to_owned()),
            (None, Some(via)) => (Some(Carrier::RoceV2), format!("--via names the port {via}")),
            (None, None) if via::is_local(peer) => {
                (Some(Carrier::SharedMemory), format!("{peer} is an address of this host"))
            }
            (None, None) => (None, format!("{peer} is another host")),
        };
        Self { carrier, why }
    }

    /// That of a server: the client's, which another program has none of. Its options have the port
    /// to wait on, then.
    pub(super) fn of_server(
        options: &EndOptions,
        client: Option<Carrier>,
        connection: &Connection,
    ) -> Result<(Self, EndOptions), String> {
        let carrier = client.unwrap_or(Carrier::RoceV2);
        if let Some(ours) = options.over.carrier().filter(|ours| *ours != carrier) {
            return Err(format!("the peer wants {carrier}, and --over says {ours}: give both ends the same"));
        }
        let why =
            if client.is_some() { "the peer asks for it" } else { "the peer's program speaks nothing else" }.to_owned();
        let mut options = options.clone();
        if carrier == Carrier::RoceV2 && options.via.is_none() {
            options.via = Some(via::with(connection.local()?)?);
        }
        Ok((Self { carrier: Some(carrier), why }, options))
    }
}
