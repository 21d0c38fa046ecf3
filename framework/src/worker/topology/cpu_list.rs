//! Sets of CPUs in the notation of the kernel: `0-3,8`, and on its command line also `0-63:2/4`,
//! `4-N`, `all`.
//!
//! Comes from /sys, /proc and operators, so nothing in it is trusted: the work is bounded by the
//! length of the text, and a CPU number past the kernel's own limit is an error, not an allocation.
//! See Documentation/admin-guide/kernel-parameters.rst, "cpu lists", and lib/bitmap.c
//! `bitmap_parselist` of the kernel.

use core::fmt;

/// One more than the highest CPU number: the kernel's largest CONFIG_NR_CPUS on x86-64 (MAXSMP).
pub(crate) const CPU_COUNT_MAX: usize = 8192;

/// A list of every second of 8192 CPUs has 20 kB. Longer text is not a CPU list, and would only
/// cost time.
const TEXT_LEN_MAX: usize = 32 * 1024;

const WORD_COUNT: usize = CPU_COUNT_MAX / 64;

/// A set of CPU numbers below `CPU_COUNT_MAX`.
#[derive(Clone, PartialEq, Eq)]
pub struct CpuList {
    words: Box<[u64; WORD_COUNT]>,
}

impl CpuList {
    /// The empty set.
    pub fn new() -> Self {
        Self { words: Box::new([0; WORD_COUNT]) }
    }

    /// Reads a list as /sys and operators write it. Empty text, and the `(null)` of a kernel that
    /// lacks the feature, are the empty set.
    pub fn parse(text: &str) -> Result<Self, CpuListError> {
        Self::parse_with(text, None)
    }

    /// Reads a list of the kernel's command line, where `all` and `N` speak of the machine's last
    /// CPU.
    pub fn parse_boot(text: &str, last: usize) -> Result<Self, CpuListError> {
        Self::parse_with(text, Some(last))
    }

    /// Adds one CPU; a number of `CPU_COUNT_MAX` or more is left out, because no such CPU exists.
    pub fn insert(&mut self, cpu: usize) {
        if cpu < CPU_COUNT_MAX {
            self.words[cpu / 64] |= 1 << (cpu % 64);
        }
    }

    /// Whether the set holds this CPU.
    pub fn contains(&self, cpu: usize) -> bool {
        cpu < CPU_COUNT_MAX && self.words[cpu / 64] & (1 << (cpu % 64)) != 0
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..CPU_COUNT_MAX).filter(|cpu| self.contains(*cpu))
    }

    /// The highest CPU number.
    pub fn last(&self) -> Option<usize> {
        (0..CPU_COUNT_MAX).rev().find(|cpu| self.contains(*cpu))
    }

    /// How many CPUs the set holds.
    pub fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// No CPU at all.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn parse_with(text: &str, last: Option<usize>) -> Result<Self, CpuListError> {
        let text = text.trim();
        let error = |what| CpuListError { text: excerpt(text), what };
        if text.len() > TEXT_LEN_MAX {
            return Err(error("it is too long"));
        }
        let mut list = Self::new();
        if text.is_empty() || text == "(null)" {
            return Ok(list);
        }
        for part in text.split(',') {
            let range = Range::parse(part, last).map_err(error)?;
            for cpu in range.first..=range.last {
                if (cpu - range.first) % range.group < range.used {
                    list.insert(cpu);
                }
            }
        }
        Ok(list)
    }
}

impl Default for CpuList {
    fn default() -> Self {
        Self::new()
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut list = Self::new();
        for cpu in cpus {
            list.insert(cpu);
        }
        list
    }
}

impl fmt::Display for CpuList {
    /// The kernel's notation; the empty set is `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        let mut next = 0;
        while let Some(first) = (next..CPU_COUNT_MAX).find(|cpu| self.contains(*cpu)) {
            let end = (first..CPU_COUNT_MAX).find(|cpu| !self.contains(*cpu)).unwrap_or(CPU_COUNT_MAX);
            match end - first {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", end - 1)?,
            }
            separator = ",";
            next = end;
        }
        if separator.is_empty() { f.write_str("none") } else { Ok(()) }
    }
}

impl fmt::Debug for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuList({self})")
    }
}

/// Text that is not a CPU list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuListError {
    text: String,
    what: &'static str,
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a list of CPUs: {}; write for instance 0-3,8", self.text, self.what)
    }
}

impl std::error::Error for CpuListError {}

/// `first-last:used/group`: of each `group` CPUs from `first` on, the first `used`.
struct Range {
    first: usize,
    last: usize,
    used: usize,
    group: usize,
}

