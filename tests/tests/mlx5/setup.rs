//! The mlx5 device before its first frame, on software ConnectXs under rdma-core: how it is found,
//! what it refuses and in which words, which rules it accepts. Each test starts itself again under
//! `softhca run`.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use rdma_core_sys::RdmaCore;
use rdma_core_sys::verbs::{CompletionQueue, CqRequest, ProtectionDomain, QpCaps, QpRequest, QueuePair, ThreadDomain};
use softhca::testing::{is_inside, is_inside_under};
use wirepath::counters::Block;
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Mlx5DeviceInfo, Pace, RssConfig, RxDistribution};
use wirepath::device::steering::{Fields, Rule, SteerError};
use wirepath::device::{Device, DeviceError, Offload, Queue, RxState, TxQueue};
use wirepath::mem::Mbuf;
use wirepath_tests::connectx::{End, config, open, pool};
use wirepath_tests::nic;

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);

/// More queues than libmlx5 has registers for that it does not share.
const MANY: u16 = 40;

/// Checks that the port does not open, and that nothing of the attempt is left; returns the
/// sentence.
fn refused(config: &Mlx5Config) -> String {
    let Err(error) = Mlx5Device::open(config) else { panic!("it was opened") };
    assert_eq!(nic::objects(), 0, "left behind after: {error}");
    error.to_string()
}

fn rule(port: u16) -> Rule {
    Rule::udp(GROUP, port)
}

/// None of our objects is left in the model, and it has found no mistake.
fn is_clean() {
    assert_eq!(nic::diagnoses(), Vec::<String>::new());
}

#[test]
fn device_is_found_by_its_name_and_its_pci_address() {
    if !is_inside("device_is_found_by_its_name_and_its_pci_address", &["--strict", "--devices", "2"]) {
        return;
    }
    assert_eq!(open(&config("mlx5_1")).name(), "mlx5_1");
    let devices = Mlx5DeviceInfo::list().unwrap();
    let pci = devices.iter().find(|device| device.name == "mlx5_0").unwrap().pci.clone().unwrap();
    assert_eq!(open(&config(&pci)).name(), "mlx5_0");
    let said = refused(&config("mlx5_7"));
    assert!(said.contains("mlx5_0") && said.contains("mlx5_1"), "those that are there are not named: {said}");
    is_clean();
}

#[test]
fn entries_of_completions_are_of_64_bytes_whatever_the_cache_line_is() {
    // The variable of libmlx5, which takes the place of the CPU's cache line.
    let launcher = ["env", "MLX5_CQE_SIZE=128"];
    if is_inside_under("entries_of_completions_are_of_64_bytes_whatever_the_cache_line_is", &["--strict"], &launcher) {
        End::alone(&config("mlx5_0"), &[]).1.close();
        is_clean();
    }
}

#[test]
fn device_is_asked_how_long_a_descriptor_may_be() {
    let test = "device_is_asked_how_long_a_descriptor_may_be";
    // Bytes of the longest, buffers that it points to behind a header, and whether one has room for
    // TCP's.
    for (len, buffers, cuts) in [("1024", 52, true), ("512", 21, true), ("128", 1, false)] {
        let wanted = format!("WIREPATH_TEST_WANTED={buffers} {cuts}");
        if is_inside_under(test, &["--strict", "--wqe", len], &["env", &wanted]) {
            let capabilities = open(&config("mlx5_0")).capabilities();
            let found = format!("{} {}", capabilities.tx_segments_max, capabilities.tx.segmentation_len_max > 0);
            assert_eq!(std::env::var("WIREPATH_TEST_WANTED"), Ok(found));
            return is_clean();
        }
    }
}

#[test]
fn memory_is_registered_with_relaxed_ordering_unless_it_is_turned_off() {
    if !is_inside("memory_is_registered_with_relaxed_ordering_unless_it_is_turned_off", &["--strict"]) {
        return;
    }
    for (relaxed_ordering, regions) in [(false, 0), (true, 1)] {
        let device = open(&Mlx5Config { relaxed_ordering, ..config("mlx5_0") });
        let is_used = device.describe().contains(", relaxed ordering");
        if relaxed_ordering && device.describe().contains("no relaxed ordering") {
            return println!("SKIPPED the half with relaxed ordering: this processor is slower with it");
        }
        assert_eq!(is_used, relaxed_ordering, "{}", device.describe());
        drop(device);
        let (_device, end) = End::alone(&Mlx5Config { relaxed_ordering, ..config("mlx5_0") }, &[]);
        assert_eq!(nic::counter("regions_relaxed"), Some(regions));
        end.close();
    }
    is_clean();
}

