//! A connection manager and a device: datagrams between the two, and the states of queue pairs.

use std::collections::VecDeque;

use super::machine::{Cm, CmConfig, CmError, CmEvent, CmId, ConnectOptions, Delivery, LocalQp};
use super::reason::RejectReason;
use crate::roce::{Addresses, Device, Mtu, Path, QpAttributes, QpHandle, QpState};

/// The way between two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// It is this.
    Known(Path),
    /// It is being looked for: ask again.
    Wait,
    /// There is none.
    Never,
}

/// Connections of a device's queue pairs.
///
/// A queue pair that is to be connected is in INIT, with its receives posted: the peer may send as
/// soon as it hears of it. As with Linux, a queue pair of the passive side is in RTS before its REP
/// leaves. [`poll`](Self::poll) is called in each turn, and costs a few compares where nothing
/// happens.
///
/// ```
/// use rdma::cm::{CmConfig, CmEvent, ListenOptions, Manager, PortSpace, Resolved};
/// use rdma::roce::{Device, DeviceConfig};
///
/// let mut device = Device::new(&DeviceConfig::default());
/// let mut manager = Manager::new(&CmConfig::default());
/// manager.cm_mut().listen(&ListenOptions { space: PortSpace::Tcp, port: 7174, backlog: 16 })?;
/// // Each turn, beside those of the device:
/// manager.poll(0, &mut device, |_| Resolved::Wait);
/// while let Some(event) = manager.next_event() {
///     match event {
///         CmEvent::ConnectRequest(request) => println!("{:?} asks", request.addresses),
///         other => println!("{other:?}"),
///     }
/// }
/// # Ok::<(), rdma::cm::CmError>(())
/// ```
pub struct Manager {
    cm: Cm,
    /// The queue pairs of connections.
    qps: Vec<Connected>,
    /// Connections whose queue pairs are to be led to RTS, and wait for their ways.
    pending: VecDeque<CmId>,
    /// Queue pairs that were led to RTS for a peer whose RTU has not come.
    unconfirmed: Vec<(CmId, QpHandle)>,
    /// What the device had counted when these were looked through.
    established: u64,
    events: VecDeque<CmEvent>,
    /// Of our packets; 0 where the peer's requests say it.
    traffic_class: u8,
}

/// The queue pair of a connection.
struct Connected {
    id: CmId,
    qp: QpHandle,
    /// The connection has ended, or came to nothing.
    has_failed: bool,
}

impl Manager {
    /// A manager with room for what the configuration says.
    ///
    /// # Panics
    /// As [`Cm::new`].
    pub fn new(config: &CmConfig) -> Self {
        let connections = config.connections as usize;
        Self {
            cm: Cm::new(config),
            qps: Vec::with_capacity(connections),
            pending: VecDeque::with_capacity(connections),
            unconfirmed: Vec::with_capacity(connections),
            established: 0,
            events: VecDeque::with_capacity(5 * connections),
            traffic_class: config.traffic_class,
        }
    }

    /// The machine.
    pub fn cm(&self) -> &Cm {
        &self.cm
    }

    /// The machine, to listen, to reject, and for datagrams.
    pub fn cm_mut(&mut self) -> &mut Cm {
        &mut self.cm
    }

