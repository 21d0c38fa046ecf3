//! The handles over a library that records its calls.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::any::Any;
use core::mem::offset_of;
use core::ptr::NonNull;
use std::sync::Arc;

use super::*;
use crate::bindings::*;

type Handles = Vec<Box<dyn Any>>;

/// One of each, parents first.
fn all_kinds() -> Handles {
    let (context, pd) = fake::open();
    let channel = CompletionChannel::create(&context).unwrap();
    let request = CqRequest { channel: Some(&channel), ..CqRequest::new(64) };
    let cq = CompletionQueue::create(&context, &request).unwrap();
    let mr = register(&pd, Access::default()).unwrap();
    let options = WqOptions::default();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &cq, wr_max: 64, sge_max: 1, options }).unwrap();
    let table = IndirectionTable::create(&[wq.clone(), wq.clone()]).unwrap();
    let request = RssRequest { pd: &pd, table: &table, key: &[0; 40], fields: 3, options: QpOptions::default() };
    let rss = QueuePair::create_rss(&request).unwrap();
    let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    let flow = Flow::create(&rss, &FlowRule::new(1).tag(1)).unwrap();
    let device = context.device().clone();
    let handles: Handles = vec![
        Box::new(device),
        Box::new(context),
        Box::new(pd),
        Box::new(mr),
        Box::new(channel),
        Box::new(cq),
        Box::new(wq),
        Box::new(table),
        Box::new(rss),
        Box::new(qp),
        Box::new(flow),
    ];
    fake::calls();
    handles
}

fn register(pd: &ProtectionDomain, access: Access) -> Result<MemoryRegion, VerbsError> {
    let memory = Arc::new(vec![0_u8; 4096]);
    let start = NonNull::from(&memory[0]);
    MemoryRegion::register(pd, start, memory.len(), access, memory)
}

/// Every pair of child and parent.
const CHILD_BEFORE_PARENT: [(&str, &str); 11] = [
    ("destroy_flow", "ibv_destroy_qp rss"),
    ("ibv_destroy_qp rss", "destroy_rwq_ind_table"),
    ("destroy_rwq_ind_table", "destroy_wq"),
    ("destroy_wq", "ibv_destroy_cq"),
    ("destroy_wq", "ibv_dealloc_pd"),
    ("ibv_destroy_qp", "ibv_destroy_cq"),
    ("ibv_destroy_qp", "ibv_dealloc_pd"),
    ("ibv_destroy_cq", "ibv_destroy_comp_channel"),
    ("ibv_destroy_comp_channel", "ibv_close_device"),
    ("ibv_dereg_mr", "ibv_dealloc_pd"),
    ("ibv_dealloc_pd", "ibv_close_device"),
];

#[test]
fn children_go_before_their_parents_whatever_the_order_of_the_handles() {
    // All rotations, upwards and downwards.
    for turn in 0..11 {
        for backwards in [false, true] {
            let mut handles = all_kinds();
            handles.rotate_left(turn);
            if backwards {
                handles.reverse();
            }
            handles.into_iter().for_each(drop);
            let calls = fake::calls();
            let place = |call: &str| calls.iter().position(|seen| seen == call).unwrap();
            for (child, parent) in CHILD_BEFORE_PARENT {
                assert!(place(child) < place(parent), "{child} after {parent}: {calls:?}");
            }
            assert_eq!(calls.len(), 12, "each is destroyed once: {calls:?}");
            assert_eq!(calls.last().unwrap(), "ibv_free_device_list");
        }
    }
}

#[test]
fn chain_of_a_spreading_qp_goes_flow_qp_table_queue_cq_domain_context() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let mr = register(&pd, Access::default()).unwrap();
    let options = WqOptions::default();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &cq, wr_max: 64, sge_max: 1, options }).unwrap();
    let table = IndirectionTable::create(core::slice::from_ref(&wq)).unwrap();
    let request = RssRequest { pd: &pd, table: &table, key: &[0; 40], fields: 3, options: QpOptions::default() };
    let qp = QueuePair::create_rss(&request).unwrap();
    let flow = Flow::create(&qp, &FlowRule::new(1)).unwrap();
    drop((context, pd, cq, wq, table, qp));
    fake::calls();
    drop(flow);
    assert_eq!(
        fake::calls(),
        ["destroy_flow", "ibv_destroy_qp rss", "destroy_rwq_ind_table", "destroy_wq", "ibv_destroy_cq"]
    );
    drop(mr);
    let rest = ["ibv_dereg_mr", "ibv_dealloc_pd", "ibv_close_device", "device_gone", "ibv_free_device_list"];
    assert_eq!(fake::calls(), rest);
}