#[test]
fn queue_whose_halves_are_gone_may_be_taken_again() {
    if !is_inside("queue_whose_halves_are_gone_may_be_taken_again", &["--strict", "--devices", "2"]) {
        return;
    }
    let mut device = open(&config("mlx5_0"));
    device.steer(&Rule::ALL, 0).unwrap();
    let taken = |device: &mut Mlx5Device| matches!(device.take_queue(0), Err(DeviceError::QueueTaken { .. }));
    let queue = device.take_queue(0).unwrap();
    assert!(taken(&mut device), "while it is on its way to a worker");
    drop(queue);
    for turn in 0..3 {
        let (pool, block) = (pool(256, 1518), Block::heap());
        let (rx, tx) = device.take_queue(0).unwrap().open(&pool, &block.scope("q")).unwrap();
        assert!(taken(&mut device), "turn {turn}");
        drop(rx);
        assert!(taken(&mut device), "one half is there in turn {turn}");
        drop(tx);
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0));
    }
    drop(device);
    is_clean();
}

#[test]
fn machine_without_rdma_core_is_told_what_to_install() {
    let program = std::env::current_exe().unwrap();
    let mut child = std::process::Command::new(program);
    child.args(["--exact", "child_without_rdma_core", "--nocapture", "--ignored"]);
    let output = child.env("RDMA_CORE_LIB_DIR", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("rdma-core is not installed: apt install"), "{said}");
}

#[test]
#[ignore = "started by machine_without_rdma_core_is_told_what_to_install"]
fn child_without_rdma_core() {
    println!("{}", refused(&config("mlx5_0")));
}

#[test]
fn machine_without_a_device_is_told_so() {
    let said = refused(&config("mlx5_99"));
    // There is no rdma-core on this machine, or no such device, or another one.
    assert!(["rdma-core", "mlx5_99"].iter().any(|word| said.contains(word)), "{said}");
}

#[test]
fn demand_that_the_firmware_does_not_meet_is_refused_and_a_wish_is_not() {
    let without = ["multi-packet-send", "cqe-compression", "striding-rq", "tso", "pacing"];
    let options: Vec<&str> = without.iter().flat_map(|feature| ["--without", feature]).collect();
    if !is_inside("demand_that_the_firmware_does_not_meet_is_refused_and_a_wish_is_not", &options) {
        return;
    }
    let on = Feature::Required;
    for (config, feature) in [
        (Mlx5Config { multi_packet_send: on, ..config("mlx5_0") }, "multi-packet sends"),
        (Mlx5Config { compression: on, ..config("mlx5_0") }, "compressed completions"),
        (Mlx5Config { striding: on, ..config("mlx5_0") }, "striding receive queues"),
        (Mlx5Config { pace: Some(Pace { kbps: 5000, ..Pace::default() }), ..config("mlx5_0") }, "packet pacing"),
    ] {
        let said = refused(&config);
        assert!(said.contains(&format!("no {feature}")) && said.contains("firmware 16."), "{said}");
    }
    let wish = Feature::IfSupported;
    let device = open(&Mlx5Config { multi_packet_send: wish, compression: wish, ..config("mlx5_0") });
    let described = device.describe();
    assert!(described.contains("no compressed completions: the firmware compresses none"), "{described}");
    assert_eq!(device.capabilities().tx.segmentation_len_max, 0);
}

#[test]
fn rules_stand_while_their_queue_is_open() {
    if !is_inside("rules_stand_while_their_queue_is_open", &["--strict", "--flows", "2"]) {
        return;
    }
    let mut device = open(&Mlx5Config { queues: 2, ..config("mlx5_0") });
    // More rules than the device has room for; that shows only when the queues are open.
    let ids: Vec<_> = (0..2).map(|port| device.steer(&rule(port), 0).unwrap()).collect();
    device.steer(&rule(9), 1).unwrap();
    let opened = End::open(&mut device, 0);
    let (pool, block) = (pool(256, 1518), Block::heap());
    let said = match device.take_queue(1).unwrap().open(&pool, &block.scope("port")) {
        Ok(_) => panic!("three rules went into a table for two"),
        Err(error) => error.to_string(),
    };
    assert!(said.contains("UDP to 239.1.2.3:9") && said.contains("holds 2 rules"), "{said}");
    assert_eq!(pool.in_use(), 0, "the queue that was not opened kept buffers");

    assert_eq!(device.steer(&rule(5), 0), Err(SteerError::TableFull { rules_max: 2 }));
    device.unsteer(ids[0]).unwrap();
    device.steer(&rule(5), 0).unwrap();
    opened.close();
    is_clean();
}

