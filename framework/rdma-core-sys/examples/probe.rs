//! Lists the devices, opens each, and creates one object of every kind on it: `cargo run -p
//! wirepath-rdma-core-sys --example probe`. It prints the operations that a device refuses, and
//! leaves no object in it.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core_sys::RdmaCore;
use rdma_core_sys::verbs::{
    Access, CompletionQueue, CqRequest, Device, Flow, FlowRule, IndirectionTable, MemoryRegion, PortsMatch,
    ProtectionDomain, QpCaps, QpOptions, QpRequest, QpState, QueuePair, RssRequest, VerbsError, WorkQueue, WqOptions,
    WqRequest, WqState, failed_destructions,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let devices = RdmaCore::load()?.devices()?;
    if devices.is_empty() {
        println!("no RDMA device{}", if devices.kernel_has_rdma() { "" } else { ": modprobe ib_uverbs mlx5_ib" });
    }
    for device in devices.iter() {
        println!(
            "{} {:016x} {} mlx5: {}",
            device.name(),
            device.guid(),
            device.ibdev_path().display(),
            device.is_mlx5()
        );
        if let Err(error) = probe(device) {
            println!("  {error}");
        }
    }
    println!("objects that could not be destroyed: {}", failed_destructions());
    Ok(())
}

fn probe(device: &Device) -> Result<(), VerbsError> {
    let context = device.open()?;
    println!("  {:?}", context.attributes()?);
    println!("  {:?}", context.mlx5_attributes()?);
    println!("  {:?}", context.port(1)?);
    println!("  clock {:?} {:?}", context.clock_info().map(|clock| clock.raw().nsec), context.device_clock());
    let pd = ProtectionDomain::allocate(&context)?;
    let memory = Arc::new(vec![0_u8; 1 << 16]);
    let region = MemoryRegion::register(&pd, NonNull::from(&memory[0]), memory.len(), Access::default(), memory)?;
    println!("  {region:?}");

    let cq = CompletionQueue::create(&context, &CqRequest::new(1024))?;
    let caps =
        QpCaps { send_wr_max: 256, receive_wr_max: 256, send_sge_max: 2, receive_sge_max: 1, inline_len_max: 64 };
    let qp = QueuePair::create(&QpRequest { caps, ..QpRequest::new(&pd, &cq, &cq) })?;
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.to_state(state, 1)?;
    }
    println!("  QP {:#x} is in {:?}: {:?}", qp.number(), qp.state()?, qp.rings()?);
    println!("  {:?}", cq.rings()?);
    let ports = PortsMatch { destination: Some(30001), ..PortsMatch::default() };
    let rule = FlowRule::new(1).ethernet(Default::default()).ipv4(Default::default()).udp(ports).tag(7);
    let _flow = Flow::create(&qp, &rule)?;

    let wq_cq = CompletionQueue::create(&context, &CqRequest::new(1024))?;
    let options = WqOptions::default();
    let wq = WorkQueue::create(&WqRequest { pd: &pd, cq: &wq_cq, wr_max: 256, sge_max: 1, options })?;
    wq.to_state(WqState::Ready)?;
    println!("  WQ {:#x}: {:?}", wq.number(), wq.rings()?);
    let table = IndirectionTable::create(&[wq])?;
    let request = RssRequest { pd: &pd, table: &table, key: &[0x5a; 40], fields: 3, options: QpOptions::default() };
    let rss = QueuePair::create_rss(&request)?;
    println!("  RSS QP {:#x} has no states: {:?}", rss.number(), rss.state());
    println!("  event: {:?}", context.next_event()?);
    Ok(())
}
