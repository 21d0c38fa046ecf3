use super::*;
use crate::testing::{FakeMachine, unused};
use crate::{CgroupLimit, ONE_GIB, TWO_MIB, node_of_cpu, node_of_interface};

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

fn discover(machine: &FakeMachine) -> Machine {
    Machine::discover(&machine.roots()).unwrap()
}

#[test]
fn machine_without_any_file_has_nothing() {
    let directory = tempfile::TempDir::new().unwrap();
    assert_eq!(Machine::discover(&Roots::below(directory.path())).unwrap(), Machine::default());
}

#[test]
fn garbage_in_a_counter_names_the_file() {
    for garbage in ["", "many", "-1", "1 2", "99999999999999999999"] {
        let machine = FakeMachine::new();
        machine.pool(unused(4));
        machine.write(&format!("{POOL}/free_hugepages"), garbage);
        let Err(SysfsError::Garbage(path, text)) = Machine::discover(&machine.roots()) else {
            panic!("{garbage} was taken for a number");
        };
        assert_eq!((path, text), (machine.path(&format!("{POOL}/free_hugepages")), garbage.to_owned()));
    }
}

#[test]
fn absent_counter_is_unreadable() {
    let machine = FakeMachine::new();
    machine.write(&format!("{POOL}/nr_hugepages"), "4");
    assert!(matches!(Machine::discover(&machine.roots()), Err(SysfsError::Unreadable(..))));
}

#[test]
fn strange_names_are_left_alone() {
    let machine = FakeMachine::new();
    machine.write("sys/kernel/mm/hugepages/hugepages-manykB/nr_hugepages", "4");
    machine.write("sys/devices/system/node/nodes/cpulist", "4");
    machine.write("sys/devices/system/node/possible", "0-3");
    let found = discover(&machine);
    assert_eq!((found.pools, found.nodes), (vec![], vec![]));
}

#[test]
fn garbage_in_a_cpu_list_names_the_file() {
    let machine = FakeMachine::new();
    machine.node(0, unused(1));
    machine.write("sys/devices/system/node/node0/cpulist", "all of them");
    assert!(
        matches!(Machine::discover(&machine.roots()), Err(SysfsError::Garbage(path, _)) if path.ends_with("cpulist"))
    );
}

#[test]
fn pools_are_sorted_and_counted() {
    let machine = FakeMachine::new();
    machine.pool(Pool { page_size: ONE_GIB, total: 2, free: 1, reserved: 1, surplus: 0 });
    machine.pool(Pool { page_size: TWO_MIB, total: 12, free: 9, reserved: 4, surplus: 2 });
    let found = discover(&machine);
    assert_eq!(found.pools.iter().map(|pool| pool.page_size).collect::<Vec<_>>(), [TWO_MIB, ONE_GIB]);
    let pool = found.pool(TWO_MIB, None).unwrap();
    assert_eq!((pool.available(), pool.in_use(), pool.persistent()), (5, 7, 10));
}

#[test]
fn several_nodes_keep_their_own_pools() {
    let machine = FakeMachine::new();
    machine.pool(unused(30));
    machine.node(1, unused(20));
    machine.node(0, unused(10));
    let found = discover(&machine);
    assert_eq!(found.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(found.pool(TWO_MIB, Some(1)).unwrap().total, 20);
    assert_eq!(found.node(1).unwrap().memory, Memory { total: 8 << 30, available: 4 << 30 });
    assert_eq!((node_of_cpu(&found, 1), node_of_cpu(&found, 2)), (Some(1), None));
}

#[test]
fn interface_without_a_known_node_has_none() {
    let machine = FakeMachine::new();
    for (name, text) in [("eth0", "1\n"), ("eth1", "-1\n"), ("eth2", "here")] {
        machine.write(&format!("sys/class/net/{name}/device/numa_node"), text);
    }
    assert_eq!(node_of_interface(&machine.roots(), "eth0").unwrap(), Some(1));
    assert_eq!(node_of_interface(&machine.roots(), "eth1").unwrap(), None);
    assert!(node_of_interface(&machine.roots(), "eth2").is_err());
    assert_eq!(node_of_interface(&machine.roots(), "lo").unwrap(), None);
}

#[test]
fn limits_mounts_and_transparent_pages_are_read() {
    let machine = FakeMachine::new();
    machine.write("proc/self/limits", "Max locked memory         8388608              unlimited            bytes\n");
    let mounts = "proc /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\n";
    machine.write("proc/self/mounts", mounts);
    machine.write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    let found = discover(&machine);
    assert_eq!(found.memlock, Limit { soft: Some(8 << 20), hard: None });
    assert_eq!(found.mounts, [Mount { path: "/dev/hugepages".into(), page_size: Some(ONE_GIB) }]);
    assert_eq!(found.transparent, TransparentMode::OnAdvice);
    assert_eq!(found.default_page_size, Some(TWO_MIB));
}

#[test]
fn tightest_cgroup_limit_wins_in_both_versions() {
    for (line, hierarchy, name, unlimited) in
        [("0::/a/b", "", "max", "max"), ("9:cpu,hugetlb:/a/b", "hugetlb/", "limit_in_bytes", "9223372036853727232")]
    {
        let machine = FakeMachine::new();
        machine.pool(unused(4));
        machine.write("proc/self/cgroup", &format!("{line}\n"));
        let file = |group: &str| format!("sys/fs/cgroup/{hierarchy}{group}hugetlb.2MB.{name}");
        machine.write(&file("a/b/"), "8388608\n");
        machine.write(&file("a/"), "4194304\n");
        machine.write(&file(""), unlimited);
        let tightest = CgroupLimit { page_size: TWO_MIB, max: 4 << 20, path: machine.path(&file("a/")) };
        assert_eq!(discover(&machine).cgroup, [tightest], "{line}");
    }
}
