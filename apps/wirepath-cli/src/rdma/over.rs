//! Which of the ways to the peer carries the packets, and why. The client chooses, because it is
//! known to a client alone where the server is. Where an end has not the chosen way, and neither
//! has asked for it by name, frames go over TCP.

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
    /// The user has asked for it by name: no other will do.
    pub(super) is_asked_for: bool,
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
        let why = "connections by RDMA_CM are those of a port".to_owned();
        Self { carrier: Some(Carrier::RoceV2), why, is_asked_for: true }
    }

    /// RoCE by a NIC, where the user has named one. The peer may be a NIC or software: the packets
    /// are the same.
    fn of_nic(options: &EndOptions) -> Option<Self> {
        let why = format!("--device names {}", options.device.as_deref()?);
        Some(Self { carrier: Some(Carrier::RoceV2), why, is_asked_for: true })
    }

    /// That of a client.
    pub(super) fn of_client(options: &EndOptions, peer: Ipv4Addr) -> Self {
        if let Some(choice) = Self::of_nic(options) {
            return choice;
        }
        let (carrier, why) = match (options.over.carrier(), &options.via) {
            (Some(carrier), _) => (Some(carrier), "--over says so".to_owned()),
            (None, Some(via)) => (Some(Carrier::RoceV2), format!("--via names the port {via}")),
            (None, None) if via::is_local(peer) => {
                (Some(Carrier::SharedMemory), format!("{peer} is an address of this host"))
            }
            (None, None) => (None, format!("{peer} is another host")),
        };
        let is_asked_for = options.over != Over::Auto || options.via.is_some();
        Self { carrier, why, is_asked_for }
    }

    /// That of a client whose server has not what it chose.
    pub(super) fn of_peer(carrier: Carrier) -> Self {
        Self { carrier: Some(carrier), why: "the peer opened no port".to_owned(), is_asked_for: false }
    }

    /// That of a server: the client's, which another program has none of. Its options have the port
    /// to wait on, then.
    pub(super) fn of_server(
        options: &EndOptions,
        client: Option<Carrier>,
        connection: &Connection,
    ) -> Result<(Self, EndOptions), String> {
        let carrier = client.unwrap_or(Carrier::RoceV2);
        if let Some(choice) = Self::of_nic(options) {
            if carrier != Carrier::RoceV2 {
                return Err(format!("the peer wants {carrier}, and --device says RoCE by a NIC: give both ends one"));
            }
            return Ok((choice, options.clone()));
        }
        if let Some(ours) = options.over.carrier().filter(|ours| *ours != carrier) {
            return Err(format!("the peer wants {carrier}, and --over says {ours}: give both ends the same"));
        }
        let why =
            if client.is_some() { "the peer asks for it" } else { "the peer's program speaks nothing else" }.to_owned();
        let mut options = options.clone();
        let is_asked_for = client.is_none() || options.over != Over::Auto || options.via.is_some();
        let choice = Self { carrier: Some(carrier), why, is_asked_for };
        if carrier != Carrier::RoceV2 {
            return Ok((choice, options));
        }
        match options.via.clone().map_or_else(|| via::with(connection.local()?), Ok) {
            Ok(via) => options.via = Some(via),
            Err(why) if !is_asked_for => {
                return Ok((Self { carrier: Some(Carrier::FramedTcp), why, is_asked_for }, options));
            }
            Err(why) => return Err(why),
        }
        // Without a port of that name, TCP.
        Ok((Self { carrier: choice.carrier.filter(|_| is_asked_for), ..choice }, options))
    }
}