#[test]
fn rules_that_make_no_sense_are_refused_before_the_device_hears_of_them() {
    if !is_inside("rules_that_make_no_sense_are_refused_before_the_device_hears_of_them", &[]) {
        return;
    }
    let mut device = open(&config("mlx5_0"));
    let fields = device.capabilities().steering;
    assert_eq!(fields, Fields::ALL);
    assert_eq!(device.steer(&Rule::ALL.to(GROUP), 0), Err(SteerError::NeedsIpv4));
    assert_eq!(device.steer(&rule(1), 1), Err(SteerError::NoQueue { idx: 1 }));
    let id = device.steer(&rule(1), 0).unwrap();
    device.unsteer(id).unwrap();
    assert_eq!(device.unsteer(id), Err(SteerError::NoRule { id }));
}

#[test]
fn rules_that_the_nic_cannot_both_serve_are_refused_and_the_first_stays() {
    if !is_inside("rules_that_the_nic_cannot_both_serve_are_refused_and_the_first_stays", &["--strict", "--flows", "1"])
    {
        return;
    }
    let mut device = open(&Mlx5Config { queues: 2, ..config("mlx5_0") });
    let id = device.steer(&rule(1), 0).unwrap();
    let opened = End::open(&mut device, 0);
    for (other, idx) in [(rule(1).from(Ipv4Addr::new(10, 0, 0, 1)), 1), (rule(1).tagged(4), 0), (Rule::ALL, 1)] {
        let said = device.steer(&other, idx).unwrap_err();
        assert_eq!(said, SteerError::Overlaps { other: rule(1) });
        assert!(said.to_string().contains("UDP to 239.1.2.3:1"), "{said}");
    }
    // The rule is installed: there is room for one, and it has that.
    assert_eq!(device.steer(&rule(2), 0), Err(SteerError::TableFull { rules_max: 1 }));
    device.unsteer(id).unwrap();
    device.steer(&rule(2), 0).unwrap();
    opened.close();
    is_clean();
}

#[test]
fn queues_that_share_are_ready_with_the_last_of_them() {
    if !is_inside("queues_that_share_are_ready_with_the_last_of_them", &["--strict"]) {
        return;
    }
    for queues in [2, 3, 8] {
        let rx_distribution = RxDistribution::Rss(RssConfig::default());
        let mut device = open(&Mlx5Config { queues, rx_distribution, ..config("mlx5_0") });
        device.steer(&rule(1).tagged(3), 0).unwrap();
        device.steer(&Rule::ALL.tagged(3), 0).unwrap();
        let opened: Vec<_> = (0..queues).map(|idx| End::open(&mut device, idx)).collect();
        device.steer(&Rule::arp(), 1).unwrap();
        opened.into_iter().for_each(End::close);
        is_clean();
    }
}