impl Range {
    fn parse(part: &str, last_cpu: Option<usize>) -> Result<Self, &'static str> {
        let (bounds, pattern) = match part.split_once(':') {
            Some((bounds, pattern)) => (bounds, Some(pattern)),
            None => (part, None),
        };
        let (first, last) = match (bounds, last_cpu) {
            ("all", Some(last)) => (0, last),
            _ => match bounds.split_once('-') {
                Some((first, last)) => (cpu_number(first, last_cpu)?, cpu_number(last, last_cpu)?),
                None => cpu_number(bounds, last_cpu).map(|cpu| (cpu, cpu))?,
            },
        };
        let (used, group) = match pattern {
            Some(pattern) => parse_pattern(pattern)?,
            None => (1, 1),
        };
        if first > last {
            return Err("a range runs backwards");
        }
        Ok(Self { first, last, used, group })
    }
}

fn parse_pattern(pattern: &str) -> Result<(usize, usize), &'static str> {
    const WRONG: &str = "after the colon stands USED/GROUP, with USED at most GROUP and at least 1";
    let (used, group) = pattern.split_once('/').ok_or(WRONG)?;
    let (used, group) = (number(used).ok_or(WRONG)?, number(group).ok_or(WRONG)?);
    if used == 0 || used > group {
        return Err(WRONG);
    }
    Ok((used, group))
}

fn cpu_number(text: &str, last_cpu: Option<usize>) -> Result<usize, &'static str> {
    if let ("N", Some(last)) = (text, last_cpu) {
        return Ok(last);
    }
    let cpu = number(text).ok_or("use whole numbers, ranges and commas only")?;
    if cpu >= CPU_COUNT_MAX {
        return Err("no kernel has a CPU above 8191");
    }
    Ok(cpu)
}

/// Digits only: `str::parse` alone would also take a plus sign.
fn number(text: &str) -> Option<usize> {
    let digits_only = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits_only { text.parse().ok() } else { None }
}

/// The beginning of `text`, for a message.
fn excerpt(text: &str) -> String {
    const LEN_MAX: usize = 40;
    match text.char_indices().nth(LEN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hostile_text_is_an_error() {
        let long = "0-8191,".repeat(10_000);
        for text in [
            "-",
            "1-",
            "-1",
            "+1",
            "0x1",
            "a",
            "1,,2",
            ",",
            "1,",
            "3-1",
            "8192",
            "0-4294967295",
            "1-2-3",
            "1 2",
            "٣",
            "all",
            "0-N",
            "0-7:",
            "0-7:2",
            "0-7:0/2",
            "0-7:3/2",
            "0-7:1/0",
            "99999999999999999999999",
            "1\0",
            &long,
        ] {
            let message = CpuList::parse(text).unwrap_err().to_string();
            assert!(message.contains("is not a list of CPUs") && message.len() < 300, "{message}");
        }
    }

    #[test]
    fn lists_of_the_kernel_are_read_and_written_back() {
        for (text, written) in [
            ("", "none"),
            ("\n", "none"),
            ("  (null)\n", "none"),
            ("0\n", "0"),
            ("8,0-3", "0-3,8"),
            ("0,1,2", "0-2"),
            ("0-15:2/4", "0-1,4-5,8-9,12-13"),
            ("8191", "8191"),
            ("5-5", "5"),
        ] {
            assert_eq!(CpuList::parse(text).unwrap().to_string(), written, "{text:?}");
        }
    }

    #[test]
    fn boot_lists_know_the_last_cpu() {
        for (text, written) in [("all", "0-7"), ("4-N", "4-7"), ("N", "7"), ("all:1/2", "0,2,4,6"), ("1", "1")] {
            assert_eq!(CpuList::parse_boot(text, 7).unwrap().to_string(), written, "{text:?}");
        }
    }

    #[test]
    fn cpu_past_the_limit_is_in_no_list() {
        let mut list = CpuList::new();
        list.insert(CPU_COUNT_MAX);
        list.insert(usize::MAX);
        assert!(list.is_empty() && !list.contains(CPU_COUNT_MAX) && !list.contains(usize::MAX));
        assert_eq!((list.last(), list.iter().next()), (None, None));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,64}", last in 0_usize..10_000) {
            let _ = CpuList::parse(&text);
            let _ = CpuList::parse_boot(&text, last);
        }

        #[test]
        fn any_set_survives_the_way_there_and_back(cpus in proptest::collection::btree_set(0..CPU_COUNT_MAX, 1..50)) {
            let list: CpuList = cpus.iter().copied().collect();
            prop_assert_eq!(CpuList::parse(&list.to_string()).unwrap(), list.clone());
            prop_assert!(list.iter().eq(cpus.iter().copied()));
            prop_assert_eq!((list.count(), list.last()), (cpus.len(), cpus.last().copied()));
        }
    }
}
