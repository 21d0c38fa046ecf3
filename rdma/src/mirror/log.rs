//! A log that is mirrored into the memory of a peer by WRITE.

use crate::provider::Provider;
use crate::roce::{
    Access, Buffer, CqHandle, Data, DeviceError, Mr, PdHandle, PostError, QpHandle, QpOptions, Region, Remote,
    SendOperation, SendRequest, Sge, Status, WorkCompletion,
};
use crate::wire::opcode::Transport;

/// The limits of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorOptions {
    /// WRITEs under way at once: a power of two. By default 256.
    pub window: u32,
    /// Bytes under way at once, which are kept for retries: a power of two, and a multiple of
    /// eight. By default 256 KiB.
    pub staging: u32,
    /// One WRITE of so many has a completion, at least. By default 16; with 1 each record is known
    /// to have arrived as soon as can be.
    pub signal_every: u32,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self { window: 256, staging: 256 << 10, signal_every: 16 }
    }
}

/// What a mirror counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorCounters {
    /// WRITEs that were posted.
    pub writes: u64,
    /// WRITEs without bytes among them, which only ask for a completion.
    pub asks: u64,
    /// Times that bytes waited, because the window was full.
    pub waits: u64,
}

/// A log's copy in the memory of a peer.
///
/// [`post`](Self::post) posts what was appended, and never waits: where the peer lags, the window
/// fills, and bytes stay in the log until a later call. What follows of that is the caller's
/// policy.
#[derive(Debug)]
pub struct LogMirror {
    pd: PdHandle,
    qp: QpHandle,
    cq: CqHandle,
    staging: Buffer,
    mr: Mr,
    /// The peer's memory, whose first byte is the log's first.
    remote: Remote,
    remote_len: usize,
    /// Positions of the log: bytes before are in WRITEs; bytes before are in the peer's memory.
    posted: usize,
    acknowledged: usize,
    /// Numbers of WRITEs: the next; the first that is not complete; the last with a completion that
    /// is under way, and one more.
    next: u64,
    done: u64,
    signaled: u64,
    /// Where the bytes of each WRITE under way end in the log.
    ends: Box<[usize]>,
    signal_every: u64,
    failure: Option<Status>,
    counters: MirrorCounters,
}

impl LogMirror {
    /// Makes the queue pair, in RESET, and what it needs. This allocates; nothing does later.
    ///
    /// # Errors
    /// If the device has no room for it.
    ///
    /// # Panics
    /// If the window or the staging memory is no power of two, or a byte is staged alone.
    pub fn new<P: Provider>(provider: &mut P, pd: PdHandle, options: &MirrorOptions) -> Result<Self, DeviceError> {
        let MirrorOptions { window, staging, signal_every } = *options;
        assert!(window.is_power_of_two() && staging.is_power_of_two() && staging >= 8, "no sizes of a mirror");
        let cq = provider.create_cq(window)?;
        let qp = provider.create_qp(&qp_options(pd, cq, window))?;
        let staging = Buffer::zeroed(staging as usize);
        let mr = provider.register(pd, Region::from(&staging), Access::LOCAL_WRITE)?;
        Ok(Self {
            pd,
            qp,
            cq,
            staging,
            mr,
            remote: Remote::default(),
            remote_len: 0,
            posted: 0,
            acknowledged: 0,
            next: 0,
            done: 0,
            signaled: 0,
            ends: vec![0; window as usize].into_boxed_slice(),
            signal_every: signal_every.max(1).into(),
            failure: None,
            counters: MirrorCounters::default(),
        })
    }

    /// The queue pair, which [`connect_qp`](crate::provider::Provider::connect_qp) leads to RTS.
    pub const fn qp(&self) -> QpHandle {
        self.qp
    }

    /// The peer's memory, of `len` bytes, which has the log's bytes before `from` already.
    pub const fn begin(&mut self, remote: Remote, len: usize, from: usize) {
        (self.remote, self.remote_len) = (remote, len);
        (self.posted, self.acknowledged) = (from, from);
    }

    /// Posts what `log`, the whole of it, has behind the bytes that were posted before: one WRITE
    /// where it is short. Never waits. One copy, one request.
    ///
    /// A log that is longer than the peer's memory fails by the peer's refusal, and nothing is
    /// posted behind a failure.
    #[inline]
    pub fn post<P: Provider>(&mut self, provider: &mut P, log: &[u8]) {
        while self.posted < log.len() && self.failure.is_none() {
            if !self.post_one(provider, log) {
                self.counters.waits += 1;
                return;
            }
        }
    }