#[test]
fn queue_of_a_thread_goes_before_its_domains() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    fake::calls();
    let thread = ThreadDomain::allocate(&context).unwrap();
    let own = ProtectionDomain::for_thread(&pd, &thread).unwrap();
    assert_eq!(fake::calls(), ["alloc_td mask 0", "alloc_parent_domain mask 0 thread true"]);
    assert_eq!(own.context().device().name(), "mlx5_0");
    let qp = QueuePair::create(&QpRequest::new(&own, &cq, &cq)).unwrap();
    drop((context, pd, cq, own, thread));
    fake::calls();
    drop(qp);
    assert_eq!(
        fake::calls()[..5],
        ["ibv_destroy_qp", "ibv_destroy_cq", "ibv_dealloc_pd parent", "ibv_dealloc_pd", "dealloc_td"]
    );
}

#[test]
fn thread_domain_that_is_refused_leaves_nothing() {
    let (context, pd) = fake::open();
    fake::refuse("alloc_parent_domain", libc::EOPNOTSUPP);
    let thread = ThreadDomain::allocate(&context).unwrap();
    assert!(ProtectionDomain::for_thread(&pd, &thread).unwrap_err().is_unsupported());
    fake::refuse("alloc_td", libc::ENOENT);
    assert_eq!(ThreadDomain::allocate(&context).unwrap_err(), VerbsError::new("ibv_alloc_td", libc::ENOENT));
    fake::calls();
    drop(thread);
    assert_eq!(fake::calls(), ["dealloc_td"]);
    // Everything up to pacing is present; thread domains came later.
    fake::shorten(&context, offset_of!(verbs_context, modify_cq));
    assert!(ThreadDomain::allocate(&context).unwrap_err().is_unsupported());
    fake::shorten(&context, 0);
}

