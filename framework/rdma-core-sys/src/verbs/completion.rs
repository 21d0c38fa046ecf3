//! Completion queues, and channels that signal completions to threads that sleep.
//!
//! Invariants:
//! 1. A queue's handle stands before its channel and its context, a channel's before its context.
//! 2. Requests are plain C data: zeroes are a valid value of each.
//! 3. `struct ibv_cq` is the first part of `struct ibv_cq_ex`.
//! 4. A queue named by a channel event is valid until the event is acknowledged, which happens
//!    before the function returns.

use core::mem::{ManuallyDrop, zeroed};
use core::ptr::{NonNull, null_mut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::context::{Context, Element, set_nonblocking};
use super::error::VerbsError;
use super::handle::Handle;
use super::work_queue::init_obj;
use crate::bindings::*;
use crate::inline;

/// Signals completions through a descriptor. A worker that polls needs none. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionChannel(Arc<ChannelInner>);

#[derive(Debug)]
struct ChannelInner {
    handle: ManuallyDrop<Handle<ibv_comp_channel>>,
    context: Context,
}

impl Drop for ChannelInner {
    /// libibverbs keeps a channel, with its descriptor, whose queue could not be destroyed.
    fn drop(&mut self) {
        // SAFETY: the channel is there until the call below.
        let fd = unsafe { (*self.handle.as_ptr()).fd };
        // SAFETY: taken here alone.
        let handle = unsafe { ManuallyDrop::take(&mut self.handle) };
        if handle.destroy() == libc::EBUSY {
            // SAFETY: a number only; nobody uses or closes the descriptor from here on.
            unsafe { libc::close(fd) };
        }
    }
}

impl CompletionChannel {
    /// A new, non-blocking channel.
    ///
    /// # Errors
    /// No more descriptors, or the device is gone.
    pub fn create(context: &Context) -> Result<Self, VerbsError> {
        let verbs = context.core().verbs();
        // SAFETY: the context is open.
        let raw = unsafe { (verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let raw = VerbsError::check_object("ibv_create_comp_channel", raw)?;
        // SAFETY: new, 1.
        let handle = ManuallyDrop::new(unsafe { Handle::new(raw, verbs.ibv_destroy_comp_channel) });
        let channel = Self(Arc::new(ChannelInner { handle, context: context.clone() }));
        set_nonblocking("ibv_create_comp_channel", &channel.fd())?;
        Ok(channel)
    }

    /// Readable when an event is pending.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor and closes it at its end.
        unsafe { BorrowedFd::borrow_raw((*self.0.handle.as_ptr()).fd) }
    }

    /// The [`CompletionQueue::handle`] of the next queue with an event, if one is pending: a system
    /// call. The queue must be armed again.
    ///
    /// # Errors
    /// The device is gone.
    pub fn next_event(&self) -> Result<Option<u32>, VerbsError> {
        let verbs = self.0.context.core().verbs();
        let (mut cq, mut cookie) = (null_mut(), null_mut());
        // SAFETY: the channel lives; 4.
        unsafe {
            if (verbs.ibv_get_cq_event)(self.0.handle.as_ptr(), &raw mut cq, &raw mut cookie) != 0 {
                let error = VerbsError::last("ibv_get_cq_event");
                return if error.errno() == libc::EAGAIN { Ok(None) } else { Err(error) };
            }
            let handle = (*cq).handle;
            (verbs.ibv_ack_cq_events)(cq, 1);
            Ok(Some(handle))
        }
    }
}

/// The content of mini-CQEs beside the length (mlx5.md 2.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// The RSS hash.
    Hash,
    /// The checksum over the IP packet.
    Checksum,
    /// The checksum and the stride: for striding receive queues.
    ChecksumStride,
}

impl Compression {
    /// Its bit in [`super::Mlx5Attributes::compression_formats`].
    pub const fn bit(self) -> u8 {
        match self {
            Self::Hash => MLX5DV_CQE_RES_FORMAT_HASH as u8,
            Self::Checksum => MLX5DV_CQE_RES_FORMAT_CSUM as u8,
            Self::ChecksumStride => MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX as u8,
        }
    }
}

/// Options of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqOptions {
    /// Timestamps in the device's cycles. ConnectX writes one into each CQE anyway; this requests
    /// them officially.
    pub timestamps: bool,
    /// Timestamps as seconds and nanoseconds, if the device has a real-time clock. Not with
    /// `timestamps`.
    pub wallclock: bool,
    /// Compressed CQEs: for drivers that read the ring themselves.
    pub compression: Option<Compression>,
    /// Bytes of an entry, 64 or 128; `None` leaves it to libmlx5, which uses the CPU's cache line.
    pub entry_len: Option<u16>,
    /// Entries of 64 bytes are padded to 128: whole cache lines on CPUs with lines of 128 bytes.
    pub pad_to_128: bool,
    /// The device does not check for overrun. For callers that guarantee that the queue never
    /// overruns.
    pub ignore_overrun: bool,
}

