//! The output for the operator: the machine, the table, and the outcome.

use std::fmt::Write;

use hugepages::{
    Limit, Machine, Memory, Node, Outcome, Persistence, Pool, ReserveError, Step, Target, TransparentMode, format_size,
};

/// The step and its target, or the error.
type Decision<'a> = (&'a Target, &'a Result<Step, ReserveError>);

/// The machine's properties beside its pools, one line per subject.
pub(crate) fn machine(machine: &Machine) -> String {
    let mut text = String::new();
    let mut line = |subject: String, words: String| {
        let _ = writeln!(text, "{subject:<16}{words}");
    };
    for node in &machine.nodes {
        line(format!("NUMA node {}", node.id), describe_node(machine, node));
    }
    if machine.nodes.is_empty() {
        line("memory".to_owned(), describe_memory(machine.memory));
    }
    line("memory limit".to_owned(), describe_limit(machine.memlock));
    for limit in &machine.cgroup {
        let (max, size) = (format_size(limit.max), format_size(limit.page_size));
        line("cgroup limit".to_owned(), format!("{max} in pages of {size} ({})", limit.path.display()));
    }
    if machine.cgroup.is_empty() {
        line("cgroup limit".to_owned(), "none in sight".to_owned());
    }
    for mount in &machine.mounts {
        let size = mount.page_size.or(machine.default_page_size).map_or_else(String::new, format_size);
        line("hugetlbfs".to_owned(), format!("{} {size}", mount.path.display()));
    }
    if machine.mounts.is_empty() {
        line("hugetlbfs".to_owned(), "not mounted; anonymous mappings need no mount".to_owned());
    }
    line("transparent".to_owned(), describe_transparent(machine.transparent).to_owned());
    text.push('\n');
    text
}

/// One row for each page size and node: current state, target, step. "All" is the whole machine.
pub(crate) fn table(machine: &Machine, decision: Option<Decision<'_>>) -> String {
    let mut rows = vec![
        ["page size", "node", "pages", "free", "in use", "surplus", "should be", "to do"].map(str::to_owned).to_vec(),
    ];
    for pool in &machine.pools {
        rows.push(row(pool, None, decision));
        for node in &machine.nodes {
            if let Some(pool) = machine.pool(pool.page_size, Some(node.id)) {
                rows.push(row(pool, Some(node.id), decision));
            }
        }
    }
    if machine.pools.is_empty() {
        return "This kernel has no hugepages.\n\n".to_owned();
    }
    align(&rows) + "\n"
}

fn row(pool: &Pool, node: Option<u32>, decision: Option<Decision<'_>>) -> Vec<String> {
    let here = decision.filter(|(target, _)| target.page_size == pool.page_size);
    let (should, step) = match here {
        Some((target, step)) if target.node == node => (target.pages.to_string(), describe_step(target, step)),
        Some((Target { node: None, .. }, Ok(Step::Raise(_)))) => ("-".to_owned(), "takes its share".to_owned()),
        _ => ("-".to_owned(), "-".to_owned()),
    };
    vec![
        format_size(pool.page_size),
        node.map_or_else(|| "all".to_owned(), |node| node.to_string()),
        pool.total.to_string(),
        pool.available().to_string(),
        pool.in_use().to_string(),
        pool.surplus.to_string(),
        should,
        step,
    ]
}

fn describe_step(target: &Target, step: &Result<Step, ReserveError>) -> String {
    match step {
        Ok(step @ (Step::Raise(pages) | Step::Lower(pages))) => {
            format!("{step} ({})", format_size(pages.saturating_mul(target.page_size)))
        }
        Ok(Step::Nothing) => Step::Nothing.to_string(),
        Err(_) => "refused, see below".to_owned(),
    }
}

/// Right-aligns numbers and left-aligns words; the last column is words.
fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> =
        (0..columns).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                last if last + 1 == columns => write!(text, "  {cell}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

/// The outcome of apply.
pub(crate) fn outcome(target: &Target, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Unchanged { total } => {
            format!("Nothing to do: {total} reserved, {target} asked for.\n")
        }
        Outcome::Done { before, now } => {
            format!("Done: {target} asked for; there were {before}, there are {now}.\n")
        }
        Outcome::Partial { asked, before, granted, advice } => {
            let mut text = format!(
                "The kernel gave {} of the {} missing pages: there were {before}, there are {granted}; asked for: {target}.\n\
                 It found no more memory in one piece. What may help, best first:\n",
                granted.saturating_sub(*before),
                asked.saturating_sub(*before),
            );
            for (number, advice) in advice.iter().enumerate() {
                let _ = writeln!(text, "  {}. {advice}", number + 1);
            }
            text
        }
        Outcome::Kept { asked, before, now } => format!(
            "Somebody took pages while they were being given back, and keeps them: there were {before}, there are {now}; \
             {asked} were to remain.\n"
        ),
    }
}