#[test]
fn memory_is_kept_until_its_region_is_gone() {
    let (_context, pd) = fake::open();
    let memory: MemoryOwner = Arc::new([0_u8; 64]);
    let region = MemoryRegion::register(&pd, NonNull::dangling(), 64, Access::default(), Arc::clone(&memory)).unwrap();
    let clone = region.clone();
    drop(region);
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(clone);
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn memory_of_a_region_that_the_device_keeps_is_never_freed() {
    let (_context, pd) = fake::open();
    fake::refuse("ibv_dereg_mr", libc::EBUSY);
    let memory: MemoryOwner = Arc::new([0_u8; 64]);
    let register =
        |memory| MemoryRegion::register(&pd, NonNull::dangling(), 64, Access::default(), Arc::clone(memory)).unwrap();
    let before = failed_destructions();
    drop(register(&memory));
    assert_eq!(Arc::strong_count(&memory), 2);
    let (region, error) = register(&memory).deregister().unwrap_err();
    assert_eq!(error, VerbsError::new("ibv_dereg_mr", libc::EBUSY));
    assert_eq!(Arc::strong_count(&memory), 3, "it is still the region's");
    drop(region);
    assert_eq!(Arc::strong_count(&memory), 3);
    assert!(failed_destructions() >= before + 2);
}

#[test]
fn region_and_window_that_the_device_refuses_to_end_come_back() {
    let (_context, pd) = fake::open();
    let memory: MemoryOwner = Arc::new([0_u8; 64]);
    let region = MemoryRegion::register(&pd, NonNull::dangling(), 64, Access::default(), Arc::clone(&memory)).unwrap();
    let window = MemoryWindow::allocate(&pd).unwrap();
    fake::calls();
    fake::refuse("ibv_dereg_mr", libc::EBUSY);
    fake::refuse("dealloc_mw", libc::EBUSY);
    let (region, error) = region.deregister().unwrap_err();
    assert_eq!((error.call(), error.errno()), ("ibv_dereg_mr", libc::EBUSY));
    let (window, error) = window.deallocate().unwrap_err();
    assert_eq!((error.call(), error.errno()), ("ibv_dealloc_mw", libc::EBUSY));
    assert_eq!(Arc::strong_count(&memory), 2);
    fake::permit();
    assert!(window.deallocate().is_ok() && region.deregister().is_ok());
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn refusal_says_call_and_reason() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    for (call, errno) in [("create_flow", libc::ENOSPC), ("ibv_reg_mr", libc::ENOMEM), ("ibv_modify_qp", libc::EINVAL)]
    {
        fake::refuse(call, errno);
    }
    let flow = Flow::create(&qp, &FlowRule::new(1)).unwrap_err();
    assert_eq!(flow.to_string(), "ibv_create_flow: No space left on device (28)");
    let region = register(&pd, Access::default()).unwrap_err();
    assert_eq!(region.to_string(), "ibv_reg_mr: Cannot allocate memory (12)");
    let state = qp.to_state(QpState::Rts, 1).unwrap_err();
    assert_eq!(state.to_string(), "ibv_modify_qp: Invalid argument (22)");
}

#[test]
fn object_that_cannot_be_destroyed_is_counted_and_its_parents_still_go() {
    let (context, pd) = fake::open();
    fake::refuse("ibv_dealloc_pd", libc::EBUSY);
    let before = failed_destructions();
    drop(pd);
    assert!(failed_destructions() > before);
    drop(context);
    assert!(fake::calls().contains(&"ibv_close_device".to_owned()));
}

#[test]
fn no_device_is_an_empty_list() {
    let core = fake::core_without_devices();
    let devices = core.devices().unwrap();
    assert!(devices.is_empty() && devices.kernel_has_rdma() && devices.by_name("mlx5_0").is_none());
}

#[test]
fn kernel_without_rdma_is_an_empty_list_that_says_so() {
    let core = fake::core_without_devices();
    fake::refuse("ibv_get_device_list", libc::ENOSYS);
    let devices = core.devices().unwrap();
    assert!(devices.is_empty() && !devices.kernel_has_rdma());
}

#[test]
fn refused_list_is_an_error() {
    let core = fake::core_without_devices();
    fake::refuse("ibv_get_device_list", libc::EPERM);
    assert_eq!(core.devices().unwrap_err(), VerbsError::new("ibv_get_device_list", libc::EPERM));
}

#[test]
fn device_tells_its_names() {
    let (context, _pd) = fake::open();
    let device = context.device();
    assert_eq!(device.name(), "mlx5_0");
    assert_eq!(device.ibdev_path(), std::path::Path::new("/sys/class/infiniband/mlx5_0"));
    assert_eq!(device.node_path(), std::path::Path::new("/dev/infiniband/uverbs0"));
    assert_eq!(device.guid(), 0x0011_2233_4455_6677);
}

#[test]
fn attributes_are_for_raw_packets_only() {
    let (context, _pd) = fake::open();
    let attributes = context.attributes().unwrap();
    assert_eq!((attributes.qp_count_max, attributes.tso_len_max), (8, 262_144));
    assert!(attributes.raw_packet.cvlan_stripping && !attributes.raw_packet.scatter_fcs);
    assert_eq!((attributes.dest_rd_atomic_max, attributes.rd_atomic_max), (16, 255), "as a QP's attributes say it");
    assert_eq!((attributes.rss, attributes.pacing), (None, None), "for other kinds of QP, or not at all");
}

#[test]
fn what_libmlx5_does_not_tell_is_not_assumed() {
    let (context, _pd) = fake::open();
    let attributes = context.mlx5_attributes().unwrap();
    assert!(attributes.enhanced_multi_packet_wqe && !attributes.multi_packet_wqe);
    assert_eq!(attributes.compression_entries_max, 0, "the number stands there, but its bit is not set");
    assert_eq!(
        attributes.striding.map(|strides| (strides.stride_len_log_min, strides.stride_count_log_max)),
        Some((6, 16))
    );
}

#[test]
fn port_tells_state_and_speed() {
    let (context, _pd) = fake::open();
    let port = context.port(1).unwrap();
    assert_eq!((port.state, port.link_layer), (PortState::Active, LinkLayer::Ethernet));
    assert_eq!((port.active_mtu, port.speed_gbps), (1024, 100.0));
}

#[test]
fn old_library_is_asked_the_old_way() {
    let (context, _pd) = fake::open();
    fake::calls();
    fake::make_plain(&context, true);
    assert_eq!(context.attributes().unwrap().qp_count_max, 7);
    context.port(1).unwrap();
    let cq = CompletionQueue::create(
        &context,
        &CqRequest { options: CqOptions { timestamps: true, ..CqOptions::default() }, ..CqRequest::new(8) },
    );
    assert!(cq.unwrap_err().is_unsupported());
    assert_eq!(fake::calls(), ["ibv_query_device", "ibv_query_port 1"]);
    fake::make_plain(&context, false);
}

#[test]
fn function_that_the_library_is_too_old_for_is_not_called() {
    let (context, _pd) = fake::open();
    // Everything from query_device_ex on is present; query_port and create_cq_ex came later.
    fake::shorten(&context, offset_of!(verbs_context, query_device_ex));
    fake::calls();
    assert_eq!(context.attributes().unwrap().qp_count_max, 8);
    context.port(1).unwrap();
    assert!(context.device_clock().unwrap_err().is_unsupported());
    let len = size_of::<ibv_device_attr_ex>();
    assert_eq!(fake::calls(), [format!("query_device_ex {len}"), "ibv_query_port 1".to_owned()]);
}

#[test]
fn device_that_knows_no_extended_query_is_asked_the_old_way() {
    let (context, _pd) = fake::open();
    fake::refuse("query_device_ex", libc::EOPNOTSUPP);
    assert_eq!(context.attributes().unwrap().qp_count_max, 7);
}

#[test]
fn events_name_what_they_are_about_and_are_acknowledged_at_once() {
    let (context, _pd) = fake::open();
    assert_eq!(context.next_event(), Ok(None));
    let check = |raw, number, kind, element| {
        fake::raise(raw, number);
        fake::calls();
        assert_eq!(context.next_event(), Ok(Some(AsyncEvent { kind, element })));
        assert_eq!(fake::calls().last().unwrap(), "ibv_ack_async_event");
    };
    check(IBV_EVENT_PORT_ERR, 1, EventKind::PortDown, Element::Port(1));
    check(IBV_EVENT_QP_FATAL, 9, EventKind::QpFatal, Element::QueuePair(9));
    check(IBV_EVENT_CQ_ERR, 7, EventKind::CqError, Element::CompletionQueue(7));
    check(IBV_EVENT_WQ_FATAL, 3, EventKind::WqFatal, Element::WorkQueue(3));
    check(IBV_EVENT_COMM_EST, 4, EventKind::Established, Element::QueuePair(4));
    check(IBV_EVENT_SQ_DRAINED, 4, EventKind::SqDrained, Element::QueuePair(4));
    check(IBV_EVENT_QP_LAST_WQE_REACHED, 4, EventKind::LastWqeReached, Element::QueuePair(4));
    check(IBV_EVENT_SRQ_LIMIT_REACHED, 6, EventKind::SrqLimitReached, Element::SharedReceiveQueue(6));
    check(IBV_EVENT_DEVICE_FATAL, 0, EventKind::DeviceFatal, Element::Device);
    check(99, 0, EventKind::Other(99), Element::Device);
}

#[test]
fn event_that_another_process_has_named_reaches_no_object_where_it_has_the_devices_file() {
    let (context, _pd) = fake::open();
    context.share_file();
    let cq = CompletionQueue::create(&context, &CqRequest::new(8)).unwrap();
    let own = cq.as_ptr().expose_provenance() as u64;
    fake::calls();
    let foreign = |kind: u32, named: u64| {
        fake::report(kind, named);
        let seen = context.next_event().unwrap().unwrap();
        assert_eq!((seen.element, fake::calls()), (Element::Device, Vec::<String>::new()), "{kind} of {named:#x}");
        assert_eq!(seen.kind, EventKind::Other(kind));
    };
    for named in [0x10, 0, u64::MAX, own + 8] {
        [IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_SRQ_LIMIT_REACHED, 99]
            .iter()
            .for_each(|kind| foreign(*kind, named));
    }
    // Of another kind than the object is.
    foreign(IBV_EVENT_QP_FATAL, own);
    // Our own, and what is of no object.
    fake::report(IBV_EVENT_PORT_ERR, 1);
    let port = AsyncEvent { kind: EventKind::PortDown, element: Element::Port(1) };
    assert_eq!(context.next_event(), Ok(Some(port)));
    assert_eq!(fake::calls(), Vec::<String>::new());
    assert_eq!(context.next_event(), Ok(None));
    fake::report(IBV_EVENT_CQ_ERR, own);
    let expected = AsyncEvent { kind: EventKind::CqError, element: Element::CompletionQueue(cq.handle()) };
    assert_eq!(context.next_event(), Ok(Some(expected)));
    assert_eq!(fake::calls(), ["ibv_ack_async_event"]);
    drop(cq);
    fake::calls();
    foreign(IBV_EVENT_CQ_ERR, own);
}

/// Its destruction would wait for the events of what has its handle.
#[test]
fn queue_is_left_to_the_kernel_once_an_event_was_about_an_object_of_another_process() {
    let (context, _pd) = fake::open();
    context.share_file();
    let [first, second] = [(); 2].map(|()| CompletionQueue::create(&context, &CqRequest::new(8)).unwrap());
    fake::report(99, 0x10);
    context.next_event().unwrap();
    fake::calls();
    drop(first);
    assert_eq!(fake::calls(), ["ibv_destroy_cq"], "the kind is unknown");
    fake::report(IBV_EVENT_QP_FATAL, 0x10);
    context.next_event().unwrap();
    drop(second);
    assert_eq!(fake::calls(), Vec::<String>::new());
}

#[test]
fn region_that_another_process_has_destroyed_keeps_no_memory_where_it_has_the_devices_file() {
    for (is_shared, errno, keeps) in [
        (true, libc::ENOENT, false),
        (true, libc::EINVAL, false),
        (true, libc::EBUSY, true),
        (false, libc::EINVAL, true),
    ] {
        let (context, pd) = fake::open();
        if is_shared {
            context.share_file();
        }
        let memory = Arc::new([0_u8; 64]);
        let start = NonNull::from(&*memory).cast();
        let region = MemoryRegion::register(&pd, start, 64, Access::default(), memory.clone()).unwrap();
        fake::refuse("ibv_dereg_mr", errno);
        drop(region);
        assert_eq!(Arc::strong_count(&memory) > 1, keeps, "{is_shared} {errno}");
    }
}

#[test]
fn cq_is_made_by_the_plainest_call() {
    let (context, _pd) = fake::open();
    let check = |options: CqOptions, expected: &str| {
        fake::calls();
        CompletionQueue::create(&context, &CqRequest { options, ..CqRequest::new(1000) }).unwrap();
        assert_eq!(fake::calls()[0], expected);
    };
    let none = CqOptions::default();
    check(none, "ibv_create_cq 1000 vector 0");
    check(CqOptions { timestamps: true, ..none }, "create_cq_ex 1000 wc 0x80 mask 0 flags 0");
    check(CqOptions { ignore_overrun: true, ..none }, "create_cq_ex 1000 wc 0x0 mask 1 flags 2");
    let compression = Some(Compression::ChecksumStride);
    check(CqOptions { compression, ..none }, "mlx5dv_create_cq 1000 wc 0x0 mask 1 format 4 flags 0 len 0");
    let large = CqOptions { wallclock: true, entry_len: Some(128), pad_to_128: true, ..none };
    check(large, "mlx5dv_create_cq 1000 wc 0x800 mask 6 format 0 flags 1 len 128");
}

#[test]
fn qp_is_made_by_the_plainest_call() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let caps = QpCaps { send_wr_max: 512, receive_wr_max: 256, inline_len_max: 100, ..QpCaps::default() };
    let check = |options: QpOptions, expected: &str| {
        fake::calls();
        let qp = QueuePair::create(&QpRequest { caps, options, ..QpRequest::new(&pd, &cq, &cq) }).unwrap();
        assert_eq!(fake::calls()[0], expected);
        qp
    };
    let none = QpOptions::default();
    check(none, "ibv_create_qp type 8");
    let tso = QpOptions { tso_header_len_max: 94, ..none };
    let qp = check(tso, "create_qp_ex type 8 mask 0x9 flags 0x0 tso 94 rings 512 256 hash 0 0x0");
    assert_eq!((qp.caps().inline_len_max, qp.number()), (112, 0x000a_bcde), "what the device gave");
    let vlan = QpOptions { cvlan_stripping: true, scatter_fcs: true, block_self_multicast: true, ..none };
    check(vlan, "create_qp_ex type 8 mask 0x5 flags 0x302 tso 0 rings 512 256 hash 0 0x0");
    let loopback = QpOptions { self_loopback_unicast: true, self_loopback_multicast: true, ..none };
    check(loopback, "mlx5dv_create_qp type 8 mask 0x1 flags 0x0 tso 0 rings 512 256 hash 0 0x0 direct 0x6");
}

