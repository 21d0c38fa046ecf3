//! The library's own threads: where they run beside a thread of the program that is pinned.

use std::io::Write;
use std::net::TcpListener;

use wirepath::worker::affinity;
use wirepath_tests::live::preload::{compile, run, said, start, wire};
use wirepath_tests::live::{THEIRS, wait_until};
use wirepath_tests::netns::Namespace;

/// Starts a program that pins its thread to a core, sends it bytes while it computes, and returns
/// what it says, or `None` where the machine has a single core.
fn said_by_a_pinned_program(test: &str, environment: &[&str]) -> Option<(String, Vec<usize>)> {
    let cores: Vec<usize> = affinity::current().iter().flat_map(|cores| cores.iter()).collect();
    if cores.len() < 2 {
        eprintln!("SKIPPED {test}: one core, on which the program's thread would be alone");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile(test, "pinned.c", folder.path())?;
    let wire = wire(test, &[])?;
    let listener = wire.far.run(|| TcpListener::bind((THEIRS, 7_003)).unwrap());
    let (ends, core) = (folder.path().join("ends"), cores[0].to_string());
    let peer = THEIRS.to_string();
    let words = [environment, &[&program, &peer, &core, ends.to_str().unwrap()]].concat();
    let program = start(&wire, "env", &words);
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&[7; 10_000]).unwrap();
    wait_until("a program that computes acknowledges", || unacknowledged(&wire.far, 7_003) == 0);
    std::fs::write(&ends, "").unwrap();
    Some((program.finish(), cores))
}

/// The threads of a program's output: name, cores, policy.
fn threads(said: &str) -> Vec<(&str, &str, &str)> {
    let words = said.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    words.filter_map(|words| Some((words.first().copied()?, words.get(2).copied()?, words.get(4).copied()?))).collect()
}

/// Bytes that a port's connections have sent and that their peers have not acknowledged.
fn unacknowledged(namespace: &Namespace, port: u16) -> u64 {
    let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
    let queued = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, queues) = (words.next()?, words.nth(2)?);
        let sent = queues.split(':').next()?;
        local.ends_with(&format!(":{port:04X}")).then(|| u64::from_str_radix(sent, 16).ok())?
    };
    table.lines().filter_map(queued).sum()
}

#[test]
fn threads_of_the_library_run_beside_a_pinned_thread_and_without_its_policy() {
    let test = "threads_of_the_library_run_beside_a_pinned_thread_and_without_its_policy";
    let Some((said, cores)) = said_by_a_pinned_program(test, &[]) else { return };
    let own: wirepath::worker::topology::CpuList = cores.into_iter().collect();
    let threads = threads(&said);
    for name in ["wirepath-bg", "wirepath-kernel", "wirepath-icmp"] {
        assert!(threads.contains(&(name, &own.to_string(), "0")), "{name} on {own}: {said}");
    }
}

#[test]
fn threads_of_the_library_run_on_the_cores_that_the_user_names() {
    let test = "threads_of_the_library_run_on_the_cores_that_the_user_names";
    let cores: Vec<usize> = affinity::current().iter().flat_map(|cores| cores.iter()).collect();
    let Some(last) = cores.last() else { return };
    let Some((said, _)) = said_by_a_pinned_program(test, &[&format!("WIREPATH_HELPER_CPUS={last}")]) else { return };
    let threads = threads(&said);
    assert!(threads.len() >= 3, "{said}");
    assert!(threads.iter().all(|(_, cores, policy)| (*cores, *policy) == (&*last.to_string(), "0")), "{said}");
}

#[test]
fn core_that_is_not_there_is_said_before_the_program_runs() {
    let test = "core_that_is_not_there_is_said_before_the_program_runs";
    let Some(wire) = wire(test, &["python3"]) else { return };
    for cores in ["1023", "x"] {
        let words =
            [&format!("WIREPATH_HELPER_CPUS={cores}"), "WIREPATH_POLICY=refuse", "python3", "-c", "print('runs')"];
        let said = said(&run(&wire, "env", &words));
        assert!(said.contains("WIREPATH_HELPER_CPUS") && said.contains(cores) && !said.contains("runs\n"), "{said}");
    }
}
