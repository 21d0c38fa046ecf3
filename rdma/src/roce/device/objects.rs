//! The objects of a device: made, changed, looked at and destroyed. Nothing of this is called for
//! a packet.

use core::fmt;

use super::{Device, FIRST_QPN, settle};
use crate::roce::config::DeviceConfig;
use crate::roce::counters::{DeviceCounters, QpCounters};
use crate::roce::cq::{Cq, Notify};
use crate::roce::events::Event;
use crate::roce::handle::{CqHandle, MrHandle, MwHandle, PdHandle, QpHandle, SrqHandle};
use crate::roce::keys::{Access, Mr, Mw};
use crate::roce::memory::Region;
use crate::roce::owned::PoolRegions;
use crate::roce::qp::attributes::Limits;
use crate::roce::qp::{ModifyError, Qp, QpAttributes, QpOptions, QpState};
use crate::roce::work::{Status, WorkCompletion};
use crate::wire::qpn::Qpn;

/// Why an object was not made, or not destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no room for another of this kind: its
    /// [`DeviceConfig`](crate::roce::DeviceConfig) says how many.
    Full(&'static str),
    /// No object of this kind has the handle: it was destroyed.
    Unknown(&'static str),
    /// Other objects use it.
    InUse(&'static str),
    /// A value beyond the device's limits, or rights without the right that they need.
    Value(&'static str),
    /// A call of rdma-core failed with this errno.
    Call(&'static str, i32),
}

impl Device {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn create_pd(&mut self) -> Result<PdHandle, DeviceError> {
        self.pds.insert_with(|_| ()).ok_or(DeviceError::Full("protection domains"))
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// If regions, windows, queues or address handles use it.
    pub fn destroy_pd(&mut self, pd: PdHandle) -> Result<(), DeviceError> {
        let is_used = self.tables.regions.uses(pd)
            || self.qps.iter().any(|qp| qp.pd() == pd)
            || self.tables.srqs.iter().any(|srq| srq.pd == pd)
            || self.tables.ahs.iter().any(|ah| ah.pd == pd);
        if is_used {
            return Err(DeviceError::InUse("protection domain"));
        }
        self.pds.remove(pd).ok_or(DeviceError::Unknown("protection domain"))
    }

    /// Registers memory. Requests name its bytes by their addresses in this process.
    ///
    /// # Errors
    /// If the device has no room for it, or a right demands [`Access::LOCAL_WRITE`].
    pub fn register(&mut self, pd: PdHandle, region: Region, access: Access) -> Result<Mr, DeviceError> {
        let address = region.address();
        self.register_at(pd, region, address, access)
    }

    /// Registers memory of which requests name the first byte by `address`, whatever it is in this
    /// process.
    ///
    /// # Errors
    /// As of [`Device::register`].
    pub fn register_at(
        &mut self,
        pd: PdHandle,
        region: Region,
        address: u64,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown("protection domain"))?;
        PoolRegions::check_region(&region, address, access)?;
        self.ownership.as_ref().map_or(Ok(()), |ownership| ownership.pools.check_only(pd, &region))?;
        let is_pool = region.is_pool();
        let registered = self.tables.regions.register(pd, region, address, access);
        let registered = registered.map_err(|_| DeviceError::Value("access rights without LOCAL_WRITE"))?;
        let mr = registered.ok_or(DeviceError::Full("memory regions"))?;
        if is_pool {
            self.ownership_mut().pools.add(pd, mr);
        }
        Ok(mr)
    }

    /// Ends a registration and returns the memory. Requests that are under way fail when they next
    /// reach for it.
    ///
    /// # Errors
    /// If there is none, or memory windows are bound to it.
    pub fn deregister(&mut self, mr: MrHandle) -> Result<Region, DeviceError> {
        if self.tables.regions.has_windows(mr) {
            return Err(DeviceError::InUse("memory region"));
        }
        let region = self.tables.regions.deregister(mr).ok_or(DeviceError::Unknown("memory region"))?;
        if region.is_pool() {
            self.ownership_mut().pools.remove(mr);
        }
        Ok(region)
    }

    /// Makes a memory window. It reaches nothing until a request binds it
    /// ([`SendOperation::BindWindow`](crate::roce::SendOperation::BindWindow)).
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn create_mw(&mut self, pd: PdHandle) -> Result<Mw, DeviceError> {
        self.pds.get(pd).ok_or(DeviceError::Unknown("protection domain"))?;
        self.tables.regions.create_window(pd).ok_or(DeviceError::Full("memory windows"))
    }

    /// Destroys a memory window, bound or not; from now on its key reaches nothing.
    ///
    /// # Errors
    /// If there is none.
    pub fn destroy_mw(&mut self, handle: MwHandle) -> Result<(), DeviceError> {
        let was_there = self.tables.regions.destroy_window(handle);
        if was_there { Ok(()) } else { Err(DeviceError::Unknown("memory window")) }
    }

    /// Makes a completion queue of `depth` entries.
    ///
    /// # Errors
    /// If the device has no room for it, or not so many entries.
    pub fn create_cq(&mut self, depth: u32) -> Result<CqHandle, DeviceError> {
        if depth > self.config.cqes {
            return Err(DeviceError::Value("completion queue entries"));
        }
        self.tables.cqs.insert_with(|_| Cq::new(depth)).ok_or(DeviceError::Full("completion queues"))
    }

    /// Destroys a completion queue.
    ///
    /// # Errors
    /// If queue pairs use it.
    pub fn destroy_cq(&mut self, handle: CqHandle) -> Result<(), DeviceError> {
        let cq = self.tables.cqs.get(handle).ok_or(DeviceError::Unknown("completion queue"))?;
        if cq.users > 0 {
            return Err(DeviceError::InUse("completion queue"));
        }
        self.tables.cqs.remove(handle);
        self.tables.events.forget(handle);
        Ok(())
    }

    /// Takes the oldest completion. If its request owns an mbuf, that is freed.
    #[inline]
    pub fn poll_cq(&mut self, cq: CqHandle) -> Option<WorkCompletion> {
        self.poll_owned(cq).map(|(completion, _)| completion)
    }

    #[inline]
    pub(super) fn take_completion(&mut self, cq: CqHandle) -> Option<WorkCompletion> {
        let completion = self.tables.cqs.get_mut(cq)?.pop()?;
        if completion.status == Status::Flushed {
            self.note_polled(&completion);
        }
        Some(completion)
    }

    #[cold]
    fn note_polled(&mut self, completion: &WorkCompletion) {
        // Another queue pair may have the place by now.
        let qp = self.qps.at_mut(self.place(completion.qpn)).filter(|qp| qp.qpn() == completion.qpn);
        if let Some(qp) = qp {
            qp.note_polled(completion.kind);
        }
    }

    /// Asks for one notification, which [`Device::next_notification`] returns. Poll once more
    /// behind it: a completion that was there already notifies of nothing.
    ///
    /// # Errors
    /// If there is no such queue.
    pub fn arm_cq(&mut self, cq: CqHandle, notify: Notify) -> Result<(), DeviceError> {
        self.tables.cqs.get_mut(cq).ok_or(DeviceError::Unknown("completion queue"))?.arm(notify);
        Ok(())
    }

    /// Takes a completion queue that was armed, and has a completion now.
    pub fn next_notification(&mut self) -> Option<CqHandle> {
        self.tables.events.pop_notified()
    }

    /// Takes the oldest asynchronous event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.tables.events.pop()
    }

    /// Makes a queue pair in the state RESET. Its queues are allocated here.
    ///
    /// # Errors
    /// If the device has no room for it, an object that it uses does not exist, or its queues are
    /// longer than the device's limit.
    pub fn create_qp(&mut self, options: &QpOptions) -> Result<QpHandle, DeviceError> {
        self.pds.get(options.pd).ok_or(DeviceError::Unknown("protection domain"))?;
        if options.send_depth.max(options.recv_depth) > self.config.wrs_per_queue {
            return Err(DeviceError::Value("queue depth"));
        }
        for cq in [options.send_cq, options.recv_cq] {
            self.tables.cqs.get(cq).ok_or(DeviceError::Unknown("completion queue"))?;
        }
        if let Some(srq) = options.srq {
            let srq = self.tables.srqs.get_mut(srq).ok_or(DeviceError::Unknown("shared receive queue"))?;
            if srq.pd != options.pd {
                return Err(DeviceError::Value("shared receive queue of another protection domain"));
            }
        }
        let bits = self.qpn_bits;
        let made = self.qps.insert_with(|handle| {
            let qpn = Qpn::new(handle.generation() << bits | (handle.idx() + FIRST_QPN));
            Qp::new(handle, qpn, options)
        });
        let handle = made.ok_or(DeviceError::Full("queue pairs"))?;
        self.count_users([options.send_cq, options.recv_cq], options.srq, 1);
        Ok(handle)
    }

    /// Destroys a queue pair; its requests have no completions. A receive of its shared queue that
    /// a message has begun with is the first there again; where that queue is full again, it has a
    /// completion as flushed. Mbufs of its requests are freed.
    ///
    /// # Errors
    /// If there is none.
    pub fn destroy_qp(&mut self, handle: QpHandle) -> Result<(), DeviceError> {
        let mut qp = self.qps.remove(handle).ok_or(DeviceError::Unknown("queue pair"))?;
        self.disown_all(handle);
        qp.leave_shared(&mut self.tables);
        self.timers.remove(handle.idx());
        if qp.is_queued {
            self.due.remove(handle.idx());
        }
        self.groups.forget(handle);
        self.count_users(qp.cqs(), qp.srq(&self.tables), -1);
        Ok(())
    }

    fn count_users(&mut self, cqs: [CqHandle; 2], srq: Option<SrqHandle>, change: i32) {
        for handle in cqs {
            if let Some(cq) = self.tables.cqs.get_mut(handle) {
                cq.users = cq.users.saturating_add_signed(change);
            }
        }
        if let Some(srq) = srq.and_then(|handle| self.tables.srqs.get_mut(handle)) {
            srq.users = srq.users.saturating_add_signed(change);
        }
    }

    /// Sets attributes of a queue pair, and leads it to its next state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing changed then.
    pub fn modify_qp(&mut self, handle: QpHandle, attributes: &QpAttributes) -> Result<(), ModifyError> {
        let (mtu, rd_atomics) = (self.config.mtu, self.config.rd_atomics);
        let limits = Limits { mtu, dest_rd_atomics: rd_atomics, rd_atomics };
        let qp = self.qps.get_mut(handle).ok_or(ModifyError::UnknownQp)?;
        let lens = qp.lens();
        qp.modify(&mut self.tables, limits, attributes)?;
        settle(qp, &self.tables, &mut self.due, &mut self.timers);
        if attributes.state == Some(QpState::Reset) {
            self.disown_last(handle, lens);
        }
        Ok(())
    }

    /// What the device was made for.
    pub const fn config(&self) -> &DeviceConfig {
        &self.config
    }

    /// The queue pair at a place of the table, from 0 to below
    /// [`DeviceConfig::qps`](crate::roce::DeviceConfig::qps), if there is one.
    pub fn qp_at(&self, place: u32) -> Option<QpHandle> {
        self.qps.handle_at(place)
    }

    /// The number of a queue pair, which its peer needs.
    pub fn qpn(&self, handle: QpHandle) -> Option<Qpn> {
        self.qps.get(handle).map(Qp::qpn)
    }

    /// The state of a queue pair.
    pub fn qp_state(&self, handle: QpHandle) -> Option<QpState> {
        self.qps.get(handle).map(Qp::state)
    }

    /// The attributes that a queue pair has now (`ibv_query_qp`): its state, and of the others
    /// those that its service and the steps so far have given it. Packet numbers are those of the
    /// next packets, and the rights are the peer's alone.
    ///
    /// # Errors
    /// If there is none.
    pub fn qp_attributes(&self, handle: QpHandle) -> Result<QpAttributes, DeviceError> {
        self.qps.get(handle).map(Qp::attributes).ok_or(DeviceError::Unknown("queue pair"))
    }

    /// True while requests of a queue pair wait that [`Device::transmit`] has not handed out whole,
    /// or not again since they were lost: for acknowledgments of earlier ones, the peer's receives,
    /// a slower pace, or the caller.
    pub fn has_unsent_requests(&self, handle: QpHandle) -> bool {
        self.qps.get(handle).is_some_and(Qp::has_unsent_requests)
    }

    /// Queue pairs whose peers have sent what was expected first, ever: who waits for one looks at
    /// his only when another was counted.
    pub(crate) fn established(&self) -> u64 {
        self.tables.established
    }

    /// True once the peer of a queue pair has sent what was expected first; `None` of one that is
    /// destroyed.
    pub(crate) fn is_established(&self, handle: QpHandle) -> Option<bool> {
        self.qps.get(handle).map(Qp::is_established)
    }

    /// What a queue pair counted.
    pub fn qp_counters(&self, handle: QpHandle) -> Option<QpCounters> {
        self.qps.get(handle).map(|qp| qp.counters)
    }

    /// What the device counted.
    pub fn counters(&self) -> DeviceCounters {
        DeviceCounters { events_lost: self.tables.events.lost, ..self.tables.counters }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(what) => write!(f, "no room for more {what}: DeviceConfig says how many"),
            Self::Unknown(what) => write!(f, "no such {what}: it was destroyed, or belongs to another device"),
            Self::InUse(what) => write!(f, "the {what} is in use: destroy first what was made with it"),
            Self::Value(what) => write!(f, "not possible with this device: {what}"),
            Self::Call(call, errno) => {
                write!(f, "{call}: {}", std::io::Error::from_raw_os_error(*errno))
            }
        }
    }
}

impl core::error::Error for DeviceError {}