/// How the reservation survives a reboot; `wrote` is the verb, "wrote" or "would write".
pub(crate) fn persistence(persistence: &Persistence, wrote: &str) -> String {
    match persistence {
        Persistence::KernelCommandLine(words) => format!(
            "To outlive a reboot, add to the kernel command line (GRUB: GRUB_CMDLINE_LINUX in /etc/default/grub): {words}\n"
        ),
        Persistence::File { path, text, rivals, .. } => {
            let mut report = format!("To outlive a reboot, {wrote} {}:\n", path.display());
            for line in text.lines() {
                let _ = writeln!(report, "  {line}");
            }
            for rival in rivals {
                let _ = writeln!(report, "Note: {} sets the same value; the last in name order wins.", rival.display());
            }
            report
        }
    }
}

/// The findings of a passed check.
pub(crate) fn checked(target: &Target, pool: &Pool) -> String {
    let (total, free) = (pool.total, pool.available());
    let mut text = format!("ok: {target} asked for, {total} reserved, {free} free; one was mapped and touched\n");
    if free < target.pages {
        let _ = writeln!(text, "note: {} are in use already, so a new program gets at most {free}", pool.in_use());
    }
    text
}

fn describe_node(machine: &Machine, node: &Node) -> String {
    let cpus = match node.cpus.is_empty() {
        true => "no CPUs".to_owned(),
        false => format!("CPUs {}", ranges(&node.cpus)),
    };
    format!("{cpus}, {}", describe_memory(machine.memory_of(Some(node.id))))
}

fn describe_memory(memory: Memory) -> String {
    format!("{} of memory, {} available", format_size(memory.total), format_size(memory.available))
}

fn describe_limit(limit: Limit) -> String {
    match limit.soft {
        None => "unlimited (ulimit -l)".to_owned(),
        Some(bytes) => format!("{} may be locked (ulimit -l); hugepages do not count", format_size(bytes)),
    }
}

fn describe_transparent(mode: TransparentMode) -> &'static str {
    match mode {
        TransparentMode::Always => "always",
        TransparentMode::OnAdvice => "where a program asks (madvise)",
        TransparentMode::Never => "off",
        TransparentMode::Absent => "not in this kernel",
    }
}

/// `0-3,8` for sorted CPU numbers.
fn ranges(cpus: &[u32]) -> String {
    let runs = cpus.chunk_by(|cpu, next| cpu + 1 == *next).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugepages::{Advice, Bound, TWO_MIB};

    #[test]
    fn half_granted_reservation_is_told_with_numbers_and_advice() {
        let target = Target { page_size: TWO_MIB, node: Some(1), pages: 512, bound: Bound::AtLeast };
        let advice = vec![Advice::DropCaches, Advice::Compact];
        let words = outcome(&target, &Outcome::Partial { asked: 512, before: 3, granted: 100, advice });
        for part in
            ["gave 97 of the 509 missing", "there are 100", "512 pages of 2 MiB on node 1", "  2. compact memory"]
        {
            assert!(words.contains(part), "\"{part}\" is not in:\n{words}");
        }
    }

    #[test]
    fn pages_that_somebody_took_meanwhile_are_told() {
        let target = Target { page_size: TWO_MIB, node: None, pages: 4, bound: Bound::Exactly };
        let words = outcome(&target, &Outcome::Kept { asked: 4, before: 10, now: 6 });
        assert!(words.contains("there are 6") && words.contains("4 were to remain"), "{words}");
    }

    #[test]
    fn passed_check_warns_when_pages_are_taken() {
        let target = Target { page_size: TWO_MIB, node: None, pages: 8, bound: Bound::AtLeast };
        let pool = Pool { page_size: TWO_MIB, total: 8, free: 3, reserved: 0, surplus: 0 };
        assert!(checked(&target, &pool).contains("note: 5 are in use already"));
    }

    #[test]
    fn cpus_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }
}
