//! `/sys/class/infiniband/mlx5_0/ports/1/hw_counters`, as the kernel keeps it: text with the
//! model's present count. If several processes have the device, it shows the count of the process
//! that counted last, because each has a separate NIC.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

/// The files of one device.
#[derive(Debug)]
pub(crate) struct HwCounters {
    out_of_buffer: File,
    shown: u64,
}

impl HwCounters {
    /// Starts the counts at 0. `None` where the files cannot be written: then they do not change.
    pub(crate) fn open(device: &str) -> Option<Self> {
        let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/out_of_buffer");
        let out_of_buffer = OpenOptions::new().write(true).truncate(true).open(path).ok()?;
        out_of_buffer.write_all_at(b"0\n", 0).ok()?;
        Some(Self { out_of_buffer, shown: 0 })
    }

    /// Shows the present count; it never decreases.
    pub(crate) fn show(&mut self, out_of_buffer: u64) {
        if out_of_buffer != self.shown {
            self.shown = out_of_buffer;
            // Where there is no room for a line of text, the next one may find it.
            let _ = self.out_of_buffer.write_all_at(format!("{out_of_buffer}\n").as_bytes(), 0);
        }
    }
}
