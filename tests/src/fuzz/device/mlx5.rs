//! The mlx5 device over rings of plain memory, under a NIC that may behave in any way: the input
//! provides its CQEs. Nothing panics, no call runs for ever, no buffer has two owners, and in the
//! end every buffer is free.

use wirepath::counters::Block;
use wirepath::device::mlx5::{Mlx5Tx, WarmUp};
use wirepath::device::{Offload, RxQueue, TxQueue};
use wirepath::mem::{BURST_MAX, Burst, Mbuf, Pool};
use wirepath::testing::mlx5::{PlainConfig, PlainCq, PlainMini, PlainNic, PlainStamps, plain_rx};
use wirepath::testing::mlx5::{PlainTxConfig, plain_tx};
use wirepath::time::{Duration, Instant};

use crate::fuzz::Input;

/// Steps of a plan: some turns of the rings.
const STEPS_MAX: usize = 300;

/// Buffers beyond those of a ring, where a chain has many.
const SPARE: usize = 64;

fn pool(buffers: usize) -> Pool {
    Pool::heap(buffers).expect("a small pool has memory")
}

/// Checks that every buffer is free, and that no drop was without a reason.
fn is_home(pool: &Pool) {
    assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0), "buffers out, packets without a name");
}

/// The steps that both plans share; further ones are beside the plan that uses them.
mod step {
    pub(super) const WORK: u8 = 0;
    pub(super) const MORE_WORK: u8 = 1;
    pub(super) const RIGHT: u8 = 2;
    pub(super) const NEARLY_RIGHT: u8 = 3;
    pub(super) const ANYTHING: u8 = 4;
    pub(super) const OVERWRITE: u8 = 5;
    pub(super) const LET_GO: u8 = 6;
    pub(super) const WAIT: u8 = 7;
    pub(super) const FAIL: u8 = 8;
    pub(super) const KINDS: u8 = 9;
    /// A step of the plan for sending only.
    pub(super) const WARM: u8 = 9;
}

/// Writes up to 64 bytes of the input over a CQE, from the end that has the opcode.
fn overwrite(cqe: &mut [u8; 64], bytes: &[u8]) {
    let bytes = &bytes[..bytes.len().min(64)];
    cqe[64 - bytes.len()..].copy_from_slice(bytes);
}

/// Changes one byte.
fn change(cqe: &mut [u8; 64], at: u8, to: u8) {
    cqe[usize::from(at) % 64] = to;
}

/// An entry that seems to be ours, with any bytes.
fn anything(cq: &mut PlainCq, input: &mut Input<'_>) {
    let (kind, bytes) = (input.u8(), input.block());
    cq.complete(kind >> 4, kind >> 2 & 3, |cqe| overwrite(cqe, bytes));
}

// Receiving.

/// Three bytes for the queue, then steps, each with its kind in front.
pub(in crate::fuzz) fn rx(data: &[u8]) {
    let mut input = Input::new(data);
    let (config, spare) = (rx_config(&mut input), usize::from(input.u8()));
    // A ring with fewer buffers than WQEs is a separate case.
    let pool = pool(config.wqes as usize * (config.stride / 16) as usize / 2 + spare + SPARE);
    let block = Block::heap();
    let (mut rx, mut nic) = plain_rx(config, &pool, &block.scope("q"));
    let (mut held, mut now) = (Vec::new(), Instant::from_nanos(1));
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(step::KINDS) {
            step::WORK | step::MORE_WORK => {
                let (limit, mut burst) = (usize::from(input.u8()) % (BURST_MAX + 1), Burst::new());
                let count = rx.receive(&mut burst, limit, &pool, now);
                assert!(count == burst.len() && count <= limit, "{count} received, and {limit} is the limit");
                held.extend(burst.drain(..));
            }
            step::RIGHT => complete(&mut nic, &config, &mut input),
            step::NEARLY_RIGHT => {
                complete(&mut nic, &config, &mut input);
                let (slot, at, to) = (nic.cq.slot().wrapping_sub(1), input.u8(), input.u8());
                nic.cq.write(slot % config.cqes, |cqe| change(cqe, at, to));
            }
            step::ANYTHING => anything(&mut nic.cq, &mut input),
            step::OVERWRITE => {
                let (slot, bytes) = (input.u8(), input.block());
                nic.cq.write(slot.into(), |cqe| overwrite(cqe, bytes));
            }
            step::LET_GO => {
                let keep = held.len().saturating_sub(input.u8().into());
                held.drain(keep..).for_each(Mbuf::free);
            }
            step::WAIT => now += Duration::from_secs(input.below(30).into()),
            _ => fail_rx(&nic, &mut input),
        }
        are_apart(&held);
    }
    held.into_iter().for_each(Mbuf::free);
    // A queue that the kernel does not let go of keeps its buffers, and says so.
    nic.objects.failing.set(0);
    drop((rx, nic));
    is_home(&pool);
}