/// The attributes of a new completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqRequest<'a> {
    /// Requested number of entries, rounded up to a power of two.
    pub entry_count: u32,
    /// The channel to signal.
    pub channel: Option<&'a CompletionChannel>,
    /// The interrupt vector of the channel: less than [`Context::vector_count`].
    pub vector: u32,
    /// Extended options.
    pub options: CqOptions,
}

impl CqRequest<'_> {
    /// A polled queue, without options.
    pub const fn new(entry_count: u32) -> Self {
        let options = CqOptions {
            timestamps: false,
            wallclock: false,
            compression: None,
            entry_len: None,
            pad_to_128: false,
            ignore_overrun: false,
        };
        Self { entry_count, channel: None, vector: 0, options }
    }
}

/// A completion queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CompletionQueue(Arc<CqInner>);

#[derive(Debug)]
struct CqInner {
    handle: Handle<ibv_cq>,
    _channel: Option<CompletionChannel>,
    context: Context,
}

impl CompletionQueue {
    /// Creates a queue, by the simplest call that supports the options.
    ///
    /// # Errors
    /// The device lacks an option (`is_unsupported`, `EINVAL`), has no more queues, or is gone.
    pub fn create(context: &Context, request: &CqRequest<'_>) -> Result<Self, VerbsError> {
        let (core, options) = (context.core(), &request.options);
        let channel = request.channel.map_or(null_mut(), |channel| channel.0.handle.as_ptr());
        let for_mlx5 = options.compression.is_some() || options.entry_len.is_some() || options.pad_to_128;
        let extended = options.timestamps || options.wallclock || options.ignore_overrun;
        // SAFETY: the context is open, the channel lives, requests are ours (2), and all are CQs
        // (3).
        let (call, raw): (_, *mut ibv_cq) = unsafe {
            if for_mlx5 {
                let (mut wanted, mut direct) = (extended_request(request, channel), direct_request(options));
                let create = core.mlx5().mlx5dv_create_cq;
                ("mlx5dv_create_cq", create(context.as_ptr(), &raw mut wanted, &raw mut direct).cast())
            } else if extended {
                let mut wanted = extended_request(request, channel);
                ("ibv_create_cq_ex", inline::ibv_create_cq_ex(context.as_ptr(), &raw mut wanted).cast())
            } else {
                let count = request.entry_count.try_into().unwrap_or(i32::MAX);
                let vector = request.vector.try_into().unwrap_or(i32::MAX);
                let create = core.verbs().ibv_create_cq;
                ("ibv_create_cq", create(context.as_ptr(), count, null_mut(), channel, vector))
            }
        };
        let raw = VerbsError::check_object(call, raw)?;
        // SAFETY: new, 1.
        let (handle, number) = unsafe { (Handle::new(raw, core.verbs().ibv_destroy_cq), (*raw.as_ptr()).handle) };
        let handle = handle.of(context.own_objects(), Some(Element::CompletionQueue(number)));
        Ok(Self(Arc::new(CqInner { handle, _channel: request.channel.cloned(), context: context.clone() })))
    }