#[test]
fn way_up_of_a_qp_names_the_port_once() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    fake::calls();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Reset, QpState::Err] {
        qp.to_state(state, 2).unwrap();
    }
    assert_eq!(qp.state(), Ok(QpState::Sqe));
    qp.set_rate_limit(RateLimit { kbps: 1000, burst_len_max: 3000, packet_len_typical: 1500 }).unwrap();
    let expected = [
        "ibv_modify_qp state 1 port 2 mask 0x21",
        "ibv_modify_qp state 2 port 2 mask 0x1",
        "ibv_modify_qp state 3 port 2 mask 0x1",
        "ibv_modify_qp state 0 port 2 mask 0x1",
        "ibv_modify_qp state 6 port 2 mask 0x1",
        "ibv_query_qp mask 0x1",
        "modify_qp_rate_limit 1000 3000 1500",
    ];
    assert_eq!(fake::calls(), expected);
}

#[test]
fn qp_is_reset_from_the_state_that_the_device_has_put_it_into() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    fake::calls();
    qp.reset().unwrap();
    let expected = ["ibv_query_qp mask 0x1", "ibv_modify_qp state 0 port 0 mask 0x1"];
    assert_eq!(fake::calls(), expected);
    // Halves in mismatched states have no common state, but the query updates the kernel's cache
    // all the same.
    fake::refuse("ibv_query_qp", libc::EINVAL);
    qp.reset().unwrap();
    assert_eq!(fake::calls(), expected);
}

