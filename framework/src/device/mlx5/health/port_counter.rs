//! A counter that the kernel keeps for a port, in /sys. Reading it executes a firmware command (for
//! `out_of_buffer`: QUERY_Q_COUNTER), so workers never read it.

use core::time::Duration;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// An open file that holds a number.
pub(crate) struct PortCounter {
    file: File,
    taken: Mutex<u64>,
}

impl PortCounter {
    /// The time for which the kernel answers from its cache (10 ms; linux
    /// drivers/infiniband/core/verbs.c, `lifespan` in sysfs.c), with a margin.
    pub(crate) const LIFESPAN: Duration = Duration::from_millis(12);

    /// Starts counting now. `None` if the kernel has no such counter. In switchdev mode it has the
    /// device's counters instead (linux drivers/infiniband/hw/mlx5/counters.c,
    /// `mlx5_ib_alloc_hw_device_stats`).
    pub(crate) fn open(sysfs: &Path, device: &str, port: u8, name: &str) -> Option<Self> {
        let device = sysfs.join("class/infiniband").join(device);
        let of_port = device.join("ports").join(port.to_string()).join("hw_counters").join(name);
        let of_device = device.join("hw_counters").join(name);
        let file = File::open(of_port).or_else(|_| File::open(of_device)).ok()?;
        let taken = Mutex::new(read(&file)?);
        Some(Self { file, taken })
    }

    /// The increase since the last call.
    pub(crate) fn take(&self) -> u64 {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(now) = read(&self.file) else { return 0 };
        let news = now.saturating_sub(*taken);
        *taken = now;
        news
    }
}

fn read(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let len = file.read_at(&mut text, 0).ok()?;
    core::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a panic here is the report

    use super::*;

    #[test]
    fn count_of_the_kernel_is_taken_from_now_on() {
        let sysfs = tempfile::TempDir::new().unwrap();
        let folder = sysfs.path().join("class/infiniband/mlx5_0/ports/1/hw_counters");
        std::fs::create_dir_all(&folder).unwrap();
        let set = |text: &str| std::fs::write(folder.join("out_of_buffer"), text).unwrap();
        assert!(PortCounter::open(sysfs.path(), "mlx5_0", 1, "out_of_buffer").is_none());
        set("1000\n");
        let counter = PortCounter::open(sysfs.path(), "mlx5_0", 1, "out_of_buffer").unwrap();
        assert_eq!(counter.take(), 0);
        set("1042\n");
        assert_eq!((counter.take(), counter.take()), (42, 0));
        // Another process has reset it.
        set("7\n");
        assert_eq!(counter.take(), 0);
        set("no number");
        assert_eq!(counter.take(), 0);
        set("8");
        assert_eq!(counter.take(), 1);
    }

    #[test]
    fn count_of_the_device_is_taken_where_its_port_has_none() {
        let sysfs = tempfile::TempDir::new().unwrap();
        let device = sysfs.path().join("class/infiniband/mlx5_0");
        let write = |folder: &str, text: &str| {
            std::fs::create_dir_all(device.join(folder)).unwrap();
            std::fs::write(device.join(folder).join("out_of_buffer"), text).unwrap();
        };
        write("hw_counters", "1\n");
        let counter = PortCounter::open(sysfs.path(), "mlx5_0", 1, "out_of_buffer").unwrap();
        write("hw_counters", "3\n");
        assert_eq!(counter.take(), 2);
        write("ports/1/hw_counters", "10\n");
        let counter = PortCounter::open(sysfs.path(), "mlx5_0", 1, "out_of_buffer").unwrap();
        write("ports/1/hw_counters", "14\n");
        assert_eq!(counter.take(), 4, "the port's own goes first");
    }
}