    /// Its number among the context's queues, which identifies it in events.
    pub fn handle(&self) -> u32 {
        // SAFETY: a living queue.
        unsafe { (*self.as_ptr()).handle }
    }

    /// The maximum number of completions in the queue.
    pub fn entry_count(&self) -> u32 {
        // SAFETY: a living queue.
        unsafe { (*self.as_ptr()).cqe }.try_into().unwrap_or_default()
    }

    /// The address of the ring. From now on the caller consumes the queue: libmlx5 no longer keeps
    /// its index.
    ///
    /// # Errors
    /// The queue is not libmlx5's (`is_unsupported`).
    pub fn rings(&self) -> Result<CqRings, VerbsError> {
        // SAFETY: plain C data (2); the queue lives.
        let out = unsafe {
            let mut out: mlx5dv_cq = zeroed();
            let mut what: mlx5dv_obj = zeroed();
            what.cq.in_ = self.as_ptr();
            what.cq.out = &raw mut out;
            init_obj(self.0.context.core(), &mut what, MLX5DV_OBJ_CQ)?;
            out
        };
        let (Some(start), Some(doorbell)) = (NonNull::new(out.buf), NonNull::new(out.dbrec)) else {
            return Err(VerbsError::new("mlx5dv_init_obj", libc::ENODATA));
        };
        Ok(CqRings {
            start: start.cast(),
            entry_count: out.cqe_cnt,
            entry_len: out.cqe_size,
            doorbell: doorbell.cast(),
            uar: NonNull::new(out.cq_uar).map(NonNull::cast),
            number: out.cqn,
        })
    }

    /// Its device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The raw object, for calls of [`crate::inline`]. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_cq {
        self.0.handle.as_ptr()
    }
}

/// The ring of a completion queue (mlx5.md 1.2). Valid as long as a clone of the
/// [`CompletionQueue`] is.
#[derive(Clone, Copy, Debug)]
pub struct CqRings {
    /// The first entry.
    pub start: NonNull<u8>,
    /// Entries, a power of two.
    pub entry_count: u32,
    /// Bytes of an entry, 64 or 128.
    pub entry_len: u32,
    /// Two big-endian words: consumer index, arm.
    pub doorbell: NonNull<[u32; 2]>,
    /// The UAR page; the register for arming is at +0x20.
    pub uar: Option<NonNull<u8>>,
    /// The device's number for the queue.
    pub number: u32,
}

/// The arguments of `ibv_create_cq_ex`.
fn extended_request(request: &CqRequest<'_>, channel: *mut ibv_comp_channel) -> ibv_cq_init_attr_ex {
    let options = &request.options;
    // SAFETY: 2.
    let mut wanted: ibv_cq_init_attr_ex = unsafe { zeroed() };
    wanted.cqe = request.entry_count;
    wanted.channel = channel;
    wanted.comp_vector = request.vector;
    for (is_wanted, flag) in [
        (options.timestamps, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP),
        (options.wallclock, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK),
    ] {
        wanted.wc_flags |= if is_wanted { flag.into() } else { 0 };
    }
    if options.ignore_overrun {
        wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        wanted.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    }
    wanted
}

/// The further arguments of `mlx5dv_create_cq`.
fn direct_request(options: &CqOptions) -> mlx5dv_cq_init_attr {
    let mut direct = mlx5dv_cq_init_attr { comp_mask: 0, cqe_comp_res_format: 0, flags: 0, cqe_size: 0 };
    if let Some(compression) = options.compression {
        direct.comp_mask |= u64::from(MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE);
        direct.cqe_comp_res_format = compression.bit();
    }
    if let Some(entry_len) = options.entry_len {
        direct.comp_mask |= u64::from(MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE);
        direct.cqe_size = entry_len;
    }
    if options.pad_to_128 {
        direct.comp_mask |= u64::from(MLX5DV_CQ_INIT_ATTR_MASK_FLAGS);
        direct.flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD;
    }
    direct
}
