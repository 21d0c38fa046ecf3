use super::*;
use crate::TWO_MIB;
use crate::testing::{FakeMachine, unused};

fn plan(machine: &FakeMachine, target: &Target) -> Persistence {
    machine.pool(unused(0));
    let roots = machine.roots();
    Persistence::plan(&roots, &Machine::discover(&roots).unwrap(), target).unwrap()
}

fn target(pages: u64, bound: Bound) -> Target {
    Target { page_size: TWO_MIB, node: None, pages, bound }
}

fn command_line(words: &str) -> Persistence {
    Persistence::KernelCommandLine(words.to_owned())
}

#[test]
fn one_gib_nodes_and_odd_defaults_go_on_the_command_line() {
    let machine = FakeMachine::new();
    let target = target(8, Bound::AtLeast);
    let one_gib = Target { page_size: ONE_GIB, ..target.clone() };
    assert_eq!(plan(&machine, &one_gib), command_line("hugepagesz=1G hugepages=8"));
    let node = Target { node: Some(1), ..target.clone() };
    assert_eq!(plan(&machine, &node), command_line("hugepagesz=2M hugepages=1:8"));
    machine.write("proc/meminfo", "Hugepagesize:    1048576 kB\n");
    assert_eq!(plan(&machine, &target), command_line("hugepagesz=2M hugepages=8"));
}

#[test]
fn larger_number_stays_unless_giving_back_was_asked_for() {
    let machine = FakeMachine::new();
    machine.write("etc/sysctl.d/60-hugepage-setup.conf", "vm.nr_hugepages = 64\n");
    for (bound, expected) in [(Bound::AtLeast, 64), (Bound::Exactly, 8)] {
        let Persistence::File { pages, .. } = plan(&machine, &target(8, bound)) else {
            panic!("2 MiB pages have a file");
        };
        assert_eq!(pages, expected, "{bound:?}");
    }
}

#[test]
fn other_files_that_set_the_value_are_named() {
    let machine = FakeMachine::new();
    machine.write("etc/sysctl.d/99-mine.conf", "# ours\n-vm/nr_hugepages=4\n");
    machine.write("etc/sysctl.d/10-other.conf", "#vm.nr_hugepages = 4\nvm.swappiness = 1\n");
    machine.write("etc/sysctl.d/notes.txt", "vm.nr_hugepages = 4\n");
    let Persistence::File { rivals, .. } = plan(&machine, &target(8, Bound::AtLeast)) else {
        panic!("2 MiB pages have a file");
    };
    assert_eq!(rivals, [machine.path("etc/sysctl.d/99-mine.conf")]);
}

#[test]
fn written_file_reads_back() {
    let machine = FakeMachine::new();
    plan(&machine, &target(8, Bound::AtLeast)).write().unwrap();
    let text = fs::read_to_string(machine.path("etc/sysctl.d/60-hugepage-setup.conf")).unwrap();
    assert_eq!(nr_hugepages(&text), Some(8));
    assert!(!machine.path("etc/sysctl.d/60-hugepage-setup.conf.new").exists());
}