    /// Posts one WRITE of the bytes behind the posted ones; false where the window is full.
    #[inline]
    fn post_one<P: Provider>(&mut self, provider: &mut P, log: &[u8]) -> bool {
        let place = self.posted & (self.staging.len() - 1);
        let room = self.staging.len() - (self.posted - self.acknowledged);
        // Staging memory is a ring: a WRITE ends where it does.
        let len = (log.len() - self.posted).min(room).min(self.staging.len() - place);
        if len == 0 || self.posted + len > self.remote_len {
            return self.refuse(len);
        }
        self.staging.write(place, &log[self.posted..self.posted + len]);
        let end = self.posted + len;
        let sge = Sge { address: self.mr.address + place as u64, len: len as u32, lkey: self.mr.key };
        self.write(provider, &[sge], end)
    }

    /// No room here: later. No room there: never.
    #[cold]
    const fn refuse(&mut self, len: usize) -> bool {
        if len > 0 {
            self.failure = Some(Status::RemoteAccess);
        }
        false
    }

    #[inline]
    fn write<P: Provider>(&mut self, provider: &mut P, sges: &[Sge], end: usize) -> bool {
        let window = self.ends.len() as u64;
        if self.next - self.done == window {
            return false;
        }
        let Remote { address, rkey } = self.remote;
        let remote = Remote { address: address + self.posted as u64, rkey };
        // The last place has a completion, or a full window would never move.
        let is_due = self.next + 1 - self.signaled >= self.signal_every || self.next + 1 - self.done == window;
        let signaled = is_due || self.signaled <= self.done;
        let request = SendRequest::new(self.next, SendOperation::Write(remote), Data::Sges(sges));
        match provider.post_send(self.qp, &SendRequest { signaled, ..request }) {
            Ok(()) => (),
            Err(PostError::QueueFull) => return false,
            Err(_) => {
                self.failure = Some(Status::Flushed);
                return false;
            }
        }
        self.ends[(self.next & (window - 1)) as usize] = end;
        self.next += 1;
        self.counters.writes += 1;
        if signaled {
            self.signaled = self.next;
        }
        self.posted = end;
        true
    }

    /// Takes completions. Where bytes are under way of which none will tell, a WRITE without bytes
    /// asks for one. Call it in each turn.
    #[inline]
    pub fn poll<P: Provider>(&mut self, provider: &mut P) {
        while let Some(completion) = self.next_completion(provider) {
            if completion.status != Status::Success {
                self.failure.get_or_insert(completion.status);
                continue;
            }
            // Requests of a queue pair complete in order, those without a completion too.
            if (self.done..self.next).contains(&completion.wr_id) {
                self.done = completion.wr_id + 1;
                let idx = completion.wr_id & (self.ends.len() as u64 - 1);
                self.acknowledged = self.ends[idx as usize];
            }
        }
        if self.signaled <= self.done && self.acknowledged < self.posted && self.failure.is_none() {
            self.counters.asks += u64::from(self.write(provider, &[], self.posted));
        }
    }

    #[inline]
    fn next_completion<P: Provider>(&mut self, provider: &mut P) -> Option<WorkCompletion> {
        provider.poll_cq(self.cq).unwrap_or_else(|_| {
            self.failure.get_or_insert(Status::General);
            None
        })
    }

    /// Bytes of the log before this position are in WRITEs.
    pub const fn posted(&self) -> usize {
        self.posted
    }

    /// Bytes of the log before this position are in the peer's memory.
    pub const fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Why the mirror has ended: nothing is posted any more.
    pub const fn failure(&self) -> Option<Status> {
        self.failure
    }

    /// What was counted.
    pub const fn counters(&self) -> MirrorCounters {
        self.counters
    }

    /// Destroys the queue pair, which sends nothing more, and makes another one in its place, for
    /// the next connection.
    ///
    /// # Errors
    /// If the device has no room for it.
    pub fn renew<P: Provider>(&mut self, provider: &mut P) -> Result<(), DeviceError> {
        provider.destroy_qp(self.qp)?;
        // Those of the queue pair before.
        while provider.poll_cq(self.cq)?.is_some() {}
        self.qp = provider.create_qp(&qp_options(self.pd, self.cq, self.ends.len() as u32))?;
        (self.posted, self.acknowledged, self.failure) = (0, 0, None);
        (self.next, self.done, self.signaled) = (0, 0, 0);
        Ok(())
    }
}

fn qp_options(pd: PdHandle, cq: CqHandle, window: u32) -> QpOptions {
    QpOptions {
        transport: Transport::Rc,
        pd,
        send_cq: cq,
        recv_cq: cq,
        send_depth: window,
        recv_depth: 1,
        srq: None,
        signals_all: false,
    }
}