#[test]
fn wq_is_reset_from_whichever_state_it_can_be_in() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let options = WqOptions::default();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &cq, wr_max: 16, sge_max: 1, options }).unwrap();
    fake::calls();
    wq.reset(WqState::Err).unwrap();
    assert!(fake::calls().is_empty(), "it is");
    wq.to_state(WqState::Ready).unwrap();
    fake::calls();
    wq.reset(WqState::Err).unwrap();
    assert_eq!(fake::calls(), ["modify_wq state 2 to 0 mask 3"]);
    wq.to_state(WqState::Ready).unwrap();
    fake::calls();
    fake::refuse("modify_wq", libc::EINVAL);
    assert_eq!(wq.reset(WqState::Err).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(wq.reset(WqState::Ready).unwrap_err().errno(), libc::EINVAL);
    let [from_error, from_ready] = ["modify_wq state 2 to 0 mask 3", "modify_wq state 1 to 0 mask 3"];
    assert_eq!(fake::calls(), [from_error, from_ready, from_ready, from_error]);
}

#[test]
fn spreading_needs_a_power_of_two() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let striding = Some(StridingRequest { stride_len_log: 11, stride_count_log: 9, two_byte_shift: false });
    let options = WqOptions { striding, cvlan_stripping: true, ..WqOptions::default() };
    fake::calls();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &cq, wr_max: 16, sge_max: 1, options }).unwrap();
    wq.to_state(WqState::Ready).unwrap();
    assert_eq!(fake::calls(), ["mlx5dv_create_wq 16 mask 1 flags 0x1 strides 11 9 0", "modify_wq state ? to 1 mask 1"]);
    for count in [0, 3] {
        let error = IndirectionTable::create(&vec![wq.clone(); count]).unwrap_err();
        assert_eq!(error, VerbsError::new("ibv_create_rwq_ind_table", libc::EINVAL));
    }
    let table = IndirectionTable::create(&vec![wq; 4]).unwrap();
    let request = RssRequest { pd: &pd, table: &table, key: &[7; 40], fields: 0x43, options: QpOptions::default() };
    QueuePair::create_rss(&request).unwrap();
    let calls = fake::calls();
    assert_eq!(calls[0], "create_rwq_ind_table 2");
    assert_eq!(calls[1], "create_qp_ex type 8 mask 0x31 flags 0x0 tso 0 rings 0 0 hash 40 0x43");
}

