//! A process's counters in a file, for the process that started it. They are text in a mapping, so
//! that they remain even if the process is killed.

use std::fmt::Write;
use std::path::Path;

use crate::sys::SharedFile;

/// Bytes of the file: some 60 counters of 40 letters.
const LEN: usize = 4096;

/// The file of one device.
#[derive(Debug)]
pub(crate) struct CounterFile {
    file: SharedFile,
    title: String,
    text: String,
}

impl CounterFile {
    /// `None` where it cannot be made: then there is nothing to read at the end.
    pub(crate) fn open(directory: &Path, device: &str) -> Option<Self> {
        let process = std::process::id();
        let command = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let title = format!("softhca: {device} in {} ({process}):\n", command.trim());
        let file = SharedFile::create(&directory.join(format!("{process}-{device}")), LEN).ok()?;
        Some(Self { file, title, text: String::with_capacity(LEN) })
    }

    /// Replaces the former counters by the present ones; zeros are left out.
    pub(crate) fn show(&mut self, counters: impl Iterator<Item = (&'static str, u64)>) {
        self.text.clear();
        self.text.push_str(&self.title);
        for (name, value) in counters.filter(|counter| counter.1 != 0) {
            // Formatting into a string does not fail.
            let _ = writeln!(self.text, "  {name} {value}");
        }
        self.file.show(self.text.as_bytes());
    }
}
