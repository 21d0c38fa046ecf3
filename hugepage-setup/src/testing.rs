//! A made-up machine: the kernel's files in a temporary directory.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::{Pool, Roots};

/// Lives as long as the test.
pub(crate) struct FakeMachine {
    directory: TempDir,
}

impl FakeMachine {
    /// 16 GiB of memory, 8 GiB of it available; no pools and no nodes yet.
    pub(crate) fn new() -> Self {
        let machine = Self { directory: TempDir::new().unwrap() };
        machine.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugepagesize:    2048 kB\n");
        machine
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots::below(self.directory.path())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The whole machine's pool.
    pub(crate) fn pool(&self, pool: Pool) {
        self.write_pool("sys/kernel/mm/hugepages", pool);
        let folder = format!("sys/kernel/mm/hugepages/hugepages-{}kB", pool.page_size >> 10);
        self.write(&format!("{folder}/resv_hugepages"), &format!("{}\n", pool.reserved));
    }

    /// A node with one CPU of its own number, 8 GiB of memory, 4 GiB of it free, and one pool.
    pub(crate) fn node(&self, id: u32, pool: Pool) {
        let folder = format!("sys/devices/system/node/node{id}");
        self.write(&format!("{folder}/cpulist"), &format!("{id}\n"));
        let meminfo = format!("Node {id} MemTotal:  8388608 kB\nNode {id} MemFree:  4194304 kB\n");
        self.write(&format!("{folder}/meminfo"), &meminfo);
        self.write_pool(&format!("{folder}/hugepages"), pool);
    }

    fn write_pool(&self, parent: &str, pool: Pool) {
        let folder = format!("{parent}/hugepages-{}kB", pool.page_size >> 10);
        for (name, value) in
            [("nr_hugepages", pool.total), ("free_hugepages", pool.free), ("surplus_hugepages", pool.surplus)]
        {
            self.write(&format!("{folder}/{name}"), &format!("{value}\n"));
        }
    }
}

/// Unused 2 MiB pages.
pub(crate) fn unused(total: u64) -> Pool {
    Pool { page_size: crate::TWO_MIB, total, free: total, reserved: 0, surplus: 0 }
}