#[test]
fn rings_are_in_the_memory_that_a_context_was_given() {
    let (context, _pd) = fake::open();
    let memory = Arc::new(fake::Page::default());
    context.place_rings_in(Arc::clone(&memory) as Arc<dyn RingMemory>).unwrap();
    assert_eq!(memory.uses(), (1, 1), "taken and given back");
    assert!(context.place_rings_in(Arc::clone(&memory) as Arc<dyn RingMemory>).is_err(), "it has memory");
    drop((context, _pd));
    assert_eq!(Arc::strong_count(&memory), 1);
}

#[test]
fn rings_are_told_as_far_as_they_are_there() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let qp = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    let rings = qp.rings().unwrap();
    let send = rings.send.unwrap();
    assert_eq!((send.start.as_ptr().addr(), send.count, send.stride), (0x2000, 512, 64));
    assert_eq!((rings.receive, rings.blueflame_len, rings.send_number), (None, 256, Some(0x55)));
    assert_eq!(rings.uar_offset, Some(0x7000));
    let ring = cq.rings().unwrap();
    assert_eq!((ring.entry_count, ring.entry_len, ring.number), (1024, 64, 0x99));
    let options = WqOptions::default();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &cq, wr_max: 16, sge_max: 1, options }).unwrap();
    assert_eq!(wq.rings().unwrap_err(), VerbsError::new("mlx5dv_init_obj", libc::ENODATA), "addresses of null");
}

