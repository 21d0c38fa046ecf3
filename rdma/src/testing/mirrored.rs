//! A log that is mirrored into the memory of another device, in virtual time over a wire of the
//! test's.

use core::net::Ipv4Addr;

use crate::mirror::{LogMirror, MirrorOptions};
use crate::provider::Provider;
use crate::roce::{
    Access, Addresses, Buffer, CqHandle, Device, DeviceConfig, Link, Mr, Path, QpAttributes, QpHandle, QpOptions,
    Region, Remote, RoceFrame,
};
use crate::wire::opcode::Transport;
use crate::wire::psn::Psn;

/// Two devices: one writes its log, one holds the copy.
pub struct Mirrored {
    /// The log's end.
    pub mirror: LogMirror,
    /// The copy.
    pub copy: Buffer,
    /// Frames from the log's end that the wire was given.
    pub frames: u64,
    /// The device of the log's end, and that of the copy's.
    pub devices: [Device; 2],
    /// The time, in nanoseconds.
    pub now: u64,
    mr: Mr,
    holder: (CqHandle, QpHandle),
}

impl Mirrored {
    /// A mirror into `len` bytes of zero.
    ///
    /// # Panics
    /// If a device has no room for what it needs.
    pub fn new(options: &MirrorOptions, len: usize) -> Self {
        // Each WRITE of a window may be under way.
        Self::with_unacknowledged_packets(options, len, 4 * options.window)
    }

    /// The same, of whose packets so many may be under way.
    ///
    /// # Panics
    /// If a device has no room for what it needs.
    pub fn with_unacknowledged_packets(options: &MirrorOptions, len: usize, unacknowledged_packets: u32) -> Self {
        let config = DeviceConfig { unacknowledged_packets, key_seed: 1, ..DeviceConfig::default() };
        let mut devices = [Device::new(&config), Device::new(&config)];
        let pds = devices.each_mut().map(|device| device.create_pd().expect("the first domain"));
        let mirror = LogMirror::new(&mut devices[0], pds[0], options).expect("room for a mirror");
        let copy = Buffer::zeroed(len);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = devices[1].register(pds[1], Region::from(&copy), access).expect("the first region");
        let cq = devices[1].create_cq(16).expect("the first queue");
        let options = QpOptions {
            transport: Transport::Rc,
            pd: pds[1],
            send_cq: cq,
            recv_cq: cq,
            send_depth: 1,
            recv_depth: 1,
            srq: None,
            signals_all: true,
        };
        let qp = devices[1].create_qp(&options).expect("the first queue pair");
        let mut mirrored = Self { mirror, copy, frames: 0, devices, mr, holder: (cq, qp), now: 1_000_000 };
        mirrored.connect();
        let remote = mirrored.remote();
        mirrored.mirror.begin(remote, len, 0);
        mirrored
    }

    /// The copy, as the log's end names it.
    pub fn remote(&self) -> Remote {
        Remote { address: self.mr.address, rkey: self.mr.key }
    }

    fn connect(&mut self) {
        let qps = [self.mirror.qp(), self.holder.1];
        for own in 0..2 {
            let (mac, address) = (|end: usize| [end as u8 + 1; 6], |end| Ipv4Addr::new(10, 0, 0, end as u8 + 1));
            let link = Link { destination: mac(1 - own), source: mac(own), vlan: None };
            let addresses = Addresses::Ipv4 { source: address(own), destination: address(1 - own) };
            let qpn = self.devices[1 - own].qpn(qps[1 - own]).expect("it was made");
            let psn = |end: usize| Some(Psn::new(100 + end as u32));
            let connection = QpAttributes {
                rq_psn: psn(1 - own),
                sq_psn: psn(own),
                access: Some(Access::REMOTE_WRITE),
                ..QpAttributes::connection(Path::new(link, addresses), qpn)
            };
            self.devices[own].connect_qp(qps[own], Transport::Rc, &connection).expect("the steps to RTS");
        }
    }

    /// Carries all that is due. `keep` says of each frame whether it is the log's end's, and
    /// answers whether it arrives.
    pub fn carry(&mut self, mut keep: impl FnMut(bool) -> bool) {
        let mut bytes = vec![0; self.devices[0].frame_len_max()];
        while let Some((from, len)) =
            (0..2).find_map(|from| Some((from, self.devices[from].transmit(self.now, &mut bytes)?)))
        {
            self.frames += u64::from(from == 0);
            if let (true, Ok(frame)) = (keep(from == 0), RoceFrame::parse(&bytes[..len])) {
                self.devices[1 - from].receive(self.now, frame.network, frame.roce);
            }
        }
        self.mirror.poll(&mut self.devices[0]);
    }

    /// Posts what `log` has more.
    pub fn post(&mut self, log: &[u8]) {
        self.mirror.post(&mut self.devices[0], log);
    }

    /// Goes on to the next timer; false where none runs.
    pub fn tick(&mut self) -> bool {
        let Some(next) = self.devices.iter().filter_map(Device::next_timer).min() else { return false };
        self.now = self.now.max(next);
        self.devices.iter_mut().for_each(|device| device.on_timer(self.now));
        true
    }

    /// The bytes of the copy.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.copy.len()];
        self.copy.read(0, &mut bytes);
        bytes
    }

    /// From now on nobody reaches the copy: what the holder does before it reads it for good.
    ///
    /// # Panics
    /// If that was done before.
    pub fn revoke(&mut self) {
        self.devices[1].deregister(self.mr.handle).expect("it is registered");
    }
}
