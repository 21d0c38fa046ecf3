//! What a broker is configured with.

use std::path::PathBuf;

use super::clients::CLIENTS_OF_A_USER;
use super::rights::{BrokerRule, BrokerUser};
use crate::device::af_xdp::{AfXdpConfig, broker_of};
use crate::worker::live::PortConfig;

/// Rules of all programs together.
const RULES_MAX: usize = 65_536;

/// The interface, the users and programs that may have its queues, and the path of the socket.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The interface, and whether its queues are AF_XDP's or a ConnectX's own.
    pub port: PortConfig,
    /// The path of the socket.
    pub path: PathBuf,
    /// The users that are served beside root, if there are no `rules`.
    pub users: Vec<BrokerUser>,
    /// The rules by which programs are served, beside root's. By default `None`: each of `users`
    /// may have all ports from 1024 on, all groups, all addresses, and any number of queues.
    pub rules: Option<Vec<BrokerRule>>,
    /// The most bytes of packet buffers of a client.
    pub memory_max: u64,
    /// The most bytes of packet buffers of all clients of a user together; root has no bound.
    pub user_memory_max: u64,
    /// The most connections of a user, one for each process: by default 32, of 128 in all.
    pub user_connections_max: usize,
    /// Keeps all queues, and passes frames between them and the clients, so that more programs than
    /// queues share the interface. By default off: each client gets a queue.
    pub forward: bool,
    /// Serves further users where root's programs ask for it, as `wirepath run --user` does. By
    /// default off: it serves `users`.
    pub serves_added_users: bool,
}

impl BrokerConfig {
    /// The broker of `interface` at its usual path, for root alone, with 256 MiB of packet buffers
    /// for a client: three times what the library of `wirepath run` takes. All clients of a user
    /// have 3 GiB: as many programs under the library as a user may have connections.
    pub fn new(interface: &str) -> Self {
        Self::over(PortConfig::AfXdp(AfXdpConfig { rules_max: RULES_MAX, ..AfXdpConfig::new(interface) }))
    }

    /// The same over any port that is named by its interface.
    pub fn over(port: PortConfig) -> Self {
        Self {
            path: broker_of(port.interface()),
            port,
            users: Vec::new(),
            rules: None,
            memory_max: 256 << 20,
            user_memory_max: 3 << 30,
            user_connections_max: CLIENTS_OF_A_USER,
            forward: false,
            serves_added_users: false,
        }
    }
}
