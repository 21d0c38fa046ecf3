//! Frames of `write`; mlx5.md 3.3. The kernel's rules about lengths are followed to the byte,
//! because rdma-core relies on some of them to find out which features a kernel has.
//!
//! ```text
//! plain     command u32, in_words u16, out_words u16 (of 4 bytes, the whole frame, the whole response)
//!           core request, which begins with the response's address where there is a response; then the driver's request
//! extended  command | 1<<31, in_words, out_words (of 8 bytes, the core parts)
//!           response u64, driver's in_words u16, out_words u16, reserved u32
//!           core request, driver's request
//! ```
//! In both the driver's response follows the core response.

use super::command::{Call, Entry, Reply, find};
use super::memory::ResponseBuffer;
use crate::hca::{Dma, Errno};
use crate::uverbs::abi::verbs::{CmdHdr, ExCmdHdr};
use crate::uverbs::abi::{Layout, read_at};
use crate::uverbs::refuse;

/// A frame that was taken apart.
#[derive(Debug)]
pub(in crate::uverbs) struct Frame<'a> {
    pub(in crate::uverbs) entry: &'static Entry,
    core: &'a [u8],
    driver: &'a [u8],
    core_room: ResponseBuffer,
    driver_room: ResponseBuffer,
}

impl<'a> Frame<'a> {
    /// Parses a frame. When it returns, the lengths are valid for the command.
    pub(in crate::uverbs) fn parse(bytes: &'a [u8]) -> Result<Self, Errno> {
        if bytes.len() < CmdHdr::LEN {
            return refuse(libc::EINVAL);
        }
        let header = CmdHdr::read(bytes);
        let entry = find(header.command)?;
        if entry.is_extended() { Self::extended(entry, &header, bytes) } else { Self::plain(entry, &header, bytes) }
    }

    fn plain(entry: &'static Entry, header: &CmdHdr, bytes: &'a [u8]) -> Result<Self, Errno> {
        let out_len = usize::from(header.out_words) * 4;
        if usize::from(header.in_words) * 4 != bytes.len() {
            return refuse(libc::EINVAL);
        }
        let request = &bytes[CmdHdr::LEN..];
        if request.len() < entry.request_len || out_len < entry.response_len {
            return refuse(libc::ENOSPC);
        }
        let response = if entry.response_len > 0 { u64::read(request) } else { 0 };
        let (core_len, core_out) =
            if entry.has_driver { (entry.request_len, entry.response_len) } else { (request.len(), out_len) };
        let (core, driver) = request.split_at(core_len);
        let answered = entry.response_len > 0;
        Ok(Self {
            entry,
            core,
            driver,
            core_room: if answered {
                ResponseBuffer { address: response, len: core_out }
            } else {
                ResponseBuffer::default()
            },
            driver_room: if answered {
                behind(response, core_out, out_len - core_out)
            } else {
                ResponseBuffer::default()
            },
        })
    }

    fn extended(entry: &'static Entry, header: &CmdHdr, bytes: &'a [u8]) -> Result<Self, Errno> {
        const HEADERS: usize = CmdHdr::LEN + ExCmdHdr::LEN;
        let Some(request) = bytes.get(HEADERS..) else { return refuse(libc::EINVAL) };
        let more: ExCmdHdr = read_at(bytes, CmdHdr::LEN);
        let [core_in, core_out, driver_in, driver_out] =
            [header.in_words, header.out_words, more.provider_in_words, more.provider_out_words]
                .map(|words| usize::from(words) * 8);
        if core_in + driver_in != request.len() {
            return refuse(libc::EINVAL);
        }
        if core_in < entry.request_len {
            return refuse(libc::ENOSPC);
        }
        let answers = core_out + driver_out > 0;
        if more.cmd_hdr_reserved != 0 || answers != (more.response != 0) {
            return refuse(libc::EINVAL);
        }
        if answers && core_out < entry.response_len {
            return refuse(libc::ENOSPC);
        }
        let (core, driver) = request.split_at(core_in);
        Ok(Self {
            entry,
            core,
            driver,
            core_room: ResponseBuffer { address: more.response, len: core_out },
            driver_room: behind(more.response, core_out, driver_out),
        })
    }

    /// The argument of the command's function. Refuses a response that cannot be written.
    pub(in crate::uverbs) fn call(&self, dma: &dyn Dma) -> Result<Call<'_>, Errno> {
        self.core_room.probe(dma)?;
        self.driver_room.probe(dma)?;
        Ok(Call {
            core: self.core,
            driver: self.driver,
            core_room: self.core_room.len,
            driver_room: self.driver_room.len,
        })
    }

    /// Writes the response.
    pub(in crate::uverbs) fn answer(&self, dma: &dyn Dma, reply: &Reply) -> Result<(), Errno> {
        self.core_room.put_and_clear(dma, &reply.core)?;
        self.driver_room.put(dma, &reply.driver)
    }
}

/// The room `offset` bytes behind `address`. An address that overflows is no memory.
fn behind(address: u64, offset: usize, len: usize) -> ResponseBuffer {
    ResponseBuffer { address: address.saturating_add(offset as u64), len }
}
