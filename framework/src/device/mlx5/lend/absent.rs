//! Stands in for a broker's port where the broker was not built, as `device/absent` does for a
//! device. The types have no values.

use core::net::Ipv4Addr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use super::config::Mlx5Config;
use super::receive::rx::Mlx5Rx;
use super::send::tx::Mlx5Tx;
use crate::counters::Scope;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{Capabilities, DeviceError, DeviceErrorKind, RxState};
use crate::mem::{Layout, Pool, Region, Sizing};
use crate::wire::Protocol;

/// No rule is taken back where there is no broker.
pub(crate) fn lost_rule(_message: &[u8]) -> Option<(RuleId, i32)> {
    None
}

pub(crate) enum LentPort {}

pub(crate) enum LentQueue {}

impl LentPort {
    pub(super) fn open(_path: &Path, _config: &Mlx5Config) -> Result<Self, DeviceError> {
        let sentence = "this program was built without brokers: build it with the feature af-xdp, or leave out \
                        Mlx5Config::broker";
        Err(DeviceError::new(DeviceErrorKind::InvalidConfig, sentence))
    }

    pub(super) fn why_ended(&self) -> Option<String> {
        match *self {}
    }

    pub(super) fn take_icmp_errors(&self) -> Option<OwnedFd> {
        match *self {}
    }

    pub(super) fn claim(&self, _socket: BorrowedFd<'_>, _protocol: Protocol, _port: u16) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn resolver(&self) -> Box<dyn Fn(Ipv4Addr) -> io::Result<()> + Send> {
        match *self {}
    }

    pub(super) fn interface(&self) -> &str {
        match *self {}
    }

    pub(super) fn state(&self) -> RxState {
        match *self {}
    }

    pub(super) fn describe(&self) -> String {
        match *self {}
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        match *self {}
    }

    pub(super) fn take_queue(&mut self, _idx: u16) -> Result<LentQueue, DeviceError> {
        match *self {}
    }

    pub(super) fn steer(&self, _rule: &Rule, _idx: u16) -> Result<RuleId, SteerError> {
        match *self {}
    }

    pub(super) fn unsteer(&self, _id: RuleId) -> Result<(), SteerError> {
        match *self {}
    }
}

impl LentQueue {
    pub(super) fn open(self, _pool: &Pool, _scope: &Scope) -> Result<(Mlx5Rx, Mlx5Tx), DeviceError> {
        match self {}
    }

    pub(super) fn buffers(&self) -> Sizing {
        match *self {}
    }

    pub(super) fn region(&mut self, _layout: Layout, _buffers: usize) -> Result<Region, DeviceError> {
        match *self {}
    }
}