fn rx_config(input: &mut Input<'_>) -> PlainConfig {
    let (wqes, shape, wishes) = (1 << input.below(7), input.below(3), input.u8());
    let (stride, striding) = [(16, None), (64, None), (32, Some((6, 4)))][usize::from(shape)];
    PlainConfig {
        wqes,
        cqes: if striding.is_some() { 16 * wqes } else { 2 * wqes },
        cqe_len: 64 << (wishes & 1),
        stride,
        frame_len_max: if stride == 64 { 4_000 } else { 1_500 },
        stamps: [PlainStamps::Off, PlainStamps::Ticks, PlainStamps::Wall, PlainStamps::RealTime]
            [usize::from(wishes >> 1 & 3)],
        has_hashes: wishes & 8 != 0,
        mini: [None, Some(PlainMini::Hash), Some(PlainMini::Checksum), Some(PlainMini::ChecksumStride)]
            [usize::from(wishes >> 4 & 3)],
        striding,
    }
}

/// The work of a correct NIC: a frame, or a session of several.
fn complete(nic: &mut PlainNic, config: &PlainConfig, input: &mut Input<'_>) {
    let (count, len) = (1 + u32::from(input.below(40)), u32::from(input.u16() % 2_048));
    let lens: Vec<u32> = (0..count).map(|idx| len + idx).collect();
    match (config.striding.is_some(), config.mini.is_some()) {
        (true, is_compressed) => {
            let frames: Vec<_> = lens.iter().map(|&len| vec![7; len.min(1_024) as usize]).collect();
            let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            if is_compressed {
                nic.strided_session(&frames);
            } else {
                frames.into_iter().for_each(|frame| nic.strided(frame, |_| ()));
            }
        }
        (false, true) => nic.session(&lens, |_| ()),
        (false, false) => lens.iter().for_each(|&len| nic.frame(len, |_| ())),
    }
}

/// The kernel's side refuses, or says that the queue has fallen into error.
fn fail_rx(nic: &PlainNic, input: &mut Input<'_>) {
    match input.below(4) {
        0 => nic.objects.failing.set(input.below(4).into()),
        1 => nic.objects.failing_readies.set(input.below(4).into()),
        2 => nic.objects.has_failed.set(true),
        _ => nic.objects.out_of_buffer.set(input.u8().into()),
    }
}

/// No byte is in two mbufs' hands.
fn are_apart(held: &[Mbuf]) {
    let place = |part: &[u8]| part.as_ptr().addr();
    let mut places: Vec<usize> = held.iter().flat_map(|mbuf| mbuf.segments().map(place).collect::<Vec<_>>()).collect();
    places.sort_unstable();
    assert!(places.windows(2).all(|pair| pair[0] != pair[1]), "a buffer is in two hands");
}

// Sending.

/// Two bytes for the queue, then steps.
pub(in crate::fuzz) fn tx(data: &[u8]) {
    let mut input = Input::new(data);
    let config = tx_config(&mut input);
    let (pool, block) = (pool(512), Block::heap());
    let (mut tx, mut nic) = plain_tx(config, &pool, &block.scope("q")).expect("the ring has a size that works");
    let mut now = Instant::from_nanos(1);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(step::KINDS + 1) {
            step::WORK => (0..=input.below(40)).for_each(|_| post(&mut tx, &pool, &mut input)),
            step::MORE_WORK => {
                tx.ring_doorbell(now);
                tx.reap();
            }
            step::RIGHT => _ = nic.complete_all(),
            step::NEARLY_RIGHT => {
                // A WQE near the newest, done or failed by a syndrome.
                let idx = nic.sq.producer_index().wrapping_sub(input.u8().into());
                let (opcode, syndrome) = (input.pick(&[0, 13]), input.u8());
                nic.cq.complete(opcode, 0, |cqe| {
                    cqe[55] = syndrome;
                    cqe[60..62].copy_from_slice(&idx.to_be_bytes());
                });
            }
            step::ANYTHING => anything(&mut nic.cq, &mut input),
            step::OVERWRITE => {
                let (slot, bytes) = (input.u8(), input.block());
                nic.cq.write(slot.into(), |cqe| overwrite(cqe, bytes));
            }
            step::LET_GO => _ = tx.reap(),
            step::WAIT => now += Duration::from_millis(u64::from(input.u8()) * 10),
            step::FAIL => nic.objects.failing.set(input.below(4).into()),
            _ => warm(&mut tx, &pool, &mut input, now),
        }
        assert_eq!(tx.in_flight() > 0, pool.in_use() > 0, "what is in flight holds its buffers, and nothing else does");
    }
    // A queue that the kernel does not destroy keeps its buffers, and reports that. A queue that
    // has work is waited for.
    nic.objects.failing.set(0);
    tx.ring_doorbell(now);
    nic.complete_all();
    drop((tx, nic));
    is_home(&pool);
}

/// A dry run of all that an app may do, while completions come. No frame of it leaves.
fn warm(tx: &mut Mlx5Tx, pool: &Pool, input: &mut Input<'_>, now: Instant) {
    let depth = input.pick(&[WarmUp::Ring, WarmUp::Doorbell]);
    tx.warm(depth, |tx| {
        for _ in 0..=input.below(8) {
            post(tx, pool, input);
            tx.room();
            tx.ring_doorbell(now);
        }
    });
}

