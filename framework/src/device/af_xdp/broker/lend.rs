//! A queue that a broker lends to a client: memory, and a bound socket whose umem is that memory.

use core::time::Duration;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::device::af_xdp::CopyMode;
use crate::device::af_xdp::error::AfXdpSetupError;
use crate::device::af_xdp::rings::socket::{TRIES_MAX, Wanted, bind_first, make_rings, open};
use crate::device::af_xdp::rings::umem::register_for_another;
use crate::device::broker::request::{QueueRequest, too_large};
use crate::device::broker::sys;
use crate::mem::{Layout, Region};

/// The smallest ring, and the smaller chunk, of a request.
pub(super) const RING_LEN_MIN: u32 = 64;
const CHUNK_LEN_MIN: u32 = 2048;

/// A queue that a client has: the broker keeps the socket to put it into its map.
pub(crate) struct LentQueue {
    pub(crate) socket: OwnedFd,
    memory: File,
    pub(crate) zero_copy: bool,
    pub(crate) multi_buffer: bool,
}

impl QueueRequest {
    /// Whether a broker that lends `memory_max` bytes can make it; otherwise one sentence.
    pub(crate) fn check(&self, memory_max: u64) -> Result<(), String> {
        let chunks = self.umem_len / u64::from(self.chunk_len.max(1));
        if !matches!(self.chunk_len, 2048 | 4096) || !self.umem_len.is_multiple_of(self.chunk_len.max(1).into()) {
            return Err(format!("a umem of {} bytes in chunks of {} is none", self.umem_len, self.chunk_len));
        }
        if [self.rx_ring_len, self.tx_ring_len].iter().any(|len| !len.is_power_of_two() || !(64..=65_536).contains(len))
        {
            return Err("a ring has a power of two of entries, from 64 to 65,536".into());
        }
        if self.umem_len > memory_max {
            return Err(too_large(self.umem_len, memory_max));
        }
        match chunks > self.rx_ring_len.into() {
            true => Ok(()),
            false => Err("the umem has fewer chunks than its receive ring has entries".into()),
        }
    }
}

impl LentQueue {
    /// Makes the memory and binds a socket to the queue that is wanted. Nothing of it is mapped
    /// here afterwards.
    pub(crate) fn make(request: &QueueRequest, wanted: &Wanted<'_>) -> Result<Self, AfXdpSetupError> {
        let sockets = (0..TRIES_MAX).map(|_| open()).collect::<Result<_, _>>()?;
        let no_memory = |error| AfXdpSetupError::system("making packet buffers", error);
        let memory = sys::memory(request.umem_len as usize).map_err(no_memory)?;
        let region = Region::shared(&memory, request.umem_len as usize).map_err(|error| {
            AfXdpSetupError::broker(libc::ENOMEM, format!("packet buffers cannot be mapped: {error}"))
        })?;
        let prepare = |socket: OwnedFd| {
            register_for_another(&socket, &region, request.chunk_len as usize)
                .map_err(|error| AfXdpSetupError::system("sharing the pool with the kernel (XDP_UMEM_REG)", error))?;
            make_rings(&socket, wanted)?;
            Ok(socket)
        };
        let layout = Layout::umem(request.chunk_len as usize);
        let (socket, flags) = bind_first(sockets, layout, wanted, prepare, |socket| socket)?;
        let has = |flag| flags & flag != 0;
        Ok(Self { socket, memory, zero_copy: has(libc::XDP_ZEROCOPY), multi_buffer: has(libc::XDP_USE_SG) })
    }

    /// Whether the kernel gives the queue that is wanted: binds a socket with the smallest umem and
    /// closes it. In copy mode, because a driver would set the queue up anew for zero copy; a queue
    /// that has a socket is refused in either.
    pub(crate) fn is_free(wanted: &Wanted<'_>) -> Result<bool, AfXdpSetupError> {
        let wanted = Wanted {
            copying: CopyMode::Copy,
            rx_ring_len: RING_LEN_MIN,
            tx_ring_len: RING_LEN_MIN,
            frame_len_max: 0,
            patience: Duration::ZERO,
            ..*wanted
        };
        let (rx_ring_len, tx_ring_len) = (RING_LEN_MIN, RING_LEN_MIN);
        let umem_len = 2 * u64::from(RING_LEN_MIN) * u64::from(CHUNK_LEN_MIN);
        let request = QueueRequest { umem_len, chunk_len: CHUNK_LEN_MIN, rx_ring_len, tx_ring_len, address: 0 };
        match Self::make(&request, &wanted) {
            Err(AfXdpSetupError::QueueBusy { .. }) => Ok(false),
            made => made.map(|_| true),
        }
    }