    /// Connects a queue pair, which is in INIT. [`CmEvent::Established`], `Rejected`, `Unreachable`
    /// or `ConnectError` follows.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn connect(&mut self, now: u64, qp: QpHandle, options: &ConnectOptions<'_>) -> Result<CmId, CmError> {
        let id = self.cm.connect(now, options)?;
        self.qps.push(Connected { id, qp, has_failed: false });
        Ok(id)
    }

    /// Grants a connection that a peer has asked for, with a queue pair that is in INIT.
    /// [`CmEvent::Established`] or one of failure follows.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn accept(&mut self, id: CmId, qp: QpHandle, options: &LocalQp, data: &[u8]) -> Result<(), CmError> {
        self.cm.accept(id, options, data)?;
        self.qps.push(Connected { id, qp, has_failed: false });
        self.pending.push_back(id);
        Ok(())
    }

    /// Ends a connection: its queue pair is in ERR from now on. [`CmEvent::Disconnected`] follows.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn disconnect(&mut self, now: u64, device: &mut Device, id: CmId) -> Result<(), CmError> {
        self.cm.disconnect(now, id)?;
        self.fail(device, id);
        Ok(())
    }

    /// Forgets a connection, as [`Cm::destroy`]; its queue pair, if it still has one, is in ERR.
    ///
    /// # Errors
    /// [`CmError`].
    pub fn destroy(&mut self, now: u64, device: &mut Device, id: CmId) -> Result<(), CmError> {
        self.cm.destroy(now, id)?;
        self.events.retain(|event| event.id() != id);
        self.fail(device, id);
        self.qps.retain(|connected| connected.id != id);
        Ok(())
    }

    /// The queue pair of a connection.
    pub fn qp(&self, id: CmId) -> Option<QpHandle> {
        self.qps.iter().find(|connected| connected.id == id).map(|connected| connected.qp)
    }

    /// Takes the oldest event.
    pub fn next_event(&mut self) -> Option<CmEvent> {
        self.events.pop_front()
    }

    /// When [`poll`](Self::poll) is to be called, if no packet comes before.
    #[inline]
    pub fn next_timer(&self) -> Option<u64> {
        self.cm.next_timer()
    }

    /// True while messages or queue pairs wait for their ways.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.cm.is_due() || !self.pending.is_empty()
    }

    /// Moves what is to be moved: datagrams in, timers, states of queue pairs, datagrams out.
    /// `resolve` finds the way between two addresses.
    pub fn poll(&mut self, now: u64, device: &mut Device, mut resolve: impl FnMut(Addresses) -> Resolved) {
        while let Some(received) = device.next_mad() {
            self.cm.receive(now, received.addresses, &received.mad);
        }
        self.cm.on_timer(now);
        self.confirm(device);
        self.take_events(device);
        for _ in 0..self.pending.len() {
            if let Some(id) = self.pending.pop_front() {
                self.lead(now, device, id, &mut resolve);
            }
        }
        // Those of connections that were led just now.
        self.take_events(device);
        if self.cm.is_due() {
            let traffic_class = self.traffic_class;
            self.cm.transmit(now, |addresses, mad| match resolve(addresses) {
                Resolved::Known(path) => match device.send_mad(&Path { traffic_class, ..path }, mad) {
                    Ok(()) => Delivery::Sent,
                    Err(_) => Delivery::Wait,
                },
                Resolved::Wait => Delivery::Wait,
                Resolved::Never => Delivery::Never,
            });
        }
    }

    /// A peer sends over a connection when it has the REP: its first packet says what an RTU says,
    /// and the RTU may be lost (InfiniBand 12.9.7.2, communication established). Only a request
    /// with the number that the REP has named is such a packet.
    fn confirm(&mut self, device: &Device) {
        let established = device.established();
        if core::mem::replace(&mut self.established, established) == established {
            return;
        }
        let Self { cm, unconfirmed, .. } = self;
        unconfirmed.retain(|(id, qp)| {
            let is_established = device.is_established(*qp);
            if is_established == Some(true) {
                // It may have ended meanwhile.
                let _ = cm.notify_established(*id);
            }
            is_established == Some(false)
        });
    }

    fn take_events(&mut self, device: &mut Device) {
        while let Some(event) = self.cm.next_event() {
            match event {
                CmEvent::ConnectResponse(id) => {
                    self.pending.push_back(id);
                    continue;
                }
                CmEvent::Rejected(id, _) | CmEvent::Unreachable(id) | CmEvent::Disconnected(id) => {
                    self.fail(device, id)
                }
                CmEvent::Established(id) => self.unconfirmed.retain(|(led, _)| *led != id),
                _ => {}
            }
            self.events.push_back(event);
        }
    }

    /// Leads a queue pair to RTS, if its way is known.
    fn lead(&mut self, now: u64, device: &mut Device, id: CmId, resolve: &mut impl FnMut(Addresses) -> Resolved) {
        let (Some(qp), Some(agreed)) = (self.qp(id), self.cm.agreed(id)) else { return };
        let path = match resolve(agreed.addresses) {
            Resolved::Known(path) if self.traffic_class == 0 => Path { traffic_class: agreed.traffic_class, ..path },
            Resolved::Known(path) => Path { traffic_class: self.traffic_class, ..path },
            Resolved::Wait => return self.pending.push_back(id),
            Resolved::Never => {
                // The peer may have given up meanwhile.
                let _ = self.cm.reject(now, id, RejectReason::NoResources, &[]);
                self.fail(device, id);
                return self.events.push_back(CmEvent::Unreachable(id));
            }
        };
        let connection = QpAttributes {
            mtu: Some(agreed.mtu),
            rq_psn: Some(agreed.rq_psn),
            max_dest_rd_atomic: Some(agreed.max_dest_rd_atomic),
            sq_psn: Some(agreed.sq_psn),
            max_rd_atomic: Some(agreed.max_rd_atomic),
            retry_cnt: Some(agreed.retry_cnt),
            rnr_retry: Some(agreed.rnr_retry),
            timeout: Some(agreed.timeout),
            ..QpAttributes::connection(path, agreed.qpn)
        };
        // In INIT it is, with receives.
        let [_, rtr, rts] = connection.steps(agreed.transport);
        let led = device.modify_qp(qp, &rtr).and_then(|()| device.modify_qp(qp, &rts));
        match led {
            Ok(()) => match self.cm.ready(now, id) {
                Ok(()) => {
                    // A program may have destroyed connections without us.
                    let cm = &self.cm;
                    self.unconfirmed.retain(|(led, _)| cm.agreed(*led).is_some());
                    self.unconfirmed.push((id, qp));
                }
                // The peer has given up meanwhile, which is another event, or our program has.
                Err(_) => self.fail(device, id),
            },
            Err(error) => {
                // A payload that the peer proposes may be longer than our link's.
                let is_mtu = agreed.mtu > Mtu::B256 && error == crate::roce::ModifyError::Value("PATH_MTU");
                let reason = if is_mtu { RejectReason::InvalidMtu } else { RejectReason::ConsumerDefined };
                let _ = self.cm.reject(now, id, reason, &[]);
                self.fail(device, id);
                self.events.push_back(CmEvent::ConnectError(id, error));
            }
        }
    }

    /// The queue pair of a connection is of no more use, unless it serves another.
    fn fail(&mut self, device: &mut Device, id: CmId) {
        self.pending.retain(|pending| *pending != id);
        self.unconfirmed.retain(|(led, _)| *led != id);
        let Some(qp) = self.qp(id) else { return };
        self.qps.iter_mut().filter(|connected| connected.id == id).for_each(|connected| connected.has_failed = true);
        let cm = &self.cm;
        let is_live = |other: &Connected| !other.has_failed && cm.agreed(other.id).is_some();
        if !self.qps.iter().any(|other| other.qp == qp && is_live(other)) {
            // A program may have destroyed it before.
            let _ = device.modify_qp(qp, &QpAttributes::to(QpState::Err));
        }
    }
}