fn tx_config(input: &mut Input<'_>) -> PlainTxConfig {
    let (blocks, wishes) = (8 << input.below(6), input.u8());
    PlainTxConfig {
        blocks,
        cqes: blocks,
        blueflame_len: if wishes & 1 == 0 { 256 } else { 0 },
        inline_len_min: if wishes & 2 == 0 { 0 } else { 18 },
        multi_packet: wishes & 4 == 0,
        checksums: wishes & 8 == 0,
        vlan_insert: wishes & 16 == 0,
        segmentation_len_max: if wishes & 32 == 0 { 65_536 } else { 0 },
        timestamps: wishes & 64 == 0,
        ..PlainTxConfig::default()
    }
}

/// A frame of one buffer or two, with offloads; some can never be sent, and are dropped for a named
/// reason.
fn post(tx: &mut impl TxQueue, pool: &Pool, input: &mut Input<'_>) {
    let (len, wishes) = (usize::from(input.u16() % 1_600), input.u8());
    let Some(mut mbuf) = pool.alloc_copy(&vec![0x5a; len]) else { return };
    if wishes & 0x10 != 0
        && let Some(tail) = pool.alloc_copy(&vec![0xa5; len / 2])
    {
        mbuf.attach(tail);
    }
    mbuf.set_l2_len(14);
    mbuf.set_l3_len(20);
    let flags = Offload::IP_CHECKSUM.when(wishes & 1 != 0)
        | Offload::L4_CHECKSUM.when(wishes & 2 != 0)
        | Offload::TIMESTAMP.when(wishes & 8 != 0)
        | Offload::URGENT.when(wishes & 0x20 != 0);
    let offload = if wishes & 4 != 0 { flags.with_vlan(0x123) } else { flags };
    _ = tx.post(mbuf, offload).map_err(Mbuf::free);
}

// Seeds.

/// Work between completions that are right, for each shape of a ring and each kind of session, then
/// nearly right and not at all.
pub(in crate::fuzz) fn rx_seeds() -> Vec<Vec<u8>> {
    let shapes = (0..3).flat_map(|shape| [0x00, 0x19, 0x22, 0x34].map(|wishes| (shape, wishes)));
    shapes
        .map(|(shape, wishes)| {
            let mut plan = vec![5, shape, wishes, 40];
            for turn in 0..12 {
                plan.extend([step::RIGHT, turn, turn, 60, step::WORK, 32, step::LET_GO, 40]);
            }
            plan.extend([step::NEARLY_RIGHT, 3, 0, 60, 44, 0xff, step::WORK, 64, step::WAIT, 20, step::WORK, 64]);
            plan.extend([
                step::ANYTHING,
                0xd0,
                0,
                9,
                5,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                step::FAIL,
                0,
                2,
                step::WAIT,
                20,
                step::WORK,
                64,
            ]);
            plan.extend([
                step::FAIL,
                2,
                step::WAIT,
                20,
                step::WORK,
                64,
                step::RIGHT,
                9,
                0,
                60,
                step::WORK,
                64,
                step::LET_GO,
                200,
            ]);
            plan.extend([step::OVERWRITE, 3, 0, 2, 0, 0x21, step::WORK, 64]);
            plan
        })
        .collect()
}

/// Frames of all kinds between completions that are right, then errors and a reset that fails.
pub(in crate::fuzz) fn tx_seeds() -> Vec<Vec<u8>> {
    let configs = [(0, 0x00), (1, 0x04), (2, 0x02), (3, 0x41), (5, 0x38)];
    configs
        .map(|(log, wishes)| {
            let mut plan = vec![log, wishes];
            for turn in 0..12 {
                let frames = (0..4).flat_map(|idx| [idx, turn * 20 + 14, turn * 5 + idx]);
                plan.extend([step::WORK, 3].into_iter().chain(frames));
                plan.extend([step::MORE_WORK, step::RIGHT, step::LET_GO]);
            }
            plan.extend([step::WORK, 0, 1, 0, 0, step::MORE_WORK, step::NEARLY_RIGHT, 1, 1, 4, step::LET_GO]);
            plan.extend([step::WORK, 0, 1, 0, 0, step::MORE_WORK, step::NEARLY_RIGHT, 1, 1, 4]);
            plan.extend([step::WARM, 1, 1, 1, 0, 0, 1, 0, 0, step::WAIT, 200, step::MORE_WORK]);
            plan.extend([
                step::FAIL,
                2,
                step::WAIT,
                200,
                step::MORE_WORK,
                step::WAIT,
                200,
                step::MORE_WORK,
                step::WORK,
                0,
                1,
                0,
                0,
            ]);
            plan.extend([step::MORE_WORK, step::ANYTHING, 0x00, 0, 4, 0, 7, 0, 0, step::LET_GO]);
            plan.extend([step::OVERWRITE, 3, 0, 2, 0, 0x01, step::LET_GO]);
            plan
        })
        .into()
}