    pub(crate) fn memory(&self) -> &File {
        &self.memory
    }

    /// The descriptors for the client: the socket, and the memory.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.socket.as_fd(), self.memory.as_fd()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::af_xdp::Mode;
    use crate::device::af_xdp::interface::Interface;
    use crate::device::af_xdp::rings::socket::RELEASE_MAX;
    use crate::device::af_xdp::rings::sys::{bind, leave_namespace};

    /// Whoever holds an AF_XDP socket may bind it, without a capability.
    #[test]
    fn lent_socket_cannot_be_bound_elsewhere() {
        let tried = std::thread::spawn(|| {
            leave_namespace()?;
            let words = "link add veth0 type veth peer name veth1";
            std::process::Command::new("ip").args(words.split(' ')).status()?;
            let interface = Interface::find("veth0").unwrap();
            let wanted = Wanted {
                interface: &interface,
                queue: 0,
                mode: Mode::Generic,
                copying: CopyMode::Copy,
                rx_ring_len: 64,
                tx_ring_len: 64,
                frame_len_max: 1518,
                patience: RELEASE_MAX,
            };
            let request =
                QueueRequest { umem_len: 128 * 2048, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 64, address: 0 };
            assert!(LentQueue::is_free(&wanted).unwrap());
            let lent = LentQueue::make(&request, &wanted).unwrap();
            assert!(!LentQueue::is_free(&wanted).unwrap(), "it is lent");
            let elsewhere = Interface::find("veth1").unwrap();
            let refused = bind(&lent.socket, elsewhere.index, 0, libc::XDP_COPY).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EBUSY), "{refused}");
            // One that is not bound yet would be.
            let free = open().unwrap();
            let region = Region::shared(&lent.memory, 128 * 2048).unwrap();
            register_for_another(&free, &region, 2048).unwrap();
            make_rings(&free, &wanted).unwrap();
            bind(&free, elsewhere.index, 0, libc::XDP_COPY).unwrap();
            std::io::Result::Ok(())
        });
        if let Err(error) = tried.join().unwrap() {
            println!("SKIPPED lent_socket_cannot_be_bound_elsewhere: {error}; run as root");
        }
    }

    #[test]
    fn child_of_fork_gets_no_mapping_of_lent_buffers() {
        let region = Region::shared(&sys::memory(128 * 2048).unwrap(), 128 * 2048).unwrap();
        let begins = format!("{:x}-", region.base().as_ptr().addr());
        let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_region = mappings.lines().skip_while(|line| !line.starts_with(&begins));
        let flags = of_region.skip(1).find(|line| line.starts_with("VmFlags:")).expect("Linux 3.8 and later");
        // proc_pid_smaps(5): "do not copy area on fork".
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "{flags}");
    }

    #[test]
    fn request_that_no_client_of_ours_makes_is_refused() {
        let sound =
            QueueRequest { umem_len: 128 * 2048, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 64, address: 0 };
        let check = |request: QueueRequest, says: &str| {
            let refused = request.check(1 << 20).unwrap_err();
            assert!(refused.contains(says), "{refused}");
        };
        sound.check(1 << 20).unwrap();
        check(QueueRequest { chunk_len: 0, ..sound }, "is none");
        check(QueueRequest { chunk_len: 1024, ..sound }, "is none");
        check(QueueRequest { umem_len: 128 * 2048 + 1, ..sound }, "is none");
        check(QueueRequest { umem_len: u64::MAX - 4095, chunk_len: 4096, ..sound }, "lends 1 MiB at most");
        check(QueueRequest { umem_len: 2 << 20, ..sound }, "--memory 3");
        check(QueueRequest { rx_ring_len: 0, ..sound }, "power of two");
        check(QueueRequest { tx_ring_len: 1 << 31, ..sound }, "power of two");
        check(QueueRequest { rx_ring_len: 128, ..sound }, "fewer chunks");
        check(QueueRequest { umem_len: 0, ..sound }, "fewer chunks");
    }
}