#[test]
fn access_is_what_was_granted() {
    let (_context, pd) = fake::open();
    fake::calls();
    register(&pd, Access::default()).unwrap();
    register(&pd, Access { local_write: false, relaxed_ordering: false }).unwrap();
    register(&pd, Access { local_write: true, relaxed_ordering: true }).unwrap();
    let calls: Vec<_> = fake::calls().into_iter().filter(|call| call.starts_with("ibv_reg")).collect();
    assert_eq!(calls, ["ibv_reg_mr 4096 access 1", "ibv_reg_mr 4096 access 0", "ibv_reg_mr_iova2 4096 access 1048577"]);
}

#[test]
fn clocks_are_read() {
    let (context, _pd) = fake::open();
    assert_eq!(context.clock_info().unwrap().to_ns(60), 1010);
    assert_eq!(context.device_clock(), Ok(u64::MAX - 1), "all 64 bits");
    assert_eq!(context.vector_count(), 4);
}

#[test]
fn handles_may_be_used_and_dropped_on_any_thread() {
    fn check<T: Send + Sync + Clone>() {}
    check::<Device>();
    check::<Context>();
    check::<ProtectionDomain>();
    check::<ThreadDomain>();
    check::<MemoryRegion>();
    check::<CompletionChannel>();
    check::<CompletionQueue>();
    check::<QueuePair>();
    check::<SharedReceiveQueue>();
    check::<AddressHandle>();
    check::<WorkQueue>();
    check::<IndirectionTable>();
    check::<Flow>();
}

/// The attributes of a reliable connection, all that its three steps have.
fn all_of_rc() -> QpChange {
    QpChange {
        state: None,
        pkey_index: Some(0),
        port: Some(1),
        qkey: None,
        access: Some(RemoteAccess { read: true, write: true, atomic: false, bind: true }),
        address: Some(Address { gid: [1; 16], gid_index: 3, port: 1, traffic_class: 2, hop_limit: 64 }),
        mtu: Some(1024),
        destination: Some(0x11),
        rq_psn: Some(5),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        sq_psn: Some(6),
        max_rd_atomic: Some(1),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        timeout: Some(14),
    }
}

/// A QP over a shared receive queue.
fn connected(pd: &ProtectionDomain, cq: &CompletionQueue, srq: &SharedReceiveQueue) -> QueuePair {
    of_service(Service::Rc, pd, cq, Some(srq))
}

fn of_service(
    service: Service,
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    srq: Option<&SharedReceiveQueue>,
) -> QueuePair {
    let request =
        ServiceRequest { service, pd, send_cq: cq, receive_cq: cq, srq, caps: QpCaps::default(), signals_all: true };
    QueuePair::create_service(&request).unwrap()
}

#[test]
fn change_of_a_qp_has_a_bit_for_each_attribute_and_no_other() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let srq = SharedReceiveQueue::create(&pd, 16, 2).unwrap();
    let qp = connected(&pd, &cq, &srq);
    fake::calls();
    qp.modify(&QpChange { state: Some(QpState::Init), ..QpChange::default() }).unwrap();
    qp.modify(&QpChange { mtu: Some(4096), ..QpChange::default() }).unwrap();
    qp.modify(&all_of_rc()).unwrap();
    let rc = IBV_QP_PKEY_INDEX
        | IBV_QP_PORT
        | IBV_QP_ACCESS_FLAGS
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER
        | IBV_QP_SQ_PSN
        | IBV_QP_MAX_QP_RD_ATOMIC
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_TIMEOUT;
    let all = format!("ibv_modify_qp state 0 port 1 mask {rc:#x}");
    let [state, mtu] = [(1, IBV_QP_STATE), (0, IBV_QP_PATH_MTU)]
        .map(|(state, mask)| format!("ibv_modify_qp state {state} port 0 mask {mask:#x}"));
    assert_eq!(fake::calls(), [state, mtu, all]);
}

#[test]
fn shared_receive_queue_and_address_handle_are_made_as_wanted_and_go_before_their_domain() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    fake::calls();
    let srq = SharedReceiveQueue::create(&pd, 16, 2).unwrap();
    srq.set_limit(5).unwrap();
    let ah = AddressHandle::create(&pd, &all_of_rc().address.unwrap()).unwrap();
    let qp = connected(&pd, &cq, &srq);
    let made = [
        "ibv_create_srq 16 2 limit 0",
        "ibv_modify_srq limit 5 mask 0x2",
        "ibv_create_ah port 1 global 1 hops 64",
        "ibv_create_qp type 2",
    ];
    assert_eq!(fake::calls(), made);
    drop((pd, cq, srq, context));
    drop((ah, qp));
    let calls = fake::calls();
    let at = |name: &str| calls.iter().position(|call| call == name).unwrap();
    assert!(at("ibv_destroy_ah") < at("ibv_dealloc_pd"), "{calls:?}");
    assert!(at("ibv_destroy_qp") < at("ibv_destroy_srq"), "{calls:?}");
    assert!(at("ibv_destroy_srq") < at("ibv_dealloc_pd"), "{calls:?}");
}

