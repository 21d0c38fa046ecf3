//! Sends bytes of a file (`sendfile`).

use core::ffi::c_int;
use std::io::IoSlice;

use sockets::Errno;

use super::send::send;
use super::target;
use crate::calls::Outcome::{self, Ours, Pass};
use crate::engine;
use crate::engine::table::FileId;
use crate::sys;

/// Sends bytes of a file, from its position or from an offset.
pub(crate) fn send_file(file: FileId, from: c_int, offset: Option<i64>, count: usize) -> Outcome<usize> {
    let spare = {
        let mut engine = engine::enter(file);
        if target(&mut engine, file).is_err() {
            return Pass;
        }
        engine.file_block.take()
    };
    let mut block = spare.unwrap_or_else(|| vec![0; FILE_BLOCK].into_boxed_slice());
    let sent = send_blocks(file, (from, offset), count, &mut block);
    engine::enter(file).file_block = Some(block);
    sent
}

/// Sends bytes of a file by a buffer, which is kept for the next call.
fn send_blocks(file: FileId, (from, offset): (c_int, Option<i64>), count: usize, block: &mut [u8]) -> Outcome<usize> {
    let mut sent = 0;
    let at = match offset {
        Some(offset) => Ok(offset),
        None => sys::lseek(from, 0, libc::SEEK_CUR),
    };
    let start = match at {
        Ok(start) => start,
        // What has no position, as a pipe and a socket (Linux `splice_direct_to_actor`).
        Err(Errno(libc::ESPIPE)) => return Ours(Err(Errno::EINVAL)),
        Err(error) => return Ours(Err(error)),
    };
    let result = loop {
        let want = (count - sent).min(block.len());
        let read = match sys::pread(from, &mut block[..want], start + sent as i64) {
            Ok(0) => break Ok(sent),
            Ok(read) => read,
            Err(error) => break Err(error),
        };
        match send(file, &[IoSlice::new(&block[..read])], None, 0) {
            Ours(Ok(taken)) => {
                sent += taken;
                if taken < read || sent == count {
                    break Ok(sent);
                }
            }
            Ours(Err(error)) => break Err(error),
            Pass => return Pass,
        }
    };
    if offset.is_none() && sent > 0 {
        let _ = sys::lseek(from, start + sent as i64, libc::SEEK_SET);
    }
    Ours(if sent > 0 { Ok(sent) } else { result })
}

/// Bytes of each read of the file.
const FILE_BLOCK: usize = 64 << 10;