#[test]
fn each_queue_is_taken_once_and_the_pool_must_be_large_enough() {
    if !is_inside("each_queue_is_taken_once_and_the_pool_must_be_large_enough", &[]) {
        return;
    }
    let mut device = open(&config("mlx5_0"));
    let Err(error) = End::with_pool(&mut device, 0, pool(64, 1518)) else { panic!("64 buffers were enough") };
    assert!(error.to_string().contains("a pool of 64 buffers cannot feed a receive ring of 64"), "{error}");
    // One that could not be opened is there again.
    let Ok(_taken) = device.take_queue(0) else { panic!("queue 0 was gone") };
    for (idx, words) in [(0, "is taken"), (1, "has no queue 1")] {
        let Err(error) = device.take_queue(idx) else { panic!("queue {idx} was there") };
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn striding_ring_needs_no_buffer_of_the_pool() {
    if !is_inside("striding_ring_needs_no_buffer_of_the_pool", &["--strict"]) {
        return;
    }
    let striding = Mlx5Config { striding: Feature::Required, ..config("mlx5_0") };
    let mut device = open(&striding);
    End::with_pool(&mut device, 0, pool(16, 1518)).unwrap().close();
    is_clean();
    // One frame has more buffers than the pool.
    let mut device = open(&Mlx5Config { frame_len_max: Some(9018), ..striding });
    let Err(error) = End::with_pool(&mut device, 0, pool(4, 1518)) else { panic!("four buffers hold a frame of six") };
    assert!(error.to_string().contains("frames of mlx5_0 have up to 9018 bytes, more than 4 buffers"), "{error}");
}

#[test]
fn rings_of_all_lengths_and_frames_of_all_lengths_are_made() {
    if !is_inside("rings_of_all_lengths_and_frames_of_all_lengths_are_made", &["--strict"]) {
        return;
    }
    for len in [8, 64, 1024, 8192] {
        for frame_len_max in [1518, 9018] {
            let config = Mlx5Config {
                rx_ring_len: len,
                tx_ring_len: len,
                frame_len_max: Some(frame_len_max),
                ..Mlx5Config::new("mlx5_0")
            };
            let mut device = open(&config);
            match End::with_pool(&mut device, 0, pool(8 * len as usize, 1518)) {
                Ok(end) => end.close(),
                Err(error) => panic!("{len} frames of {frame_len_max} bytes: {error}"),
            }
            is_clean();
        }
    }
}

/// The registers of sending queue pairs: `MANY` of them, each with a separate thread domain or all
/// without.
fn registers(has_threads: bool) -> BTreeSet<usize> {
    let context = RdmaCore::load().unwrap().devices().unwrap().by_name("mlx5_0").unwrap().open().unwrap();
    let pd = ProtectionDomain::allocate(&context).unwrap();
    let cq = CompletionQueue::create(&context, &CqRequest::new(63)).unwrap();
    let create = |_| {
        let thread = has_threads.then(|| ThreadDomain::allocate(&context).unwrap());
        let own = thread.map(|thread| ProtectionDomain::for_thread(&pd, &thread).unwrap());
        let caps = QpCaps { send_wr_max: 8, send_sge_max: 1, ..QpCaps::default() };
        QueuePair::create(&QpRequest { caps, ..QpRequest::new(own.as_ref().unwrap_or(&pd), &cq, &cq) }).unwrap()
    };
    let pairs: Vec<_> = (0..MANY).map(create).collect();
    pairs.iter().map(|qp| qp.rings().unwrap().uar.unwrap().addr().get()).collect()
}

/// Why the device asks for thread domains.
#[test]
fn libmlx5_shares_registers_between_queues_without_a_thread_domain() {
    for abi in ["ioctl", "write"] {
        let test = "libmlx5_shares_registers_between_queues_without_a_thread_domain";
        if is_inside(test, &["--abi", abi]) {
            assert_eq!(registers(true).len(), usize::from(MANY));
            assert!(registers(false).len() < usize::from(MANY));
            return;
        }
    }
}

/// Queues of a device, and how each of them rings.
fn doorbells(device: &mut Mlx5Device, queues: u16) -> Vec<(End, String)> {
    let ring = |idx| {
        let end = End::with_pool(device, idx, pool(128, 1518)).unwrap();
        let doorbell = end.block.snapshot().text("port/tx/doorbell").unwrap().to_owned();
        (end, doorbell)
    };
    (0..queues).map(ring).collect()
}

/// Urgent frames of all queues, one turn each, on a NIC that compares the registers' bytes with the
/// rings.
fn all_send(test: &str, abi: &str, options: &[&str], doorbell: &str) {
    if !is_inside(test, &[&["--strict", "--manual", "--abi", abi], options].concat()) {
        return;
    }
    let mut device = open(&Mlx5Config { queues: MANY, ..config("mlx5_0") });
    let mut ends = doorbells(&mut device, MANY);
    for (end, found) in &mut ends {
        assert_eq!(found, doorbell);
        for _ in 0..3 {
            let urgent = Offload::URGENT;
            end.tx.post(end.pool.alloc_copy(&[7; 60]).unwrap(), urgent).map_err(Mbuf::free).unwrap();
            end.burst().drain(..).for_each(Mbuf::free);
        }
    }
    assert_eq!(nic::counter("tx_frames"), Some(3 * u64::from(MANY)));
    ends.into_iter().for_each(|(end, _)| end.close());
    is_clean();
}

#[test]
fn each_of_many_queues_rings_on_a_register_of_its_own() {
    all_send("each_of_many_queues_rings_on_a_register_of_its_own", "ioctl", &[], "BlueFlame");
}

#[test]
fn each_of_many_queues_of_an_old_kernel_rings_on_a_register_of_its_own() {
    all_send("each_of_many_queues_of_an_old_kernel_rings_on_a_register_of_its_own", "write", &[], "BlueFlame");
}

#[test]
fn queues_that_share_registers_ring_plain_doorbells() {
    // The eight that come with a context.
    all_send("queues_that_share_registers_ring_plain_doorbells", "write", &["--uars", "8"], "plain");
}

#[test]
fn state_of_the_port_is_told() {
    if !is_inside("state_of_the_port_is_told", &[]) {
        return;
    }
    let device = open(&config("mlx5_0"));
    assert_eq!(device.state(), RxState::Open);
    assert!(device.describe().starts_with("mlx5_0, firmware 16."), "{}", device.describe());
}
