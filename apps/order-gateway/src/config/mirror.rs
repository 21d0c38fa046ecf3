//! The mirror: a copy of the journal that is written by RDMA.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::{Problem, check_lease, lease, optional_endpoint, secret};
use crate::error::Error;
use crate::standby::{MirrorPolicy, Secret};

/// The mirror. Both ends have this section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorConfig {
    /// Where the standby listens. By default none: the command line says it.
    #[serde(default, deserialize_with = "optional_endpoint")]
    pub address: Option<SocketAddrV4>,
    /// The port of this machine that RDMA goes by, as `wirepath rdma --via` names it.
    pub via: String,
    /// DSCP in the upper six bits and ECN in the lower two. By default 0: with 2 (ECT) congested
    /// switches mark our packets and do not drop them, and the copy is written slower then.
    #[serde(default)]
    pub traffic_class: u8,
    /// What becomes of orders while the copy is behind: `before-send`, `stop` or `go-on`. By
    /// default before-send.
    #[serde(default)]
    policy: PolicyWord,
    /// How long a grant holds. The standby takes over an eighth later. By default 1000.
    #[serde(default)]
    lease_ms: Option<Spanned<u32>>,
    /// Orders pass at once after a take-over. By default false: a person arms.
    #[serde(default)]
    pub arms: bool,
    /// A secret that both ends prove to have before anything else. By default none: who reaches
    /// the port is obeyed.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Where its section is in the file; empty where it is of the command line.
    #[serde(skip)]
    pub(super) at: Range<usize>,
}

pub(super) fn section<'de, D: Deserializer<'de>>(from: D) -> Result<Option<MirrorConfig>, D::Error> {
    let section = Spanned::<MirrorConfig>::deserialize(from)?;
    let at = section.span();
    Ok(Some(MirrorConfig { at, ..section.into_inner() }))
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PolicyWord {
    #[default]
    BeforeSend,
    Stop,
    GoOn,
}

impl MirrorConfig {
    /// One whose port is `via`, and all else by default.
    pub fn new(via: &str) -> Self {
        let (address, policy, lease_ms, via) = (None, PolicyWord::default(), None, via.to_owned());
        Self { address, via, traffic_class: 0, policy, lease_ms, arms: false, secret_file: None, at: 0..0 }
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        check_lease(self.lease_ms.as_ref())
    }

    /// How long a grant holds.
    pub fn lease(&self) -> Duration {
        lease(self.lease_ms.as_ref())
    }

    /// The secret of its file.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has none.
    pub fn secret(&self) -> Result<Option<Secret>, Error> {
        secret(self.secret_file.as_deref())
    }

    /// What becomes of orders while the copy is behind.
    pub const fn policy(&self) -> MirrorPolicy {
        match self.policy {
            PolicyWord::BeforeSend => MirrorPolicy::BeforeSend,
            PolicyWord::Stop => MirrorPolicy::Stop,
            PolicyWord::GoOn => MirrorPolicy::GoOn,
        }
    }

    /// Takes a policy by its word.
    ///
    /// # Errors
    ///
    /// There is none of this word.
    pub fn set_policy(&mut self, word: &str) -> Result<(), String> {
        self.policy = match word {
            "before-send" => PolicyWord::BeforeSend,
            "stop" => PolicyWord::Stop,
            "go-on" => PolicyWord::GoOn,
            _ => return Err(format!("{word:?} is no policy of a mirror: before-send, stop or go-on")),
        };
        Ok(())
    }
}