#[test]
fn send_that_the_service_has_not_is_refused_before_the_library_sees_it() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let ah = AddressHandle::create(&pd, &all_of_rc().address.unwrap()).unwrap();
    let [rc, uc, ud] = [Service::Rc, Service::Uc, Service::Ud].map(|service| of_service(service, &pd, &cq, None));
    let raw = QueuePair::create(&QpRequest::new(&pd, &cq, &cq)).unwrap();
    fake::calls();
    let datagram = SendKind::Datagram(&ah, 9, 0x1111);
    let connected = [
        SendKind::Send,
        SendKind::Write(4096, 7),
        SendKind::Read(4096, 7),
        SendKind::CompareSwap(4096, 7, 1, 2),
        SendKind::FetchAdd(4096, 7, 1),
    ];
    for kind in connected {
        assert_eq!(fake::post(&ud, kind, None), Err(SendError::Destination), "{kind:?}");
        assert_eq!(fake::post(&raw, kind, None), Err(SendError::Operation), "{kind:?}");
    }
    assert_eq!(fake::post(&rc, datagram, None), Err(SendError::Destination));
    assert_eq!(fake::post(&uc, datagram, None), Err(SendError::Destination));
    assert_eq!(fake::post(&raw, datagram, None), Err(SendError::Operation));
    for kind in [SendKind::SendInvalidate(7), SendKind::Invalidate(7)] {
        assert_eq!(fake::post(&ud, kind, None), Err(SendError::Destination), "{kind:?}");
    }
    assert_eq!(fake::post(&uc, SendKind::SendInvalidate(7), None), Err(SendError::Operation));
    for qp in [&rc, &uc] {
        assert_eq!(fake::post(qp, SendKind::Invalidate(7), Some(b"tick")), Err(SendError::Operation));
    }
    for kind in &connected[2..] {
        assert_eq!(fake::post(&rc, *kind, Some(b"tick")), Err(SendError::Operation), "{kind:?}");
        assert_eq!(fake::post(&uc, *kind, None), Err(SendError::Operation), "{kind:?}");
    }
    assert_eq!(fake::calls(), [""; 0]);
    let full = Err(SendError::Call(VerbsError::new("ibv_post_send", libc::ENOMEM)));
    assert_eq!([fake::post(&ud, datagram, Some(b"tick")), fake::post(&rc, SendKind::Send, Some(b"tick"))], [full; 2]);
    assert_eq!(fake::calls(), ["post_send"; 2]);
}

#[test]
fn window_is_bound_by_a_request_and_gone_before_its_domain() {
    let (context, pd) = fake::open();
    let cq = CompletionQueue::create(&context, &CqRequest::new(64)).unwrap();
    let rc = of_service(Service::Rc, &pd, &cq, None);
    let region = register(&pd, Access::default()).unwrap();
    fake::calls();
    let window = MemoryWindow::allocate(&pd).unwrap();
    assert_eq!(window.rkey(), 0x1200);
    let access = RemoteAccess { read: true, ..RemoteAccess::default() };
    let bind = Bind { window: &window, key: 0x1201, region: &region, address: 4096, len: 64, access };
    let full = Err(SendError::Call(VerbsError::new("ibv_post_send", libc::ENOMEM)));
    for kind in [SendKind::Bind(&bind), SendKind::Invalidate(0x1201), SendKind::SendInvalidate(0x1201)] {
        assert_eq!(fake::post(&rc, kind, None), full);
    }
    drop((pd, cq, rc, region, context));
    drop(window);
    let calls = fake::calls();
    let [bound, invalidated] = ["post_send bind 0x1201 at 4096 64 rights 0x4", "post_send inv 0x1201"];
    assert_eq!(calls[..4], ["alloc_mw type 2", bound, invalidated, invalidated]);
    let at = |name: &str| calls.iter().position(|call| call == name).unwrap();
    assert!(at("dealloc_mw") < at("ibv_dealloc_pd"), "{calls:?}");
}

#[test]
fn gid_is_that_of_its_port_and_place() {
    let (context, _pd) = fake::open();
    assert_eq!(context.gid(1, 3), Ok([9; 16]));
    assert_eq!(fake::calls(), ["ibv_query_gid 1 3"]);
}
