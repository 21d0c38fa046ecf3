//! The client's memory during a command: requests are copied in whole before anything is done, and
//! the places of responses are tried before anything is done, so that a bad pointer leaves nothing
//! half done.

use crate::hca::{Dma, Errno};
use crate::uverbs::{PAGE_LEN, errno, refuse};

/// Room for a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::uverbs) struct ResponseBuffer {
    pub(in crate::uverbs) address: u64,
    pub(in crate::uverbs) len: usize,
}

/// Copies `len` bytes of the client.
pub(in crate::uverbs) fn read(dma: &dyn Dma, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; len];
    if len > 0 {
        dma.read(address, &mut bytes).map_err(|_| Errno(libc::EFAULT))?;
    }
    Ok(bytes)
}

impl ResponseBuffer {
    /// Checks that the memory can be written, by writing its present content.
    pub(in crate::uverbs) fn probe(self, dma: &dyn Dma) -> Result<(), Errno> {
        let old = read(dma, self.address, self.len)?;
        self.put(dma, &old)
    }

    /// Writes as much of `bytes` as there is room for.
    pub(in crate::uverbs) fn put(self, dma: &dyn Dma, bytes: &[u8]) -> Result<(), Errno> {
        match &bytes[..self.len.min(bytes.len())] {
            [] => Ok(()),
            bytes => dma.write(self.address, bytes).map_err(|_| Errno(libc::EFAULT)),
        }
    }

    /// The same, and zeros in the room that is left: a newer client reads there that there is
    /// nothing.
    pub(in crate::uverbs) fn put_and_clear(self, dma: &dyn Dma, bytes: &[u8]) -> Result<(), Errno> {
        let mut whole = bytes.to_vec();
        whole.resize(self.len, 0);
        self.put(dma, &whole)
    }
}

/// Refuses a request with nonzero bytes after `known`: a newer client requests a feature that is
/// not known here.
pub(in crate::uverbs) fn nothing_after(bytes: &[u8], known: usize) -> Result<(), Errno> {
    match bytes.get(known..) {
        Some(rest) if rest.iter().any(|byte| *byte != 0) => refuse(libc::EOPNOTSUPP),
        _ => Ok(()),
    }
}

/// The number of places in a region that are checked before it is registered. A region of 4 MiB has
/// that many pages. In larger regions some pages are not checked, so that registering gigabytes of
/// huge pages takes no time.
const PAGES_PROBED: u64 = 1024;

/// Whether the client has memory from `start` for `len` bytes: the kernel would take hold of each
/// page.
pub(in crate::uverbs) fn is_mapped(dma: &dyn Dma, start: u64, len: u64) -> Result<(), Errno> {
    let last = len.checked_sub(1).and_then(|len| start.checked_add(len)).ok_or(errno(libc::EINVAL))?;
    let stride = (len / PAGES_PROBED).next_multiple_of(PAGE_LEN).max(PAGE_LEN);
    let mut at = start;
    while at < last {
        read(dma, at, 1)?;
        at = at.saturating_add(stride);
    }
    read(dma, last, 1).map(drop)
}
